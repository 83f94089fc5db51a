"""One GPU in full: every field, its processes, its alarms, and why a value is not known."""

from __future__ import annotations

import re

from decodetop.core import words
from decodetop.core.state import State
from decodetop.findings.kvroom import kv_room
from decodetop.findings.owners import gpus_of
from decodetop.findings.rules import MEMORY_FREE_SHARE
from decodetop.gpu import text
from decodetop.gpu.reading import Gpu, GpuReading, energy_over
from decodetop.server.reading import ServerReading
from decodetop_tui.paint import Span
from decodetop_tui.panes._cells import wrap
from decodetop_tui.panes._gpupast import detail_lines
from decodetop_tui.panes._page import INDENT, Page
from decodetop_tui.panes._table import Pair, columns, pair


def details(page: Page, state: State, reading: GpuReading, gpu: Gpu, *, history: bool) -> None:
    """All that is known of the GPU under the cursor; with `history`, its last minutes too."""
    name = f"  {gpu.name}" if gpu.name else ""
    page.heading(f"gpu {gpu.index}", Span(name), Span(f"  {gpu.pci_bus_id or ''}  {gpu.uuid or ''}", "dim"))
    wrong = text.state(gpu, state.now_ns)
    if wrong is not None and not text.was_read(gpu):
        page.add(INDENT, Span(wrong, "bad"), Span("; it was never read", "dim"))
        _links(page, reading)
        return
    if wrong is not None:
        page.add(INDENT, Span(wrong, "bad"), Span("; figures are the last good ones", "dim"))
    for alarm in text.alarms(gpu):
        page.add(INDENT, Span("▲ ", "bad"), Span(alarm))
    page.extend(columns([_load(state, gpu), _memory_and_links(gpu), _health(gpu)], page.width))
    page.add(INDENT, Span("clocks held by  ", "dim"), Span(text.limited_words(gpu, state.now_ns)))
    page.add(INDENT, *_kv(state, reading, gpu))
    if history:
        page.extend(detail_lines(state, gpu, page.width))
    for note in (text.pcie_note(gpu), text.persistence_note(gpu)):
        if note is not None:
            page.add(INDENT, Span(note, "dim"))
    _processes(page, gpu)
    _links(page, reading)
    page.blank()
    page.extend(reasons(gpu, page.width))


def _links(page: Page, reading: GpuReading) -> None:
    """Which GPUs reach each other how."""
    said = text.link_words(reading)
    if said:
        page.heading("links")
        room = max(page.width - 4, 1)
        page.extend([[INDENT, Span(line)] for one in said for line in wrap(one, room, 99)])


def reasons(gpu: Gpu, width: int) -> list[list[Span]]:
    """Why fields of this GPU are unknown, one line a reason."""
    lines: list[list[Span]] = []
    for why, fields in text.unknown(gpu).items():
        names = ", ".join(map(_field_words, fields))
        for at, line in enumerate(wrap(f"{names}: {why}", max(width - 12, 1), 12)):
            lead = f"{words.UNKNOWN} gpu {gpu.index}" if at == 0 else ""
            lines.append([INDENT, Span(f"{lead:<10}", "dim"), Span(line, "dim")])
    return lines


_UNIT = re.compile(r"_(percent|bytes_s|bytes|mhz|w|c|j|ns)$")
_NAMES = {"sm": "SM", "dram": "DRAM", "pcie": "PCIe", "nvlink": "NVLink", "ecc": "ECC", "mig": "MIG", "numa": "NUMA"}


def _field_words(field: str) -> str:
    """`pcie_tx_bytes_s` -> `PCIe tx`."""
    return " ".join(_NAMES.get(word, word) for word in _UNIT.sub("", field).split("_"))


def _load(state: State, gpu: Gpu) -> list[Pair]:
    percent, plain = words.percent, words.number_plain
    performance = words.UNKNOWN if gpu.performance_state is None else f"P{gpu.performance_state}"
    energy = None if gpu.energy_j is None else gpu.energy_j / 3.6e6
    spent = energy_over(state.lane("gpu").history, gpu)
    over = "" if spent is None else f" over {words.remaining(spent.seconds)}"
    peak = text.dram_peak_gb_s(gpu)
    now = text.dram_gb_s(gpu)
    return [
        pair("SM clock", text.sm_clock(gpu), "MHz", 9),
        pair("memory clock", text.mem_clock(gpu), "MHz", 9),
        pair("applications", _application_clocks(gpu), "MHz set", 9),
        pair("DRAM", f"{words.number(now)}/{words.number(peak)}", "GB/s", 11),
        pair("DRAM", percent(gpu.dram_bandwidth_percent), "of bandwidth", 5, "loud"),
        pair("SM active", percent(gpu.sm_active_percent), "", 5),
        pair("SM occupancy", percent(gpu.sm_occupancy_percent), "", 5),
        pair("tensor active", percent(gpu.tensor_active_percent), "", 5),
        pair("busy", percent(gpu.utilization_percent), "of the time", 5),
        pair("memory busy", percent(gpu.memory_busy_percent), "of the time", 5),
        pair("P-state", performance, "", 5),
        pair("power", words.now_of_max(gpu.power_w, gpu.power_limit_w), "W", 9),
        pair("default limit", plain(gpu.power_limit_default_w), "W", 5),
        pair("mean power", plain(None if spent is None else spent.mean_w), f"W{over}", 5),
        pair("energy", words.significant(None if spent is None else spent.joules / 1e3), f"kJ{over}", 8),
        pair("energy in all", words.number(energy, 2), "kWh", 8),
    ]


