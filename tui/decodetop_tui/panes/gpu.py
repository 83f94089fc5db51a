"""The GPUs: one line each when many, two with a history when few; what holds the clocks, in words."""

from __future__ import annotations

from collections.abc import Callable

from decodetop.core import words
from decodetop.core.state import State
from decodetop.findings.owners import gpus_of
from decodetop.gpu import text
from decodetop.gpu.reading import Gpu, GpuReading
from decodetop.server.reading import ServerReading
from decodetop_tui.paint import Filter, Picture, Span, View
from decodetop_tui.panes import _gpuzoom
from decodetop_tui.panes._gpupast import DETAIL_CELLS, past, work
from decodetop_tui.panes._lines import MOST_CELLS, history_room
from decodetop_tui.panes._page import INDENT, Page, note_of, trouble
from decodetop_tui.panes._table import Column, Table

TITLE = "gpu"
KEY = "1"
SOURCES: tuple[str, ...] = ("gpu", "server")
MODES: tuple[str, ...] = ("load", "links", "health", "history")
FILTER: Filter | None = None
_WITH_HISTORY = ("load", "history")
"""The views whose figures the past of the GPU under the cursor belongs to."""

SLOW_ROUND_MS = 1500.0
"""NVML takes a thousandth of it; then the figures of a row are of several rounds."""
FEW = 4
"""Up to so many GPUs get a history line of their own."""
HISTORY_CELLS = 30

_INDEX = Column("index", "", 2, 99)
_LIMITS = Column("limits", "limits now", 11, 93, "<", grow=18)
_COLUMNS: dict[str, tuple[Column, ...]] = {
    "load": (
        _INDEX,
        Column("sm", "SM MHz", 9, 95, after=" MHz"),
        Column("mem", "mem MHz", 9, 40, before="mem ", after=" MHz"),
        Column("pcie", "PCIe gen", 9, 80, "<", before="gen"),
        Column("used", "used GiB", 5, 85, before="used ", after=" GiB"),
        Column("free", "free", 5, 60, before="free "),
        Column("dram", "dram", 5, 94, before="dram "),
        Column("sm_active", "SM", 5, 50, before="SM "),
        Column("tensor", "tensor", 5, 45, before="tensor "),
        Column("busy", "busy", 5, 55, before="busy "),
        Column("power", "power W", 8, 70, after=" W"),
        Column("temperature", "°C", 3, 65, after=" °C"),
        _LIMITS,
        Column("past", "", HISTORY_CELLS, 10, "<", grow=MOST_CELLS - HISTORY_CELLS),
    ),
    "links": (
        _INDEX,
        Column("pcie_words", "PCIe", 21, 95, "<"),
        Column("pcie_rx", "PCIe rx", 9, 80, before="rx "),
        Column("pcie_tx", "PCIe tx", 9, 80, before="tx "),
        Column("replays", "replays", 7, 60, before="replays "),
        Column("nvlink", "NVLink up", 9, 90, before="NVLink "),
        Column("nvlink_rx", "NVLink rx", 9, 70, before="rx "),
        Column("nvlink_tx", "NVLink tx", 9, 70, before="tx "),
        Column("numa", "NUMA", 4, 50, before="NUMA "),
        Column("bus", "bus id", 16, 40, "<"),
        _LIMITS,
    ),
    "health": (
        _INDEX,
        Column("pstate", "P", 3, 60),
        Column("temperature", "°C", 3, 95, after=" °C"),
        Column("memory_temperature", "mem °C", 6, 85, before="mem ", after=" °C"),
        Column("fan", "fan %", 5, 30, before="fan ", after=" %"),
        Column("power", "power W", 8, 80, after=" W"),
        Column("ecc", "ECC uncorr.", 6, 90, before="ECC "),
        Column("remapped", "rows remapped", 4, 50, before="rows remapped "),
        Column("energy", "energy kWh", 9, 40, after=" kWh"),
        Column("persistence", "persistence", 5, 35, "<", before="persistence "),
        Column("mig", "MIG", 3, 35, "<", before="MIG "),
        _LIMITS,
    ),
    "history": (
        _INDEX,
        Column("dram", "dram", 5, 94, before="dram "),
        Column("busy", "busy", 5, 93, before="busy "),
        Column("power", "power W", 8, 70, after=" W"),
        Column(
            "past", "dram bandwidth, else busy, of 100 %", HISTORY_CELLS, 99, "<", grow=DETAIL_CELLS - HISTORY_CELLS
        ),
        _LIMITS,
    ),
}
_FIELDS = (
    ("dram", "dram_bandwidth_percent"),
    ("SM", "sm_active_percent"),
    ("tensor", "tensor_active_percent"),
    ("busy", "utilization_percent"),
    ("SM MHz", "sm_clock_mhz"),
    ("mem MHz", "mem_clock_mhz"),
    ("PCIe", "pcie_gen"),
    ("used", "memory_used_bytes"),
    ("free", "memory_free_bytes"),
    ("power", "power_w"),
    ("°C", "temperature_c"),
    ("limits", "event_reasons"),
)
"""What a row may lack, by the field whose reason says why."""
_SEVERITY = {"quiet": "dim", "info": "", "suspect": "warn", "alarm": "bad"}
_RANK = ("quiet", "info", "suspect", "alarm")


