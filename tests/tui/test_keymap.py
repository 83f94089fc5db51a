"""The key table and a user's own keys over it."""

from __future__ import annotations

import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from decodetop_tui.keymap import GROUPS, NAMED_KEYS, Action, build, is_key, name_of
from decodetop_tui.keys import ACTIONS
from decodetop_tui.offers import OFFERED


def test_no_key_and_no_id_is_given_twice() -> None:
    keys = [key for action in ACTIONS for key in action.keys]
    assert len(keys) == len(set(keys))
    assert len({action.id for action in ACTIONS}) == len(ACTIONS)


@pytest.mark.parametrize("action", ACTIONS, ids=lambda action: action.id)
def test_every_action_is_complete(action: Action) -> None:
    assert 0 < len(action.title) <= 18 and action.group in GROUPS
    assert 0 < len(action.help) <= 46  # a row of the help screen
    assert action.keys and all(is_key(key) for key in action.keys)


def test_what_the_footer_offers_is_in_the_table_and_stands_there_once() -> None:
    ids = [id for id, _ in OFFERED]
    assert len(set(ids)) == len(ids) and set(ids) <= {action.id for action in ACTIONS}
    assert len({word for _, word in OFFERED}) == len(ids)


def test_the_keys_of_the_design_are_there() -> None:
    by_key = build(ACTIONS, {}).by_key
    wanted = (
        "q ? tab shift+tab 1 2 3 4 5 6 enter escape j k up down pageup pagedown g G space r + - / : b s B a x i e u J K"
    )
    wanted += " m v w y P R [ ] { } S T"
    assert [key for key in wanted.split() if key not in by_key] == []


def test_an_own_key_replaces_the_tables() -> None:
    keymap = build(ACTIONS, {"freeze": "z f5"})
    assert keymap.problems == ()
    assert keymap.by_key["z"].id == keymap.by_key["f5"].id == "freeze"
    assert "space" not in keymap.by_key
    assert keymap.shown("freeze") == "z F5"


def test_two_actions_may_swap_their_keys() -> None:
    keymap = build(ACTIONS, {"report": "y", "copy": "w"})
    assert keymap.problems == ()
    assert (keymap.by_key["y"].id, keymap.by_key["w"].id) == ("report", "copy")


@pytest.mark.parametrize(
    ("own", "word"),
    [
        ({"explode": "z"}, "no such action"),
        ({"freeze": "q"}, "q is already quit's"),
        ({"freeze": "ctrl+s"}, "'ctrl+s' is not a key"),
        ({"freeze": "zz"}, "'zz' is not a key"),
        ({"quit": ""}, "nothing would quit"),
    ],
)
def test_a_wrong_entry_is_refused_and_named_and_the_rest_counts(own: dict[str, str], word: str) -> None:
    keymap = build(ACTIONS, {**own, "theme": "ctrl+t"})
    (problem,) = keymap.problems
    assert word in problem and next(iter(own)) in problem
    assert keymap.by_key["ctrl+t"].id == "theme"
    assert keymap.by_key["space"].id == "freeze" and keymap.by_key["q"].id == "quit"


@given(
    st.dictionaries(
        st.sampled_from([action.id for action in ACTIONS]),
        st.lists(st.sampled_from([*NAMED_KEYS, *string.printable]), max_size=3).map(" ".join),
        max_size=8,
    )
)
def test_whatever_is_asked_for_quit_is_reachable_and_no_key_is_ambiguous(own: dict[str, str]) -> None:
    keymap = build(ACTIONS, own)
    assert "quit" in {action.id for action in keymap.by_key.values()}
    keys = [key for keys in keymap.keys.values() for key in keys]
    assert len(keys) == len(set(keys)) or any(len(set(k)) < len(k) for k in keymap.keys.values())
    for id, text in own.items():
        refused = any(f"key {id} = " in problem for problem in keymap.problems)
        assert refused or keymap.keys[id] == tuple(text.split())


@pytest.mark.parametrize(
    ("key", "character", "name"),
    [
        ("question_mark", "?", "?"),
        ("J", "J", "J"),
        ("space", " ", "space"),
        ("tab", "\t", "tab"),
        ("ctrl+p", "\x10", "ctrl+p"),
        ("left_square_bracket", "[", "["),
        ("pagedown", None, "pagedown"),
        ("alt+x", "x", "alt+x"),
    ],
)
def test_key_events_have_our_names(key: str, character: str | None, name: str) -> None:
    assert name_of(key, character) == name
