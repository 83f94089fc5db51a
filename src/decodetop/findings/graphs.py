"""Decode steps that run without a CUDA graph: every kernel of them is launched by the CPU. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from decodetop.findings.seen import Hit, Seen, server_named
from decodetop.server.graphs import fit, words
from decodetop.server.reading import Counters, Server

EAGER_SHARE = 0.05
"""Of the decode passes lately; fewer are a batch in transition."""


def graphs_missed(seen: Seen) -> Iterator[Hit]:
    """Off; a batch that fits no captured size; or, by the engine's own count, passes that ran eagerly all the same."""
    server = seen.server
    if server is None or server.status != "up" or not server.running:
        return
    if server.cuda_graph is False:
        yield Hit("off", "CUDA graphs are off", f"{server.running} running; every kernel is launched by the CPU")
        return
    found = fit(server)
    if found is not None and found.outside:
        evidence = f"{server.running} running: {words(found)}"
        yield Hit("outside", "the batch is outside the captured graphs", evidence)
        return
    eager, all_passes = _passes(server, seen)
    if eager and eager >= EAGER_SHARE * all_passes:
        evidence = f"{eager:.0f} of {all_passes:.0f} decode passes lately"
        yield Hit("eager", "decode steps run outside the captured graphs", evidence)


def _passes(server: Server, seen: Seen) -> tuple[float, float]:
    """(eager, all) since the earliest reading at hand; none where the engine does not count or began anew."""
    first = server_named(seen.past[0], server.endpoint) if seen.past else None
    now, then = server.counters, None if first is None else first.counters
    eager, graph = _added(now, then, "eager_decode_passes"), _added(now, then, "graph_decode_passes")
    return (0.0, 0.0) if eager is None or graph is None else (eager, eager + graph)


def _added(now: Counters | None, then: Counters | None, field: str) -> float | None:
    later, earlier = getattr(now, field, None), getattr(then, field, None)
    return None if later is None or earlier is None or later < earlier else later - earlier
