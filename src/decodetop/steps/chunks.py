"""Cuts the text of a Kineto file between events, so that it can be decoded a chunk at a time.

Writer layout (libkineto output_json.cpp): header keys, `"traceEvents": [`, events, `]`, footer keys. Post-processed
files have the keys in any order; old autograd files are a bare list.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from decodetop.errors import TraceError

BOUNDARY = re.compile(rb'\}\s*,(?=\s*\{\s*"(?:ph|name|cat|pid|tid|ts|args|dur|id|s|bp)"\s*:)')
"""Between two events. It can't match inside a JSON string: an inner quote is escaped there, and a closing quote is
never followed by a colon. A nested object that starts with one of these keys can match; `rescue` glues it."""

HEADER_MAX_BYTES = 16 << 20
"""Log lines once stood in the header (kineto #1336), so it can be large; no real one comes near this."""
EVENT_MAX_BYTES = 8 << 20
FOOTER_MAX_BYTES = 4 << 20
_EVENTS = re.compile(rb'"traceEvents"\s*:\s*\[')
_LOOK_BACK = 1 << 12
_OVERLAP = 64


class Chunks:
    """Iterate for lists of whole events, `[{..},{..}]`; `last` is True while the tail, as it is, is handed out.

    `header` is the text before the events and `footer` what follows them, for the metadata; both bounded.
    """

    def __init__(self, blocks: Iterable[bytes], name: str) -> None:
        self.header = b""
        self.footer = b""
        self.last = False
        self.skipped_bytes = 0
        self._blocks = iter(blocks)
        self._name = name
        self._ended = False

    def end_events(self, rest: bytes) -> None:
        """The decoder met the end of the event list; `rest` and all that follows is footer."""
        self._ended = True
        self.footer = (self.footer + rest)[:FOOTER_MAX_BYTES]

    def __iter__(self) -> Iterator[bytes]:
        """Raises TraceError if there is no event list."""
        rest, block = b"", self._find_events()
        while True:
            cut = None if self._ended else _last_boundary(block)
            if self._ended:
                self.end_events(rest + block)
                rest = b""
            elif cut is None:
                rest += block
                if len(rest) > EVENT_MAX_BYTES:
                    self.skipped_bytes += len(rest)
                    rest = b""
            else:
                yield b"".join((b"[", rest, memoryview(block)[: cut.start() + 1], b"]"))
                rest = block[cut.end() :]
            following = next(self._blocks, None)
            if following is None:
                break
            block = following
        self.last = True
        if self._ended:
            self.end_events(rest)
        else:
            yield b"[" + rest + b"]"

    def _find_events(self) -> bytes:
        text = b""
        for block in self._blocks:
            seen = max(0, len(text) - _OVERLAP)
            text += block
            stripped = text.lstrip(b"\xef\xbb\xbf \t\r\n")[:1]
            if stripped == b"[":
                return text[text.index(b"[") + 1 :]
            if stripped not in (b"{", b""):
                break
            found = _EVENTS.search(text, seen)
            if found:
                self.header = text[: found.start()]
                return text[found.end() :]
            if len(text) > HEADER_MAX_BYTES:
                break
        hint = "a torch.profiler trace holds a `traceEvents` list; give the .trace.json(.gz) that the engine wrote"
        raise TraceError(f"{self._name} is not a profiler trace: no traceEvents in it", hint)


def _last_boundary(text: bytes) -> re.Match[bytes] | None:
    """The last place to cut, searched from the end in growing windows."""
    window = _LOOK_BACK
    while True:
        start = max(0, len(text) - window)
        found = list(BOUNDARY.finditer(text, start))
        if found:
            return found[-1]
        if start == 0:
            return None
        window *= 8
