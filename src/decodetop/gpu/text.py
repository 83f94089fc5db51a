"""What the GPUs say, in words: for the pane, the plain output and the report. Pure."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator

from decodetop.core.outside import escape
from decodetop.core.words import UNKNOWN, duration, gib, number, number_plain, percent, significant
from decodetop.gpu.judgement import (
    Limit,
    Severity,
    alarm_words,
    alarms,
    busy,
    dram_gb_s,
    dram_peak_gb_s,
    limits,
    limits_text,
    pcie,
    pcie_note,
    pcie_severity,
    pcie_slot,
    persistence_note,
)
from decodetop.gpu.reading import Gpu, GpuProcess, GpuReading, MigInstance

__all__ = [
    "Limit",
    "Severity",
    "alarm_words",
    "alarms",
    "busy",
    "clocks",
    "dram_gb_s",
    "dram_peak_gb_s",
    "limited_words",
    "limits",
    "limits_text",
    "lines",
    "link_words",
    "markdown",
    "mem_clock",
    "mig",
    "on_off",
    "pcie",
    "pcie_note",
    "pcie_severity",
    "pcie_slot",
    "persistence_note",
    "power",
    "process",
    "short_name",
    "sm_clock",
    "state",
    "was_read",
]

_PATHS = {
    "nvlink": "NVLink",
    "same_board": "same board",
    "pcie_switch": "one PCIe switch",
    "pcie_switches": "several PCIe switches",
    "host_bridge": "PCIe host bridge",
    "numa_node": "same CPU socket",
    "sockets": "across CPU sockets",
}

UNTOLD = "not told, and no reason given"
_NONE_IS_AN_ANSWER = ("state_message", "state_since_ns", "recovery_action", "pcie_traffic", "pcie_fastest")
_WIDTH = 80


def clocks(now: int | None, most: int | None) -> str:
    """`1755/1980` MHz."""
    return f"{number(now).replace(',', '')}/{number(most).replace(',', '')}"


def sm_clock(gpu: Gpu) -> str:
    return clocks(gpu.sm_clock_mhz, gpu.sm_clock_max_mhz)


def mem_clock(gpu: Gpu) -> str:
    return clocks(gpu.mem_clock_mhz, gpu.mem_clock_max_mhz)


def power(gpu: Gpu) -> str:
    """`251/700` W."""
    return clocks(_whole(gpu.power_w), _whole(gpu.power_limit_w))


def short_name(name: str | None) -> str:
    """Without the vendor, which every row would repeat."""
    return UNKNOWN if not name else re.sub(r"^(NVIDIA|Tesla) ", "", " ".join(name.split()))


def limited_words(gpu: Gpu, now_ns: int | None) -> str:
    """`power cap 37 s of 12 m, HW thermal 0.4 s`: how long each reason held the clocks since this run began."""
    limited = gpu.time_limited_run_ns
    if limited is None:
        return UNKNOWN
    over = "" if now_ns is None or gpu.run_began_ns is None else f" in {duration((now_ns - gpu.run_began_ns) / 1e9)}"
    held = sorted(((ns, why) for why, ns in limited.items() if ns > 0), reverse=True)
    return (", ".join(f"{why} {significant(ns / 1e9, 2)} s" for ns, why in held) or "none") + over


def state(gpu: Gpu, now_ns: int | None = None) -> str | None:
    """`LOST for 12 s: the GPU is lost`, or None while it is ok."""
    if gpu.state == "ok":
        return None
    word = {"denied": "NO ACCESS"}.get(gpu.state, gpu.state.upper())
    age = ""
    if now_ns is not None and gpu.state_since_ns is not None:
        age = f" for {duration(max(0, now_ns - gpu.state_since_ns) / 1e9)}"
    return f"{word}{age}: {gpu.state_message or 'no reason given'}"


def was_read(gpu: Gpu) -> bool:
    """It gave figures once, which stay when it is no longer ok."""
    return gpu.memory_total_bytes is not None or gpu.sm_clock_mhz is not None or gpu.name is not None


def mig(one: MigInstance) -> str:
    """`H100 80GB HBM3 MIG 1g.10gb 3.2 of 9.8 GiB`."""
    return f"{short_name(one.name)} {gib(one.memory_used_bytes)} of {gib(one.memory_total_bytes)} GiB"


def process(one: GpuProcess) -> str:
    """`1234 python3 96.1 GiB`."""
    return f"{one.pid} {one.name or UNKNOWN} {gib(one.memory_bytes)} GiB"


def lines(reading: GpuReading, now_ns: int | None = None) -> list[str]:
    """The plain output, at most 80 columns wide."""
    out = [_headline(reading), ""]
    names = max((len(short_name(gpu.name)) for gpu in reading.gpus), default=4)
    names = max(4, min(names, 16))
    out.append(
        f"{'#':>2} {'name':<{names}} {'SM MHz':>9} {'mem MHz':>11} {'busy':>6} {'DRAM':>6} {'power W':>8} {'°C':>4}"
    )
    for gpu in reading.gpus:
        out.append(
            f"{gpu.index:>2} {short_name(gpu.name)[:names]:<{names}} {sm_clock(gpu):>9} {mem_clock(gpu):>11}"
            f" {percent(gpu.utilization_percent):>6} {percent(gpu.dram_bandwidth_percent):>6}"
            f" {power(gpu):>8} {number(gpu.temperature_c):>4}"
        )
        for label, text in _details(gpu, now_ns):
            out += textwrap.wrap(f"{label:<10} {text}", _WIDTH, initial_indent="   ", subsequent_indent=" " * 14)
    if reading.links:
        out += ["", "links", *_wrapped(link_words(reading), "   ")]
    return out


def link_words(reading: GpuReading) -> list[str]:
    """`NVLink: 0-1, 2-3`, one entry per kind of path; `all pairs` (`of 0, 1, 2`) where each of them reaches each so."""
    kinds: dict[str, list[tuple[int, int]]] = {}
    for link in reading.links:
        kinds.setdefault(_PATHS[link.path], []).append((link.a, link.b))
    return [f"{kind}: {_pairs(pairs, len(reading.gpus))}" for kind, pairs in kinds.items()]


def _pairs(pairs: list[tuple[int, int]], count: int) -> str:
    reached = sorted({one for pair in pairs for one in pair})
    if len(reached) > 2 and len(set(pairs)) == len(reached) * (len(reached) - 1) // 2:
        return "all pairs" if len(reached) == count else f"all pairs of {', '.join(map(str, reached))}"
    return ", ".join(f"{one}-{other}" for one, other in pairs)


def markdown(reading: GpuReading, now_ns: int | None = None) -> list[str]:
    """The report's section."""
    out = ["## GPUs", "", f"{escape(', '.join(_head_parts(reading)))}.", ""]
    out += [
        "| # | name | SM MHz | mem MHz | PCIe | used / reserved / free GiB | busy | DRAM | power W | °C | limits |",
        "|--:|---|--:|--:|---|--:|--:|--:|--:|--:|---|",
    ]
    for gpu in reading.gpus:
        cells = (
            str(gpu.index),
            short_name(gpu.name),
            sm_clock(gpu),
            mem_clock(gpu),
            pcie(gpu),
            f"{gib(gpu.memory_used_bytes)} / {gib(gpu.memory_reserved_bytes)} / {gib(gpu.memory_free_bytes)}",
            percent(gpu.utilization_percent),
            percent(gpu.dram_bandwidth_percent),
            power(gpu),
            number(gpu.temperature_c),
            limits_text(gpu),
        )
        out.append("| " + " | ".join(escape(cell) for cell in cells) + " |")
    notes = [f"GPU {gpu.index}: {text}" for gpu in reading.gpus for text in _notes(gpu, now_ns)]
    notes += [f"GPU {gpu.index}: process {process(one)}" for gpu in reading.gpus for one in gpu.processes or ()]
    notes += [f"GPU {gpu.index}: MIG {mig(one)}" for gpu in reading.gpus for one in gpu.mig_instances or ()]
    notes += link_words(reading) + _set_alike(reading)
    return [*out, "", *(f"- {escape(note)}" for note in notes)] if notes else out


