"""Server-sent events, to the letter of the WHATWG text, from bytes as they arrive. Pure.

Lines end at LF, CRLF or CR and at nothing else (U+2028, U+2029 and U+0085 are ordinary text inside JSON). A read may
end anywhere: inside a CRLF, a JSON string or a UTF-8 sequence. An event that the stream never completed is not one.
"""

from __future__ import annotations

import re

import msgspec

from decodetop.errors import RequestError

EVENT_MAX_BYTES = 8 << 20
"""SGLang repeats the whole answer in each event, and a million tokens are less; each stream may hold so much."""

LINE_BYTES = 64
"""What a line costs besides its text."""

_BOM = b"\xef\xbb\xbf"
_LINE_END = re.compile(rb"\r\n|\n|\r")


class Event(msgspec.Struct, frozen=True, gc=False):
    """One event. `t_ns` is the stamp of the read that completed it, `kind` its `event:` field (default `message`)."""

    data: bytes
    t_ns: int
    kind: str = "message"


class SseDecoder:
    """`feed` each read with its stamp; the events it completed come back in order."""

    def __init__(self) -> None:
        self._rest = bytearray()
        """Of a line without its end; added to in place, for an event may come in very many reads."""
        self._data: list[bytes] = []
        self._size = 0
        """Of `_data`, with a little for each line."""
        self._kind = ""
        self._skip_lf = False
        self._started = False

    @property
    def inside_event(self) -> bool:
        """Bytes of an event not yet completed are held."""
        return bool(self._rest or self._data)

    def feed(self, read: bytes, t_ns: int) -> list[Event]:
        """Raises RequestError when an event grows past EVENT_MAX_BYTES."""
        if not self._started:
            read = self._start(read)
        if self._skip_lf and read:
            self._skip_lf = False
            if read.startswith(b"\n"):
                read = read[1:]
        if not self._rest and not self._data and read.endswith(b"\n\n") and b"\r" not in read:
            return self._whole(read, t_ns)
        return self._by_line(read, t_ns)

    def _start(self, read: bytes) -> bytes:
        """Drop one leading byte order mark, which may itself come in pieces."""
        read = bytes(self._rest) + read
        if len(read) < len(_BOM) and _BOM.startswith(read):
            self._rest[:] = read
            return b""
        self._rest.clear()
        self._started = True
        return read.removeprefix(_BOM)

    def _whole(self, read: bytes, t_ns: int) -> list[Event]:
        """The common case: a read of whole events with LF, most of them one `data: ` line."""
        events: list[Event] = []
        for block in read.split(b"\n\n"):
            if block.startswith(b"data: ") and b"\n" not in block:
                events.append(Event(block[6:], t_ns))
            elif block:
                for line in block.split(b"\n"):
                    self._line(line, events, t_ns)
                self._line(b"", events, t_ns)
        return events

    def _by_line(self, read: bytes, t_ns: int) -> list[Event]:
        events: list[Event] = []
        if not self._started:
            return events
        first = _LINE_END.search(read)
        if first is None:
            self._keep(read)
            return events
        self._line(bytes(self._rest) + read[: first.start()], events, t_ns)
        self._rest.clear()
        start = first.end()
        for end in _LINE_END.finditer(read, start):
            self._line(read[start : end.start()], events, t_ns)
            start = end.end()
        if start == len(read) and read.endswith(b"\r"):
            self._skip_lf = True
        self._keep(read[start:])
        return events

    def _keep(self, part: bytes) -> None:
        """Of a line without its end; a comment, which keeps a connection open, may go on for ever."""
        if not self._rest.startswith(b":"):
            self._rest += part
        if len(self._rest) + self._size > EVENT_MAX_BYTES:
            raise RequestError(f"an event of the stream is longer than {EVENT_MAX_BYTES >> 20} MiB")

    def _line(self, line: bytes, events: list[Event], t_ns: int) -> None:
        if not line:
            if self._data:
                events.append(Event(b"\n".join(self._data), t_ns, self._kind or "message"))
                self._data, self._size = [], 0
            self._kind = ""
            return
        field, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if field == b"data":
            self._data.append(value)
            self._size += len(value) + LINE_BYTES
        elif field == b"event":
            self._kind = value.decode("utf-8", "replace")
