"""The command line: one module a subcommand, imported only when it is the one asked for."""

from __future__ import annotations

import argparse
import importlib
import io
import os
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, NoReturn

from decodetop import __version__
from decodetop.cli import echo
from decodetop.cli.common import add_common, common_first, complain, is_common, settings_of
from decodetop.config import UNREAD_HINT, defaults
from decodetop.core.outside import harmless
from decodetop.errors import ConfigError, DecodetopError

COMMANDS = {
    "tui": "the screen (what `decodetop` alone does)",
    "demo": "the screen on a simulated box",
    "gpu": "what NVML says of the GPUs",
    "server": "the inference servers of this box",
    "host": "CPU, memory and the servers' processes",
    "todo": "the checklist of the investigation",
    "log": "what happened in the investigation, in order",
    "investigation": "the investigations there are; begin, open or put away one",
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

SCREENS = ("tui", "demo", "replay")
"""Those that draw one."""

INTERRUPTED = 130


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
        code = _dispatch(arguments)
        sys.stdout.flush()  # a full disk shall be heard of here, not when Python ends
    except DecodetopError as error:
        complain(error.message, error.hint)
        return error.exit_code
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        _forget_output()  # its reader went away: not an error of ours
        return 0
    except OSError as error:
        return _refused(error)
    finally:
        echo.back()
    return code


def _refused(error: OSError) -> int:
    """A file of the operator's, or the output itself: the system's word on it."""
    why = error.strerror or str(error)
    if error.filename is not None:
        complain(f"can't use {os.fsdecode(error.filename)}: {why}", "check its permissions, or name another place")
    else:
        _forget_output()
        complain(f"can't write the output: {why}", "is the disk full, or the terminal gone?")
    return 1


def _forget_output() -> None:
    """Nothing more is written to stdout, at exit neither: that would be a traceback."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


class _Help(argparse.HelpFormatter):
    """A command's own options in the usage line; the common ones, the same everywhere, as one word there."""

    def add_usage(
        self,
        usage: str | None,
        actions: Iterable[argparse.Action],
        groups: Iterable[argparse._MutuallyExclusiveGroup],
        prefix: str | None = None,
    ) -> None:
        every = list(actions)
        own = [action for action in every if not is_common(action)]
        if len(own) < len(every):
            own.insert(1, argparse.Action(["common options"], "common", nargs=0))
        super().add_usage(usage, own, groups, prefix)


class _Parser(argparse.ArgumentParser):
    """Its complaints may repeat what was pasted, so they are made harmless to a terminal."""

    command = ""
    """The one asked for, of the parser that knows them all."""

    def __init__(self, **how: Any) -> None:
        super().__init__(**{"formatter_class": _Help, **how})

    def error(self, message: str) -> NoReturn:
        if message.startswith("unrecognized arguments:"):
            command = next((word for word in message.split()[2:] if word in COMMANDS), None)
            message += f" (options of a command stand after it: decodetop {command} ...)" if command else ""
        self.print_usage(sys.stderr)
        # what a command does not take is found by the parser above it
        asked = f"{self.prog} {self.command}" if self.command else self.prog
        hint = f"  hint: `{asked} --help` says what it takes\n"
        self.exit(2, f"{self.prog}: error: {harmless(message)}\n{hint}")


def parser_of(chosen: str | None) -> tuple[argparse.ArgumentParser, Callable[..., int] | None]:
    """What parses the command line, and runs `chosen`; only that command is imported and knows its options."""
    parser = _Parser(
        prog="decodetop",
        description="top for LLM decode",
        epilog="Without a command: the screen, `decodetop tui`; its options (--endpoint, --from, --readonly, ...) are "
        "those of `decodetop tui --help`. Every command has --help of its own.",
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"decodetop {__version__}")
    parser.command = chosen or ""
    subparsers = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    run = None
    for name, summary in COMMANDS.items():
        sub = subparsers.add_parser(name, help=summary, description=summary, allow_abbrev=False)
        if name == chosen:
            module = importlib.import_module(f"decodetop.cli.{name}")
            add_common(sub)
            module.configure(sub)
            run = module.run
    return parser, run


def _dispatch(arguments: list[str]) -> int:
    arguments = common_first(arguments, COMMANDS)
    leading = arguments[0] if arguments else None
    chosen = leading if leading in COMMANDS else None
    if leading is None or (leading.startswith("-") and leading not in ("-h", "--help", "--version")):
        chosen, arguments = "tui", ["tui", *arguments]
    if chosen in SCREENS:
        echo.off()
    parser, run = parser_of(chosen)
    args = parser.parse_args(arguments)
    assert run is not None
    try:
        settings = settings_of(args)
    except ConfigError as error:
        if chosen != "doctor":
            raise
        # the command one asks when a setting is wrong must not fail for it
        settings, args.problem = defaults(), error
    if settings.unread is not None and chosen not in ("doctor", *SCREENS):
        complain(f"{settings.unread}; the defaults are in force", UNREAD_HINT)
    return int(run(args, settings))
