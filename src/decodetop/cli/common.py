"""What the subcommands share: common options, settings, printing JSON."""

from __future__ import annotations

import argparse
import math
import shutil
import sys
from collections.abc import Iterable
from typing import Any

import msgspec

from decodetop.config import Settings, load


def add_common(parser: argparse.ArgumentParser) -> None:
    """The options every subcommand takes."""
    group = parser.add_argument_group("common options")
    group.add_argument("--endpoint", dest="endpoints", action="append", metavar="URL", help="a server (repeatable)")
    group.add_argument("--investigation", metavar="DIR", help="folder of the checklist, runs and captures")
    group.add_argument("--readonly", action="store_const", const=True, help="never touch server, service or GPU")
    group.add_argument("--theme", metavar="NAME", help="night, paper, okabe, mono, ansi, or your own")
    group.add_argument("--config", metavar="FILE", help="settings file (TOML)")


def settings_of(args: argparse.Namespace) -> Settings:
    """Raises ConfigError."""
    return load(vars(args))


def finite(text: str) -> float:
    """An argparse type: a number that is one (NaN and infinity are words float() takes)."""
    value = float(text)
    if not math.isfinite(value):
        raise argparse.ArgumentTypeError(f"{text} is not a number")
    return value


def print_json(value: Any) -> None:
    """`value` as indented JSON on stdout."""
    sys.stdout.write(msgspec.json.format(msgspec.json.encode(value), indent=2).decode() + "\n")


def print_lines(lines: Iterable[str]) -> None:
    sys.stdout.write("".join(f"{line}\n" for line in lines))


class Meter:
    """One line on the terminal's stderr that is written over and never wraps; nothing where stderr is no terminal."""

    def __init__(self) -> None:
        self._on = sys.stderr.isatty()
        self._shown = ""

    def show(self, words: str) -> None:
        words = words[: max(0, shutil.get_terminal_size().columns - 1)]
        if self._on and words != self._shown:
            self._shown = words
            print(f"\r\x1b[K{words}", end="", file=sys.stderr, flush=True)

    def clear(self) -> None:
        if self._shown:
            self._shown = ""
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)
