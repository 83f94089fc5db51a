"""What is asked of each GPU, how often, and which answers are believed. Blocks only inside `Library`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeVar

from decodetop.gpu.library import Clock, Handle, Library
from decodetop.gpu.reading import MigInstance

N = TypeVar("N", int, float)


class Unknown(NamedTuple):
    """A value that is not known, and why."""

    why: str


class Ask(NamedTuple):
    """One question; `read` gives a value, an Unknown or an NvmlError for each of `fields`."""

    fields: tuple[str, ...]
    read: Callable[[Library, Handle], Sequence[object]]


NO_MEMORY = Unknown("the driver says that it has 0 bytes")
_FILL = (2**32 - 1, 2**64 - 1)


def believed(value: N, low: float, high: float) -> N | Unknown:
    """`value` if it can be true; drivers fill what they don't measure with 0, 255 or 0xFFFFFFFF."""
    return value if low <= value <= high and value not in _FILL else Unknown(f"not believed: the driver says {value}")


def flag(value: int) -> bool | Unknown:
    """Yes or no; a filled answer is neither."""
    seen = believed(value, 0, 1)
    return seen if isinstance(seen, Unknown) else bool(seen)


def _clock(which: Clock) -> Callable[[Library, Handle], Sequence[object]]:
    return lambda nvml, gpu: (believed(nvml.clock(gpu, which), 0, 20_000),)


def _max_clock(which: Clock) -> Callable[[Library, Handle], Sequence[object]]:
    return lambda nvml, gpu: (believed(nvml.max_clock(gpu, which), 1, 20_000),)


def _application_clock(which: Clock) -> Callable[[Library, Handle], Sequence[object]]:
    return lambda nvml, gpu: (believed(nvml.application_clock(gpu, which), 1, 20_000),)


def _utilization(nvml: Library, gpu: Handle) -> Sequence[object]:
    kernels, memory = nvml.utilization(gpu)
    return believed(float(kernels), 0, 100), believed(float(memory), 0, 100)


def _memory(nvml: Library, gpu: Handle) -> Sequence[object]:
    seen = nvml.memory(gpu)
    total = NO_MEMORY if seen.total == 0 else believed(seen.total, 1, 2**50)
    if isinstance(total, Unknown):
        return total, total, total, total
    reserved: object = Unknown("this driver counts it as used")
    if seen.reserved is not None:
        reserved = believed(seen.reserved, 0, seen.total)
    return total, believed(seen.used, 0, seen.total), believed(seen.free, 0, seen.total), reserved


def _power(read: Callable[[Library, Handle], int]) -> Callable[[Library, Handle], Sequence[object]]:
    """mW to W; 0 is what a driver says that doesn't measure."""

    def watts(nvml: Library, gpu: Handle) -> Sequence[object]:
        seen = believed(read(nvml, gpu), 1, 5_000_000)
        return (seen if isinstance(seen, Unknown) else seen / 1000,)

    return watts


def _energy(nvml: Library, gpu: Handle) -> Sequence[object]:
    seen = believed(nvml.energy_mj(gpu), 0, 2**62)
    return (seen if isinstance(seen, Unknown) else seen / 1000,)


def _temperature(nvml: Library, gpu: Handle) -> Sequence[object]:
    return (believed(float(nvml.temperature(gpu)), 1, 150),)


def _slowdown(nvml: Library, gpu: Handle) -> Sequence[object]:
    return (believed(float(nvml.temperature_threshold(gpu, _THRESHOLD_SLOWDOWN)), 1, 150),)


def _temperature_left(nvml: Library, gpu: Handle) -> Sequence[object]:
    return (believed(float(nvml.temperature_left(gpu)), -50, 150),)


def _gen(read: Callable[[Library, Handle], int]) -> Callable[[Library, Handle], Sequence[object]]:
    return lambda nvml, gpu: (believed(read(nvml, gpu), 1, 8),)


def _width(read: Callable[[Library, Handle], int]) -> Callable[[Library, Handle], Sequence[object]]:
    return lambda nvml, gpu: (believed(read(nvml, gpu), 1, 32),)


def _performance_state(nvml: Library, gpu: Handle) -> Sequence[object]:
    return (believed(nvml.performance_state(gpu), 0, 15),)


def _event_reasons(nvml: Library, gpu: Handle) -> Sequence[object]:
    return (believed(nvml.event_reasons(gpu), 0, 2**32 - 2),)


def _mig_instances(nvml: Library, gpu: Handle) -> Sequence[object]:
    return (
        tuple(
            MigInstance(
                uuid=one.uuid,
                gpu_instance=one.gpu_instance,
                name=one.name,
                memory_used_bytes=_or_none(one.memory.used, one.memory.total) if one.memory else None,
                memory_total_bytes=_or_none(one.memory.total, 2**50) if one.memory else None,
            )
            for one in nvml.mig_instances(gpu)
        ),
    )


def _or_none(value: int, most: int) -> int | None:
    seen = believed(value, 0, most)
    return None if isinstance(seen, Unknown) else seen


def _architecture(nvml: Library, gpu: Handle) -> Sequence[object]:
    number = nvml.architecture(gpu)
    return (_ARCHITECTURES.get(number) or Unknown(f"architecture {number} has no name here"),)


