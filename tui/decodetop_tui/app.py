"""The way in: the six panes and the floor's page, and one session of the screen from start to end."""

from __future__ import annotations

import gc
import os
import signal
from collections.abc import Mapping

from decodetop.config import Settings
from decodetop.core.clock import SystemClock
from decodetop.core.feed import Feed
from decodetop.errors import DecodetopError
from decodetop.todo.reading import Switch
from decodetop_tui import keymap, keys, terminal, theme
from decodetop_tui.face import Face, theme_folder
from decodetop_tui.pane import PaneModule
from decodetop_tui.panes import bench, floor, gpu, host, server, steps, todo

PANES: Mapping[str, PaneModule] = {
    "gpu": gpu,
    "server": server,
    "todo": todo,
    "bench": bench,
    "steps": steps,
    "host": host,
    "floor": floor,
}

STOP_S = 3.0
"""A feed that has not stopped by then is left behind: its threads are daemons."""

QUIT_S = 5.0
"""From the end of the screen to the end of the process, whatever hangs."""


def problems(settings: Settings) -> tuple[str, ...]:
    """What is wrong with the theme, the user's themes and the user's keys, a line each."""
    themes = theme.find(theme_folder(settings))
    _, word = themes.pick(settings.theme)
    keys_of = keymap.build(keys.ACTIONS, settings.keys)
    return (*(() if word is None else (word,)), *themes.problems, *keys_of.problems)


def run(
    feed: Feed,
    settings: Settings,
    *,
    piped: bool = False,
    switchable: bool = False,
    terminal_before: terminal.Attributes | None = None,
) -> int | Switch:
    """Start the feed, show the screen until the operator or a signal ends it, stop the feed.

    `piped`: the samples come from another box, and no command gets there. `switchable`: another investigation may be
    chosen; then that is the result. `terminal_before`: how the terminal is to be left, where it is otherwise already.

    Raises UsageError where there is no terminal, and what ended the feed if that was one of ours. 1 = something broke.
    """
    terminal.require(os.environ)
    app = Face(
        feed,
        settings,
        PANES,
        clock=SystemClock(),
        piped=piped,
        switchable=switchable,
        terminal_before=terminal_before,
    )
    signalled: list[int] = []

    def leave(number: int) -> None:
        signalled.append(number)
        app.leave_soon()

    # frames and readings are small tuples that die young; looking through what lives long at each of them costs a tenth
    gc.freeze()
    gc.set_threshold(50_000, 20, 100)
    with terminal.Leaving(leave, before=terminal_before) as leaving:
        feed.start()
        app.run(mouse=settings.mouse)
        leaving.within(QUIT_S)
        feed.stop(terminal.LEAVE_S / 2 if signalled else STOP_S)
    if isinstance(feed.error, DecodetopError):
        raise feed.error
    return 130 if signal.SIGINT in signalled else app.chosen or app.return_code or 0
