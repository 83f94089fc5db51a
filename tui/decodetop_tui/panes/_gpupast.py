"""What a GPU did over the last minutes, each figure as one row of braille."""

from __future__ import annotations

from typing import NamedTuple

from decodetop.core import words
from decodetop.core.sample import Reading
from decodetop.core.state import State
from decodetop.gpu.reading import Gpu, same_gpu
from decodetop_tui.paint import Span
from decodetop_tui.panes._lines import history, history_room

DETAIL_CELLS = 60
"""A longer line costs its cells over SSH each time it moves on."""


class Figure(NamedTuple):
    """`field` of a GPU, drawn up to `top` (None = the most seen)."""

    word: str
    field: str
    top: float | None = 100.0


def work(gpu: Gpu) -> Figure:
    """DRAM bandwidth, or utilisation where the chip does not tell."""
    if gpu.dram_bandwidth_percent is not None:
        return Figure("dram %", "dram_bandwidth_percent")
    return Figure("busy %", "utilization_percent")


def past(state: State, gpu: Gpu, figure: Figure, room: int) -> tuple[str, str]:
    """A row of braille of `room` cells, and what it shows: `dram % over 60 s`. A GPU that is not ok leaves a gap."""

    def value(seen: Reading) -> float | None:
        found = same_gpu(seen, gpu)
        return None if found is None or found.state != "ok" else getattr(found, figure.field)

    drawn = history(state.lane("gpu"), state.now_ns, room, value, figure.top)
    return drawn.text, f"{figure.word} over {words.remaining(drawn.seconds)}"


def detail_lines(state: State, gpu: Gpu, width: int) -> list[list[Span]]:
    """Work, power and clock of one GPU over the same minutes; what it does not tell is left out."""
    figures = (
        work(gpu),
        Figure("power W", "power_w", gpu.power_limit_w),
        Figure("SM MHz", "sm_clock_mhz", gpu.sm_clock_max_mhz),
    )
    room = min(history_room(width - 26), DETAIL_CELLS)
    lines = []
    for figure in figures:
        if getattr(gpu, figure.field) is not None:
            text, label = past(state, gpu, figure, room)
            most = "" if figure.top is None else f", up to {words.number(figure.top)}"
            lines.append([Span("  "), Span(text), Span(f"  {label}{most}", "dim")])
    return lines
