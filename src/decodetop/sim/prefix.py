"""The prefix cache: which leading tokens of a prompt were seen before."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence

BLOCK = 16
CAPACITY_BLOCKS = 65_536


class PrefixCache:
    """Least recently used blocks of `BLOCK` tokens, each known by the hash of all up to it."""

    def __init__(self, capacity_blocks: int = CAPACITY_BLOCKS) -> None:
        self._capacity = capacity_blocks
        self._blocks: OrderedDict[int, None] = OrderedDict()

    def admit(self, prompt: Sequence[int | str]) -> int:
        """How many leading tokens are cached (never all: the last one must be computed); remembers the prompt."""
        cached = 0
        missed = False
        seen = 0
        for start in range(0, len(prompt) - BLOCK + 1, BLOCK):
            seen = hash((seen, *prompt[start : start + BLOCK]))
            if seen in self._blocks:
                self._blocks.move_to_end(seen)
            else:
                missed = True
                self._blocks[seen] = None
            if not missed:
                cached = start + BLOCK
        while len(self._blocks) > self._capacity:
            self._blocks.popitem(last=False)
        return min(cached, len(prompt) - 1)

    def flush(self) -> None:
        self._blocks.clear()