def _set_alike(reading: GpuReading) -> list[str]:
    """What was set by hand, a line for the GPUs that have it alike."""
    alike: dict[str, list[str]] = {}
    for gpu in reading.gpus:
        if gpu.compute_mode is not None:
            alike.setdefault(settings(gpu), []).append(str(gpu.index))
    return [f"GPU {', '.join(which)}: {said}" for said, which in alike.items()]


def _notes(gpu: Gpu, now_ns: int | None) -> list[str]:
    words = state(gpu, now_ns)
    note = pcie_note(gpu)
    found = alarms(gpu)
    if note is not None and note not in found:
        found.append(note)
    lost = persistence_note(gpu)
    if lost is not None:
        found.append(lost)
    if any((gpu.time_limited_run_ns or {}).values()):
        found.append(f"clocks held by {limited_words(gpu, now_ns)}")
    return [*([words] if words else []), *found]


def _headline(reading: GpuReading) -> str:
    parts = _head_parts(reading)
    if reading.calls is not None and reading.took_ms is not None:
        parts.append(f"read with {reading.calls} NVML calls in {reading.took_ms:.1f} ms")
    return "   ".join(parts)


def _head_parts(reading: GpuReading) -> list[str]:
    count = len(reading.gpus)
    parts = [f"{count} GPU{'' if count == 1 else 's'}", f"driver {reading.driver_version or UNKNOWN}"]
    parts.append(f"CUDA {reading.cuda_version or UNKNOWN}")
    return parts


