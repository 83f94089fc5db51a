"""Three-way merge: nothing of either side is lost."""

from __future__ import annotations

from difflib import SequenceMatcher
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from decodetop.todo import merge
from decodetop.todo.document import Document, Item, same
from decodetop.todo.merge import heal, likely_base, merge3, similar

WORDS = st.sampled_from(["profile", "read trace", "floor", "enable graphs", "fp8 kv", "page size 64"])
STATUS = st.sampled_from(["pending", "in_progress", "completed", "cancelled", "blocked"])
NOTES = st.lists(st.sampled_from([{"change": "a"}, {"change": "b"}, {"change": "c"}, 1, True, None]), max_size=3)


FEW = settings(max_examples=40, deadline=None)


def item(id: str, content: str = "x", **more: Any) -> Item:
    return {"id": id, "content": content, "status": "pending", **more}


def doc(*items: Item, **fields: Any) -> Document:
    return Document(items=items, fields=fields)


def by_id(document: Document) -> dict[str, Item]:
    return {entry["id"]: entry for entry in document.items}


@st.composite
def documents(draw: st.DrawFn) -> Document:
    items = []
    for number in draw(st.lists(st.integers(1, 6), unique=True, max_size=5)):
        entry = item(f"t{number}", draw(WORDS), status=draw(STATUS))
        if draw(st.booleans()):
            entry["attempts"] = draw(NOTES)
        items.append(entry)
    return Document(fields={"next_id": 7}, items=tuple(items))


@st.composite
def edited(draw: st.DrawFn, base: Document, new_from: int) -> Document:
    """`base` after some edits, as one side of a conflict makes them."""
    items = [dict(entry) for entry in base.items if draw(st.integers(0, 5))]
    for entry in items:
        for name, values in (("content", WORDS), ("status", STATUS), ("attempts", NOTES), ("seen", st.integers(0, 3))):
            if not draw(st.integers(0, 3)):
                entry[name] = draw(values)
    if draw(st.booleans()):
        items = draw(st.permutations(items))
    for number in range(draw(st.integers(0, 2))):
        place = draw(st.integers(0, len(items)))
        items.insert(place, item(f"t{new_from + number}", draw(WORDS)))
    return Document(fields={"next_id": new_from + 2}, items=tuple(items))


@st.composite
def triples(draw: st.DrawFn, apart: bool = True) -> tuple[Document, Document, Document]:
    base = draw(documents())
    return base, draw(edited(base, 7)), draw(edited(base, 9 if apart else 7))


@FEW
@given(triples())
def test_no_item_and_no_edit_of_either_side_is_lost(sides: tuple[Document, Document, Document]) -> None:
    base, ours, theirs = sides
    merged = by_id(merge3(base, ours, theirs))
    old, mine, other = by_id(base), by_id(ours), by_id(theirs)
    for here, there in ((mine, other), (other, mine)):
        for id, entry in here.items():
            if id not in old or (not same(entry, old[id])):
                assert id in merged, "an added or edited item is kept, whatever the other side did"
            elif id not in there:
                assert id not in merged, "removed there and untouched here: removed"
            else:
                assert id in merged
    for id, entry in merged.items():
        told = [conflict["theirs"] for conflict in entry.get("conflicts", ())]
        for side in (mine.get(id, {}), other.get(id, {})):
            for name, value in side.items():
                changed = not same(value, old.get(id, {}).get(name))
                if name == "attempts":
                    kept = [one for one in value if not any(same(one, was) for was in old.get(id, {}).get(name, []))]
                    assert all(any(same(one, now) for now in entry[name]) for one in kept)
                elif changed and side:
                    assert same(entry.get(name), value) or any(same(value, one) for one in told)


@FEW
@given(triples(apart=False))
def test_new_items_under_one_id_are_both_kept(sides: tuple[Document, Document, Document]) -> None:
    base, ours, theirs = sides
    merged = merge3(base, ours, theirs)
    assert len(set(merged.ids)) == len(merged.ids)
    words = [entry["content"] for entry in merged.items]
    for side in (ours, theirs):
        for entry in side.items:
            if entry["id"] not in base.ids:
                assert entry["content"] in words


