"""The Textual app: puts the pieces together. What keys do lives in `acts/`, what panes show in `panes/`."""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar, cast

from textual import events
from textual.app import App, ComposeResult
from textual.widget import Widget

from decodetop.config import Settings, default_config_path
from decodetop.core.feed import Feed
from decodetop.core.sample import Command, Notice
from decodetop.core.state import State
from decodetop.findings import Finding, evaluate
from decodetop_tui import headline, keymap, keys, terminal, theme
from decodetop_tui.feed import FRAMES_PER_SECOND, FeedLike, Watch
from decodetop_tui.layout import NAMES, Rect, Want, arrange
from decodetop_tui.painted import Painted
from decodetop_tui.pane import Pane, PaneModule
from decodetop_tui.screens.confirm import Confirm
from decodetop_tui.screens.modal import Modal

T = TypeVar("T")

STOP_S = 3.0
QUIT_S = 5.0


def pane_modules() -> dict[str, PaneModule]:
    """The six of `panes/`, by name."""
    return {name: cast(PaneModule, importlib.import_module(f"decodetop_tui.panes.{name}")) for name in NAMES}


class Face(App[int], inherit_bindings=False):
    """`fps` 0 draws only when `show_state` is called."""

    CSS = """
    Screen { overflow: hidden; background: $background; }
    Painted { position: absolute; background: $background; color: $foreground; }
    """
    ENABLE_COMMAND_PALETTE = False
    AUTO_FOCUS = None

    def __init__(
        self,
        feed: FeedLike,
        settings: Settings,
        *,
        fps: float = FRAMES_PER_SECOND,
        modules: dict[str, PaneModule] | None = None,
    ) -> None:
        super().__init__(driver_class=terminal.Terminal)
        self.settings = settings
        self.watch = Watch(feed)
        self.focused_name = NAMES[0]
        self.zoomed = False
        self.factor = 1.0
        self.replay_speed = 1.0
        self.trace_folder = str(Path.cwd())
        self.actions = keys.ACTIONS
        self.keymap = keymap.build(self.actions, settings.keys)
        self._feed, self._fps = feed, fps
        self._heights: dict[tuple[str, int], Want] = {}
        self._findings: tuple[tuple[int | None, Any], tuple[Finding, ...]] = ((None, None), ())
        self.load_themes()
        chosen, self._theme_word = self.themes.pick(
            settings.theme, no_color="NO_COLOR" in os.environ, sixteen=terminal.few_colours(os.environ)
        )
        self.palette = theme.Palette(chosen)
        self.panes = {name: Pane(name, module, self.palette) for name, module in (modules or pane_modules()).items()}
        self._top, self._found, self._foot = (Painted(self.palette, id=id) for id in ("top", "findings", "footer"))

    @property
    def pane(self) -> Pane:
        """The one in focus."""
        return self.panes[self.focused_name]

    # what actions use

    def submit(self, command: Command) -> None:
        self._feed.submit(command)

    def say(self, message: str, level: str = "info", hint: str = "") -> None:
        """Show a word in the footer for a while."""
        self.watch.say(Notice(level=cast(Any, level), message=message, hint=hint))
        self._draw_footer()

    def ask(self, screen: Modal[T], use: Callable[[T | None], None]) -> None:
        """Open a window over the dashboard; `use` gets its answer."""
        self.push_screen(screen, use)

    def perform(self, action: keymap.Action) -> None:
        """Do it, or say why it can't be done here and now."""
        why = action.when(self)
        if why is not None:
            self.say(f"{action.title}: {why}", "warning")
        else:
            action.run(self)

    def focus_pane(self, name: str) -> None:
        self.focused_name = name
        self.draw()

    def set_zoom(self, zoomed: bool) -> None:
        self.zoomed = zoomed
        self.draw()

    def forget_heights(self) -> None:
        """Let panes shrink again: on a resize, and when asked to refresh."""
        self._heights.clear()

    def load_themes(self) -> None:
        config = self.settings.config_path or default_config_path()
        self.themes = theme.find(config.parent / "themes")

    def use_theme(self, chosen: theme.Theme) -> None:
        self.palette.use(chosen)
        self.register_theme(chosen.for_textual())
        self.theme = chosen.name
        for painted in self.screen.query(Painted):
            painted.repaint()

    def ask_quit(self) -> None:
        from decodetop_tui.acts.bench import running

        if not running(self):
            self.exit(0)
            return
        question = Confirm("Quit while a benchmark runs?", "It is stopped; what is finished is kept.")
        self.ask(question, lambda yes: self.exit(0) if yes else None)

    async def action_quit(self) -> None:
        self.ask_quit()

    # drawing

    def show_state(self, state: State) -> None:
        """Draw this state now."""
        self.watch.show(state)
        self.draw()

    def tick(self) -> None:
        """One frame: what is new is drawn, unless a window is open."""
        if not self.is_headless and terminal.gone():
            self.exit(0)
            return
        toast = self.watch.toast
        if self.watch.hear() and not self.settings.quiet:
            self.bell()
        self.watch.fade()
        if self.watch.look():
            self.draw()
        elif self.watch.toast is not toast:
            self._draw_footer()

    def draw(self) -> None:
        """Lay out and draw everything; only what changed is sent. Under a window nothing is drawn."""
        if len(self.screen_stack) != 1 or not self._top.is_mounted:
            return
        width, height = self.size
        plan = arrange(width, height, self._want, self.focused_name, self.zoomed)
        for name, pane in self.panes.items():
            place = plan.panes.get(name)
            self._put(pane, None if place is None else place.rect)
            if place is not None:
                pane.place = place
                pane.show(self.watch.state, focused=name == self.focused_name, zoomed=self.zoomed)
        for line, rect in ((self._top, plan.top), (self._found, plan.findings), (self._foot, plan.footer)):
            self._put(line, rect)
        state, situation = self.watch.state, self._situation()
        self._top.paint([headline.top_line(state, situation, width)], width)
        self._found.paint([headline.findings_line(state, self.findings, width)], width)
        self._draw_footer()

    @property
    def findings(self) -> tuple[Finding, ...]:
        """Of the state drawn; looked for once a second of its clock."""
        state = self.watch.state
        key = (
            state.lane("clock").last_t_ns,
            tuple(sorted((name, lane.failure is None) for name, lane in state.lanes.items())),
        )
        if self._findings[0] != key:
            self._findings = (key, evaluate(state))
        return self._findings[1]

    def _draw_footer(self) -> None:
        width = self.size.width
        toast = self.watch.toast
        if toast is not None:
            line = headline.toast_line(toast.notice.level, toast.notice.message, toast.notice.hint, width)
        else:
            line = headline.footer_line(keys.hints(self, self.keymap), (), width)
        self._foot.paint([line], width)

    def _situation(self) -> headline.Situation:
        return headline.Situation(
            frozen=self.watch.frozen,
            readonly=self.settings.readonly,
            period_s=self.settings.rate_s * self.factor,
            help_key=self.keymap.first("help"),
        )

    def _want(self, name: str, width: int) -> Want:
        """What the pane asks for; it only grows until a resize, so that nothing jumps."""
        now = self.panes[name].want(self.watch.state, width)
        before = self._heights.get((name, width), now)
        grown = Want(max(now.least, before.least), max(now.wanted, before.wanted))
        self._heights[name, width] = grown
        return grown

    @staticmethod
    def _put(widget: Widget, rect: Rect | None) -> None:
        """Textual compares before it lays out again, but only field by field: ask ourselves first."""
        widget.display = rect is not None
        if rect is not None and getattr(widget, "rect", None) != rect:
            widget.rect = rect  # type: ignore[attr-defined]
            widget.styles.offset = (rect.x, rect.y)
            widget.styles.width, widget.styles.height = rect.width, rect.height

    # what Textual calls

    def compose(self) -> ComposeResult:
        yield self._top
        yield self._found
        yield from self.panes.values()
        yield self._foot

    def on_mount(self) -> None:
        self.use_theme(self.palette.theme)
        words = [*self.keymap.problems, *self.themes.problems, *([self._theme_word] if self._theme_word else [])]
        if words:
            self.say(words[0], "warning", f"and {len(words) - 1} more" if len(words) > 1 else "")
        if self._fps > 0:
            self.set_interval(1 / self._fps, self.tick)
        self.draw()

    def on_resize(self) -> None:
        self.forget_heights()
        self.draw()

    def on_key(self, event: events.Key) -> None:
        if len(self.screen_stack) > 1:
            return
        event.stop()
        event.prevent_default()
        name = keymap.name_of(event.key, event.character)
        action = self.keymap.by_key.get(name)
        if name == "ctrl+c":
            self.ask_quit()
        elif action is not None:
            self.watch.toast = self.watch.toast if action.id == "back" else None
            self.perform(action)

    def on_pane_clicked(self, event: Pane.Clicked) -> None:
        event.pane.cursor = event.row or event.pane.cursor
        self.focus_pane(event.pane.pane_name)

    def on_pane_wheeled(self, event: Pane.Wheeled) -> None:
        event.pane.move(event.by)
        self.draw()


def run(feed: Feed, settings: Settings) -> int:
    """Start the feed, show the screen until the operator or a signal ends it, stop the feed.

    Raises UsageError where there is no terminal. The exit code is 1 when the screen broke.
    """
    terminal.require(os.environ)
    app = Face(feed, settings)
    signalled: list[int] = []

    def leave(number: int) -> None:
        signalled.append(number)
        if loop := app.loop:
            loop.call_soon_threadsafe(app.exit, 0)

    with terminal.Leaving(leave) as leaving:
        feed.start()
        app.run(mouse=settings.mouse)
        leaving.within(QUIT_S)
        feed.stop(terminal.LEAVE_S / 2 if signalled else STOP_S)
    return app.return_code or 0
