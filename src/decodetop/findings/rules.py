"""The rules: each looks at what was seen at one moment and says what is wrong, with its number. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice
from typing import Literal, NamedTuple

from decodetop.core.sample import Reading
from decodetop.core.words import number_plain
from decodetop.findings import strain
from decodetop.findings.graphs import graphs_missed
from decodetop.findings.owners import foreign_processes, gpus_of
from decodetop.findings.seen import STEADY_SAMPLES, Hit, Seen
from decodetop.gpu.judgement import complaints, fastest_link, under_load
from decodetop.gpu.reading import Gpu, GpuReading, same_gpu
from decodetop.gpu.text import mem_clock
from decodetop.host.reading import HostReading
from decodetop.server.reading import Server

MEMORY_FREE_SHARE = 0.02
KV_FULL = 0.95
CORE_BOUND_PERCENT = 90.0
CORES_BUSY_PERCENT = 95.0
GPU_WAITS_PERCENT = 80.0
"""A GPU busier than this does not wait for its host: 100 % with CUDA graphs, 28 % launch-bound on an H200."""
CLOCK_LOW_SHARE = 0.85

HW_SLOWDOWN, SW_POWER_CAP, SW_THERMAL, HW_THERMAL, HW_POWER_BRAKE = 0x8, 0x4, 0x20, 0x40, 0x80
"""Bits of NVML's clock event reasons (nvml.h, nvmlClocksEventReason*)."""


class Rule(NamedTuple):
    id: str
    source: Literal["gpu", "host", "server"]
    severity: Literal["info", "suspect", "invalid"]
    check: Callable[[Seen], Iterator[Hit]]


def _watched(seen: Seen) -> tuple[Gpu, ...]:
    """The current server's GPUs, or all when it can't be told which."""
    owned = gpus_of(seen.server, seen.gpu)
    if owned is None:
        return seen.gpu.gpus if seen.gpu is not None else ()
    return owned


def _earlier(seen: Seen, gpu: Gpu) -> Iterator[Gpu]:
    """This GPU in the earlier readings in which it was under load, the newest first."""
    for reading in reversed(seen.past):
        then = same_gpu(reading, gpu)
        if then is not None and under_load(then):
            yield then


def _steady(seen: Seen, gpu: Gpu) -> tuple[Gpu, ...]:
    """Its last readings under load with this one; empty while they are fewer than tell a state from a moment."""
    if not under_load(gpu):
        return ()
    recent = (gpu, *islice(_earlier(seen, gpu), STEADY_SAMPLES - 1))
    return recent if len(recent) == STEADY_SAMPLES else ()


def _thermal(seen: Seen) -> Iterator[Hit]:
    for gpu in _watched(seen):
        bits = gpu.event_reasons or 0
        words = [
            word
            for bit, word in ((HW_THERMAL, "hardware"), (SW_THERMAL, "software"))
            if bits & bit and gpu.state == "ok"
        ]
        if words:
            at = f", {_clock(gpu)}" if gpu.temperature_c is None else f" at {gpu.temperature_c:.0f} °C"
            evidence = f"{' and '.join(words)} thermal slowdown{at}"
            yield Hit(str(gpu.index), f"GPU {gpu.index} is slowed by heat", evidence)


def _power_brake(seen: Seen) -> Iterator[Hit]:
    for gpu in _watched(seen):
        if gpu.state == "ok" and (gpu.event_reasons or 0) & HW_POWER_BRAKE:
            at = f", {_clock(gpu)}" if gpu.power_w is None else f" at {gpu.power_w:.0f} W"
            evidence = f"hardware power brake{at}"
            yield Hit(str(gpu.index), f"GPU {gpu.index} is slowed by the power brake", evidence)


def _hw_slowdown(seen: Seen) -> Iterator[Hit]:
    """Lit for a moment at each change of P-state; for good it halves the clock or worse."""
    named = SW_THERMAL | HW_THERMAL | HW_POWER_BRAKE
    for gpu in _watched(seen):
        bits = gpu.event_reasons or 0
        recent = _steady(seen, gpu) if bits & HW_SLOWDOWN and not bits & named else ()
        if recent and all((one.event_reasons or 0) & HW_SLOWDOWN for one in recent):
            yield Hit(str(gpu.index), f"GPU {gpu.index} is slowed by its hardware", f"HW slowdown, {_clock(gpu)}")


