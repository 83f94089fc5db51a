"""Whether a trace holds what a step's figure needs; if not, only totals may be shown, and why is said in words."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from decodetop.steps.choose import Choice, Window, stages
from decodetop.steps.reading import Coverage
from decodetop.steps.rows import Trace
from decodetop.steps.segment import DECODE_LIKE, Labels
from decodetop.steps.sweep import Sums
from decodetop.steps.timeline import Timeline

LONGEST_SHARE_MAX = 0.5
EARLY_SHARE_MAX = 0.01
ODD_SHARE_MAX = 0.5
EMPTY_SHARE_MAX = 0.2
STRETCHED = 20
"""So many times its usual length an event does not work all the time: processes that share a GPU take turns of ms."""
UNLIKE = 2
"""So many times as long as the shortest the step shown is not sure to be an ordinary one."""
BURST = 3
BURST_MIN = 100
"""The last step may hold so many times the kernels of an ordinary one, and some, before its work must be others'."""


def damage_of(trace: Trace) -> list[str]:
    """What is wrong with the file itself; the steps that are whole may still be good."""
    problems = list(trace.damage)
    if trace.unreadable:
        problems.append(f"{trace.unreadable:,} of {trace.events + trace.unreadable:,} events were unreadable")
    if trace.impossible:
        problems.append(f"{trace.impossible:,} GPU events had impossible times and were left out")
    return problems


def check(
    trace: Trace,
    timeline: Timeline,
    labels: Labels,
    windows: Sequence[Window],
    sums: Sums,
    choice: Choice,
    representative: int | None,
) -> Coverage:
    """`ok` is False where a per-step figure would be wrong."""
    fatal: list[str] = []
    if representative is None:
        fatal += _nothing_kept(labels, choice)
    else:
        fatal += _longest(trace, windows, sums, choice.kept, representative)
        fatal += _burst(labels, sums, representative)
    empty, at_ends = _empty(timeline, labels)
    fatal += _capture(labels) + _order(timeline) + empty + _odd(choice)
    fatal = _merged(trace, labels) + fatal
    notes = damage_of(trace) + at_ends + _unlike(windows, choice, representative)
    if timeline.repeated:
        notes.append(f"{timeline.repeated:,} GPU events stand twice in the file and count once")
    if timeline.other_devices:
        notes.append(f"{timeline.other_devices:,} events of other GPUs than {timeline.device} are not counted")
    return Coverage(ok=not fatal, problems=(*fatal, *notes))


def _nothing_kept(labels: Labels, choice: Choice) -> list[str]:
    if not labels.found:
        return ["no step labels and nothing that repeats: steps can't be told apart (try --step-label REGEX)"]
    if not choice.found:
        there = ", ".join(f"{count} {stage}" for stage, count in stages(labels.found).items() if count)
        asked = "with fewer prompts arriving" if "mixed" in there else "while requests are decoding"
        return [f"none of the {len(labels.found)} labelled steps is a decode step ({there}): capture {asked}"]
    reasons = sorted({dropped.why for dropped in choice.dropped})
    return [f"none of the {choice.found} decode steps is whole ({'; '.join(reasons[:4])}): capture more steps"]


def _capture(labels: Labels) -> list[str]:
    problem = "the trace shows graph capture at start-up, not serving: profile while it serves"
    return [problem] if labels.capturing else []


def _unlike(windows: Sequence[Window], choice: Choice, representative: int | None) -> list[str]:
    """A median is safe from a few long steps among many, not among two."""
    periods = [windows[number].period for number in choice.kept]
    if representative is None or windows[representative].period <= UNLIKE * min(periods):
        return []
    range_ms = f"{min(periods) / 1e6:,.1f} to {max(periods) / 1e6:,.1f} ms"
    return [f"the {len(periods)} steps that count take {range_ms}: the one shown may not be usual, capture more steps"]