@FEW
@given(triples(apart=False))
def test_merging_again_changes_nothing(sides: tuple[Document, Document, Document]) -> None:
    base, ours, theirs = sides
    merged = merge3(base, ours, theirs)
    assert same(merge3(theirs, merged, theirs).items, merged.items)
    assert same(merge3(base, base, ours).items, ours.items)
    assert same(merge3(base, ours, base).items, ours.items)
    assert same(merge3(base, ours, ours).items, ours.items)


@FEW
@given(triples())
def test_sides_may_be_swapped_where_they_do_not_conflict(sides: tuple[Document, Document, Document]) -> None:
    base, ours, theirs = sides
    one, other = by_id(merge3(base, ours, theirs)), by_id(merge3(base, theirs, ours))
    assert one.keys() == other.keys()
    for id in one:
        if "conflicts" not in one[id]:
            lists = ("attempts",)
            assert same(*({k: v for k, v in side[id].items() if k not in lists} for side in (one, other)))
            for name in lists:
                assert sorted(map(repr, one[id].get(name, []))) == sorted(map(repr, other[id].get(name, [])))


def test_edits_of_different_fields_of_one_item_come_together() -> None:
    base = doc(item("t1", "profile"))
    ours = doc(item("t1", "profile", status="completed"))
    theirs = doc(item("t1", "profile decode", note="x"))
    assert merge3(base, ours, theirs).items == (
        {"id": "t1", "content": "profile decode", "status": "completed", "note": "x"},
    )


def test_where_both_changed_one_field_ours_stands_and_theirs_is_told() -> None:
    base, ours, theirs = doc(item("t1", "a")), doc(item("t1", "b")), doc(item("t1", "c"))
    (entry,) = merge3(base, ours, theirs).items
    assert entry["content"] == "b"
    assert entry["conflicts"] == [{"field": "content", "theirs": "c"}]


def test_one_and_true_are_two_values() -> None:
    base, theirs = doc(item("t1", extra=1)), doc(item("t1", extra=True))
    assert merge3(base, base, theirs).items[0]["extra"] is True


def test_an_edit_wins_over_a_removal_on_both_sides() -> None:
    base = doc(item("t1", "a"), item("t2", "b"))
    ours = doc(item("t1", "a2"))
    theirs = doc(item("t2", "b2"))
    assert [entry["content"] for entry in merge3(base, ours, theirs).items] == ["a2", "b2"]


def test_added_items_stay_behind_their_neighbour_and_later_ones_follow_earlier_ones() -> None:
    base = doc(item("t1"), item("t2"))
    ours = doc(item("t1"), item("t2"), item("t4", "ours"))
    theirs = doc(item("t1"), item("t5", "between"), item("t2"), item("t3", "theirs"))
    assert merge3(base, ours, theirs).ids == ("t1", "t5", "t2", "t3", "t4")


def test_our_order_stands_when_we_moved_items() -> None:
    base = doc(item("t1"), item("t2"), item("t3"))
    ours = doc(item("t3"), item("t1"), item("t2"))
    theirs = doc(item("t1"), item("t2"), item("t4", "new"), item("t3"))
    assert merge3(base, ours, theirs).ids == ("t3", "t1", "t2", "t4")


def test_a_renamed_new_item_takes_its_references_along() -> None:
    base = doc(next_id=1)
    ours = doc(item("t1", "ours"), item("t2", "child", parent="t1", blocked_by=["t1"]), next_id=3)
    theirs = doc(item("t1", "theirs"), next_id=2)
    merged = by_id(merge3(base, ours, theirs))
    renamed = next(id for id, entry in merged.items() if entry["content"] == "ours")
    assert renamed != "t1"
    assert (merged["t2"]["parent"], merged["t2"]["blocked_by"]) == (renamed, [renamed])


def test_ids_are_never_given_again() -> None:
    base = doc(item("t1"), item("t2"), next_id=3)
    merged = merge3(base, doc(item("t1"), next_id=9), doc(item("t1"), next_id=3))
    assert merged.ids == ("t1",)
    assert merged.next_id == 9


def test_unknown_top_level_fields_are_merged_like_an_items() -> None:
    merged = merge3(doc(theme="a", left=1), doc(theme="a", mine=2), doc(theme="b", left=1))
    assert merged.fields == {"theme": "b", "mine": 2}


