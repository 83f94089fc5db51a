"""The report's section of the log: the newest days, bounded."""

from decodetop.log.reading import Entry, LogReading
from decodetop.log.text import REPORT_SHOWN, REPORT_WIDTH, markdown

DAY_NS = 86_400 * 10**9


def reading(*at: tuple[int, str], total: int | None = None) -> LogReading:
    entries = tuple(Entry(wall_ns=ns, kind="note", text=text) for ns, text in at)
    return LogReading(path="x", entries=entries, total=total or len(entries))


def test_a_heading_a_day_oldest_first_in_utc() -> None:
    assert markdown(reading((0, "first"), (60 * 10**9, "a *b*"), (DAY_NS, "next"))) == [
        "## Log", "",
        "### Thu 1970-01-01", "", "- 00:00Z note: first", "- 00:01Z note: a \\*b\\*", "",
        "### Fri 1970-01-02", "", "- 00:00Z note: next",
    ]  # fmt: skip


def test_only_the_newest_and_no_endless_line() -> None:
    lines = markdown(reading(*((at * DAY_NS, f"{at} " + "x" * 2000) for at in range(90)), total=1234))
    shown = [line for line in lines if line.startswith("- ")]
    assert len(shown) == REPORT_SHOWN and " 89 " in shown[-1] and " 30 " in shown[0]
    assert f"The last {REPORT_SHOWN} of 1234 entries." in lines
    assert max(map(len, lines)) < REPORT_WIDTH + 30


def test_nothing_and_nonsense() -> None:
    assert markdown(reading()) == ["## Log", "", "Nothing yet."]
    assert markdown(reading((2**63 - 1, "late")))[2:] == ["### –", "", "- – note: late"] or "late" in str(
        markdown(reading((2**63 - 1, "late")))
    )
