"""What the box and the server said over the time of a run, from their readings. Pure."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from decodetop.bench.reading import GpuSpan, ServerSpan
from decodetop.gpu.reading import Gpu, GpuReading
from decodetop.server.reading import Counters, Server, restarted

EDGE = 4
"""The start and end of a run are its first and last quarter."""

GAPS_OF_STEPS = ("vllm", "lmdeploy")
"""Engines whose ITL histogram has one gap a step and request, also when drafts make it several tokens (`itl_per_event`
of their adapters). Seen on vLLM 0.24 with n-gram drafts: 5.2 ms a gap where a token took 1.4."""

BUSY_PERCENT = 1.0


Seen = tuple[int, Gpu]
"""A GPU's figures and when they were read, ns."""


def gpu_spans(readings: Sequence[tuple[int, GpuReading]], server: Server | None) -> tuple[GpuSpan, ...]:
    """One span per GPU of the server (of the box, if the server's are not known); none for a server elsewhere.

    `readings` are (ns, reading), the first from just before the run: the counters start there, the means after it.
    """
    if server is not None and not server.local:
        return ()
    wanted = server.gpu_indices if server is not None else None
    ours = frozenset(_pids(server)) if server is not None else frozenset()
    found: dict[int, list[Seen]] = {}
    for t_ns, reading in readings:
        for gpu in reading.gpus:
            if gpu.state == "ok" and (wanted is None or gpu.index in wanted):
                found.setdefault(gpu.index, []).append((t_ns, gpu))
    return tuple(_gpu_span(index, seen, ours) for index, seen in sorted(found.items()))


def _pids(server: Server) -> list[int]:
    pids = [process.pid for process in server.processes]
    return pids if server.root_pid is None else [*pids, server.root_pid]


def _gpu_span(index: int, seen: Sequence[Seen], ours: frozenset[int]) -> GpuSpan:
    gpus = [gpu for _, gpu in seen]
    clocks = [gpu.sm_clock_mhz for gpu in gpus if gpu.sm_clock_mhz is not None]
    busy = [gpu.sm_clock_mhz for gpu in gpus if gpu.sm_clock_mhz is not None and _busy(gpu)]
    energies = [gpu.energy_j for gpu in gpus if gpu.energy_j is not None]
    gens = [gpu.pcie_gen for gpu in gpus if gpu.pcie_gen is not None and _busy(gpu)]  # idle links rest at gen 1
    reasons = 0
    for gpu in gpus:
        reasons |= gpu.event_reasons or 0
    clock_start, clock_end = _edges(busy)
    warmth = [gpu.temperature_c for gpu in gpus if gpu.temperature_c is not None and _busy(gpu)]
    warm_start, warm_end = _edges(warmth)
    return GpuSpan(
        index=index,
        n=len(gpus),
        sm_clock_mhz_mean=_mean(seen, "sm_clock_mhz"),
        sm_clock_mhz_min=min(clocks, default=None),
        sm_clock_mhz_start=clock_start,
        sm_clock_mhz_end=clock_end,
        temperature_c_start=warm_start,
        temperature_c_end=warm_end,
        pcie_tx_bytes_s_mean=_mean(seen, "pcie_tx_bytes_s"),
        pcie_rx_bytes_s_mean=_mean(seen, "pcie_rx_bytes_s"),
        mem_clock_mhz_mean=_mean(seen, "mem_clock_mhz"),
        power_w_mean=_mean(seen, "power_w"),
        energy_j=energies[-1] - energies[0] if len(energies) > 1 else None,
        temperature_c_max=max((gpu.temperature_c for gpu in gpus if gpu.temperature_c is not None), default=None),
        utilization_percent_mean=_mean(seen, "utilization_percent"),
        dram_bandwidth_percent_mean=_mean(seen, "dram_bandwidth_percent"),
        pcie_gen_min=min(gens, default=None),
        event_reasons=reasons,
        foreign_pids=_foreign(gpus, ours),
    )


