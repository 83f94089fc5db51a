"""First lines known by heart: whatever is guessed, a line is taken for another only if it is the same to the byte."""

from __future__ import annotations

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from decodetop.steps import heads
from decodetop.steps.heads import ENDING, GUESSED_MAX, OPENING, Heads, Ints, Strange, Words

NAMES = st.lists(st.text("ab<>,:1 ", max_size=400), min_size=1, max_size=24)


def _line(name: str, tid: int = 7) -> bytes:
    return OPENING + f'kernel", "name": "{name}", "pid": 0, "tid": {tid}'.encode() + ENDING


def _numbers(known: Heads, lines: list[bytes]) -> list[int]:
    """Numbers of lines that stand in one text, with what follows in a trace behind each."""
    behind = b"12.345, "
    text = b"[" + b"".join(line + behind for line in lines) + b" " * heads.WIDE
    ends = np.cumsum([len(line + behind) for line in lines]) + 1
    begin: Ints = np.append(1, ends[:-1])
    words: Words = np.ndarray((len(text) - heads.WIDE + 1,), "<u8", text, 0, (1,))
    return known.find(text, words, begin, ends).tolist()


@pytest.fixture(autouse=True)
def learns_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(heads, "LEARN_AFTER", 0)
    monkeypatch.setattr(heads, "LEARN_AFTER_SHARE", 0)


@given(NAMES, NAMES)
def test_lines_have_their_own_numbers_before_and_after_they_are_learnt(names: list[str], more: list[str]) -> None:
    known = Heads()
    for _ in range(3):
        for lines in ([_line(name) for name in names], [_line(name) for name in [*more, *names, *more]]):
            for line, number in zip(lines, _numbers(known, lines), strict=True):
                head = known.items[number]
                assert _line(head.name) == line
                assert known.length[number] == len(line)


@given(NAMES, st.integers(0, 10**4), st.integers(32, 126))
def test_a_byte_changed_in_a_learnt_line_is_seen(names: list[str], place: int, byte: int) -> None:
    known = Heads()
    lines = [_line(name) for name in names]
    _numbers(known, lines), _numbers(known, lines)
    changed = bytearray(lines[0])
    changed[place % len(changed)] = byte
    try:
        found = _numbers(known, [*lines, bytes(changed)])[-1]
    except (Strange, ValueError, msgspec.MsgspecError):
        return
    head = known.items[found]
    assert msgspec.json.decode(changed[: -len(ENDING)] + b"}", type=heads.Head) == head


def test_one_character_deep_in_a_long_name_tells() -> None:
    known = Heads()
    names = ["x" * 700 + digit + "y" * 700 for digit in "0123456789"]
    lines = [_line(name) for name in names] * 2
    assert _numbers(known, lines) == _numbers(known, lines) == list(range(10)) * 2
    other = _line("x" * 701 + "y" * 700)
    assert _numbers(known, [*lines, other])[-1] == 10


def test_more_lines_than_are_guessed() -> None:
    known = Heads()
    lines = [_line("k", tid) for tid in range(GUESSED_MAX + 50)]
    for _ in range(3):
        assert _numbers(known, lines) == list(range(len(lines)))


def test_lines_take_bounded_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(heads, "HEADS_MAX_BYTES", 300)
    known = Heads()
    with pytest.raises(Strange):
        _numbers(known, [_line("k", tid) for tid in range(10)])
