"""Next moves: what moves.toml offers for this verdict, engine, version and these flags, ranked by gain over effort."""

from __future__ import annotations

import re
from functools import cache
from importlib import resources

import msgspec

from decodetop.core.decode import NotDecoded, decode_toml
from decodetop.core.words import percent, significant
from decodetop.errors import ConfigError, UsageError
from decodetop.floor.facts import WORDS, facts_of
from decodetop.floor.hardware import Card
from decodetop.floor.reading import FloorReport, Move, RuledOut
from decodetop.server.reading import ENGINE_NAMES, Server

WORTH_SHARE = 0.005
"""A move that can win less of the step than this is none."""

MOST = 8
"""A longer list is no advice."""


class Entry(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One row of moves.toml; its head says what the keys mean."""

    id: str
    title: str
    set: str
    verdicts: tuple[str, ...]
    effort: int
    engine: str | None = None
    engines: tuple[str, ...] = ()
    since: str | None = None
    until: str | None = None
    fixed: str | None = None
    sets: dict[str, str] = {}
    clears: tuple[str, ...] = ()
    needs: tuple[str, ...] = ()
    never: tuple[str, ...] = ()
    gain: str | None = None
    share: float = 1.0
    trade: str = ""
    inactive: tuple[str, ...] = ()
    failures: tuple[str, ...] = ()


class _File(msgspec.Struct, forbid_unknown_fields=True):
    move: tuple[Entry, ...]


@cache
def entries() -> tuple[Entry, ...]:
    """The shipped table. Raises ConfigError for a fact or a verdict that nobody states."""
    text = resources.files("decodetop.floor").joinpath("moves.toml").read_text("utf-8")
    try:
        table = decode_toml(text, _File).move
    except NotDecoded as error:
        raise ConfigError(f"moves.toml: {error}", "its head says what an entry holds") from error
    for entry in table:
        unknown = [fact for fact in (*entry.needs, *entry.never) if fact not in WORDS]
        if unknown:
            raise ConfigError(f"moves.toml: {entry.id}: {', '.join(unknown)} is no fact", f"facts: {', '.join(WORDS)}")
    return table


def forms_of(move_id: str, engine: str | None, version: str | None) -> tuple[Entry, ...]:
    """The rows of one move for this engine and release, the newest first; without a release, of all of them.

    Raises UsageError when there is no such move, or none for them.
    """
    rows = [entry for entry in entries() if entry.id == move_id]
    if not rows:
        known = ", ".join(sorted({entry.id for entry in entries()}))
        raise UsageError(f"there is no move {move_id!r}", f"`decodetop floor --explain` shows them: {known}")
    found = [entry for entry in rows if _of_engine(entry, engine) and _of_release(entry, version)]
    if not found:
        where = " ".join(word for word in (ENGINE_NAMES.get(engine or "unknown", engine), version) if word)
        raise UsageError(f"move {move_id} is not for {where}", "the moves of a server: `decodetop diagnose`")
    return tuple(sorted(found, key=lambda entry: _numbers(entry.since or "0"), reverse=True))


def _of_release(entry: Entry, version: str | None) -> bool:
    too_old = version is not None and entry.since is not None and _older(version, entry.since)
    too_new = version is not None and entry.until is not None and _after(entry.until, version)
    return not too_old and not too_new


def offered(report: FloorReport, card: Card, server: Server | None, traced_engine: str | None) -> FloorReport:
    """`report` with its moves, and those left out with the reason."""
    if report.verdict is None:
        return report
    engine = server.engine if server is not None else traced_engine
    facts = facts_of(report, card, server)
    found: list[Move] = []
    left: list[RuledOut] = []
    for entry in entries():
        if report.verdict.id not in entry.verdicts or not _of_engine(entry, engine):
            continue
        if _has_fix(entry, server) or _has_older_way(entry, server):
            continue
        why = _why_not(entry, facts, server)
        if why is not None:
            left.append(RuledOut(what=entry.title, because=why))
            continue
        move = _move(entry, report, server)
        if move.gain_ms is not None and report.t_meas_ms and move.gain_ms < WORTH_SHARE * report.t_meas_ms:
            left.append(RuledOut(what=entry.title, because="nothing to win there"))
        else:
            found.append(move)
    offered_titles = {move.title for move in found}
    said: dict[str, RuledOut] = {}
    for one in left:
        if one.what not in offered_titles:
            said.setdefault(one.what, one)
    found.sort(key=lambda move: -_worth(move))
    return msgspec.structs.replace(report, moves=tuple(found[:MOST]), moves_left_out=tuple(said.values()))


def _of_engine(entry: Entry, engine: str | None) -> bool:
    """An engine that is not known is offered every engine's moves, which then say whose they are."""
    named = entry.engines or ((entry.engine,) if entry.engine is not None else ())
    return not named or engine in (None, "unknown") or engine in named


def _has_fix(entry: Entry, server: Server | None) -> bool:
    """A fix that the installed release has is no news; one of a release that is not known may be there already."""
    version = None if server is None else server.version
    return entry.fixed is not None and (version is None or not _older(version, entry.fixed))


def _needs_newer(entry: Entry, version: str | None) -> bool:
    return entry.since is not None and version is not None and _older(version, entry.since)


def _has_older_way(entry: Entry, server: Server | None) -> bool:
    """An older release that has a way of its own to do the same needs no newer one."""
    version = None if server is None else server.version
    if version is None or not _needs_newer(entry, version):
        return False
    alike = (one for one in entries() if (one.id, one.engine) == (entry.id, entry.engine) and one is not entry)
    return any(
        not _needs_newer(one, version) and not (one.until is not None and _after(one.until, version)) for one in alike
    )


def _why_not(entry: Entry, facts: frozenset[str], server: Server | None) -> str | None:
    """The reason a move is left out; None = it is offered."""
    flags = _flags(server)
    if entry.sets and all(str(flags.get(name, "")).lower() == value for name, value in entry.sets.items()):
        return "already set"
    guessed = not _told(server) and any("=" not in one for one in entry.clears)
    if entry.clears and not guessed and not _stands(entry, flags):
        return f"--{entry.clears[0].partition('=')[0].replace('_', '-')} is not set"
    missing = next((fact for fact in entry.needs if fact not in facts), None)
    if missing is not None:
        return WORDS[missing][1]
    present = next((fact for fact in entry.never if fact in facts), None)
    if present is not None:
        return WORDS[present][0]
    version = None if server is None else server.version
    if entry.until is not None and version is not None and _after(entry.until, version):
        return f"gone after {entry.until}: this is {version}"
    return None


def _flags(server: Server | None) -> dict[str, str | None]:
    """What the server runs with, else what it was started with."""
    return {} if server is None else {flag.name: flag.resolved or flag.requested for flag in server.flags}


def _told(server: Server | None) -> bool:
    """Whether the server's command line is known: without it a flag that is not listed may be set all the same."""
    return server is not None and bool(server.command)


def _stands(entry: Entry, flags: dict[str, str | None]) -> bool:
    """Whether one of the flags that the move takes away is there: `name`, or `name=value`."""
    for one in entry.clears:
        name, given, value = one.partition("=")
        found = flags.get(name)
        if (found or "").lower() == value if given else _is_on(found):
            return True
    return False


def _is_on(value: str | None) -> bool:
    return value is not None and value.lower() not in ("false", "none", "0", "")


def _older(version: str, than: str) -> bool:
    """Whether release `version` came before `than`: numbers compared part by part."""
    return _numbers(version) < _numbers(than)


def _after(until: str, version: str) -> bool:
    """Whether `version` came after all of `until`: 0.12.1 belongs to 0.12."""
    last = _numbers(until)
    return last < _numbers(version)[: len(last)]


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", version.split("+")[0])[:3])


def _move(entry: Entry, report: FloorReport, server: Server | None) -> Move:
    gain_ms = _gain_ms(entry, report)
    words = "gain not known beforehand"
    if gain_ms is not None and report.t_meas_ms:
        words = f"at most {significant(gain_ms)} ms, {percent(100 * gain_ms / report.t_meas_ms)} of the step"
    title, effort, set_words = entry.title, entry.effort, entry.set
    if server is None and entry.engine is not None:
        title = f"{ENGINE_NAMES.get(entry.engine, entry.engine)}: {title}"
    if entry.clears and not _stands(entry, _flags(server)):
        set_words = f"{set_words}, if it is set"
    version = None if server is None else server.version
    if version is None and (entry.since or entry.until):
        span = [*([f"from {entry.since}"] if entry.since else []), *([f"up to {entry.until}"] if entry.until else [])]
        set_words += f" ({' '.join(span)})"
    if _needs_newer(entry, version):
        title = f"newer release (this is {version}, the flag came with {entry.since}): {title}"
        effort = min(3, effort + 1)
        set_words = f"{entry.since} or later, then {set_words}"
    if entry.fixed is not None:
        title = f"newer release may fix this (this is {version}, fixed in {entry.fixed}): {title}"
    assert report.verdict is not None
    return Move(
        id=entry.id,
        title=title,
        set=set_words,
        why=report.verdict.sentence,
        gain_ms=gain_ms,
        gain_words=words,
        effort=effort,
        trade=entry.trade,
        inactive=entry.inactive,
        failures=entry.failures,
    )


def _gain_ms(entry: Entry, report: FloorReport) -> float | None:
    """At most what the part of the gap, or the bytes that fall away, take today."""
    per_ms = report.hardware.bandwidth_gb_s * 1e6
    if entry.gain is None or report.t_meas_ms is None:
        return None
    # expected bytes may be more than this step reads: what is read takes no longer than the step
    weights_ms, kv_ms = (min(read / per_ms, report.t_meas_ms) for read in (report.bytes.weights, report.bytes.kv))
    if entry.gain == "weights_half":
        return weights_ms / 2
    if entry.gain == "weights_4bit":
        kept = 0.5625 / (report.bytes.weights / max(1.0, _weights_read(report)))
        return max(0.0, weights_ms * (1 - kept))
    if entry.gain == "kv_half":
        return kv_ms / 2
    gap = (report.gap_ms or {}).get(entry.gain)
    if gap is None:
        return None
    return min(max(0.0, gap), max(0.0, report.t_meas_ms - report.t_phys_ms)) * entry.share


def _weights_read(report: FloorReport) -> float:
    """Weights (not bytes) one GPU reads, about: half the arithmetic of one token."""
    tokens = report.plan.batch * report.plan.verify_tokens
    return report.flops / 2 / max(1, tokens)


def _worth(move: Move) -> float:
    """Gain over effort; what can't be said beforehand comes after what can, the easier first."""
    return (move.gain_ms or 0.0) / move.effort - 1e-6 * move.effort
