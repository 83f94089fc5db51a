"""What changed between two snapshots: by their data, not by their lines. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal

import msgspec

from decodetop.report.data import CaptureFact, Fact, RunFact, Snapshot

SCHEMA = 1
What = Literal["added", "removed", "changed"]


class Change(msgspec.Struct, frozen=True, kw_only=True):
    """`subject` is the thing (`t3 trtllm_mla backend`), "" = the section itself; `field` = what of it changed.

    What was added or removed as a whole has no field; its words are the subject.
    """

    section: str
    subject: str
    what: What
    field: str = ""
    before: Any = None
    after: Any = None


class Side(msgspec.Struct, frozen=True, kw_only=True):
    """Which snapshot it was."""

    made: str
    host: str
    question: str | None
    hashes: dict[str, str]


class Difference(msgspec.Struct, frozen=True, kw_only=True):
    """`notes` say what makes the two hard to compare."""

    schema: int = SCHEMA
    before: Side
    after: Side
    notes: tuple[str, ...]
    changes: tuple[Change, ...]


def difference(before: Snapshot, after: Snapshot, notes: Sequence[str] = ()) -> Difference:
    """`notes` = what else is to be said of the two files."""
    return Difference(
        before=_side(before),
        after=_side(after),
        notes=(*notes, *_notes(before, after)),
        changes=tuple(_all(before, after)),
    )


def _side(one: Snapshot) -> Side:
    return Side(made=one.made, host=one.host, question=one.question, hashes=one.hashes)


def _notes(before: Snapshot, after: Snapshot) -> Iterator[str]:
    if before.made > after.made:
        yield "the second snapshot is older than the first"
    if before.anonymous != after.anonymous:
        yield "one of them is anonymous: hosts, addresses and paths differ for that alone"
    elif before.host != after.host:
        yield f"two hosts: {before.host} and {after.host}"
    if before.simulated != after.simulated:
        yield "one of them is of a simulated box"
    runs = {run.id: run.sha256 for run in before.runs}
    others = [f"run {run.id}" for run in after.runs if runs.get(run.id, run.sha256) != run.sha256]
    captures = {one.id: one.sha256 for one in before.captures}
    others += [f"capture {one.id}" for one in after.captures if captures.get(one.id, one.sha256) != one.sha256]
    if others:
        yield f"of one name in both, and not the same: {', '.join(others)}; are these two investigations?"


def _all(before: Snapshot, after: Snapshot) -> Iterator[Change]:
    yield from _value("question", "", "", before.question, after.question)
    yield from _fields("box", "", before.box, after.box, but=("cards",))
    yield from _set("box", before.box.cards, after.box.cards)
    yield from _set("server", before.servers, after.servers)
    yield from _set("findings", before.findings, after.findings)
    if before.floor is not None and after.floor is not None:
        yield from _fields("floor", "", before.floor, after.floor)
    else:
        yield from _value("floor", "", "", _sentence(before), _sentence(after))
    yield from _series("step", before.captures, after.captures)
    yield from _series("benchmarks", before.runs, after.runs)
    yield from _value("benchmarks", "baseline", "run", before.baseline, after.baseline)
    yield from _set("checklist", before.items, after.items)


def _sentence(one: Snapshot) -> str | None:
    return None if one.floor is None else one.floor.sentence or "a floor without a verdict"


def _set(section: str, before: Sequence[Fact], after: Sequence[Fact]) -> Iterator[Change]:
    """Things that live on: the ones of one key are compared field by field."""
    old, new = {_key(one): one for one in before}, {_key(one): one for one in after}
    for key, one in new.items():
        if key in old:
            yield from _fields(section, one.name, old[key], one)
        else:
            yield Change(section=section, subject=one.name, what="added")
    yield from (Change(section=section, subject=one.name, what="removed") for key, one in old.items() if key not in new)


def _series(
    section: str, before: Sequence[CaptureFact | RunFact], after: Sequence[CaptureFact | RunFact]
) -> Iterator[Change]:
    """What is measured once and stays: what is new, and the newest beside the newest. Old ones leave by age."""
    old, new = {_key(one) for one in before}, {_key(one) for one in after}
    yield from (Change(section=section, subject=one.name, what="added") for one in after if _key(one) not in old)
    kept = [at for at, one in enumerate(before) if _key(one) in new]
    for one in before[: kept[-1] if kept else 0]:
        if _key(one) not in new:
            yield Change(section=section, subject=one.name, what="removed")
    if before and after and _key(before[0]) != _key(after[0]):
        subject = f"newest, {_short(before[0])} -> {_short(after[0])}"
        yield from _fields(section, subject, before[0], after[0], but=after[0].key)


def _short(one: CaptureFact | RunFact) -> str:
    return f"#{one.id}" if isinstance(one, RunFact) else one.id


def _key(fact: Fact) -> tuple[Any, ...]:
    return tuple(getattr(fact, field) for field in fact.key)


def _fields(section: str, subject: str, before: Fact, after: Fact, but: Sequence[str] = ()) -> Iterator[Change]:
    for field in after.__struct_fields__:
        if field not in but and field not in after.quiet:
            yield from _value(section, subject, field, getattr(before, field), getattr(after, field))


def _value(section: str, subject: str, field: str, before: Any, after: Any) -> Iterator[Change]:
    if before == after:
        return
    if isinstance(before, Mapping) and isinstance(after, Mapping):
        for key in {**before, **after}:
            yield from _value(section, subject, f"{field}.{key}", before.get(key), after.get(key))
    elif isinstance(before, tuple) and isinstance(after, tuple):
        yield from _members(section, subject, field, before, after)
    else:
        yield Change(section=section, subject=subject, what="changed", field=field, before=before, after=after)


def _members(
    section: str, subject: str, field: str, before: tuple[Any, ...], after: tuple[Any, ...]
) -> Iterator[Change]:
    for one in after:
        if one not in before:
            yield Change(section=section, subject=subject, what="added", field=field, after=_said(one))
    for one in before:
        if one not in after:
            yield Change(section=section, subject=subject, what="removed", field=field, before=_said(one))


def _said(one: Any) -> Any:
    return one.name if isinstance(one, Fact) else one
