"""The log in words: for the pane, the plain output and the report. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from itertools import groupby

from decodetop.core.outside import escape, plain
from decodetop.core.words import UNKNOWN
from decodetop.log.reading import Entry, LogReading

MARKS = {
    "status": "·",
    "changed": "·",
    "attempt": "↻",
    "server": "S",
    "run": "B",
    "capture": "P",
    "finding": "▲",
    "cleared": "▽",
    "note": "✎",
}
"""One character a kind, so that the eye finds its own."""
KIND_WIDTH = 7
REPORT_SHOWN = 60
REPORT_WIDTH = 300
"""Characters of an entry in the report: the file has all of it."""


def day(wall_ns: int) -> str:
    """`Mon 2026-11-30` of the local calendar."""
    when = _local(wall_ns)
    return UNKNOWN if when is None else f"{when:%a %Y-%m-%d}"


def clock(wall_ns: int) -> str:
    """`14:03` of the local day."""
    when = _local(wall_ns)
    return UNKNOWN if when is None else f"{when:%H:%M}"


def by_day(entries: Iterable[Entry]) -> Iterator[tuple[str | None, Entry]]:
    """Each entry with its day where a new one begins."""
    last = None
    for entry in entries:
        today = day(entry.wall_ns)
        yield (today if today != last else None), entry
        last = today


def lines(entries: Iterable[Entry]) -> list[str]:
    """Plain output, oldest first, a heading a day."""
    found = []
    for heading, entry in by_day(entries):
        found += [heading] if heading else []
        found.append(f"  {clock(entry.wall_ns)}  {plain(entry.kind):<{KIND_WIDTH}}  {plain(entry.text)}")
    return found


def markdown(reading: LogReading) -> list[str]:
    """A section of the report: the newest entries, oldest first, a heading a day (UTC)."""
    section = ["## Log", ""]
    for word in (reading.problem, reading.unsaved and f"not saved: {reading.unsaved}"):
        section += [f"> {escape(word)}", ""] if word else []
    shown = reading.entries[-REPORT_SHOWN:]
    if not shown:
        return [*section, "Nothing yet."]
    if reading.total > len(shown):
        section += [f"The last {len(shown)} of {reading.total} entries.", ""]
    for today, entries in groupby(shown, key=lambda entry: _utc(entry.wall_ns, "%a %Y-%m-%d")):
        section += [f"### {today}", ""]
        section += [
            f"- {_utc(one.wall_ns, '%H:%MZ')} {escape(one.kind)}: {escape(_brief(one.text))}" for one in entries
        ]
        section.append("")
    return section[:-1]


def _brief(text: str) -> str:
    return text if len(text) <= REPORT_WIDTH else f"{text[: REPORT_WIDTH - 1]}…"


def _utc(wall_ns: int, form: str) -> str:
    """Local times mean nothing to somebody who reads a report elsewhere."""
    try:
        return f"{datetime.fromtimestamp(wall_ns // 1_000_000_000, UTC):{form}}"
    except (ValueError, OverflowError, OSError):
        return UNKNOWN


def _local(wall_ns: int) -> datetime | None:
    try:
        return datetime.fromtimestamp(wall_ns / 1e9)
    except (ValueError, OverflowError, OSError):  # the file's stamp may be nonsense
        return None
