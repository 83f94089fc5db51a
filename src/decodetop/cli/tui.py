"""`decodetop` and `decodetop tui`: the screen, on this box or on the samples of another one."""

from __future__ import annotations

import argparse
import logging
from collections.abc import Callable
from pathlib import Path

import msgspec

from decodetop.cli import echo
from decodetop.cli.common import finite, path_option
from decodetop.config import Settings, investigations_root, open_investigation
from decodetop.core.clock import SystemClock
from decodetop.core.feed import Feed
from decodetop.core.pipe import PipeSource
from decodetop.core.sample import Sample
from decodetop.core.source import Source
from decodetop.errors import UsageError
from decodetop.flows.catalog import codec
from decodetop.todo.investigations import create, fresh_name
from decodetop.todo.reading import Switch

log = logging.getLogger("decodetop.feed")


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--from",
        dest="from_command",
        metavar="CMD",
        help="draw the samples that CMD prints, for example 'ssh box decodetop stream'",
    )
    parser.add_argument(
        "--follow", action="append", metavar="PATH", help="an agent's plan: file, folder or database (repeatable)"
    )
    add_screen_options(parser)


def add_screen_options(parser: argparse.ArgumentParser, *, live: bool = True) -> None:
    """The options of every subcommand that shows the screen; `live`: that of a box, not of a tape."""
    if live:
        parser.add_argument("--rate", dest="rate_s", type=finite, metavar="S", help="read every S seconds (default 1)")
    parser.add_argument("--quiet", action="store_const", const=True, help="no bell when something long ends")
    parser.add_argument("--mouse", action="store_const", const=True, help="use the mouse (else it selects text)")
    parser.add_argument("--log", type=path_option, metavar="FILE", help="append faults of decodetop to FILE")


def run(args: argparse.Namespace, settings: Settings) -> int:
    if args.log is not None:
        log_to(args.log)
    if args.from_command is not None:
        return show(PipeSource(args.from_command, codec()), settings)
    from decodetop.flows.live import build_live

    return show(build_live(settings, SystemClock()), settings, lambda other: build_live(other, SystemClock()))


def log_to(path: Path) -> None:
    """Send what is logged to a file: on the screen it would be drawn over. Raises UsageError."""
    try:
        handler = logging.FileHandler(path, encoding="utf-8")
    except OSError as error:
        raise UsageError(f"--log: can't write {path}: {error.strerror}") from error
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    logging.getLogger("decodetop").addHandler(handler)
    logging.getLogger("decodetop").setLevel(logging.INFO)


def show(source: Source, settings: Settings, again: Callable[[Settings], Source] | None = None) -> int:
    """Run `source` on its own thread and the screen on this one until the operator or a signal ends it.

    `again` makes the source for another investigation, where one may be chosen. Raises UsageError where there is no
    terminal.
    """
    echo.off()
    # the one place where the engine's side names the face, so that every other command starts without Textual
    from decodetop_tui.app import run as run_screen

    # without a handler of ours Python writes warnings to stderr, which is where the screen is drawn
    logging.getLogger("decodetop").addHandler(logging.NullHandler())
    while True:
        piped = isinstance(source, PipeSource)
        feed = Feed(source, _log_failure)
        ended = run_screen(feed, settings, piped=piped, switchable=again is not None, terminal_before=echo.taken())
        if isinstance(ended, int) or again is None:
            return ended if isinstance(ended, int) else 0
        echo.off()
        settings = switched(settings, ended)
        source = again(settings)


def switched(settings: Settings, to: Switch) -> Settings:
    """The settings on the other investigation, which is made if it is new, and opened. Raises DataError, UsageError."""
    root = investigations_root()
    if to.path is not None:
        folder = Path(to.path)
    else:
        question = to.question or ""
        folder = create(root, fresh_name(root, question), question)
    open_investigation(folder)
    origin = {**settings.origin, "investigation": "opened"}
    return msgspec.structs.replace(settings, investigation=folder, origin=origin)


def screen_problems(settings: Settings) -> tuple[str, ...]:
    """What the screen would complain about: a theme nobody knows, files of themes and keys that are wrong."""
    from decodetop_tui.app import problems

    return problems(settings)


def _log_failure(sample: Sample) -> None:
    """What a source could not do, for `--log`."""
    if sample.failure is not None:
        log.warning("%s: %s: %s", sample.source, sample.failure.kind, sample.failure.message)