def _clock(gpu: Gpu) -> str:
    return f"SM {number_plain(gpu.sm_clock_mhz)} of {number_plain(gpu.sm_clock_max_mhz)} MHz"


def _power_cap(seen: Seen) -> Iterator[Hit]:
    """A busy GPU touches its cap for a moment now and then: that is how it finds its clock."""
    for gpu in _watched(seen):
        if not (gpu.event_reasons or 0) & SW_POWER_CAP:
            continue
        recent = _steady(seen, gpu)
        if recent and all((one.event_reasons or 0) & SW_POWER_CAP for one in recent) and gpu.sm_clock_mhz:
            limit = "" if gpu.power_limit_w is None else f", limit {gpu.power_limit_w:.0f} W"
            # decode lives off the memory clock, which a cap mostly leaves alone
            memory = "" if gpu.mem_clock_mhz is None else f"; memory {mem_clock(gpu)} MHz"
            yield Hit(str(gpu.index), f"GPU {gpu.index} is held by its power cap", _clock(gpu) + limit + memory)


def _clock_low(seen: Seen) -> Iterator[Hit]:
    explained = SW_POWER_CAP | HW_SLOWDOWN | SW_THERMAL | HW_THERMAL | HW_POWER_BRAKE
    for gpu in _watched(seen):
        if not _is_low(gpu):
            continue
        recent = _steady(seen, gpu)
        if not recent or any((one.event_reasons or 0) & explained for one in recent):
            continue
        if all(map(_is_low, recent)):
            evidence = f"{_clock(gpu)} under load, no event reason: {_lock(gpu)}"
            yield Hit(str(gpu.index), f"GPU {gpu.index} runs below its clock", evidence)


def _is_low(gpu: Gpu) -> bool:
    now, most = gpu.sm_clock_mhz, gpu.sm_clock_max_mhz
    return bool(now and most and now < CLOCK_LOW_SHARE * most)


def _lock(gpu: Gpu) -> str:
    """An application clock can be read, a lock can't."""
    set_mhz = gpu.sm_clock_application_mhz
    if set_mhz is not None and gpu.sm_clock_max_mhz is not None and set_mhz < gpu.sm_clock_max_mhz:
        return f"application clock {set_mhz} MHz"
    return "locked?"


def _pcie(seen: Seen) -> Iterator[Hit]:
    for gpu in _watched(seen):
        if gpu.pcie_gen is not None and (gpu.pcie_gen, gpu.pcie_width) == (gpu.pcie_gen_max, gpu.pcie_width_max):
            continue  # none has more
        recent = _steady(seen, gpu)
        if not recent:
            continue
        now, best = fastest_link(recent), gpu.pcie_fastest or fastest_link(_earlier(seen, gpu))
        if 0 < now[0] * now[1] < best[0] * best[1]:
            evidence = f"gen{now[0]} x{now[1]} under load; gen{best[0]} x{best[1]} was seen before"
            yield Hit(str(gpu.index), f"GPU {gpu.index}: PCIe link got slower", evidence)


def _memory(seen: Seen) -> Iterator[Hit]:
    for gpu in _watched(seen):
        free, total = gpu.memory_free_bytes, gpu.memory_total_bytes
        if gpu.state == "ok" and free is not None and total and free < MEMORY_FREE_SHARE * total:
            yield Hit(str(gpu.index), f"GPU {gpu.index} memory is nearly full", f"{free / 2**30:.1f} GiB free")


def _gone(seen: Seen) -> Iterator[Hit]:
    gpus = seen.gpu.gpus if seen.gpu is not None else ()
    for gpu in gpus:
        if gpu.state in ("lost", "stalled", "broken"):
            evidence = f"{gpu.state_message or 'no word from the driver'}; 1 of {len(gpus)} GPUs"
            yield Hit(str(gpu.index), f"GPU {gpu.index} is {gpu.state}", evidence)


def _hardware(seen: Seen) -> Iterator[Hit]:
    """What the driver says of the card itself."""
    for gpu in seen.gpu.gpus if seen.gpu is not None else ():
        for key, evidence in complaints(gpu):
            yield Hit(f"{gpu.index}:{key}", f"GPU {gpu.index} hardware", evidence)


