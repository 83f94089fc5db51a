"""Words about the host."""

from __future__ import annotations

import msgspec
from markdown_it import MarkdownIt

from decodetop.host import text
from decodetop.host.reading import Disk, HostProcess, HostReading

GIB = 2**30
SCHEDULER = HostProcess(
    pid=3011, root_pid=2773, role="scheduler", title="sglang::scheduler", cpu_percent=100.2, memory_rss_bytes=2 * GIB
)
READING = HostReading(
    cpu_count=32,
    cpu_percent=7.4,
    cpu_max_core_percent=100.0,
    cpu_steal_percent=0.4,
    load_1=3.2,
    memory_used_bytes=41 * GIB,
    memory_total_bytes=251 * GIB,
    swap_total_bytes=0,
    disks=(Disk(role="traces", path="/very/long" * 12, free_bytes=128 * GIB, total_bytes=400 * GIB),),
    processes=(SCHEDULER, HostProcess(pid=7, root_pid=7, role="api", title="a|b `c`\nd")),
    reasons={"cpu_frequency_mhz": "the kernel does not say"},
)


def test_a_loop_with_a_full_core_is_bound_by_it() -> None:
    assert text.cpu_bound(SCHEDULER)
    assert not text.cpu_bound(HostProcess(pid=1, root_pid=1, role="scheduler", title="", cpu_percent=94.9))
    assert not text.cpu_bound(HostProcess(pid=1, root_pid=1, role="scheduler", title=""))
    assert not text.cpu_bound(HostProcess(pid=1, root_pid=1, role="tokenizer", title="", cpu_percent=300.0))


def test_words() -> None:
    assert text.cpu(READING) == "7 % of 32 cores   busiest 100 %"
    assert text.load(READING) == "3.20 – –"
    assert (text.memory(READING), text.swap(READING)) == ("41.0/251.0 GiB", "none")
    assert text.disk(READING.disks[0]) == "traces 128.0 GiB free of 400.0"
    assert text.process(SCHEDULER) == "scheduler 100 % of one core (sglang::scheduler)"


def test_lines_fit_and_name_the_full_core() -> None:
    said = text.lines(READING)
    assert all(len(line) <= 80 for line in said)
    assert "one core is full: scheduler 3011 can't go faster" in said
    assert any("stolen 0.4 %" in line for line in said)
    assert "not known  cpu_frequency_mhz: the kernel does not say" in said


def test_a_limit_is_said_where_there_is_one() -> None:
    assert text.limit(READING) is None
    limited = msgspec.structs.replace(
        READING, cpu_limit_cores=8.0, memory_limit_bytes=128 * GIB, memory_limit_used_bytes=41 * GIB
    )
    assert text.limit(limited) == "8.0 cores, 41.0 of 128.0 GiB"
    assert "limits     container 8.0 cores, 41.0 of 128.0 GiB" in text.lines(limited)
    assert not any("no limit" in line for line in text.lines(HostReading(cpu_count=2, reasons={"x": "no limit"})))


def test_markdown_is_one_table() -> None:
    html = MarkdownIt("commonmark").enable("table").render("\n".join(text.markdown(READING)))
    assert html.count("<tr>") == 3 and html.count("<td") == 14 and "<code>" not in html


def test_an_empty_reading_has_words() -> None:
    assert text.lines(HostReading(cpu_count=2)) and text.markdown(HostReading(cpu_count=2))
