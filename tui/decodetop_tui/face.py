"""The Textual app: puts the pieces together. What keys do lives in `acts/`, what panes show in `panes/`."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar, cast

from textual import events
from textual.app import App, ComposeResult
from textual.geometry import Size

from decodetop.config import Settings, default_config_path
from decodetop.core.clock import Clock
from decodetop.core.sample import Command, Notice
from decodetop.core.state import State
from decodetop.floor.reading import WhatIf
from decodetop.todo.reading import Switch
from decodetop_tui import keyboard, keymap, keys, offers, terminal, theme
from decodetop_tui.acts.leave import at_stake
from decodetop_tui.feed import FRAMES_PER_SECOND, FeedLike, Lookout
from decodetop_tui.headline import Situation
from decodetop_tui.ink import Ink
from decodetop_tui.layout import NAMES
from decodetop_tui.pane import Pane, PaneModule
from decodetop_tui.screens import modal
from decodetop_tui.screens.confirm import Confirm
from decodetop_tui.screens.modal import Modal
from decodetop_tui.stage import Stage
from decodetop_tui.thrift import Thrift

T = TypeVar("T")


def theme_folder(settings: Settings) -> Path:
    """Where the operator's own themes lie: beside the settings file."""
    return (settings.config_path or default_config_path()).parent / "themes"


