"""The host: CPU, memory, disks, and how much of a core the engine's processes use."""

from __future__ import annotations

from functools import partial

from decodetop.core import words
from decodetop.core.sample import Reading
from decodetop.core.state import State
from decodetop.findings.rules import CORE_BOUND_PERCENT
from decodetop.host import text
from decodetop.host.reading import NO_LIMIT, Disk, HostProcess, HostReading
from decodetop_tui.paint import Filter, Picture, Span, View
from decodetop_tui.panes._cells import clip_middle
from decodetop_tui.panes._lines import history, history_room
from decodetop_tui.panes._page import INDENT, Page, note_of, trouble
from decodetop_tui.panes._table import Column, Pair, Table, flow, grid, pair, spans_of

TITLE = "host"
KEY = "6"
SOURCES: tuple[str, ...] = ("host",)
MODES: tuple[str, ...] = ("all processes", "schedulers")
FILTER: Filter | None = Filter("processes")

LOW_DISK = 0.05
"""A disk with less than this share free may not take the next trace."""
_PROCESSES = (
    Column("cpu", "% of a core", 5, 9),
    Column("flag", "", 1, 9),
    Column("role", "role", 11, 9, "<"),
    Column("pid", "pid", 8, 6),
    Column("rss", "RSS GiB", 7, 4),
    Column("threads", "threads", 7, 3),
    Column("node", "NUMA", 4, 2),
    Column("switches", "switches/s", 10, 1),
    Column("title", "process", 12, 8, "<", grow=200),
)


def want(state: State, width: int) -> tuple[int, int]:
    """One line of pairs at least; wanted: the pairs in two lines and the busiest processes."""
    reading = state.last("host", HostReading)
    if reading is None:
        return 1, 2
    return 1, 1 + (width < 100) + min(2, len(reading.processes))


def draw(state: State, view: View) -> Picture:
    page = Page(view)
    page.extend(trouble(state, "host", view))
    reading = state.last("host", HostReading)
    if reading is None:
        return page.picture(note_of(state, "host", view.width, paced=True))
    page.dim = state.lane("host").failure is not None
    if view.zoomed:
        _zoomed(page, state, reading, view)
    else:
        _compact(page, reading, view)
    return page.picture(note_of(state, "host", view.width, *_note(reading, view), paced=True))


def _note(reading: HostReading, view: View) -> list[str]:
    if not view.zoomed:
        return []
    return [f"{reading.cpu_count} cores", reading.kernel or ""]


def _busiest(reading: HostReading, view: View | None = None) -> list[HostProcess]:
    """The busiest first; of `view` only those it shows."""
    wanted = "" if view is None else view.filter.lower()
    found = [one for one in reading.processes if wanted in f"{one.role} {one.title} {one.pid}".lower()]
    if view is not None and MODES[view.mode % len(MODES)] == "schedulers":
        found = [one for one in found if one.role == "scheduler"]
    return sorted(found, key=lambda process: -(process.cpu_percent or 0.0))


def _scheduler(reading: HostReading) -> HostProcess | None:
    """The busiest scheduler, else the busiest process of the engine."""
    found = _busiest(reading)
    return next((process for process in found if process.role == "scheduler"), found[0] if found else None)


def _bound(value: float | None) -> bool:
    return value is not None and value >= CORE_BOUND_PERCENT


def _pairs(reading: HostReading) -> list[Pair]:
    """What matters most first: narrow panes leave out the last."""
    items = []
    process = _scheduler(reading)
    if process is not None:
        bound = Span(" ▲" if _bound(process.cpu_percent) else "  ", "warn")
        items.append(pair(process.role, words.number_plain(process.cpu_percent), "% of a core", 3, "loud", bound))
    items.append(pair("cpu", words.number_plain(reading.cpu_percent), f"% of {reading.cpu_count}", 3))
    items.append(pair("load", words.number(reading.load_1, 1), "", 5))
    memory = _of_total(reading.memory_used_bytes, reading.memory_total_bytes)
    items.append(pair("RAM", memory, "GiB", 2 * len(words.gib(reading.memory_total_bytes, 0)) + 1))
    if reading.swap_used_bytes:
        items.append(pair("swap", words.gib(reading.swap_used_bytes), "GiB", 5, "warn"))
    if reading.cpu_steal_percent is not None and reading.cpu_steal_percent >= 1:
        items.append(pair("steal", f"{reading.cpu_steal_percent:.0f}", "%", 3, "warn"))
    for label, disk in _disks(reading):
        low = disk.free_bytes < LOW_DISK * disk.total_bytes
        items.append(pair(label, words.gib(disk.free_bytes, 0), "GiB free", 4, "warn" if low else ""))
    items.append(pair("busiest core", words.number_plain(reading.cpu_max_core_percent), "%", 3))
    return items


def _disks(reading: HostReading) -> list[tuple[str, Disk]]:
    """Each disk once, the fullest first, with what lies on it."""
    found: dict[tuple[int, int], tuple[list[str], Disk]] = {}
    for disk in reading.disks:
        same = disk.total_bytes, disk.free_bytes >> 26  # one disk read twice differs by what was written meanwhile
        found.setdefault(same, ([], disk))[0].append(disk.role)
    disks = sorted(found.values(), key=lambda roles_disk: roles_disk[1].free_bytes)
    if len(disks) == 1 and len(disks[0][0]) > 1:
        return [("disk", disks[0][1])]
    return [(f"{', '.join(roles)} dir", disk) for roles, disk in disks]


