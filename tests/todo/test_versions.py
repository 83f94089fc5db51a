"""What the file was known to hold."""

from __future__ import annotations

from decodetop.todo import versions
from decodetop.todo.document import Document
from decodetop.todo.versions import Versions


def doc(number: int, items: int = 1) -> Document:
    return Document(items=tuple({"id": f"t{n}", "content": f"{number}", "status": "pending"} for n in range(items)))


def test_the_same_again_is_one_version() -> None:
    known = Versions()
    assert not known and known.newest == Document()
    for number in (1, 1, 2):
        known.remember(doc(number))
    assert known.all == (doc(1), doc(2)) and known.newest == doc(2)


def test_what_a_foreign_tool_wrote_is_kept_longest() -> None:
    known = Versions()
    known.remember(doc(0), foreign=True)
    for number in range(1, versions.KEPT * 3):
        known.remember(doc(number))
    assert len(known.all) == versions.KEPT
    assert known.all[0] == doc(0) and known.newest == doc(versions.KEPT * 3 - 1)


def test_foreign_versions_do_not_push_all_others_out() -> None:
    known = Versions()
    for number in range(versions.KEPT * 3):
        known.remember(doc(number), foreign=number % 4 > 0)
    own = [document for document in known.all if int(document.items[0]["content"]) % 4 == 0]
    assert len(known.all) == versions.KEPT and len(own) >= versions.KEPT // 4


def test_long_lists_are_kept_in_fewer_versions_and_the_newest_always() -> None:
    known = Versions()
    for number in range(10):
        known.remember(doc(number, versions.ITEMS_KEPT // 4))
    assert len(known.all) == 4
    known.remember(doc(10, versions.ITEMS_KEPT * 2))
    assert known.all == (doc(10, versions.ITEMS_KEPT * 2),)