def want(state: State, width: int) -> tuple[int, int]:
    """A line a GPU at least; wanted: a header, and a history line each where the GPUs are few."""
    reading = state.last("gpu", GpuReading)
    wrong = state.lane("gpu").failure is not None
    if reading is None or not reading.gpus:
        return 1, 2
    count = len(reading.gpus)
    inline = "past" in Table(_COLUMNS["load"], width, headed=True)
    lines = count if count > FEW or inline else 2 * count
    return min(count, 8) + wrong, 1 + lines + wrong


def draw(state: State, view: View) -> Picture:
    page = Page(view)
    page.extend(trouble(state, "gpu", view))
    reading = state.last("gpu", GpuReading)
    if reading is None or not reading.gpus:
        page.extend(_no_gpu(state, reading))
        return page.picture(note_of(state, "gpu", view.width, paced=True))
    page.dim = state.lane("gpu").failure is not None
    head = _rows(page, state, reading, view)
    chosen = next((gpu for gpu, key in _keyed(reading) if view.cursor == key), reading.gpus[0])
    if view.zoomed:
        history = MODES[view.mode % len(MODES)] in _WITH_HISTORY
        _gpuzoom.details(page, state, reading, chosen, history=history)
    return page.picture(note_of(state, "gpu", view.width, *_note(reading, chosen, view), paced=True), head)


def _no_gpu(state: State, reading: GpuReading | None) -> list[list[Span]]:
    lines = []
    if reading is not None:
        lines.append([INDENT, Span("the driver sees no GPU")])
    failure = state.lane("gpu").failure
    if (failure is None and reading is not None) or (failure is not None and not failure.hint):
        lines.append([INDENT, Span("server, bench, traces and the checklist work without one", "dim")])
    return lines


def _note(reading: GpuReading, chosen: Gpu, view: View) -> list[str]:
    """The cards and the driver; in focus, first why figures of the row under the cursor are unknown."""
    names: dict[str, int] = {}
    for gpu in reading.gpus:
        name = text.short_name(gpu.name) if gpu.name else "unknown"
        names[name] = names.get(name, 0) + 1
    found = ", ".join(f"{count}x {name}" for name, count in names.items())
    why = _why_unknown(chosen) if view.focused and not view.zoomed else ""
    slow = reading.took_ms is not None and reading.took_ms > SLOW_ROUND_MS
    driver = f"the driver is slow: {(reading.took_ms or 0) / 1e3:.0f} s a round" if slow else ""
    return [why, driver, found, f"driver {reading.driver_version}" if reading.driver_version else ""]


def _why_unknown(gpu: Gpu) -> str:
    missing = [(word, gpu.reasons[field]) for word, field in _FIELDS if field in gpu.reasons]
    if not missing:
        return ""
    first = missing[0][1]
    return f"{words.UNKNOWN} {', '.join(word for word, why in missing if why == first)}: {first}"


def _rows(page: Page, state: State, reading: GpuReading, view: View) -> int:
    """The table; returns how many lines of it are its head."""
    count = len(reading.gpus)
    room = view.height - len(page.lines)
    headed = view.zoomed or room > count
    mode = MODES[view.mode % len(MODES)]
    table = Table(_COLUMNS[mode], view.width, headed)
    if headed:
        page.add(*table.header())
    head = len(page.lines)
    below = mode == "load" and "past" not in table and count <= FEW and (view.zoomed or room >= headed + 2 * count)
    server = state.last("server", ServerReading)
    own = gpus_of(server.current_server if server is not None else None, reading)
    for gpu, key in _keyed(reading):
        foreign = own is not None and bool(own) and gpu not in own
        page.add(*_row(table, state, gpu, foreign), row=key)
        if below and gpu.state == "ok":
            page.add(*_past_line(state, gpu, view.width), row=key)
    return head


def _keyed(reading: GpuReading) -> list[tuple[Gpu, str]]:
    """Each GPU with the name of its row: one that is no longer listed keeps an index that another may have now."""
    keyed: dict[str, Gpu] = {}
    for at, gpu in enumerate(reading.gpus):
        plain = f"gpu:{gpu.index}"
        keyed[f"{plain}:{at}" if plain in keyed else plain] = gpu
    return [(gpu, key) for key, gpu in keyed.items()]