def test_a_tool_that_rewrites_the_list_without_ids_means_the_items_it_names() -> None:
    base = doc(item("t1", "Profile", notes="see run 4"), item("t2", "Floor", attempts=[1]), next_id=3, schema=1)
    read = doc({"content": "floor", "status": "completed"}, {"content": "new", "status": "pending"})
    healed = heal(read, base)
    assert healed.items == (
        {"id": "t2", "content": "floor", "status": "completed", "attempts": [1]},
        {"id": "t3", "content": "new", "status": "pending"},
    )
    assert healed.fields == {"next_id": 3, "schema": 1}


def test_a_tool_that_keeps_ids_but_not_our_fields_takes_nothing_away() -> None:
    base = doc(item("t1", "Profile", notes="see run 4", attempts=[1]))
    read = doc({"id": "t1", "content": "Profile it", "status": "completed", "priority": "high"})
    (entry,) = heal(read, base).items
    assert entry == {**base.items[0], "content": "Profile it", "status": "completed", "priority": "high"}


def test_a_field_taken_out_by_hand_is_taken_out() -> None:
    base = doc(item("t1", notes="old", status_history=[1]))
    read = doc(item("t1", status_history=[1]))
    assert "notes" not in heal(read, base).items[0]


def test_the_same_words_twice_are_two_items() -> None:
    base = doc(item("t1", "run bench", notes="first"), item("t2", "run bench", notes="second"))
    read = doc(*({"content": "run bench", "status": "completed"} for _ in range(3)))
    healed = heal(read, base)
    assert healed.ids == ("t1", "t2", "t3")
    assert [entry.get("notes") for entry in healed.items] == ["first", "second", None]


def test_a_list_is_measured_against_the_version_it_was_made_from() -> None:
    first = doc(item("t1", "a"), item("t2", "b"), schema=1, next_id=3)
    second = doc(item("t1", "a", status="completed"), item("t2", "b"), item("t3", "c"), schema=1, next_id=4)
    versions = [doc(), first, second]
    agent = doc({"content": "a", "status": "pending"}, {"content": "b", "status": "completed"})
    assert likely_base(agent, versions) is first
    knows = doc(*agent.items, {"content": "c", "status": "pending"})
    assert likely_base(knows, versions) is second
    removed_by_hand = doc(item("t1", "a", status="completed"), item("t2", "B"), schema=1, next_id=4)
    assert likely_base(removed_by_hand, versions) is second
    old_buffer = doc(item("t1", "a"), item("t2", "B"), schema=1, next_id=3)
    assert likely_base(old_buffer, versions) is first
    assert likely_base(first, versions) is second, "put back on purpose"
    assert likely_base(doc({"content": "a new plan", "status": "pending"}), versions) is second


def test_words_only_the_newest_version_knows_name_its_item() -> None:
    base = doc(item("t1", "a"), next_id=2)
    newest = doc(item("t1", "a"), item("t2", "c", notes="n"), next_id=3)
    read = doc({"content": "c", "status": "completed"}, {"content": "d", "status": "pending"})
    assert [(entry["id"], entry.get("notes")) for entry in heal(read, base, newest).items] == [
        ("t2", "n"),
        ("t3", None),
    ]


def test_long_words_are_compared_by_what_they_begin_and_end_with(monkeypatch: pytest.MonkeyPatch) -> None:
    """An agent keeps whole texts in an item: comparing two of 8 kB character by character took 7 s."""
    seen: list[int] = []

    class Counting(SequenceMatcher[str]):
        def __init__(self, junk: None, one: str, other: str, autojunk: bool) -> None:
            seen.append(max(len(one), len(other)))
            super().__init__(junk, one, other, autojunk)

    monkeypatch.setattr(merge, "SequenceMatcher", Counting)
    text = " ".join(f"step {at} of the decode" for at in range(2_000))
    half = len(text) // 2
    assert similar({"content": text}, {"content": f"{text[:half]} and a remark {text[half:]}"})
    assert similar({"content": text}, {"content": f"First: {text[: half + half // 2]}"})
    assert not similar({"content": text}, {"content": " ".join(f"{at}: upgrade driver {at}" for at in range(4_000))})
    assert seen and max(seen) <= merge.HEAD