def _memory_and_links(gpu: Gpu) -> list[Pair]:
    device = f"(card gen{gpu.pcie_gen_device_max})" if gpu.pcie_gen_device_max is not None else ""
    links = words.now_of_max(gpu.nvlink_links_active, gpu.nvlink_links)
    return [
        pair("memory used", words.gib(gpu.memory_used_bytes), "GiB", 6),
        pair("memory free", words.gib(gpu.memory_free_bytes), "GiB", 6),
        pair("reserved", words.gib(gpu.memory_reserved_bytes), "GiB", 6),
        pair("total", words.gib(gpu.memory_total_bytes), "GiB unified" if gpu.memory_is_unified else "GiB", 6),
        pair("bus width", words.number_plain(gpu.memory_bus_bits), "bits", 5),
        pair("PCIe", text.pcie(gpu), device),
        pair("PCIe slot", text.pcie_slot(gpu)),
        pair("PCIe rx", words.bytes_per_s(gpu.pcie_rx_bytes_s), "", 9),
        pair("PCIe tx", words.bytes_per_s(gpu.pcie_tx_bytes_s), "", 9),
        pair("PCIe replays", words.number(gpu.pcie_replays), "", 5),
        pair("NVLink", links, f"up, version {gpu.nvlink_version}" if gpu.nvlink_version else "up", 5),
        pair("NVLink most", words.bytes_per_s(gpu.nvlink_max_bytes_s), "each way", 9),
        pair("NVLink rx", words.bytes_per_s(gpu.nvlink_rx_bytes_s), "", 9),
        pair("NVLink tx", words.bytes_per_s(gpu.nvlink_tx_bytes_s), "", 9),
        pair("NUMA node", words.number_plain(gpu.numa_node), "", 5),
    ]


def _application_clocks(gpu: Gpu) -> str:
    return f"{words.number_plain(gpu.sm_clock_application_mhz)}/{words.number_plain(gpu.mem_clock_application_mhz)}"


def _kv(state: State, reading: GpuReading, gpu: Gpu) -> list[Span]:
    """What is free in the pool of the server that holds this GPU, and beside it."""
    servers = state.last("server", ServerReading)
    server = None if servers is None else servers.current_server
    holds = server is not None and gpu in (gpus_of(server, reading) or ())
    room = kv_room(server if holds else None, gpu)
    label = Span("free for KV  ", "dim")
    beside = Span(f"{words.gib(room.beside_bytes)} GiB")
    if not holds:
        whose = "no server was found" if server is None else "not this server's"
        return [
            label,
            beside,
            Span(f"  all but {100 * MEMORY_FREE_SHARE:.0f} % of the memory; {whose}", "dim"),
        ]
    size = "" if room.pool_bytes is None else f"{words.gib(room.pool_bytes)} GiB, "
    pool = Span(f"{size}{words.compact(room.pool_tokens)} tokens")
    more = "" if room.beside_tokens is None else f", about {words.compact(room.beside_tokens)} tokens"
    return [label, pool, Span(" in its pool, ", "dim"), beside, Span(f"{more} beside it", "dim")]


def _health(gpu: Gpu) -> list[Pair]:
    plain = words.number_plain
    errors = gpu.ecc_uncorrected
    retired = gpu.pages_retired
    return [
        pair("limits", text.limits_text(gpu)),
        pair("temperature", words.now_of_max(gpu.temperature_c, gpu.temperature_slowdown_c), "°C", 9),
        pair("first limit", plain(gpu.temperature_left_c), "°C away", 5),
        pair("memory temp.", plain(gpu.memory_temperature_c), "°C", 5),
        pair("fan", plain(gpu.fan_percent), "%", 5),
        pair("ECC uncorrected", words.number(errors), "", 5, "bad" if errors else ""),
        pair("ECC corrected", words.number(gpu.ecc_corrected), "", 5),
        pair("rows remapped", words.number(gpu.rows_remapped), "", 5),
        pair("pages retired", words.number(retired), "", 5, "warn" if retired else ""),
        pair("compute mode", gpu.compute_mode or words.UNKNOWN),
        pair("persistence", text.on_off(gpu.persistence_mode), "", 5),
        pair("MIG", text.on_off(gpu.mig_enabled), "", 5),
        pair("virtualization", gpu.virtualization or words.UNKNOWN),
        pair("architecture", gpu.architecture or words.UNKNOWN),
    ]


def _processes(page: Page, gpu: Gpu) -> None:
    if gpu.processes is None:
        page.heading("processes", Span(f"  {words.UNKNOWN} {gpu.reasons.get('processes', 'not known')}", "dim"))
        return
    page.heading("processes", Span("" if gpu.processes else "  none", "dim"))
    for process in gpu.processes:
        memory = words.gib(process.memory_bytes)
        page.add(
            INDENT,
            Span(f"{process.pid:>8}  "),
            Span(f"{memory:>6}"),
            Span(" GiB  ", "dim"),
            Span(process.name or words.UNKNOWN),
        )
