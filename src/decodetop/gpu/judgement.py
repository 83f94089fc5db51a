"""What is normal in a GPU's figures, what is worth a look and what is an alarm. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Literal, NamedTuple

from decodetop.core.words import UNKNOWN
from decodetop.gpu.reading import NOT_ON_PCIE, Gpu

Severity = Literal["quiet", "info", "suspect", "alarm"]
"""quiet = normal, drawn dim; info = worth knowing; suspect = look at it; alarm = something is wrong now."""

IDLE_BIT = 0x1

UNDER_LOAD_PERCENT = 50.0
"""Below this utilisation a low clock or PCIe generation is power saving, not a fault."""

_BITS: tuple[tuple[int, str, Severity], ...] = (
    (0x1, "idle", "quiet"),
    (0x2, "application clocks", "info"),
    (0x4, "power cap", "info"),
    (0x8, "HW slowdown", "alarm"),
    (0x10, "sync boost", "info"),
    (0x20, "SW thermal", "alarm"),
    (0x40, "HW thermal", "alarm"),
    (0x80, "power brake", "alarm"),
    (0x100, "display clocks", "quiet"),
    (0x200, "board limit", "info"),
    (0x400, "reliability", "info"),
)
"""nvmlClocksEventReason bits. A power cap alone is how a busy GPU behaves; heat and the brake input are not."""

_SPEC_GB_S = {"B200": 7700.0, "H200": 4800.0, "GB10": 273.0}
"""Datasheet DRAM bandwidth where the driver's clock or bus width gives another figure (B200 was once 8192 bits)."""


class Limit(NamedTuple):
    """One reason why the clocks are not higher."""

    word: str
    severity: Severity


def limits(gpu: Gpu) -> tuple[Limit, ...]:
    """Why the clocks are not higher right now; bits without a name stand as hex."""
    bits = gpu.event_reasons or 0
    found = [Limit(word, severity) for bit, word, severity in _BITS if bits & bit]
    unknown = bits & ~sum(bit for bit, _, _ in _BITS)
    return (*found, Limit(hex(unknown), "info")) if unknown else tuple(found)


def limits_text(gpu: Gpu) -> str:
    """`power cap, SW thermal`; `none` when nothing holds the clocks, `–` when not known."""
    if gpu.event_reasons is None:
        return UNKNOWN
    return ", ".join(limit.word for limit in limits(gpu)) or "none"


def busy(gpu: Gpu) -> bool | None:
    """True under load, False when idle, None when the driver does not say."""
    if gpu.event_reasons is not None and gpu.event_reasons & IDLE_BIT:
        return False
    return None if gpu.utilization_percent is None else gpu.utilization_percent > 0


def under_load(gpu: Gpu) -> bool:
    """It answers, and is busy enough for its clocks and links to be judged."""
    used = gpu.utilization_percent
    return gpu.state == "ok" and used is not None and used >= UNDER_LOAD_PERCENT


def fastest_link(gpus: Iterable[Gpu]) -> tuple[int, int]:
    """(generation, lanes) of the fastest PCIe link among them; zeros where none says."""
    links = ((gpu.pcie_gen or 0, gpu.pcie_width or 0) for gpu in gpus)
    return max(links, key=lambda link: link[0] * link[1], default=(0, 0))


def pcie(gpu: Gpu) -> str:
    """`gen5 x16`, `gen1 x16 idle`, `gen4 x8 of x16`, `gen1 x16 of gen4`; a link may sleep while the GPU does."""
    if gpu.pcie_gen is None and gpu.pcie_width is None:
        return "on package" if gpu.reasons.get("pcie_gen") == NOT_ON_PCIE else UNKNOWN
    now = [f"gen{gpu.pcie_gen}" if gpu.pcie_gen else "gen?", f"x{gpu.pcie_width}" if gpu.pcie_width else "x?"]
    most = []
    slow = _below(gpu.pcie_gen, gpu.pcie_gen_max)
    if slow and busy(gpu) is not False:
        most.append(f"gen{gpu.pcie_gen_max}")
    if _below(gpu.pcie_width, gpu.pcie_width_max):
        most.append(f"x{gpu.pcie_width_max}")
    if slow and busy(gpu) is False:
        now.append("idle")
    return " ".join(now + (["of", *most] if most else []))


def pcie_slot(gpu: Gpu) -> str:
    """`gen5 x16`: what the port above the card can do; a port that is slower than its own link is not believed."""
    gen, width = gpu.pcie_gen_slot_max, gpu.pcie_width_slot_max
    if gen is None and width is None:
        return UNKNOWN
    said = f"gen{gen or '?'} x{width or '?'}"
    if _below(gen, gpu.pcie_gen) or _below(width, gpu.pcie_width):
        return f"{said}, not believed: its link is faster"
    return said


