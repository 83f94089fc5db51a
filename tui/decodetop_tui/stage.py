"""The dashboard: the six panes and the frame's three lines, placed and drawn."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from textual.geometry import Size
from textual.widget import Widget

from decodetop.core.sample import Notice
from decodetop.core.state import State
from decodetop.findings import NOTHING, Finding, evaluate, evaluated
from decodetop_tui.cells import BLANK, Cells
from decodetop_tui.headline import Situation, findings_line, footer_line, toast_line, top_line
from decodetop_tui.ink import Ink
from decodetop_tui.layout import Plan, Rect, Want, arrange
from decodetop_tui.painted import Painted, Styles
from decodetop_tui.pane import Pane, PaneModule


class Stage:
    """Knows where everything stands. Heights of panes only grow, so that nothing jumps, until `settle`."""

    def __init__(self, modules: Mapping[str, PaneModule], styles: Styles) -> None:
        self.panes = {name: Pane(name, module, styles) for name, module in modules.items()}
        self.top = Painted(styles, id="top")
        self.found = Painted(styles, id="findings")
        self.footer = Painted(styles, id="footer")
        self.ink: Ink | None = None
        self._rects: dict[Widget, Rect | None] = {}
        self._wants: dict[tuple[str, int], Want] = {}
        self._findings: tuple[object, tuple[Finding, ...]] = (None, ())
        self._evaluated = NOTHING

    @property
    def widgets(self) -> Iterable[Painted]:
        return (self.top, self.found, *self.panes.values(), self.footer)

    def settle(self) -> None:
        """Let panes shrink again: the size changed, or the operator asked for a refresh."""
        self._wants.clear()

    def draw(
        self, state: State, situation: Situation, size: Size, focused: str, zoomed: bool, *, covered: bool = False
    ) -> Plan:
        """Place and draw all but the footer's words; only what changed is sent. `covered`: a window lies over it."""

        def want(name: str, width: int) -> Want:
            return self._grown(name, width, self.panes[name].want(state, width))

        plan = arrange(size.width, size.height, want, focused, zoomed)
        if self.ink is not None:
            self.ink.begin(still=not covered and self._stands(plan))
        for name, pane in self.panes.items():
            place = plan.panes.get(name)
            self._put(pane, None if place is None else place.rect)
            if place is not None:
                pane.place = place
                pane.show(state, focused=name == focused, zoomed=zoomed)
        self._put(self.top, plan.top)
        self._put(self.found, plan.findings)
        self._put(self.footer, plan.footer)
        self.top.paint([top_line(state, situation, size.width)], size.width)
        self.found.paint([findings_line(state, self.findings(state), size.width)], size.width)
        return plan

    def draw_footer(self, hints: Sequence[tuple[str, str]], toast: Notice | None, width: int, whole_key: str) -> None:
        """The keys, or a word to the operator in their place; `whole_key` shows one that is too long."""
        if toast is not None:
            line = toast_line(toast.level, toast.message, toast.hint, width, whole_key)
        else:
            line = footer_line(hints, width)
        self.footer.paint([line], width)

    def findings(self, state: State) -> tuple[Finding, ...]:
        """Looked for once a second of the session's clock, and when a source fails or comes back."""
        failing = tuple(sorted(name for name, lane in state.lanes.items() if lane.failure is not None))
        moment = (state.lane("clock").last_t_ns, failing, len(state.lanes))
        if self._findings[0] != moment:
            found = evaluate(state, self._evaluated)
            self._findings, self._evaluated = (moment, found), evaluated(state, found)
        return self._findings[1]

    def rows(self, size: Size) -> list[Cells]:
        """The whole dashboard as cells, row by row."""
        screen = [[BLANK] * size.width for _ in range(size.height)]
        for widget in self.widgets:
            rect = self._rects.get(widget)
            if rect is not None:
                for y, row in enumerate(widget.grid[: rect.height], rect.y):
                    screen[y][rect.x : rect.x + rect.width] = row[: rect.width]
        return [tuple(row) for row in screen]

    def repaint(self) -> None:
        for widget in self.widgets:
            widget.repaint()

    def _grown(self, name: str, width: int, now: Want) -> Want:
        before = self._wants.get((name, width), now)
        grown = Want(max(now.least, before.least), max(now.wanted, before.wanted))
        self._wants[name, width] = grown
        return grown

    def use_ink(self, ink: Ink) -> None:
        """From now on what only changes its text goes to the terminal without Textual."""
        self.ink = ink
        for widget in self.widgets:
            widget.ink = ink

    def _stands(self, plan: Plan) -> bool:
        """Whether every widget stands where it was put before."""
        places = {pane: plan.panes.get(name) for name, pane in self.panes.items()}
        rects: dict[Widget, Rect | None] = {pane: place.rect if place else None for pane, place in places.items()}
        rects |= {self.top: plan.top, self.found: plan.findings, self.footer: plan.footer}
        return all(self._rects.get(widget, ...) == rect for widget, rect in rects.items())

    def _put(self, widget: Widget, rect: Rect | None) -> None:
        """Textual lays out again at every style that is set: set them only when something moved."""
        if widget in self._rects and self._rects[widget] == rect:
            return
        self._rects[widget] = rect
        widget.display = rect is not None
        if rect is not None:
            widget.styles.position = "absolute"
            widget.styles.offset = (rect.x, rect.y)
            widget.styles.width, widget.styles.height = rect.width, rect.height
