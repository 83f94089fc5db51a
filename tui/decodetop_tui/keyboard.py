"""What the terminal sends, as Textual's messages: no byte of it ends the screen or acts as a key nobody pressed.

Textual's own parser ends with the first byte that is no UTF-8, types a reply it does not know as so many keys, takes a
size from the line for the terminal's, and keeps a paste of any length, one object a character. So the stream is cut
into keys, sequences and pastes here; its parser sees only what is whole, and what comes out is checked.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Generator, Iterator

from textual import events, messages
from textual._xterm_parser import XTermParser
from textual.message import Message

PASTE_MAX_BYTES = 32 * 1024
"""More of one paste is dropped: nothing that is typed here is longer."""

ESCAPE_QUIETS, SEQUENCE_QUIETS, PASTE_QUIETS = 1, 3, 30
"""After so many calls of `quiet` a lone Esc is the key, the rest of a sequence won't come, a paste has ended."""

SEQUENCE_MAX_BYTES = 32
"""No key is longer, and Textual types longer ones letter by letter."""

_ESC = b"\x1b"
_PASTE_BEGIN, _PASTE_END = b"\x1b[200~", b"\x1b[201~"
_WHOLE = re.compile(
    rb"\x1b(?:\[M[\x00-\xff]{3}"  # the oldest mouse protocol
    rb"|\[\[[\x00-\xff]"  # F1 to F5 on the Linux console
    rb"|\[(?![M\[])[0-?]*[ -/]*[@-~]"
    rb"|O[ -~])"
)
_BEGUN = re.compile(rb"\x1b(?:\[M[\x00-\xff]{0,2}|\[\[|\[[0-?]*[ -/]*|O)?")
_UNSEEN = re.compile(rb"\x1b\[(?:M|.*t$)")
"""Not for Textual's parser: a mouse it does not read either, and a size, which is asked of the system."""

_STRING = re.compile(rb"\x1b[\]PX^_]")
_STRING_END = re.compile(rb"\x07|\x18|\x1a|\x1b\\|(?=\x1b[^\\])")
_SEQUENCE_END = re.compile(rb"[@-~]|(?=[\x00-\x1f\x7f-\xff])")

_KINDS = (
    events.Key,
    events.MouseEvent,
    events.AppFocus,
    events.AppBlur,
    messages.TerminalSupportsSynchronizedOutput,
)
"""All else the parser may give is dropped."""


class PasteCut(Message):
    """A paste was longer than what is kept of one."""


class Keyboard:
    """`feed` what was read; `quiet` when nothing came for a tenth of a second. Both give the messages that are due."""

    def __init__(self, *, mouse: bool = True) -> None:
        """Without `mouse`, what looks like one was not meant for us."""
        self._kinds = tuple(kind for kind in _KINDS if mouse or kind is not events.MouseEvent)
        self._parser = XTermParser()
        self._text = codecs.getincrementaldecoder("utf-8")("replace")
        self._held = b""
        self._pasted: bytearray | None = None
        self._cut = False
        self._skipped_to: re.Pattern[bytes] | None = None
        self._quiets = 0

    def feed(self, data: bytes) -> Iterator[Message]:
        self._quiets = 0
        data, self._held = self._held + data, b""
        while data:
            if self._pasted is not None:
                data = yield from self._paste(self._pasted, data)
            elif self._skipped_to is not None:
                data = self._skip(self._skipped_to, data)
            else:
                text, escape, rest = data.partition(_ESC)
                yield from self._typed(self._text.decode(text, final=bool(escape)))
                data = (yield from self._escape(escape + rest)) if escape else b""

    def quiet(self) -> Iterator[Message]:
        self._quiets += 1
        if self._pasted is not None:
            if self._quiets >= PASTE_QUIETS:
                self._held = b""
                yield from self._end_paste(self._pasted)
        elif self._held == _ESC and self._skipped_to is None:
            if self._quiets >= ESCAPE_QUIETS:
                self._held = b""
                yield events.Key("escape", "\x1b")
        elif self._quiets >= SEQUENCE_QUIETS:
            self._held, self._skipped_to = b"", None
            yield from self._typed(self._text.decode(b"", final=True))

    def _escape(self, data: bytes) -> Generator[Message, None, bytes]:
        """`data` begins with Esc; gives what is to be read on."""
        whole = _WHOLE.match(data)
        if whole is not None:
            if whole[0] == _PASTE_BEGIN:
                self._pasted, self._cut = bytearray(), False
            elif len(whole[0]) <= SEQUENCE_MAX_BYTES and not _UNSEEN.match(whole[0]):
                yield from self._parsed(whole[0].decode("latin-1"))
            return data[whole.end() :]
        if _STRING.match(data):
            self._skipped_to = _STRING_END
            return data[2:]
        begun = _BEGUN.match(data)
        assert begun is not None
        if len(begun[0]) > SEQUENCE_MAX_BYTES:
            self._skipped_to = _SEQUENCE_END
        elif begun.end() == len(data):
            self._held = data
            return b""
        elif begun[0] == _ESC:
            yield events.Key("escape", "\x1b")  # pressed just before another key; there is no Alt here
        return data[begun.end() :]

    def _paste(self, pasted: bytearray, data: bytes) -> Generator[Message, None, bytes]:
        text, end, rest = data.partition(_PASTE_END)
        if not end:
            # the mark may come in two pieces
            size = next(size for size in range(len(_PASTE_END) - 1, -1, -1) if text.endswith(_PASTE_END[:size]))
            text, self._held = text[: len(text) - size], text[len(text) - size :]
        room = PASTE_MAX_BYTES - len(pasted)
        pasted += text[:room]
        self._cut = self._cut or len(text) > room
        if end:
            yield from self._end_paste(pasted)
        return rest

    def _end_paste(self, pasted: bytearray) -> Iterator[Message]:
        self._pasted = None
        yield events.Paste(pasted.decode("utf-8", "replace"))
        if self._cut:
            yield PasteCut()

    def _skip(self, to: re.Pattern[bytes], data: bytes) -> bytes:
        end = to.search(data)
        if end is not None:
            self._skipped_to = None
            return data[end.end() :]
        if data.endswith(_ESC):
            self._held = _ESC  # may be the first half of the end
        return b""

    def _typed(self, text: str) -> Iterator[Message]:
        if text:
            yield from self._parsed(text)

    def _parsed(self, text: str) -> Iterator[Message]:
        """What Textual makes of one whole sequence, or of text without any."""
        found: list[Message] = []
        try:
            found.extend(self._parser.feed(text))
        except (ValueError, OverflowError):  # a key's code that is no character's
            found.clear()
        if not found:
            self._parser = XTermParser()  # it waits for more of what it does not know
        for message in found:
            if isinstance(message, self._kinds) and not _is_half(message):
                yield message


def _is_half(message: Message) -> bool:
    """A key whose character is half a pair: it can't be written to a terminal or a file."""
    return isinstance(message, events.Key) and any(0xD800 <= ord(char) < 0xE000 for char in message.character or "")