def _virtualization(nvml: Library, gpu: Handle) -> Sequence[object]:
    mode = nvml.virtualization(gpu)
    return (_VIRTUALIZATION.get(mode) or Unknown(f"mode {mode} has no name here"),)


def _compute_mode(nvml: Library, gpu: Handle) -> Sequence[object]:
    mode = nvml.compute_mode(gpu)
    return (_COMPUTE_MODES.get(mode) or Unknown(f"mode {mode} has no name here"),)


def _bus_bits(nvml: Library, gpu: Handle) -> Sequence[object]:
    return (believed(nvml.memory_bus_bits(gpu), 32, 65_536),)


_THRESHOLD_SLOWDOWN = 1
# nvmlDeviceArchitecture_t
_ARCHITECTURES = {
    2: "Kepler",
    3: "Maxwell",
    4: "Pascal",
    5: "Volta",
    6: "Turing",
    7: "Ampere",
    8: "Ada",
    9: "Hopper",
    10: "Blackwell",
    13: "Rubin",
}
# nvmlGpuVirtualizationMode_t
_VIRTUALIZATION = {0: "none", 1: "passthrough", 2: "vgpu", 3: "vgpu host", 4: "vsga host"}
# nvmlComputeMode_t
_COMPUTE_MODES = {0: "default", 1: "exclusive thread", 2: "prohibited", 3: "exclusive process"}

IDENTITY: tuple[Ask, ...] = (
    Ask(("name",), lambda nvml, gpu: (nvml.name(gpu),)),
    Ask(("pci_bus_id",), lambda nvml, gpu: (nvml.pci_bus_id(gpu),)),
    Ask(("virtualization",), _virtualization),
    Ask(("mig_enabled",), lambda nvml, gpu: (flag(nvml.mig(gpu)),)),
)
"""Before anything else. The mode of virtualisation explains what the later ones can't say."""

STATIC: tuple[Ask, ...] = (
    Ask(("architecture",), _architecture),
    Ask(("memory_bus_bits",), _bus_bits),
    Ask(("sm_clock_max_mhz",), _max_clock("sm")),
    Ask(("mem_clock_max_mhz",), _max_clock("mem")),
    Ask(("power_limit_default_w",), _power(lambda nvml, gpu: nvml.power_limit_default_mw(gpu))),
    Ask(("temperature_slowdown_c",), _slowdown),
    Ask(("pcie_gen_device_max",), _gen(lambda nvml, gpu: nvml.pcie_gen_device_max(gpu))),
)
"""Once a session."""

MEMORY = Ask(("memory_total_bytes", "memory_used_bytes", "memory_free_bytes", "memory_reserved_bytes"), _memory)

CORE: tuple[Ask, ...] = (
    Ask(("sm_clock_mhz",), _clock("sm")),
    Ask(("mem_clock_mhz",), _clock("mem")),
    Ask(("event_reasons",), _event_reasons),
    Ask(("utilization_percent", "memory_busy_percent"), _utilization),
    MEMORY,
    Ask(("power_w",), _power(lambda nvml, gpu: nvml.power_mw(gpu))),
    Ask(("temperature_c",), _temperature),
    Ask(("pcie_gen",), _gen(lambda nvml, gpu: nvml.pcie_gen(gpu))),
)
"""Every tick, about 1 us each on an H200."""

ENERGY = Ask(("energy_j",), _energy)
"""With `Limited` every tick while a benchmark runs, whose joules it gives; else every 5 s: 2.8 ms on an H200."""

SLOW: tuple[Ask, ...] = (
    Ask(("pcie_width",), _width(lambda nvml, gpu: nvml.pcie_width(gpu))),
    Ask(("performance_state",), _performance_state),
    Ask(("power_limit_w",), _power(lambda nvml, gpu: nvml.power_limit_mw(gpu))),
    Ask(("temperature_left_c",), _temperature_left),
    Ask(("fan_percent",), lambda nvml, gpu: (believed(float(nvml.fan(gpu)), 0, 150),)),
)
"""Every ten seconds, and one call of `FieldSet` besides."""

RARE: tuple[Ask, ...] = (
    Ask(("pcie_gen_max",), _gen(lambda nvml, gpu: nvml.pcie_gen_max(gpu))),
    Ask(("pcie_width_max",), _width(lambda nvml, gpu: nvml.pcie_width_max(gpu))),
    Ask(("persistence_mode",), lambda nvml, gpu: (flag(nvml.persistence(gpu)),)),
    Ask(("compute_mode",), _compute_mode),
    Ask(("sm_clock_application_mhz",), _application_clock("sm")),
    Ask(("mem_clock_application_mhz",), _application_clock("mem")),
)
"""Once a minute: what somebody sets by hand."""

MIG = Ask(("mig_instances",), _mig_instances)
"""With the slow ones, where MIG is on."""

SLOT_FIELDS = ("pcie_gen_slot_max", "pcie_width_slot_max")
"""The kernel's, by `Machine`: NVML's maximum of the host is N/A on most cards and wrong on some."""

PCIE_FIELDS = frozenset(
    {"pcie_gen", "pcie_width", "pcie_gen_max", "pcie_width_max", "pcie_gen_device_max", "pcie_replays"}
)