def _details(gpu: Gpu, now_ns: int | None) -> Iterator[tuple[str, str]]:
    words = state(gpu, now_ns)
    if words:
        yield "state", words
    if words and not was_read(gpu):
        return
    parts = [f"{gib(gpu.memory_used_bytes)} used", f"{gib(gpu.memory_reserved_bytes)} reserved"]
    parts += [f"{gib(gpu.memory_free_bytes)} free", f"{gib(gpu.memory_total_bytes)} total"]
    unified = " (unified with the host's)" if gpu.memory_is_unified else ""
    yield "memory GiB", "   ".join(parts) + unified
    for one in gpu.mig_instances or ():
        yield "MIG", mig(one)
    yield "PCIe", _pcie_line(gpu)
    yield "limits now", limits_text(gpu)
    if any((gpu.time_limited_run_ns or {}).values()):
        yield "limited", limited_words(gpu, now_ns)
    if gpu.sm_active_percent is not None:
        peak = dram_gb_s(gpu)
        dram = "" if peak is None else f"   DRAM {number(peak)} of {number(dram_peak_gb_s(gpu))} GB/s"
        yield "SM active", f"{percent(gpu.sm_active_percent)}   tensor {percent(gpu.tensor_active_percent)}{dram}"
    if gpu.nvlink_links:
        rates = f"rx {_gb_s(gpu.nvlink_rx_bytes_s)}   tx {_gb_s(gpu.nvlink_tx_bytes_s)} GB/s"
        kind = f"   version {gpu.nvlink_version}" if gpu.nvlink_version else ""
        most = f"   {_gb_s(gpu.nvlink_max_bytes_s)} GB/s each way at most" if gpu.nvlink_max_bytes_s else ""
        yield "NVLink", f"{number(gpu.nvlink_links_active)} of {gpu.nvlink_links} links up{kind}{most}   {rates}"
    yield "set to", settings(gpu)
    lost = persistence_note(gpu)
    if lost is not None:
        yield "note", lost
    for text in alarms(gpu):
        yield "alarm", text
    yield "processes", _processes(gpu)
    for why, fields in unknown(gpu).items():
        if fields == ["mig_instances"]:
            continue  # MIG off is no news
        yield "not known", f"{', '.join(fields)}: {why}"


def settings(gpu: Gpu) -> str:
    """What somebody may have set by hand."""
    mode = on_off(gpu.persistence_mode)
    clock = f"{number_plain(gpu.sm_clock_application_mhz)}/{number_plain(gpu.mem_clock_application_mhz)}"
    return f"application clocks SM/mem {clock} MHz, compute mode {gpu.compute_mode or UNKNOWN}, persistence {mode}"


def on_off(value: bool | None) -> str:
    return UNKNOWN if value is None else "on" if value else "off"


def _pcie_line(gpu: Gpu) -> str:
    note = pcie_note(gpu)
    rates = f"rx {_gb_s(gpu.pcie_rx_bytes_s)}   tx {_gb_s(gpu.pcie_tx_bytes_s)} GB/s"
    slot = pcie_slot(gpu)
    return "   ".join(
        [pcie(gpu), *([f"slot {slot}"] if slot != UNKNOWN else []), rates, *([f"({note})"] if note else [])]
    )


def _processes(gpu: Gpu) -> str:
    if gpu.processes is None:
        return UNKNOWN
    return "; ".join(process(one) for one in gpu.processes) or "none"


def unknown(gpu: Gpu) -> dict[str, list[str]]:
    """What is not known of the GPU, by the reason; a source that gave none must not leave a mere dash."""
    grouped: dict[str, list[str]] = {}
    for field, why in gpu.reasons.items():
        grouped.setdefault(why, []).append(field)
    silent = [
        field
        for field in gpu.__struct_fields__
        if getattr(gpu, field) is None and field not in gpu.reasons and field not in _NONE_IS_AN_ANSWER
    ]
    return {**grouped, UNTOLD: silent} if silent else grouped


def _wrapped(texts: list[str], indent: str) -> list[str]:
    return [
        line for text in texts for line in textwrap.wrap(text, _WIDTH, initial_indent=indent, subsequent_indent=indent)
    ]


def _whole(value: float | None) -> int | None:
    return None if value is None else round(value)


def _gb_s(bytes_s: float | None) -> str:
    return UNKNOWN if bytes_s is None else f"{bytes_s / 1e9:.2f}"
