"""Moving about and looking: panes, rows, zoom, freeze, rate, filter, theme."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from decodetop.core.source import Refresh, ReplaySpeed, SetRate
from decodetop_tui.acts import replay
from decodetop_tui.layout import NAMES
from decodetop_tui.screens.choose import Choice, Choose
from decodetop_tui.screens.help import Help
from decodetop_tui.screens.line import AskLine
from decodetop_tui.screens.told import Told

if TYPE_CHECKING:
    from decodetop_tui.face import Face

RATES = (0.25, 0.5, 1.0, 2.0, 5.0, 10.0)
"""Factors on every probe's period."""

SPEEDS = (0.25, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0)
"""Times real time, in a replay."""


def step_pane(by: int) -> Callable[[Face], None]:
    def run(face: Face) -> None:
        face.focus_pane(NAMES[(NAMES.index(face.pane_below) + by) % len(NAMES)])

    return run


def to_pane(name: str) -> Callable[[Face], None]:
    """Focus it; the pane in focus zooms, and comes back."""

    def run(face: Face) -> None:
        if face.focused_name == name:
            face.set_zoom(not face.zoomed)
        else:
            face.focus_pane(name)

    return run


def move(by: int) -> Callable[[Face], None]:
    def run(face: Face) -> None:
        face.pane.move(by)
        face.draw()

    return run


def page(by: int) -> Callable[[Face], None]:
    def run(face: Face) -> None:
        face.pane.page(by)
        face.draw()

    return run


def end(by: int) -> Callable[[Face], None]:
    def run(face: Face) -> None:
        face.pane.end(by)
        face.draw()

    return run


def back(face: Face) -> None:
    """What was opened last closes first: a word, the filter, the zoom."""
    if face.lookout.toast is not None:
        face.lookout.toast = None
    elif face.pane.filter:
        face.pane.filter = ""
    elif face.zoomed:
        face.set_zoom(False)
    face.draw()


def freeze(face: Face) -> None:
    """Stop drawing; in a replay stop the tape, so that nothing is missed."""
    replay = face.lookout.replaying
    if replay is not None:
        face.submit(ReplaySpeed(speed=0.0 if replay.speed else face.replay_speed))
        return
    face.lookout.frozen = not face.lookout.frozen
    face.lookout.look()
    face.draw()


def refresh(face: Face) -> None:
    if replay.here(face) is None:
        face.submit(Refresh())
    face.redraw()


def rate(by: int) -> Callable[[Face], None]:
    """Read more (`by` 1) or less often; in a replay play faster or slower."""

    def run(face: Face) -> None:
        if face.lookout.replaying is not None:
            face.replay_speed = _next(SPEEDS, face.replay_speed, by)
            face.submit(ReplaySpeed(speed=face.replay_speed))
            fast = "" if face.replay_speed == 1 else f"{face.replay_speed:g} times "
            face.say(f"playing at {fast}real time")
            return
        face.factor = _next(RATES, face.factor, -by)
        face.submit(SetRate(factor=face.factor))
        face.say(f"reading {rate_words(face.period_s)}")
        face.draw()

    return run


def rate_words(period_s: float) -> str:
    """`every 0.5 s`."""
    return f"every {period_s:g} s"


def _next(steps: tuple[float, ...], now: float, by: int) -> float:
    at = steps.index(now) if now in steps else steps.index(1.0)
    return steps[max(0, min(at + by, len(steps) - 1))]


def view(face: Face) -> None:
    modes = face.pane.module.MODES
    face.pane.mode = (face.pane.mode + 1) % max(1, len(modes))
    face.say(f"{face.pane.module.TITLE}: {modes[face.pane.mode]}")
    face.draw()


def mark(face: Face) -> None:
    face.pane.toggle_mark()
    face.draw()


def filter_rows(face: Face) -> None:
    """Show the rows of the pane in focus that hold a word."""

    def use(text: str | None) -> None:
        if text is not None:
            face.pane.filter = text.strip()

    face.ask(AskLine(f"filter {face.pane.module.TITLE}", face.pane.filter, "empty = all"), use)


def next_theme(face: Face) -> None:
    """Read the themes again, so that one being written shows at once, and take the next."""
    face.load_themes()
    theme = face.themes.after(face.palette.theme.name)
    face.use_theme(theme)
    face.say(f"theme {theme.title}")


def last_message(face: Face) -> None:
    """The last word in the footer, whole."""
    if face.lookout.last_word is not None:
        face.ask(Told(face.lookout.last_word), lambda _: None)


def any_message(face: Face) -> str | None:
    return None if face.lookout.last_word is not None else "nothing was said yet"


def help_screen(face: Face) -> None:
    face.ask(Help(face.palette, face.actions, face.keymap), lambda _: None)


def commands(face: Face) -> None:
    """Every action by name, moving about last; those that can't be done now come after that and say why."""
    choices = []
    for action in sorted(face.actions, key=lambda action: action.group == "move"):
        why = action.when(face)
        note = action.help if why is None else why
        choices.append(Choice(action.id, action.title, note, face.keymap.shown(action.id), dim=why is not None))
    choices.sort(key=lambda choice: choice.dim)

    def run(id: str | None) -> None:
        chosen = next((action for action in face.actions if action.id == id), None)
        if chosen is not None:
            face.perform(chosen)

    face.ask(Choose(face.palette, "commands", choices), run)


def quit_(face: Face) -> None:
    face.ask_quit()
