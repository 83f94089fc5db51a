"""What is wrong, each with its evidence and since when. Pure: a replay finds the same."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from decodetop.core.sample import Reading
from decodetop.core.state import Past, State
from decodetop.findings.reading import Finding
from decodetop.findings.remedy import REMEDIES
from decodetop.findings.rules import RULES, Rule
from decodetop.findings.seen import Seen, server_of
from decodetop.gpu.reading import GpuReading
from decodetop.host.reading import HostReading

__all__ = ["Evaluated", "Finding", "evaluate", "evaluated"]

PAST = 30
"""Earlier readings a rule may look at."""


class Evaluated(NamedTuple):
    """What an earlier evaluation saw: the time of each lane's last reading, and since when each finding stood."""

    last_ns: Mapping[str, int]
    since_ns: Mapping[str, int]

    def known(self, finding: str, source: str) -> tuple[int, int] | None:
        """(the sample it was seen at, since when), None if it was not seen."""
        if finding not in self.since_ns or source not in self.last_ns:
            return None
        return self.last_ns[source], self.since_ns[finding]


NOTHING = Evaluated({}, {})


def evaluate(state: State, before: Evaluated = NOTHING) -> tuple[Finding, ...]:
    """The findings now, in the order of the rules. A lane that is failing keeps no finding: its figures are old.

    `before` spares looking at what was looked at before: `since_ns` is the same without it.
    """
    found: list[Finding] = []
    for rule in RULES:
        lane = state.lane(rule.source)
        if lane.last is None or lane.failure is not None:
            continue
        for hit in rule.check(_seen(state, rule, lane.history)):
            name = f"{rule.id}:{hit.key}" if hit.key else rule.id
            remedy = REMEDIES[rule.id]
            found.append(
                Finding(
                    id=name,
                    severity=rule.severity,
                    title=hit.title,
                    evidence=hit.evidence,
                    source=rule.source,
                    since_ns=_since(state, rule, hit.key, before.known(name, rule.source)),
                    todo=remedy.content,
                    hypothesis=remedy.hypothesis,
                )
            )
    return tuple(found)


def evaluated(state: State, findings: tuple[Finding, ...]) -> Evaluated:
    """To be given to the next `evaluate` of the same session."""
    at = {source: lane.last_t_ns for source, lane in state.lanes.items() if lane.last_t_ns is not None}
    return Evaluated(at, {finding.id: finding.since_ns for finding in findings})


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


def _since(state: State, rule: Rule, key: str, known: tuple[int, int] | None) -> int:
    """Session time of the first sample of the unbroken row that shows the hit.

    `known`: up to this sample (its time) the row was followed already, and it began then.
    """
    history = state.lane(rule.source).history
    since_ns = history[-1].t_ns
    for end in range(len(history) - 1, 0, -1):
        if known is not None and history[end - 1].t_ns <= known[0]:
            return known[1]
        if all(hit.key != key for hit in rule.check(_seen(state, rule, history[:end]))):
            break
        since_ns = history[end - 1].t_ns
    return since_ns