def _edges(values: Sequence[float]) -> tuple[float | None, float | None]:
    """Means of the first and the last quarter; one value is no course."""
    if len(values) < 2:
        return None, None
    quarter = max(1, len(values) // EDGE)
    return sum(values[:quarter]) / quarter, sum(values[-quarter:]) / quarter


def _busy(gpu: Gpu) -> bool:
    """An idle GPU's clock says nothing of the run."""
    return gpu.utilization_percent is None or gpu.utilization_percent >= BUSY_PERCENT


def _foreign(gpus: Sequence[Gpu], ours: frozenset[int]) -> tuple[int, ...]:
    """Processes on the GPU that are not the server's. None are named when the server's own are not seen there either:
    the driver then counts pids of another namespace.
    """
    seen = {process.pid for gpu in gpus for process in gpu.processes or ()}
    return tuple(sorted(seen - ours)) if seen & ours else ()


def _mean(seen: Sequence[Seen], field: str) -> float | None:
    """Over time: a reading speaks for the time since the one before it, a lone one for all."""
    parts = [
        (value, t_ns - before_ns)
        for (before_ns, _), (t_ns, gpu) in itertools.pairwise([seen[0], *seen] if len(seen) == 1 else seen)
        if (value := getattr(gpu, field)) is not None
    ]
    whole_ns = sum(ns for _, ns in parts)
    if not whole_ns:
        return sum(value for value, _ in parts) / len(parts) if parts else None
    return float(sum(value * ns for value, ns in parts) / whole_ns)


def server_span(before: Server | None, after: Server | None) -> ServerSpan | None:
    """The server's counters over the run; None when it has none, a reason alone when they are of no run."""
    if before is None or after is None or before.counters is None or after.counters is None:
        return None
    old, new = before.counters, after.counters
    if restarted(before, after):
        return ServerSpan(unknown="the server started anew during the run")
    fallen = [name for name in Counters.__struct_fields__ if _fell(getattr(old, name), getattr(new, name))]
    if fallen:
        # a counter never falls: what the others grew by is then of no run either
        return ServerSpan(unknown=f"the server's {fallen[0]} fell during the run: it started anew, or counts wrongly")
    live = _delta(old.generated_tokens, new.generated_tokens)
    tokens = live if new.finished_tokens is None else _delta(old.finished_tokens, new.finished_tokens)
    return ServerSpan(
        generated_tokens=tokens,
        requests=_delta(old.requests, new.requests),
        ttft_mean_ms=_mean_ms(old.ttft_sum_s, new.ttft_sum_s, old.ttft_count, new.ttft_count),
        itl_mean_ms=_itl_ms(old, new, per_step=after.engine in GAPS_OF_STEPS),
        accept_length=_accept_length(old, new),
        cached_tokens=_delta(old.cached_tokens, new.cached_tokens),
        accept_per_position=_per_position(old, new),
    )


def _fell(old: object, new: object) -> bool:
    if isinstance(old, tuple) and isinstance(new, tuple):
        return any(after < before for before, after in zip(old, new, strict=False))
    return isinstance(old, float) and isinstance(new, float) and new < old


def _per_position(old: Counters, new: Counters) -> tuple[float, ...]:
    """Accepted at each place of a draft / drafts."""
    drafts = _delta(old.spec_drafts, new.spec_drafts)
    before = old.spec_accepted_per_position
    if not drafts:
        return ()
    pairs = itertools.zip_longest(before[: len(new.spec_accepted_per_position)], new.spec_accepted_per_position)
    return tuple((after - (earlier or 0.0)) / drafts for earlier, after in pairs)


def _delta(old: float | None, new: float | None) -> float | None:
    """A counter that has no sample yet stands at 0."""
    return None if new is None else new - (old or 0.0)


def _mean_ms(sum_old: float | None, sum_new: float | None, n_old: float | None, n_new: float | None) -> float | None:
    total, count = _delta(sum_old, sum_new), _delta(n_old, n_new)
    return total / count * 1e3 if total is not None and count else None


def _itl_ms(old: Counters, new: Counters, *, per_step: bool) -> float | None:
    """ms per token. Where drafts are verified, some engines count a gap a step: its tokens share it."""
    if not per_step or not _delta(old.spec_drafts, new.spec_drafts):
        return _mean_ms(old.itl_sum_s, new.itl_sum_s, old.itl_count, new.itl_count)
    gaps_s = _delta(old.itl_sum_s, new.itl_sum_s)
    tokens, first = _delta(old.generated_tokens, new.generated_tokens), _delta(old.ttft_count, new.ttft_count)
    if gaps_s is None or tokens is None or first is None or tokens <= first:
        return None
    return gaps_s / (tokens - first) * 1e3


def _accept_length(old: Counters, new: Counters) -> float | None:
    """Accepted drafts per draft, and the token every step gives anyway."""
    drafts = _delta(old.spec_drafts, new.spec_drafts)
    accepted = _delta(old.spec_accepted_tokens, new.spec_accepted_tokens)
    return 1 + accepted / drafts if drafts and accepted is not None else None