def _of_total(used: int | None, total: int | None) -> str:
    return f"{words.gib(used, 0)}/{words.gib(total, 0)}"


def _compact(page: Page, reading: HostReading, view: View) -> None:
    """Pairs in as many lines as there are for them; the busiest processes in what is left."""
    items = [spans_of(item) for item in _pairs(reading)]
    lines = flow(items, view.width)
    fewer = flow(items[:-1], view.width)
    lines = fewer if len(fewer) < len(lines) else lines  # no line for the last pair alone
    page.extend(lines[: max(1, view.height - len(page.lines))])
    _table(page, _busiest(reading, view)[: max(0, view.height - len(page.lines))], view, headed=False)


def _table(page: Page, processes: list[HostProcess], view: View, headed: bool) -> None:
    columns = (
        _PROCESSES
        if headed
        else tuple(column for column in _PROCESSES if column.id in ("cpu", "flag", "role", "pid", "title"))
    )
    units = {"cpu": " % of a core", "pid": ""}
    if not headed:
        columns = tuple(column._replace(after=units.get(column.id, "")) for column in columns)
    table = Table(columns, view.width, headed)
    if headed:
        page.add(*table.header())
    for process in processes:
        bound = _bound(process.cpu_percent)
        cells: dict[str, Span | str] = {
            "cpu": Span(words.number(process.cpu_percent, 0), "warn" if bound else ""),
            "flag": Span("▲" if bound else "", "warn"),
            "role": process.role,
            "pid": Span(str(process.pid), "dim"),
            "rss": words.gib(process.memory_rss_bytes),
            "threads": words.number_plain(process.threads),
            "node": words.number_plain(process.numa_node),
            "switches": words.number(process.context_switches_s),
            "title": Span(clip_middle(process.title, max(1, table.size("title"))), "dim"),
        }
        page.add(*table.row(cells), row=f"process:{process.pid}")


def _zoomed(page: Page, state: State, reading: HostReading, view: View) -> None:
    page.extend(grid(_details(reading), view.width))
    room = history_room(view.width - 32)
    for label, field in (("cpu", "cpu_percent"), ("busiest core", "cpu_max_core_percent")):
        past = history(state.lane("host"), state.now_ns, room, partial(_figure, field), 100.0)
        page.add(INDENT, Span(past.text), Span(f"  {label} % over {words.remaining(past.seconds)}", "dim"))
    _cores(page, reading, view)
    found = _busiest(reading, view)
    page.heading("processes of the servers", Span("" if found else "  none seen", "dim"))
    if found:
        _table(page, found, view, headed=True)
    unknown = {field: why for field, why in reading.reasons.items() if why != NO_LIMIT}
    if unknown:
        page.heading("not known")
        for field, why in sorted(unknown.items()):
            page.add(INDENT, Span(f"{words.UNKNOWN} {field.replace('_', ' ')}: ", "dim"), Span(why))


def _figure(field: str, reading: Reading) -> float | None:
    value = getattr(reading, field, None)
    return value if isinstance(value, (int, float)) else None


def _details(reading: HostReading) -> list[Pair]:
    load = " ".join(words.number(value, 1) for value in (reading.load_1, reading.load_5, reading.load_15))
    items = [item for item in _pairs(reading) if item.label not in ("load", "steal", "swap")]
    items.append(pair("load 1 5 15 min", load))
    items.append(pair("available", words.gib(reading.memory_available_bytes), "GiB", 6))
    items.append(pair("frequency", words.number_plain(reading.cpu_frequency_mhz), "MHz", 5))
    items.append(pair("steal", words.number(reading.cpu_steal_percent, 1), "%", 5))
    items.append(pair("container limit", _limit(reading)))
    if reading.swap_total_bytes == 0:
        items.append(pair("swap", "none"))
    else:
        items.append(pair("swap", _of_total(reading.swap_used_bytes, reading.swap_total_bytes), "GiB", 9))
    return items


def _limit(reading: HostReading) -> str:
    """CPU and memory of a container; none is an answer."""
    said = text.limit(reading)
    if said is not None:
        return said
    none = NO_LIMIT in (reading.reasons.get("cpu_limit_cores"), reading.reasons.get("memory_limit_bytes"))
    return "none" if none else words.UNKNOWN


def _cores(page: Page, reading: HostReading, view: View) -> None:
    """One character a core: which of them are busy."""
    if not reading.cpu_per_core_percent:
        return
    blocks = " ▁▂▃▄▅▆▇█"
    bars = "".join(
        blocks[min(8, max(0, round(value / 12.5)))] if words.known(value) else "?"
        for value in reading.cpu_per_core_percent
    )
    for at in range(0, len(bars), max(1, view.width - 14)):
        label = "cores" if at == 0 else ""
        page.add(INDENT, Span(f"{label:<7}", "dim"), Span("▕", "dim"), Span(bars[at : at + view.width - 14] or ""))
