"""The command line: one module a subcommand, imported only when it is the one asked for."""

from __future__ import annotations

import argparse
import importlib
import io
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from decodetop import __version__
from decodetop.cli.common import add_common, settings_of
from decodetop.config import defaults
from decodetop.errors import ConfigError, DecodetopError

COMMANDS = {
    "tui": "the screen (what `decodetop` alone does)",
    "demo": "the screen on a simulated box",
    "gpu": "what NVML says of the GPUs",
    "server": "the inference servers of this box",
    "host": "CPU, memory and the servers' processes",
    "todo": "the checklist of the investigation",
    "bench": "measure a server: TTFT, ITL, TPOT, tok/s",
    "steps": "where each decode step's time goes, from a profiler trace",
    "floor": "can this hardware do better: lower bound, gap, verdict",
    "diagnose": "measure, break down, judge and say what to try next, in one go",
    "report": "everything as markdown",
    "record": "record what the sources say to a tape",
    "replay": "the screen on a tape",
    "stream": "samples as NDJSON on stdout",
    "doctor": "what was found, what is missing, which settings are in force",
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run one subcommand; every message on stderr and every exit code comes from here."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:  # closed by who started us
            setattr(sys, name, Path(os.devnull).open("w", encoding="utf-8"))  # noqa: SIM115  until the end
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a bar in an ASCII locale is no reason to fail
    try:
        return _dispatch(arguments)
    except DecodetopError as error:
        print(f"decodetop: {error.message}", file=sys.stderr)
        if error.hint:
            print(f"  hint: {error.hint}", file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        _forget_output()  # its reader went away: not an error of ours
        return 0
    except OSError as error:
        # what we read and write ourselves is a DecodetopError; what is left is the output itself
        _forget_output()
        print(f"decodetop: can't write the output: {error.strerror or error}", file=sys.stderr)
        print("  hint: is the disk full, or the terminal gone?", file=sys.stderr)
        return 1


def _forget_output() -> None:
    """Nothing more is written to stdout, at exit neither: that would be a traceback."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _dispatch(arguments: list[str]) -> int:
    chosen = next((word for word in arguments if word in COMMANDS), None)
    leading = arguments[0] if arguments else None
    if leading in ("-h", "--help", "--version") or (leading is not None and not leading.startswith("-")):
        chosen = leading if leading in COMMANDS else None
    elif chosen is None or arguments.index(chosen) != 0:
        chosen, arguments = "tui", ["tui", *arguments]
    parser = argparse.ArgumentParser(
        prog="decodetop",
        description="top for LLM decode",
        epilog="Without a command: the screen, `decodetop tui`; its options (--endpoint, --from, --readonly, ...) are "
        "those of `decodetop tui --help`. Every command has --help of its own.",
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"decodetop {__version__}")
    subparsers = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    run = None
    for name, summary in COMMANDS.items():
        sub = subparsers.add_parser(name, help=summary, description=summary, allow_abbrev=False)
        if name == chosen:
            module = importlib.import_module(f"decodetop.cli.{name}")
            add_common(sub)
            module.configure(sub)
            run = module.run
    args = parser.parse_args(arguments)
    assert run is not None
    try:
        settings = settings_of(args)
    except ConfigError as error:
        if chosen != "doctor":
            raise
        # the command one asks when a setting is wrong must not fail for it
        settings, args.problem = defaults(), error
    return int(run(args, settings))
