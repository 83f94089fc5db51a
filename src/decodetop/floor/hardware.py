"""The GPU behind the floor: the shipped table, what NVML says of the card, and what the user says of it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Literal, NamedTuple

import msgspec

from decodetop.core.decode import NotDecoded, decode_toml
from decodetop.core.regular import read_text, why
from decodetop.errors import ConfigError, UsageError
from decodetop.floor.reading import Hardware, Origin
from decodetop.gpu.reading import Gpu, GpuReading

GIB = 1 << 30
AGREE = 0.05
"""Table and driver must agree this well for the larger to be taken; else the table is."""

PCIE_GB_S = {3: 16.0, 4: 31.5, 5: 63.0, 6: 121.0}
"""x16, per direction; an x8 card half of it."""


class Spec(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One row of gpus.toml: [low, high] where sources differ."""

    name: str
    names: tuple[str, ...]
    bandwidth: tuple[float, float]
    memory: str | None = None
    memory_gib: tuple[float, float] | None = None
    memory_source: str = ""
    bf16: tuple[float, float] | None = None
    fp8: tuple[float, float] | None = None
    fp4: tuple[float, float] | None = None
    link: str | None = None
    link_gb_s: float | None = None
    pcie_gen: int | None = None
    pcie_lanes: int = 16
    cache_mb: tuple[float, float] | None = None
    arch: str = ""
    seen: bool = False
    source: str = ""
    note: str = ""


class _File(msgspec.Struct, forbid_unknown_fields=True):
    gpu: list[Spec] = []


class Card(NamedTuple):
    """`hardware` for the report; `arch` and `pcie_gen` choose the all-reduce table; `datacentre` = NVLink for all."""

    hardware: Hardware
    arch: str
    pcie_gen: int | None


class Override(msgspec.Struct, frozen=True, kw_only=True):
    """What the user knows better. GB/s."""

    bandwidth_gb_s: float | None = None
    link: Literal["nvlink", "pcie"] | None = None


def load(own: Path | None = None) -> tuple[Spec, ...]:
    """The user's rows before the shipped ones. Raises ConfigError."""
    if own is None:
        return _shipped()
    try:
        text = read_text(own)
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"can't read {own}: {why(error)}", "check the path given to --gpus") from error
    return (*_parse(text, str(own)), *_shipped())


@cache
def _shipped() -> tuple[Spec, ...]:
    return _parse(resources.files("decodetop.floor").joinpath("gpus.toml").read_text("utf-8"), "gpus.toml")


def _parse(text: str, where: str) -> tuple[Spec, ...]:
    try:
        specs = tuple(decode_toml(text, _File, strict=False).gpu)
    except NotDecoded as error:
        raise ConfigError(
            f"{where}: {error}", "entries are [[gpu]] with name, names, bandwidth = [low, high]"
        ) from error
    for spec in specs:
        if not 0 < spec.bandwidth[0] <= spec.bandwidth[1]:
            raise ConfigError(f"{where}: {spec.name}: bandwidth is [low, high] in GB/s", "low comes first")
        if spec.memory_gib is not None and not 0 < spec.memory_gib[0] <= spec.memory_gib[1]:
            raise ConfigError(f"{where}: {spec.name}: memory_gib is [low, high] in GiB", "low comes first")
    return specs


_DROPPED = re.compile(r"\b(nvidia|geforce|tesla|generation|gpu|quadro|simulated)\b")


def normal(name: str) -> str:
    """As NVML or a person writes a card, in the table's spelling."""
    return " ".join(_DROPPED.sub(" ", name.lower()).split())


def find(name: str, specs: Sequence[Spec]) -> Spec | None:
    """The card of that very name: a 4070 Ti SUPER is no 4070 Ti."""
    wanted = normal(name)
    return next((spec for spec in specs if wanted in spec.names or wanted == normal(spec.name)), None)


def named(name: str, specs: Sequence[Spec], override: Override = Override()) -> Card:
    """A card by its name, without looking at this box. Raises UsageError naming cards that are near."""
    spec = find(name, specs)
    if spec is None:
        if override.bandwidth_gb_s is not None:
            return _unknown(name, override.bandwidth_gb_s, "user", override, "bandwidth given by the user")
        words = set(normal(name).split())
        shared = {spec.name: len(words & set(" ".join(spec.names).split())) for spec in specs}
        near = sorted((one for one in shared if shared[one]), key=lambda one: -shared[one])
        shown = ", ".join(near[:8] or [spec.name for spec in specs])
        raise UsageError(f"the GPU {name[:60]!r} is not in the table", f"give its bandwidth (--bandwidth), or: {shown}")
    return _card(spec, override, notes=())


def from_nvml(reading: GpuReading, specs: Sequence[Spec], override: Override = Override()) -> Card:
    """The slowest GPU of those given: max memory clock x bus width x 2 beside the table. Raises UsageError."""
    alive = [gpu for gpu in reading.gpus if gpu.state == "ok" and gpu.name]
    if not alive:
        raise UsageError("no GPU of this box can be read", "give the card's name: --gpu NAME")
    cards = [_seen(gpu, reading, specs, override) for gpu in alive]
    slowest = min(cards, key=lambda card: card.hardware.bandwidth_gb_s)
    held = [card.hardware.memory_bytes for card in cards if card.hardware.memory_bytes is not None]
    least = min(held) if len(held) == len(cards) else None
    return slowest._replace(hardware=msgspec.structs.replace(slowest.hardware, memory_bytes=least))


