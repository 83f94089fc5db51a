"""Which steps count: the rules that keep a decode figure free of prefill, warm-up and damaged steps."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import msgspec
import numpy as np

from decodetop.steps.reading import Dropped
from decodetop.steps.segment import DECODE_LIKE, Label, Stage
from decodetop.steps.split import Ints
from decodetop.steps.sweep import Sums

KERNELS_TOLERANCE = 0.02
"""A step whose kernel count differs more from the median of its batch size is not an ordinary one."""

_STEP: dict[Stage, str] = {
    "prefill": "a prefill step",
    "mixed": "a mixed step",
    "idle": "an idle step",
    "draft": "a draft step",
    "other": "a step of another kind",
}


class Window(msgspec.Struct, frozen=True):
    """A step with a period: `label` indexes the labels, [start, end) is GPU time in ns."""

    label: int
    start: int
    end: int

    @property
    def period(self) -> int:
        return self.end - self.start


class Choice(msgspec.Struct, frozen=True):
    """`kept` are window numbers of the commonest batch size; `batches` all of them, commonest first."""

    kept: tuple[int, ...]
    batches: tuple[tuple[int | None, tuple[int, ...]], ...]
    dropped: tuple[Dropped, ...]
    found: int


def windows_of(first_start: Ints) -> list[Window]:
    """The period of a label runs from its first GPU event to that of the next label, of whatever kind."""
    found: list[Window] = []
    latest = np.iinfo(np.int64).min
    missing = np.iinfo(np.int64).max
    for number in range(len(first_start)):
        start = int(first_start[number])
        if start == missing or start < latest:
            continue
        latest = start
        following = int(first_start[number + 1]) if number + 1 < len(first_start) else missing
        if start < following < missing:
            found.append(Window(number, start, following))
    return found


def choose(labels: Sequence[Label], windows: Sequence[Window], sums: Sums, lost: Ints) -> Choice:
    """`lost[i]` counts launches of label i whose kernels are not in the trace."""
    by_label = {window.label: number for number, window in enumerate(windows)}
    why: dict[int, str] = {}
    good: dict[int | None, list[int]] = {}
    found = [number for number, label in enumerate(labels) if label.stage in DECODE_LIKE]
    for number in found:
        reason = _unfit(labels, number, number in by_label)
        if reason:
            why[number] = reason
        else:
            good.setdefault(labels[number].batch_size, []).append(by_label[number])
    kept: dict[int | None, tuple[int, ...]] = {}
    for batch, fit in good.items():
        odd = _odd(fit, windows, sums, lost)
        why.update({windows[number].label: reason for number, reason in odd.items()})
        kept[batch] = tuple(number for number in fit if number not in odd)
    batches = sorted(((batch, numbers) for batch, numbers in kept.items() if numbers), key=lambda one: -len(one[1]))
    for batch, numbers in batches[1:]:
        why.update({windows[number].label: f"batch size {batch}, not {batches[0][0]}" for number in numbers})
    dropped = tuple(Dropped(index=number, why=why[number]) for number in sorted(why))
    return Choice(batches[0][1] if batches else (), tuple(batches), dropped, len(found))


def _unfit(labels: Sequence[Label], number: int, has_period: bool) -> str:
    """Why a decode-like label is no ordinary step; empty if it is."""
    if number == 0:
        return "first"
    if number == len(labels) - 1:
        return "last"
    before, after = labels[number - 1].stage, labels[number + 1].stage
    if before not in DECODE_LIKE:
        return f"after {_STEP[before]}"
    if after not in DECODE_LIKE:
        return f"before {_STEP[after]}"
    return "" if has_period else "no GPU events of it or of the next step"


def _odd(numbers: Sequence[int], windows: Sequence[Window], sums: Sums, lost: Ints) -> dict[int, str]:
    usual = sorted(int(sums.kernels[number]) for number in numbers)[len(numbers) // 2]
    odd: dict[int, str] = {}
    for number in numbers:
        kernels, gone = int(sums.kernels[number]), int(lost[windows[number].label])
        if gone:
            odd[number] = f"{gone} launch{'' if gone == 1 else 'es'} without kernels"
        elif abs(kernels - usual) > KERNELS_TOLERANCE * usual:
            odd[number] = f"{kernels} kernels, not {usual}"
    return odd


def representative(kept: Sequence[int], windows: Sequence[Window]) -> int:
    """The kept window whose period is nearest the median, in integers; the earlier on a tie."""
    periods = sorted(windows[number].period for number in kept)
    twice = periods[(len(periods) - 1) // 2] + periods[len(periods) // 2]
    return min(kept, key=lambda number: (abs(2 * windows[number].period - twice), number))


def stages(labels: Sequence[Label]) -> dict[str, int]:
    """How many labels there are of the other kinds; prefill and idle always stand there."""
    counted = Counter(label.stage for label in labels if label.stage not in DECODE_LIKE)
    return {"prefill": counted.pop("prefill", 0), "idle": counted.pop("idle", 0), **dict(sorted(counted.items()))}
