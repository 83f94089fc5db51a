"""Whatever a terminal sends: keys come out as keys, everything else as nothing, and it never raises."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from textual import events, messages
from textual.message import Message

from decodetop_tui.keyboard import (
    ESCAPE_QUIETS,
    PASTE_MAX_BYTES,
    PASTE_QUIETS,
    SEQUENCE_QUIETS,
    Keyboard,
    PasteCut,
)


def read(*pieces: bytes, mouse: bool = True, quiets: int = PASTE_QUIETS) -> list[Message]:
    """What comes of the pieces and of the silence after them."""
    keyboard = Keyboard(mouse=mouse)
    found = [message for piece in pieces for message in keyboard.feed(piece)]
    for _ in range(quiets):
        found.extend(keyboard.quiet())
    return found


def keys(*pieces: bytes, quiets: int = PASTE_QUIETS) -> list[str]:
    return [message.key for message in read(*pieces, quiets=quiets) if isinstance(message, events.Key)]


SEQUENCES = (
    *(
        b"\x1b",
        b"\x1b[",
        b"\x1b]",
        b"\x1bP",
        b"\x1b_",
        b"\x1bO",
        b"\x1b[200~",
        b"\x1b[201~",
        b"\x1b[M",
        b"\x1b[<",
        b"M",
    ),
    *(
        b"\x1b[48;99999999;99999999;1;1t",
        b"\x1b[48;0;0;0;0t",
        b"\x1b[?2048;1$y",
        b"\x1b[<0;99999999;9999999M",
        b"\x1b\\",
    ),
    *(b"\x1b[1114112u", b"\x1b[99999999999999999999u", b"\x1b[55296u", b"\x1b[97;1:2;3u", b"\x1b[1;1;55296u", b"\xff"),
    *(b"\x1b[1;1R", b"\x1b[999999;1R", b"\x1b[I", b"\x1b[A", b"\x1b[[A", b"\xc3", b"\x00", b"q", b"\x80", b"~", b";1"),
    b"\x1b\\",
)
BYTES = st.lists(st.one_of(st.binary(max_size=8), st.sampled_from(SEQUENCES)), max_size=12)


@given(BYTES, st.booleans())
def test_any_bytes_give_only_what_a_keyboard_gives(pieces: list[bytes], mouse: bool) -> None:
    kinds = (events.Key, events.Paste, events.AppFocus, events.AppBlur, PasteCut)
    for message in read(*pieces, mouse=mouse):
        if isinstance(message, events.MouseEvent):
            assert mouse
        elif not isinstance(message, messages.TerminalSupportsSynchronizedOutput):
            assert isinstance(message, kinds), message
        if isinstance(message, events.Key):
            (message.character or "").encode()


@given(BYTES)
def test_after_any_bytes_and_a_pause_keys_are_keys_again(pieces: list[bytes]) -> None:
    keyboard = Keyboard()
    for piece in pieces:
        list(keyboard.feed(piece))
    for _ in range(PASTE_QUIETS):
        list(keyboard.quiet())
    assert [message.key for message in keyboard.feed(b"j\x1b[B") if isinstance(message, events.Key)] == ["j", "down"]


@given(st.lists(st.sampled_from([*SEQUENCES, b"abc", "é漢".encode(), b"\r", b"\x1b[1;5C"]), max_size=6), st.data())
def test_it_does_not_matter_how_the_line_cuts_it(pieces: list[bytes], data: st.DataObject) -> None:
    whole = b"".join(pieces)
    cuts = sorted(data.draw(st.sets(st.integers(0, len(whole)), max_size=5)))
    parts = [whole[low:high] for low, high in zip([0, *cuts], [*cuts, len(whole)], strict=True)]
    assert [repr(one) for one in read(*parts)] == [repr(one) for one in read(whole)]


def test_keys_and_sequences_are_what_they_are() -> None:
    typed = b"a\x1b[A\x1bOB\x1b[5~\x1b[Z\r\t\x7f\x03 \x1b[97u\x1b[1;1H\xc3\xa9"
    wanted = ["a", "up", "down", "pageup", "shift+tab", "enter", "tab", "backspace", "ctrl+c", "space", "a", "home"]
    assert keys(typed) == [*wanted, "é"]


def test_a_byte_that_is_no_utf8_is_one_odd_character() -> None:
    assert [one.character for one in read(b"a\xe9b\xff") if isinstance(one, events.Key)] == [
        "a",
        "\ufffd",
        "b",
        "\ufffd",
    ]


@pytest.mark.parametrize(
    "reply",
    [
        b"\x1b]11;rgb:1e1e/1e1e/2e2e\x07",
        b"\x1b]11;rgb:1e1e/1e1e/2e2e\x1b\\",
        b"\x1bP>|tmux 3.4\x1b\\",
        b"\x1b_Gi=31;OK\x1b\\",
        b"\x1b[?62;22c",
        b"\x1b[>1;10;0c",
        b"\x1b[12;40R",
        b"\x1b[?1;2;3;4;5;6;7;8;9;10;11;12;13;14;15;16q",
        b"\x1b[48;50;200;1000;2000t",
        b"\x1b[M !!",
        b"\x1b[<0;5;5M",
        b"\x1b[1114112u",
        b"\x1b[57400:1;9:9:9u",
    ],
)
@pytest.mark.parametrize("bytewise", [False, True])
def test_a_reply_of_the_terminal_types_nothing(reply: bytes, bytewise: bool) -> None:
    pieces = [reply[at : at + 1] for at in range(len(reply))] if bytewise else [reply]
    assert read(*pieces, b"j", mouse=False)[0].key == "j"  # type: ignore[attr-defined]
    assert keys(*pieces) == []


def test_a_sequence_that_never_ends_is_given_up() -> None:
    for begun in (b"\x1b[1;", b"\x1b]52;c;QUJD", b"\x1bPq", b"\x1b[" + b"1" * 5000, b"\x1b[M", b"\xe6\xbc"):
        keyboard = Keyboard()
        found = list(keyboard.feed(begun))
        for _ in range(SEQUENCE_QUIETS):
            found.extend(keyboard.quiet())
        found.extend(keyboard.feed(b"j"))
        assert [one.key for one in found if isinstance(one, events.Key)][-1:] == ["j"]
        assert not [one for one in found if isinstance(one, events.Key) and one.key in "152M"]


def test_escape_alone_and_before_another_key() -> None:
    assert keys(b"\x1b", quiets=ESCAPE_QUIETS) == ["escape"]
    assert keys(b"\x1b", quiets=0) == []
    assert keys(b"\x1bj") == ["escape", "j"]
    assert keys(b"\x1b\x1b", quiets=ESCAPE_QUIETS) == ["escape", "escape"]
    assert keys(b"\x1b", b"[A", quiets=0) == ["up"]


def pastes(*pieces: bytes) -> list[str]:
    return [message.text for message in read(*pieces) if isinstance(message, events.Paste)]


def test_a_paste_is_text_whatever_is_in_it() -> None:
    assert pastes(b"\x1b[200~one\ntwo \x1b[A \xff q\x1b[201~") == ["one\ntwo \x1b[A \ufffd q"]
    assert pastes(b"\x1b[2", b"00~on", b"e\x1b[20", b"1~") == ["one"]
    assert keys(b"\x1b[200~q\x1b[201~j") == ["j"]


def test_a_paste_without_an_end_ends_with_silence() -> None:
    assert pastes(b"\x1b[200~words") == ["words"]
    keyboard = Keyboard()
    list(keyboard.feed(b"\x1b[200~words"))
    assert [one for _ in range(PASTE_QUIETS - 1) for one in keyboard.quiet()] == []


def test_a_huge_paste_is_cut_and_said_so() -> None:
    keyboard = Keyboard()
    found = list(keyboard.feed(b"\x1b[200~"))
    for _ in range(200):
        found += keyboard.feed(b"x" * 4096)
    found += keyboard.feed(b"\x1b[201~j")
    paste, cut, key = found
    assert isinstance(paste, events.Paste) and paste.text == "x" * PASTE_MAX_BYTES
    assert isinstance(cut, PasteCut) and isinstance(key, events.Key)
