"""The benchmark panel: start what the cursor is on, stop it, choose the baseline."""

from __future__ import annotations

from typing import TYPE_CHECKING

from decodetop.bench import text
from decodetop.bench.reading import BenchReading, MarkBaseline, Run, StartBench, StopBench
from decodetop.core.sample import Notice
from decodetop.steps.reading import CancelParsing, StepsReading
from decodetop_tui.acts import diagnose, profile
from decodetop_tui.screens.confirm import Confirm
from decodetop_tui.screens.told import Told

if TYPE_CHECKING:
    from decodetop_tui.face import Face

PRESET = "preset:"
RUN = "run:"
"""How the bench pane's row ids begin."""


def panel(face: Face) -> None:
    """Focus it with the cursor on a preset, the one used last; there already: zoom, and back."""
    pane = face.panes["bench"]
    on_preset = (pane.cursor or "").startswith(PRESET)
    if face.focused_name == "bench" and on_preset:
        face.set_zoom(not face.zoomed)
        return
    seen = face.lookout.live.last("bench", BenchReading)
    names = [] if seen is None else [preset.name for preset in seen.presets]
    if names and not on_preset:
        used = next((run.plan.preset for run in seen.runs if run.plan.preset in names), names[0]) if seen else names[0]
        pane.cursor = f"{PRESET}{used}"
    face.focus_pane("bench")


def running(face: Face) -> bool:
    seen = face.lookout.live.last("bench", BenchReading)
    return seen is not None and seen.progress is not None


def parsing(face: Face) -> bool:
    seen = face.lookout.live.last("steps", StepsReading)
    return seen is not None and seen.parsing is not None


def can_stop(face: Face) -> str | None:
    stoppable = diagnose.running(face) or running(face) or profile.capturing(face) or parsing(face)
    return None if stoppable else "nothing is running that could be stopped"


def on_run(face: Face) -> str | None:
    if face.focused_name == "bench" and (face.pane.cursor or "").startswith(RUN):
        return None
    return "works on a run of the bench pane (4)"


def start(face: Face, preset: str) -> None:
    """Refused with a word while another one runs, and when started with --readonly."""
    if face.settings.readonly:
        face.say("bench: started with --readonly", "warning")
        return
    if running(face):
        face.say("a benchmark is running", "warning", f"{face.keymap.first('stop')} stops it")
        return
    face.submit(StartBench(preset=preset))


def stop(face: Face) -> None:
    """Ask first for a diagnosis, a benchmark and a capture; a trace being read can simply be read again."""
    if diagnose.running(face):
        diagnose.ask_stop(face)
        return
    if profile.capturing(face):
        profile.ask_stop(face)
        return
    if not running(face):
        face.submit(CancelParsing())
        return

    def use(yes: bool | None) -> None:
        if yes:
            face.submit(StopBench())

    face.ask(Confirm("Stop the benchmark?", "What is finished is kept, marked partial."), use)


def marked(face: Face) -> list[Run]:
    """The runs marked in the bench pane, the older first."""
    seen = face.lookout.live.last("bench", BenchReading)
    wanted = face.panes["bench"].marks
    return [run for run in reversed(seen.runs if seen is not None else ()) if f"{RUN}{run.id}" in wanted]


def can_compare(face: Face) -> str | None:
    return None if len(marked(face)) == 2 else f"mark two runs of the bench pane first ({face.keymap.first('mark')})"


def compare(face: Face) -> None:
    """The two marked runs side by side, the older as A."""
    runs = marked(face)
    if len(runs) == 2:
        face.ask(Told(Notice(message="\n".join(text.beside(*runs)), level="info")), lambda _: None)


def baseline(face: Face) -> None:
    """The run under the cursor is what others are compared with; the same again: none is."""
    seen = face.lookout.live.last("bench", BenchReading)
    id = (face.pane.cursor or "").removeprefix(RUN)
    if seen is not None and id.isdigit():
        face.submit(MarkBaseline(run_id=None if seen.baseline_id == int(id) else int(id)))