class Face(App[int], inherit_bindings=False):
    """`fps` 0 draws only when `show_state` is called. `piped`: the samples are another box's, no command gets there."""

    CSS = f"""
    Screen {{ overflow: hidden; background: $background; }}
    Painted {{ background: $background; color: $foreground; }}
    {modal.STYLES}
    """
    TITLE = "decodetop"
    ENABLE_COMMAND_PALETTE = False
    AUTO_FOCUS = None

    def __init__(
        self,
        feed: FeedLike,
        settings: Settings,
        modules: Mapping[str, PaneModule],
        *,
        fps: float = FRAMES_PER_SECOND,
        clock: Clock | None = None,
        piped: bool = False,
        switchable: bool = False,
        terminal_before: terminal.Attributes | None = None,
    ) -> None:
        self.themes = theme.find(theme_folder(settings))
        chosen, self._theme_word = self.themes.pick(
            settings.theme, no_color="NO_COLOR" in os.environ, sixteen=terminal.few_colours(os.environ)
        )
        self.palette = theme.Palette(chosen)
        self.thrift = Thrift()
        # how NO_COLOR is kept is settled when Textual's app is made: a theme of attributes must be known by then
        super().__init__(driver_class=terminal.sparing(self.thrift, terminal_before), ansi_color=chosen.ansi or None)
        self.settings = settings
        self.lookout = Lookout(feed, clock)
        self.piped = piped
        self.switchable = switchable
        self.chosen: Switch | None = None
        self.focused_name = NAMES[0]
        self.zoomed = False
        self._below = (NAMES[0], False)
        """Where a page was opened from: the pane in focus, and whether it was zoomed."""
        self.what_if: WhatIf | None = None
        """The what-if asked for last."""
        self.factor = 1.0
        self.replay_speed = 1.0
        self.trace_folder = str(Path.cwd())
        self.actions = keys.ACTIONS
        self.cells = Size(0, 0)
        self.keymap = keymap.build(self.actions, settings.keys)
        self._feed, self._fps = feed, fps
        self._running_loop: asyncio.AbstractEventLoop | None = None
        self.stage = Stage(modules, self.palette)

    @property
    def panes(self) -> Mapping[str, Pane]:
        return self.stage.panes

    @property
    def period_s(self) -> float:
        """The probes' period in force."""
        return self.settings.rate_s * self.factor

    @property
    def pane(self) -> Pane:
        """The one in focus."""
        return self.panes[self.focused_name]

    # what actions use

    def submit(self, command: Command) -> None:
        self._feed.submit(command)

    def say(self, message: str, level: str = "info", hint: str = "") -> None:
        """Show a word in the footer for a while."""
        self.lookout.say(Notice(level=cast(Any, level), message=message, hint=hint))
        self.draw_footer()

    def ask(self, screen: Modal[T], use: Callable[[T | None], None]) -> None:
        """Open a window over the dashboard, which goes on; `use` gets its answer."""

        def done(answer: T | None) -> None:
            use(answer)
            self.draw()

        self.push_screen(screen, done)

    def perform(self, action: keymap.Action) -> None:
        """Do it, or say why it can't be done here and now."""
        why = action.when(self)
        if why is not None:
            self.say(f"{action.title}: {why}", "warning")
        else:
            action.run(self)

    @property
    def pane_below(self) -> str:
        """The pane of the dashboard in focus, also while a page is open over it."""
        return self.focused_name if self.focused_name in NAMES else self._below[0]

    def focus_pane(self, name: str) -> None:
        """A pane of the dashboard; or a page over it, which has the whole screen."""
        was_page, is_page = self.focused_name not in NAMES, name not in NAMES
        if is_page and not was_page:
            self._below = (self.focused_name, self.zoomed)
            self.zoomed = True
        elif was_page and not is_page:
            self.zoomed = self._below[1]
        self.focused_name = name
        self.draw()

    def set_zoom(self, zoomed: bool) -> None:
        """A page that is not zoomed is closed."""
        if not zoomed and self.focused_name not in NAMES:
            self.focus_pane(self._below[0])
            return
        self.zoomed = zoomed
        self.draw()

    def load_themes(self) -> None:
        """Read them again."""
        self.themes = theme.find(theme_folder(self.settings))

    def use_theme(self, chosen: theme.Theme) -> None:
        self.palette.use(chosen)
        self.register_theme(chosen.for_textual())
        self.theme = chosen.name
        if self.stage.ink is not None:
            self.stage.ink.forget()
        self.ansi_color = None  # from now on as the theme says
        self.stage.repaint()

    def ask_quit(self) -> None:
        lost = at_stake(self)
        if lost is None:
            self.exit(0)
        else:
            self.ask(Confirm(*lost, insist=True), lambda yes: self.exit(0) if yes else None)

    def leave_for(self, chosen: Switch) -> None:
        """End the screen, to begin again on another investigation."""
        self.chosen = chosen
        self.exit(0)

    def leave_soon(self) -> None:
        """May be called from a signal handler, before the app runs and while its loop is busy."""
        if self._running_loop is not None:
            self._running_loop.call_soon_threadsafe(self.exit, 0)

    async def action_quit(self) -> None:
        self.ask_quit()

    # drawing

    def show_state(self, state: State) -> None:
        """Draw this state now."""
        self.lookout.show(state)
        self.draw()

    def tick(self) -> None:
        """One frame: what is new is drawn."""
        if not self.is_headless and terminal.gone():
            self.exit(0)
            return
        if set(self.lookout.live.lanes) == {"engine"}:
            self.exit(1)  # it ended before it said anything: `run` tells why
            return
        toast = self.lookout.toast
        if self.lookout.hear() and not self.settings.quiet:
            self.bell()
        self.lookout.fade()
        if (self._fps == 0 or self.lookout.settled()) and self.lookout.look():
            self.draw()
        elif self.lookout.toast is not toast:
            self.draw_footer()

    def redraw(self) -> None:
        """Send the whole screen again: something else may have written on it."""
        self.thrift.forget()
        self.stage.settle()
        self.draw()
        self.stage.repaint()

    def draw(self) -> None:
        """Draw everything, also under a window."""
        if not self.stage.footer.is_mounted:
            return
        situation = Situation(
            frozen=self.lookout.frozen,
            readonly=self.settings.readonly,
            period_s=None if self.piped else self.period_s,
            help_key=self.keymap.first("help"),
        )
        where = (self.focused_name, self.zoomed)
        self.stage.draw(self.lookout.state, situation, self.cells, *where, covered=self.windowed)
        self.draw_footer()

    def draw_footer(self) -> None:
        toast = self.lookout.toast
        if self.stage.ink is not None and self.windowed:
            self.stage.ink.open = False  # Textual knows what of us a window leaves in sight
        notice, whole = None if toast is None else toast.notice, self.keymap.first("message")
        self.stage.draw_footer(offers.hints(self, self.keymap), notice, self.cells.width, whole)
        if self.windowed:
            self.screen.refresh()  # the window's screen shows the dashboard, and is not told that it changed
        if self.stage.ink is not None:
            self.stage.ink.flush()

    @property
    def windowed(self) -> bool:
        """Whether a window is open over the dashboard."""
        return len(self.screen_stack) > 1

    # what Textual calls

    def compose(self) -> ComposeResult:
        yield from self.stage.widgets

    def on_mount(self) -> None:
        self._running_loop = asyncio.get_running_loop()
        self.cells = self.size
        if isinstance(self._driver, terminal.Terminal):
            self.stage.use_ink(Ink(self, self._driver, self.palette))
        self.use_theme(self.palette.theme)
        words = [*self.keymap.problems, *self.themes.problems]
        words = [*filter(None, [self.settings.unread]), *words, *filter(None, [self._theme_word])]
        if words:
            self.say(words[0], "warning", f"and {len(words) - 1} more" if len(words) > 1 else "")
        self.app_resume_signal.subscribe(self, lambda _: self.redraw())
        if self._fps > 0:
            self.set_interval(1 / self._fps, self.tick)
        self.draw()

    def on_resize(self, event: events.Resize) -> None:
        """Comes before Textual takes the size itself, so the event's counts."""
        self.cells = event.size
        self.stage.settle()
        self.draw()

    def on_key(self, event: events.Key) -> None:
        if self.windowed:
            return
        event.stop()
        event.prevent_default()
        name = keymap.name_of(event.key, event.character)
        action = self.keymap.by_key.get(name)
        if name == "ctrl+c":
            self.ask_quit()
        elif name == "ctrl+z":
            self.action_suspend_process()
        elif action is not None:
            if action.id not in ("back", "message"):
                self.lookout.toast = None
            self.perform(action)

    def on_paste_cut(self) -> None:
        self.say(f"a paste is cut at {keyboard.PASTE_MAX_BYTES >> 10} KiB", "warning")

    def on_pane_clicked(self, event: Pane.Clicked) -> None:
        event.pane.cursor = event.row or event.pane.cursor
        self.focus_pane(event.pane.pane_name)

    def on_pane_wheeled(self, event: Pane.Wheeled) -> None:
        event.pane.move(event.by)
        self.draw()
