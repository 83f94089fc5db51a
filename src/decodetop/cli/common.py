"""What the subcommands share: common options, settings, and all that is printed.

What is printed may come from outside (a kernel's name, a server's error): here it is made harmless to a terminal.
"""

from __future__ import annotations

import argparse
import math
import shutil
import sys
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path
from typing import Any

import msgspec

from decodetop.config import Settings, load
from decodetop.core.encode import encode
from decodetop.core.outside import harmless, harmless_json
from decodetop.core.regular import named_path
from decodetop.errors import UsageError

_COMMON: dict[str, dict[str, Any]] = {
    "--endpoint": {
        "dest": "endpoints",
        "action": "append",
        "metavar": "URL",
        "help": "a server's address, or its port here (repeatable)",
    },
    "--investigation": {"metavar": "DIR", "help": "folder of the checklist, runs and captures"},
    "--readonly": {"action": "store_const", "const": True, "help": "never touch server, service or GPU"},
    "--server-log": {
        "metavar": "FILE",
        "help": "the server's, if it has no metrics and its output goes to no file",
    },
    "--theme": {"metavar": "NAME", "help": "night, paper, okabe, mono, ansi, or your own"},
    "--config": {"metavar": "FILE", "help": "settings (TOML) instead of the usual file; `decodetop doctor` names it"},
}


def add_common(parser: argparse.ArgumentParser) -> None:
    """The options every subcommand takes."""
    group = parser.add_argument_group("common options")
    for flag, how in _COMMON.items():
        group.add_argument(flag, **how)


def is_common(action: argparse.Action) -> bool:
    return any(flag in _COMMON for flag in action.option_strings)


def common_first(arguments: Sequence[str], commands: Collection[str]) -> list[str]:
    """The arguments with the common options that stand before a command moved behind it."""
    at = 0
    while at < len(arguments) and (flag := arguments[at].partition("="))[0] in _COMMON:
        at += 2 if "metavar" in _COMMON[flag[0]] and not flag[1] else 1
    if 0 < at < len(arguments) and arguments[at] in commands:
        return [arguments[at], *arguments[:at], *arguments[at + 1 :]]
    return list(arguments)


def settings_of(args: argparse.Namespace) -> Settings:
    """Raises ConfigError."""
    return load(vars(args))


def finite(text: str) -> float:
    """An argparse type: a number that is one (NaN and infinity are words float() takes)."""
    value = float(text)
    if not math.isfinite(value):
        raise argparse.ArgumentTypeError(f"{text} is not a number")
    return value


def path_option(text: str) -> Path:
    """An argparse type: a path, its `~` expanded."""
    try:
        return named_path(text, "the path")
    except UsageError as error:
        raise argparse.ArgumentTypeError(error.message) from error


def print_json(value: Any) -> None:
    """`value` as indented JSON on stdout."""
    print_json_text(msgspec.json.format(encode(value), indent=2).decode() + "\n")


def print_json_line(value: Any) -> None:
    """`value` as JSON in one line on stdout, at once."""
    print_json_text(encode(value).decode() + "\n")
    sys.stdout.flush()


def print_json_text(text: str) -> None:
    sys.stdout.write(harmless_json(text))


def print_lines(lines: Iterable[str]) -> None:
    sys.stdout.write("".join(f"{harmless(line)}\n" for line in lines))


def print_text(text: str) -> None:
    """A text for other programs: to them it goes as it is, to a terminal harmless."""
    if sys.stdout.isatty():
        text = "\n".join(map(harmless, text.split("\n")))
    sys.stdout.write(text)


def print_bytes(json_line: bytes) -> None:
    """A line of a stream, at once; as `print_text`, in bytes."""
    if sys.stdout.isatty():
        json_line = harmless_json(json_line.decode("utf-8", "replace")).encode()
    sys.stdout.buffer.write(json_line)
    sys.stdout.buffer.flush()


def clear_screen() -> None:
    """Where stdout is a terminal."""
    if sys.stdout.isatty():
        sys.stdout.write("\x1b[H\x1b[2J")


def tell(words: str) -> None:
    """A line on stderr; on a terminal in the place of a meter's line."""
    begin = "\r\x1b[K" if sys.stderr.isatty() else ""
    print(begin + harmless(words), file=sys.stderr)


def complain(message: str, hint: str = "") -> None:
    """What went wrong, and what to do next, on stderr."""
    tell(f"decodetop: {message}")
    if hint:
        tell(f"  hint: {hint}")


def ask(words: str) -> str:
    """What the operator answers, in one line."""
    print(f"{harmless(words)} ", end="", file=sys.stderr, flush=True)
    return " ".join(sys.stdin.readline().split())


def agreed() -> bool:
    """Whether the operator answers yes."""
    return ask("Go on? [y/N]").lower() in ("y", "yes")


class Meter:
    """One line on the terminal's stderr that is written over and never wraps; nothing where stderr is no terminal."""

    def __init__(self) -> None:
        self._on = sys.stderr.isatty()
        self._shown = ""

    def show(self, words: str) -> None:
        words = harmless(words)[: max(0, shutil.get_terminal_size().columns - 1)]
        if self._on and words != self._shown:
            self._shown = words
            print(f"\r\x1b[K{words}", end="", file=sys.stderr, flush=True)

    def clear(self) -> None:
        if self._shown:
            self._shown = ""
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)