def _foreign(seen: Seen) -> Iterator[Hit]:
    server = seen.server
    for gpu in _watched(seen) if server is not None and server.local else ():
        pids = foreign_processes(server, gpu) if server is not None else ()
        if pids:
            names = ", ".join(str(pid) for pid in pids[:4])
            yield Hit(str(gpu.index), f"another process uses GPU {gpu.index}", f"pid {names}, beside the server's")


def _server_state(seen: Seen) -> Iterator[Hit]:
    server = seen.server
    if server is not None and server.status in ("down", "hung"):
        why = f": {server.status_message}" if server.status_message else ""
        yield Hit("", f"the server is {server.status}", f"{server.endpoint}{why}")


def _kv_full(seen: Seen) -> Iterator[Hit]:
    server = seen.server
    if server is not None and server.kv_usage is not None and server.kv_usage >= KV_FULL:
        yield Hit("", "the KV cache is nearly full", f"{100 * server.kv_usage:.0f} % used")


def _scheduler(seen: Seen) -> Iterator[Hit]:
    """A scheduler on a whole core says nothing by itself (SGLang's polls, also when idle): it counts when the GPUs
    wait for it, and go on waiting (one sample is the start or the end of a load).
    """
    server = seen.server
    if seen.host is None or server is None or not server.generated_tok_s:
        return
    busy = [_most_busy(server, reading) for reading in (*seen.past[1 - STEADY_SAMPLES :], seen.gpu)]
    known = [percent for percent in busy if percent is not None and 0 < percent < GPU_WAITS_PERCENT]
    if len(known) < STEADY_SAMPLES:
        return
    own = {process.pid for process in server.processes}
    for process in seen.host.processes:
        at_work = process.pid in own and process.role in ("scheduler", "engine")
        if at_work and (process.cpu_percent or 0) >= CORE_BOUND_PERCENT:
            evidence = f"{process.title} {process.cpu_percent:.0f} % of one core, its GPUs busy {known[-1]:.0f} %"
            yield Hit(str(process.pid), "the GPUs wait for the scheduler", evidence)


def _most_busy(server: Server, reading: Reading | None) -> float | None:
    """Utilisation of the busiest of the server's GPUs."""
    owned = gpus_of(server, reading) if isinstance(reading, GpuReading) else None
    return max((gpu.utilization_percent for gpu in owned or () if gpu.utilization_percent is not None), default=None)


def _cores(seen: Seen) -> Iterator[Hit]:
    recent = [one for one in (*seen.past[1 - STEADY_SAMPLES :], seen.host) if isinstance(one, HostReading)]
    if len(recent) == STEADY_SAMPLES and all((one.cpu_percent or 0) >= CORES_BUSY_PERCENT for one in recent):
        now = recent[-1]
        yield Hit("", "all CPU cores are busy", f"{now.cpu_percent:.0f} % of {now.cpu_count} cores")


def _disks(seen: Seen) -> Iterator[Hit]:
    for disk in seen.host.disks if seen.host is not None else ():
        if disk.free_bytes < 2**30:
            yield Hit(
                disk.role, f"little room for {disk.role}", f"{disk.free_bytes / 2**20:.0f} MiB free at {disk.path}"
            )


RULES: tuple[Rule, ...] = (
    Rule("gpu-gone", "gpu", "invalid", _gone),
    Rule("server-state", "server", "invalid", _server_state),
    Rule("thermal", "gpu", "suspect", _thermal),
    Rule("power-brake", "gpu", "suspect", _power_brake),
    Rule("hw-slowdown", "gpu", "suspect", _hw_slowdown),
    Rule("hardware", "gpu", "suspect", _hardware),
    Rule("pcie-slower", "gpu", "suspect", _pcie),
    Rule("clock-low", "gpu", "suspect", _clock_low),
    Rule("foreign-process", "gpu", "suspect", _foreign),
    Rule("graphs", "server", "suspect", graphs_missed),
    Rule("kv-full", "server", "suspect", _kv_full),
    Rule("thrown-away", "server", "suspect", strain.thrown_away),
    Rule("scheduler-bound", "gpu", "suspect", _scheduler),
    Rule("far-socket", "host", "suspect", strain.far_socket),
    Rule("cores-busy", "host", "suspect", _cores),
    Rule("disk", "host", "suspect", _disks),
    Rule("memory-full", "gpu", "info", _memory),
    Rule("power-cap", "gpu", "info", _power_cap),
)
"""In the order shown: what breaks the work first, information last."""