def pcie_severity(gpu: Gpu) -> Severity:
    """suspect = a slower generation under load; info = fewer lanes (often the cloud's normal) or a faster card."""
    if _below(gpu.pcie_gen, gpu.pcie_gen_max) and busy(gpu):
        return "suspect"
    if _below(gpu.pcie_width, gpu.pcie_width_max) or _below(gpu.pcie_gen_max, gpu.pcie_gen_device_max):
        return "info"
    return "quiet"


def pcie_note(gpu: Gpu) -> str | None:
    """The sentence behind `pcie_severity`, or None when there is nothing to say."""
    if gpu.pcie_gen is None:
        return None
    if _below(gpu.pcie_gen, gpu.pcie_gen_max):
        if busy(gpu) is False:
            return f"PCIe gen{gpu.pcie_gen} while idle is normal; this slot reaches gen{gpu.pcie_gen_max}"
        return f"PCIe runs at gen{gpu.pcie_gen} under load; this slot reaches gen{gpu.pcie_gen_max}"
    if _below(gpu.pcie_width, gpu.pcie_width_max):
        return f"PCIe has {gpu.pcie_width} of {gpu.pcie_width_max} lanes; some clouds wire it so"
    if _below(gpu.pcie_gen_max, gpu.pcie_gen_device_max):
        return f"a gen{gpu.pcie_gen_device_max} card in a gen{gpu.pcie_gen_max} slot"
    return None


def persistence_note(gpu: Gpu) -> str | None:
    """What a driver without persistence does to what was set by hand."""
    if gpu.persistence_mode is not False:
        return None
    return "persistence mode is off: when the last process leaves the GPU, power cap and clocks set by hand are lost"


def dram_peak_gb_s(gpu: Gpu) -> float | None:
    """Theoretical DRAM bandwidth in GB/s: 2 x max memory clock x bus width / 8, or the datasheet's where that is off.

    NVML's memory clock is normalised so that the factor 2 holds for GDDR and HBM alike.
    """
    spec = next((gb_s for chip, gb_s in _SPEC_GB_S.items() if chip in (gpu.name or "").split()), None)
    if gpu.mem_clock_max_mhz is None or gpu.memory_bus_bits is None:
        return spec
    formula = 2 * gpu.mem_clock_max_mhz * gpu.memory_bus_bits / 8 / 1000
    return spec if spec is not None and abs(formula / spec - 1) > 0.02 else formula


def dram_gb_s(gpu: Gpu) -> float | None:
    """DRAM traffic now in GB/s, from GPM's share of the theoretical bandwidth."""
    peak = dram_peak_gb_s(gpu)
    if peak is None or gpu.dram_bandwidth_percent is None:
        return None
    return peak * gpu.dram_bandwidth_percent / 100


def alarms(gpu: Gpu) -> list[str]:
    """Sentences for what is wrong with this GPU now; empty when nothing is."""
    found = [f"clocks held by {limit.word}" for limit in limits(gpu) if limit.severity == "alarm"]
    if pcie_severity(gpu) == "suspect":
        found.append(pcie_note(gpu) or "")
    return found + [sentence for _, sentence in complaints(gpu)]


def alarm_words(gpu: Gpu) -> list[str]:
    """`alarms` in a word or two each, for a narrow column."""
    found = [limit.word for limit in limits(gpu) if limit.severity == "alarm"]
    if pcie_severity(gpu) == "suspect":
        found.append("PCIe slow")
    return found + [_SHORT.get(key, key.replace("xid-", "Xid ")) for key, _ in complaints(gpu)]


_SHORT = {
    "ecc": "ECC errors",
    "row-remap": "row remap",
    "page-retirement": "page retired",
    "recovery": "to recover",
    "nvlink": "NVLink down",
}


def complaints(gpu: Gpu) -> Iterator[tuple[str, str]]:
    """(key, sentence) of what the driver says of the card itself; the key stays the same while it stands."""
    if gpu.ecc_uncorrected:
        yield "ecc", f"{gpu.ecc_uncorrected} uncorrected ECC errors since the driver loaded"
    rows = "" if gpu.rows_remapped is None else f" ({gpu.rows_remapped} remapped so far)"
    if gpu.row_remap_failed:
        yield "row-remap", f"at least 1 memory row could not be remapped{rows}: the card needs replacing"
    elif gpu.row_remap_pending:
        yield "row-remap", f"at least 1 memory row waits to be remapped{rows}: reset the GPU when it is free"
    if gpu.page_retirement_pending:
        pages = "" if gpu.pages_retired is None else f" ({gpu.pages_retired} retired so far)"
        yield "page-retirement", f"at least 1 memory page waits to be retired{pages}: reset the GPU when it is free"
    if gpu.recovery_action:
        yield "recovery", f"the driver asks for: {gpu.recovery_action}"
    up, links = gpu.nvlink_links_active, gpu.nvlink_links
    if links and up is not None and up < links:
        yield "nvlink", f"{up} of {links} NVLinks are up"
    for xid in gpu.xids:
        yield f"xid-{xid.code}", f"Xid {xid.code} reported by the driver"


def _below(now: int | None, most: int | None) -> bool:
    return now is not None and most is not None and now < most