def _row(table: Table, state: State, gpu: Gpu, foreign: bool) -> list[Span]:
    wrong = text.state(gpu, state.now_ns)
    if wrong is not None:  # words instead of figures that are no longer true; zoomed, the last good ones stand below
        return [Span(f"  {gpu.index:>2}  "), Span(wrong, "bad")]
    cells: dict[str, Span | str] = {}
    for column in table.columns:
        if column.id == "past":
            figure = Span(past(state, gpu, work(gpu), table.size("past"))[0])
        elif column.id == "limits":
            figure = _limits(gpu, foreign, table.size("limits"))
        else:
            figure = _figure(gpu, column.id)
        cells[column.id] = Span(figure.text, "dim") if foreign and column.id != "limits" else figure
    return table.row(cells)


def _limits(gpu: Gpu, foreign: bool, room: int) -> Span:
    """What holds the clocks; alarms before limits, words and never a code."""
    alarms = text.alarms(gpu)
    found = sorted(text.limits(gpu), key=lambda limit: -_RANK.index(limit.severity))
    worst = found[0].severity if found else "quiet"
    said = ", ".join(limit.word for limit in found) or text.limits_text(gpu)
    if alarms and worst != "alarm":
        sentence = "; ".join(alarms)
        return Span(sentence if len(sentence) <= room else ", ".join(text.alarm_words(gpu)), "bad")
    if foreign:
        word = "(not this server's)" if worst == "quiet" else f"{said} (not this server's)"
        return Span(word if len(word) <= room else "not serving", "dim")
    return Span(said, _SEVERITY[worst])


def _figure(gpu: Gpu, id: str) -> Span:
    """What stands in a column that needs no room to be known."""
    if id in ("dram", "busy"):
        # the one number that matters first, or the next best where the chip does not tell it
        loud = (id == "dram") == (gpu.dram_bandwidth_percent is not None)
        value = gpu.dram_bandwidth_percent if id == "dram" else gpu.utilization_percent
        return Span(words.percent(value), "loud" if loud else "")
    if id == "pcie":
        return Span(_pcie(gpu), _SEVERITY[text.pcie_severity(gpu)].replace("dim", ""))
    if id == "ecc":
        return Span(words.number_plain(gpu.ecc_uncorrected), "bad" if gpu.ecc_uncorrected else "")
    return Span(_FIGURES[id](gpu))


_FIGURES: dict[str, Callable[[Gpu], str]] = {
    "index": lambda gpu: str(gpu.index),
    "sm": text.sm_clock,
    "mem": text.mem_clock,
    "used": lambda gpu: words.gib(gpu.memory_used_bytes),
    "free": lambda gpu: words.gib(gpu.memory_free_bytes),
    "sm_active": lambda gpu: words.percent(gpu.sm_active_percent),
    "tensor": lambda gpu: words.percent(gpu.tensor_active_percent),
    "power": lambda gpu: words.now_of_max(gpu.power_w, gpu.power_limit_w),
    "temperature": lambda gpu: words.number_plain(gpu.temperature_c),
    "pcie_words": text.pcie,
    "pcie_rx": lambda gpu: words.bytes_per_s(gpu.pcie_rx_bytes_s),
    "pcie_tx": lambda gpu: words.bytes_per_s(gpu.pcie_tx_bytes_s),
    "replays": lambda gpu: words.number_plain(gpu.pcie_replays),
    "nvlink": lambda gpu: words.now_of_max(gpu.nvlink_links_active, gpu.nvlink_links),
    "nvlink_rx": lambda gpu: words.bytes_per_s(gpu.nvlink_rx_bytes_s),
    "nvlink_tx": lambda gpu: words.bytes_per_s(gpu.nvlink_tx_bytes_s),
    "numa": lambda gpu: words.number_plain(gpu.numa_node),
    "bus": lambda gpu: gpu.pci_bus_id or words.UNKNOWN,
    "pstate": lambda gpu: words.UNKNOWN if gpu.performance_state is None else f"P{gpu.performance_state}",
    "memory_temperature": lambda gpu: words.number_plain(gpu.memory_temperature_c),
    "fan": lambda gpu: words.number_plain(gpu.fan_percent),
    "remapped": lambda gpu: words.number_plain(gpu.rows_remapped),
    "energy": lambda gpu: words.UNKNOWN if gpu.energy_j is None else f"{gpu.energy_j / 3.6e6:,.2f}",
    "persistence": lambda gpu: text.on_off(gpu.persistence_mode),
    "mig": lambda gpu: text.on_off(gpu.mig_enabled),
}


def _pcie(gpu: Gpu) -> str:
    """`5/5 x16`, `1/5 x8/16`: generation now/max, lanes with their maximum where fewer are in use."""
    if gpu.pcie_gen is None and gpu.pcie_width is None:
        return words.UNKNOWN
    most = gpu.pcie_width_max
    lanes = "" if most is None or gpu.pcie_width == most else f"/{most}"
    return f"{words.now_of_max(gpu.pcie_gen, gpu.pcie_gen_max)} x{words.number_plain(gpu.pcie_width)}{lanes}"


def _past_line(state: State, gpu: Gpu, width: int) -> list[Span]:
    line, label = past(state, gpu, work(gpu), history_room(width - 26))
    return [Span("      "), Span(line), Span(f"  {label}", "dim")]