def _merged(trace: Trace, labels: Labels) -> list[str]:
    """Workers number their launches alike, so in a file put together without a tag in its pids they can't be joined."""
    processes = sorted({str(trace.tracks[label.track][0]) for label in labels.found if label.track < len(trace.tracks)})
    if len(processes) < 2:
        return []
    who = f"{len(processes)} processes ({', '.join(processes[:4])})"
    words = "stand in one file, and their launches can't be told apart: give the file that each of them wrote"
    return [f"labels of {who} {words}"]


def _order(timeline: Timeline) -> list[str]:
    if timeline.early <= EARLY_SHARE_MAX * timeline.count:
        return []
    return [f"{timeline.early:,} GPU events start before their launch: the clocks of CPU and GPU don't agree"]


def _empty(timeline: Timeline, labels: Labels) -> tuple[list[str], list[str]]:
    """What is fatal and what is only to be noted about decode steps without GPU work.

    Between steps that have some, the profiler recorded only some of the replays. Before the first and after the last
    one the recording of the GPU began later or the file was cut short: the steps that are there are whole.
    """
    wanted = np.array([label.stage in DECODE_LIKE for label in labels.found], bool)
    present = timeline.first_start != np.iinfo(np.int64).max
    if len(wanted) != len(present) or not present.any():
        return [], []
    some = np.flatnonzero(present)
    missing = np.flatnonzero(wanted & ~present)
    inside = int(np.count_nonzero((missing > some[0]) & (missing < some[-1])))
    outside = len(missing) - inside
    notes = []
    if outside:
        where = "1 decode step at an end" if outside == 1 else f"{outside} decode steps at the ends"
        notes = [f"{where} of the trace {'has' if outside == 1 else 'have'} no GPU events"]
    if inside <= EMPTY_SHARE_MAX * np.count_nonzero(wanted):
        return [], notes
    return [f"{inside} of {np.count_nonzero(wanted)} decode steps have no GPU events: they were not recorded"], notes


def _odd(choice: Choice) -> list[str]:
    odd = [dropped for dropped in choice.dropped if "kernels" in dropped.why]
    if len(odd) <= ODD_SHARE_MAX * max(1, len(odd) + len(choice.kept)):
        return []
    return [f"{len(odd)} of {choice.found} steps miss kernels or hold others ({odd[0].why})"]


def _burst(labels: Labels, sums: Sums, number: int) -> list[str]:
    """Labels with little work each and the work of all behind the last: launches were recorded, replays were not."""
    usual = int(sums.kernels[number])
    if labels.found[-1].stage not in DECODE_LIKE or sums.kernels_after <= BURST * usual + BURST_MIN:
        return []
    after = f"{sums.kernels_after:,} kernels follow the start of the last step, an ordinary one has {usual}"
    return [f"{after}: they are other steps', so times per step can't be told"]


def _longest(trace: Trace, windows: Sequence[Window], sums: Sums, kept: Sequence[int], number: int) -> list[str]:
    longest, name = int(sums.longest[number]), int(sums.longest_name[number])
    share = longest / windows[number].period
    if share <= LONGEST_SHARE_MAX:
        return []
    words = f"one event takes {share:.0%} of the step ({trace.names[name][1][:80]})"
    here, usual = _usual(sums, kept, name, number)
    if usual and here > STRETCHED * usual:
        longer = f"{longest / 1000:,.0f} us where {usual / 1000:,.1f} us are usual"
        return [f"{words}, {longer}: did another process use this GPU? capture again when it has the GPU alone"]
    return [f"{words}: is this a decode step?"]


def _usual(sums: Sums, kept: Sequence[int], name: int, number: int) -> tuple[float, float]:
    """What a call of `name` owns, in ns, in step `number` and in the one where it owns the least; 0 where it is not.

    What is owned, not how long the event ran: a kernel that is launched early runs beside the one it waits for.
    """
    means = {}
    for window in {*kept, number}:
        rows = sums.names_of(window)
        rows = rows[rows["name"] == name]
        calls = int(rows["calls"].sum())
        if calls:
            means[window] = float(rows["ns"].sum()) / calls
    return means.get(number, 0.0), min(means.values(), default=0.0)