def _seen(gpu: Gpu, reading: GpuReading, specs: Sequence[Spec], override: Override) -> Card:
    assert gpu.name is not None
    formula = bandwidth_of(gpu)
    spec = find(gpu.name, specs)
    link = override.link or _link(reading)
    known = msgspec.structs.replace(override, link=link)
    if spec is None:
        if override.bandwidth_gb_s is None and formula is None:
            raise UsageError(
                f"the GPU {gpu.name[:60]!r} is not in the table and NVML does not tell its memory clock",
                "give its bandwidth: --bandwidth GB/s",
            )
        bandwidth = override.bandwidth_gb_s or formula or 0.0
        card = _unknown(gpu.name, bandwidth, "nvml", known, "max memory clock x bus width x 2, from NVML")
        return _holding(card, gpu)
    notes: list[str] = []
    low, high = spec.bandwidth
    if formula is not None and override.bandwidth_gb_s is None:
        if abs(formula / high - 1) <= AGREE:
            high, low = max(high, formula), min(low, formula)
        else:
            notes.append(f"NVML's clock and bus give {formula:.0f} GB/s, the table says {high:.0f}: the table is taken")
    clock, top = gpu.mem_clock_mhz, gpu.mem_clock_max_mhz
    if clock and top and gpu.performance_state is not None and gpu.performance_state <= 2 and clock < 0.995 * top:
        low = min(low, high * clock / top)
        notes.append(f"the memory clock is {clock} of {top} MHz: {low:.0f} GB/s at most now")
    if gpu.memory_total_bytes is not None or gpu.mig_enabled:
        spec = msgspec.structs.replace(spec, memory_gib=None)
    spec = msgspec.structs.replace(spec, bandwidth=(low, high))
    return _holding(_card(spec, known, tuple(notes), "nvml" if formula else "table"), gpu)


def _holding(card: Card, gpu: Gpu) -> Card:
    """The driver's own figure before the table's; that of a card in slices is of the whole card."""
    if gpu.memory_total_bytes is None or gpu.mig_enabled:
        return card
    return card._replace(hardware=msgspec.structs.replace(card.hardware, memory_bytes=float(gpu.memory_total_bytes)))


def bandwidth_of(gpu: Gpu) -> float | None:
    """GB/s: 2 x max memory clock x bus width / 8; NVML reports half the effective rate for GDDR and HBM alike."""
    if not gpu.mem_clock_max_mhz or not gpu.memory_bus_bits or gpu.memory_is_unified or gpu.mig_enabled:
        return None
    return 2 * gpu.mem_clock_max_mhz * 1e6 * gpu.memory_bus_bits / 8 / 1e9


def _link(reading: GpuReading) -> Literal["nvlink", "pcie"] | None:
    """NVLink only when every pair has it: the slowest pair decides an all-reduce."""
    if not reading.links:
        return None
    return "nvlink" if all(link.path == "nvlink" for link in reading.links) else "pcie"


def _card(spec: Spec, override: Override, notes: tuple[str, ...], origin: Origin = "table") -> Card:
    low, high = spec.bandwidth
    if override.bandwidth_gb_s is not None:
        low = high = override.bandwidth_gb_s
        origin, notes = "user", (*notes, f"bandwidth {high:g} GB/s as given; the table says {spec.bandwidth[1]:g}")
    bridge = spec.link == "NVLink bridge"
    link = override.link or ("nvlink" if spec.link and not bridge else "pcie")
    if bridge and override.link is None:
        notes = (*notes, f"{spec.name} can have an NVLink bridge; PCIe is assumed (--link nvlink)")
    pcie = PCIE_GB_S.get(spec.pcie_gen or 0)
    pcie = pcie * min(1.0, spec.pcie_lanes / 16) if pcie is not None else None
    if spec.memory_gib and spec.memory_gib[0] < spec.memory_gib[1] / 1.2:
        low_gib, high_gib = spec.memory_gib
        notes = (*notes, f"{spec.name} is sold with {low_gib:g} and with {high_gib:g} GiB: the larger is taken")
    if spec.note:
        notes = (*notes, spec.note)
    hardware = Hardware(
        name=spec.name,
        memory=spec.memory,
        bandwidth_gb_s=high,
        practical_gb_s=low,
        l2_bytes=spec.cache_mb[1] * 1e6 if spec.cache_mb else 0.0,
        peak_bf16_tflops=spec.bf16[1] if spec.bf16 else None,
        peak_fp8_tflops=spec.fp8[1] if spec.fp8 else None,
        peak_fp4_tflops=spec.fp4[1] if spec.fp4 else None,
        link=link,
        link_gb_s=spec.link_gb_s if link == "nvlink" else pcie,
        memory_bytes=spec.memory_gib[1] * GIB if spec.memory_gib else None,
        origin=origin,
        source=spec.source,
        notes=notes,
    )
    return Card(hardware, spec.arch, spec.pcie_gen)


def _unknown(name: str, bandwidth: float, origin: Origin, override: Override, source: str) -> Card:
    note = "the card is not in the table: no cache, no arithmetic peak, so only bytes bound the step"
    hardware = Hardware(
        name=name,
        memory=None,
        bandwidth_gb_s=bandwidth,
        practical_gb_s=bandwidth,
        link=override.link or "pcie",
        origin="user" if override.bandwidth_gb_s is not None else origin,
        source=source,
        notes=(note,),
    )
    return Card(hardware, "", None)
