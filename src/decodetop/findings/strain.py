"""Rules about a server that works against itself: work thrown away, a scheduler far from its GPUs. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from decodetop.core.sample import Reading
from decodetop.findings.owners import gpus_of
from decodetop.findings.seen import STEADY_SAMPLES, Hit, Seen, server_named
from decodetop.host.reading import HostReading
from decodetop.server.reading import Server


def thrown_away(seen: Seen) -> Iterator[Hit]:
    """Requests put off although they had begun: their KV is computed again, and the others wait for it."""
    server = seen.server
    if server is None or server.status != "up":
        return
    lost = _preempted(server, seen.past)
    if lost:
        yield Hit("preempted", "requests are preempted", f"{lost:.0f} since {len(seen.past)} readings ago; KV is full")
    if server.retracted:
        yield Hit("retracted", "requests are retracted", f"{server.retracted} put off for want of KV")


def _preempted(server: Server, past: tuple[Reading, ...]) -> float:
    """How many since the earliest reading at hand; counters that went back began anew."""
    now = server.counters.preemptions if server.counters else None
    first = server_named(past[0], server.endpoint) if past else None
    then = first.counters.preemptions if first is not None and first.counters else None
    return 0.0 if now is None or then is None else max(0.0, now - then)


def far_socket(seen: Seen) -> Iterator[Hit]:
    """A scheduler that stays on a socket other than its GPUs': each launch and copy crosses between them."""
    server = seen.server
    nodes = {gpu.numa_node for gpu in gpus_of(server, seen.gpu) or ()}
    recent = [one for one in (*seen.past[1 - STEADY_SAMPLES :], seen.host) if isinstance(one, HostReading)]
    if server is None or seen.host is None or None in nodes or len(nodes) != 1 or len(recent) < STEADY_SAMPLES:
        return
    if (seen.host.cpu_numa_nodes or 1) < 2:
        return
    (near,) = nodes
    own = {process.pid for process in server.processes if process.role in ("scheduler", "engine", "worker")}
    for process in seen.host.processes:
        if process.pid not in own or not process.cpu_percent:
            continue
        places = {one.numa_node for reading in recent for one in reading.processes if one.pid == process.pid}
        if places == {process.numa_node} and process.numa_node not in (None, near):
            evidence = f"{process.title} on node {process.numa_node}, its GPUs on node {near}"
            yield Hit(str(process.pid), "the scheduler runs on the far socket", evidence)
