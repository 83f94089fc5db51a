"""What the host says, in words: for the pane, the plain output and the report. Pure."""

from __future__ import annotations

import textwrap

from decodetop.core.outside import escape
from decodetop.core.words import UNKNOWN, gib, number, percent
from decodetop.host.reading import NO_LIMIT, Disk, HostProcess, HostReading

_WIDTH = 80
_BOUND_PERCENT = 95.0
"""A single-threaded loop (a scheduler's) can't do more than one core; from here on it is what the GPU waits for."""

_LOOPS = ("scheduler", "detokenizer", "engine", "worker")


def cpu_bound(process: HostProcess) -> bool:
    """A loop that has its one core for itself and can't go faster."""
    return process.role in _LOOPS and process.cpu_percent is not None and process.cpu_percent >= _BOUND_PERCENT


def cpu(reading: HostReading) -> str:
    """`7 % of 32 cores   busiest 100 %`."""
    return (
        f"{percent(reading.cpu_percent)} of {reading.cpu_count} cores   busiest {percent(reading.cpu_max_core_percent)}"
    )


def load(reading: HostReading) -> str:
    """1, 5 and 15 minutes."""
    return " ".join(number(value, 2) for value in (reading.load_1, reading.load_5, reading.load_15))


def memory(reading: HostReading) -> str:
    """`41.2/251.0 GiB`."""
    return f"{gib(reading.memory_used_bytes)}/{gib(reading.memory_total_bytes)} GiB"


def limit(reading: HostReading) -> str | None:
    """`8.0 cores, 41.0 of 128.0 GiB`; None outside of a limited container."""
    parts = []
    if reading.cpu_limit_cores is not None:
        parts.append(f"{reading.cpu_limit_cores:.1f} cores")
    if reading.memory_limit_bytes is not None:
        parts.append(f"{gib(reading.memory_limit_used_bytes)} of {gib(reading.memory_limit_bytes)} GiB")
    return ", ".join(parts) or None


def swap(reading: HostReading) -> str:
    """`none` where there is no swap."""
    if reading.swap_total_bytes == 0:
        return "none"
    return f"{gib(reading.swap_used_bytes)}/{gib(reading.swap_total_bytes)} GiB"


def disk(one: Disk) -> str:
    """`traces 128.0 GiB free of 400.0`."""
    return f"{one.role} {gib(one.free_bytes)} GiB free of {gib(one.total_bytes)}"


def process(one: HostProcess) -> str:
    """`scheduler 100 % of one core (sglang::scheduler)`."""
    return f"{one.role} {percent(one.cpu_percent)} of one core ({one.title})"


def lines(reading: HostReading) -> list[str]:
    """The plain output, at most 80 columns wide."""
    steal = f"   stolen {percent(reading.cpu_steal_percent, 1)}" if reading.cpu_steal_percent else ""
    out = [
        f"CPU        {cpu(reading)}{steal}   {number(reading.cpu_frequency_mhz)} MHz",
        f"load       {load(reading)}",
        f"memory     {memory(reading)} used   {gib(reading.memory_available_bytes)} available   swap {swap(reading)}",
        f"kernel     {reading.kernel or UNKNOWN}   NUMA nodes {number(reading.cpu_numa_nodes)}",
    ]
    out += [f"limits     container {text}" for text in [limit(reading)] if text]
    for one in reading.disks:
        out += textwrap.wrap(f"disk       {disk(one)}   {one.path}", _WIDTH, subsequent_indent=" " * 11)
    if reading.processes:
        out += ["", f"{'pid':>9} {'role':<12} {'CPU %':>6} {'GiB':>6} {'threads':>7} {'node':>4}  title"]
    out += [_row(one) for one in reading.processes]
    out += [f"one core is full: {one.role} {one.pid} can't go faster" for one in reading.processes if cpu_bound(one)]
    for field, why in reading.reasons.items():
        if why == NO_LIMIT:
            continue
        out += textwrap.wrap(f"not known  {field}: {why}", _WIDTH, subsequent_indent=" " * 11)
    return out


def _row(one: HostProcess) -> str:
    figures = f"{number(one.cpu_percent):>6} {gib(one.memory_rss_bytes):>6} {number(one.threads):>7}"
    return f"{one.pid:>9} {one.role:<12} {figures} {number(one.numa_node):>4}  {' '.join(one.title.split())}"[:_WIDTH]


def markdown(reading: HostReading) -> list[str]:
    """The report's section."""
    out = ["## Host", ""]
    out += [f"- CPU: {cpu(reading)}, load {load(reading)}, {number(reading.cpu_frequency_mhz)} MHz"]
    if reading.cpu_steal_percent:
        out.append(f"- stolen by other guests: {percent(reading.cpu_steal_percent, 1)} of CPU time")
    out.append(f"- memory: {memory(reading)} used, swap {swap(reading)}")
    out += [f"- container limit: {text}" for text in [limit(reading)] if text]
    out.append(f"- kernel: {escape(reading.kernel or UNKNOWN)}")
    out += [f"- disk: {escape(disk(one))} ({escape(one.path)})" for one in reading.disks]
    if reading.processes:
        out += ["", "| pid | role | CPU % of one core | RSS GiB | threads | node | title |"]
        out.append("|--:|---|--:|--:|--:|--:|---|")
    for one in reading.processes:
        cells = (
            str(one.pid),
            one.role,
            number(one.cpu_percent),
            gib(one.memory_rss_bytes),
            number(one.threads),
            number(one.numa_node),
            one.title,
        )
        out.append("| " + " | ".join(escape(cell) for cell in cells) + " |")
    full = [one for one in reading.processes if cpu_bound(one)]
    return out + [
        line for one in full for line in ("", f"{one.role} {one.pid} fills its one core: it can't go faster.")
    ]
