"""What is wrong, each with its evidence and since when. Pure: a replay finds the same."""

from __future__ import annotations

from decodetop.core.sample import Reading
from decodetop.core.state import Past, State
from decodetop.findings.reading import Finding
from decodetop.findings.rules import RULES, Rule, Seen, server_of
from decodetop.gpu.reading import GpuReading
from decodetop.host.reading import HostReading

__all__ = ["Finding", "evaluate"]

PAST = 30
"""Earlier readings a rule may look at."""


def evaluate(state: State) -> tuple[Finding, ...]:
    """The findings now, in the order of the rules. A lane that is failing keeps no finding: its figures are old."""
    found: list[Finding] = []
    for rule in RULES:
        lane = state.lane(rule.source)
        if lane.last is None or lane.failure is not None:
            continue
        for hit in rule.check(_seen(state, rule, lane.history)):
            since_ns = _since(state, rule, hit.key)
            name = f"{rule.id}:{hit.key}" if hit.key else rule.id
            found.append(
                Finding(
                    id=name,
                    severity=rule.severity,
                    title=hit.title,
                    evidence=hit.evidence,
                    source=rule.source,
                    since_ns=since_ns,
                )
            )
    return tuple(found)


def _seen(state: State, rule: Rule, history: tuple[Past, ...]) -> Seen:
    """What rule sees when its own source has said `history` and the others what they say now."""
    own: Reading | None = history[-1].reading if history else None
    past = tuple(one.reading for one in history[-PAST - 1 : -1])
    gpu = own if rule.source == "gpu" else state.lane("gpu").last
    host = own if rule.source == "host" else state.lane("host").last
    server = own if rule.source == "server" else state.lane("server").last
    return Seen(
        gpu=gpu if isinstance(gpu, GpuReading) else None,
        host=host if isinstance(host, HostReading) else None,
        server=server_of(server),
        past=past,
    )


def _since(state: State, rule: Rule, key: str) -> int:
    """Session time of the first sample of the unbroken row that shows the hit."""
    history = state.lane(rule.source).history
    since_ns = history[-1].t_ns
    for end in range(len(history) - 1, 0, -1):
        if all(hit.key != key for hit in rule.check(_seen(state, rule, history[:end]))):
            break
        since_ns = history[end - 1].t_ns
    return since_ns
