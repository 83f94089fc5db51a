"""Which GPU is which from round to round, what each last said, and since when it says nothing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from decodetop.gpu.reading import Gpu, GpuState

_UNLISTED = "the driver no longer lists it"
_NO_FIGURES = ("index", "uuid", "state", "state_message", "state_since_ns", "memory_is_unified", "xids", "reasons")
_FIGURES = tuple(field for field in Gpu.__struct_fields__ if field not in _NO_FIGURES)


class Bad(NamedTuple):
    """A GPU that gave no figures this round. `since_ns` is known where a call hangs, else it is now."""

    state: GpuState
    message: str
    since_ns: int


class Rows:
    """Keyed by UUID: indices move when a GPU falls off the bus. A GPU seen once is never silently dropped."""

    def __init__(self) -> None:
        self._last: dict[str, Gpu] = {}
        self._since: dict[str, tuple[GpuState, int]] = {}

    def merge(self, seen: Sequence[tuple[int, str | None, Gpu | Bad]], now_ns: int) -> tuple[Gpu, ...]:
        """(index, UUID if known, outcome) of all that the driver lists -> rows, with last good figures where bad."""
        claimed = {uuid for _, uuid, _ in seen if uuid}
        rows = []
        for index, uuid, outcome in seen:
            key = uuid or self._key_at(index, claimed)
            claimed.add(key)
            if isinstance(outcome, Gpu):
                self._last[key] = outcome
                self._since.pop(key, None)
                self._since.pop(f"#{index}", None)
                rows.append(outcome)
            else:
                rows.append(self._bad(key, index, outcome))
        for key in self._last.keys() - claimed:
            rows.append(self._bad(key, self._last[key].index, Bad("lost", _UNLISTED, now_ns)))
        return tuple(sorted(rows, key=lambda gpu: (gpu.index, gpu.state == "lost", gpu.uuid or "")))

    def _key_at(self, index: int, claimed: set[str]) -> str:
        """Without a UUID (no handle could be had) it is the GPU last seen at that index."""
        known = (key for key, gpu in self._last.items() if gpu.index == index and key not in claimed)
        return next(known, f"#{index}")

    def _bad(self, key: str, index: int, bad: Bad) -> Gpu:
        state, since_ns = self._since.get(key, (None, 0))
        if state != bad.state:
            since_ns = bad.since_ns
            self._since[key] = (bad.state, since_ns)
        unread = Gpu(
            index=index, uuid=None if key.startswith("#") else key, reasons=dict.fromkeys(_FIGURES, bad.message)
        )
        last = self._last.get(key) or unread
        return msgspec.structs.replace(
            last, index=index, state=bad.state, state_message=bad.message, state_since_ns=since_ns
        )
