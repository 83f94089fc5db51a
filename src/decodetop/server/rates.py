"""Rates and means from counters that only go up: what happened between two polls. Pure but for its own history.

A gauge of the engine is never a rate here: SGLang's `gen_throughput` keeps its last value when idle.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

import msgspec

from decodetop.core.clock import SECOND_NS
from decodetop.server.metrics import Histogram, latency
from decodetop.server.reading import Counters, Latency

SHORTEST_S = 0.5
"""Closer polls (somebody presses refresh) give no rate of their own."""
SLOW_WINDOW_S = 3.5
SLOW_TOKENS = 60
"""Below about 20 tok/s one token more or less in a second is 5 % and more: then the window is `SLOW_WINDOW_S`."""
RECENT_S = 60.0
"""For what happens per request (TTFT, prefix hits, SGLang's verify calls) one second is too short."""

FIRST_POLL = "a rate needs two polls"
RESTARTED = "the counters went back: the server restarted"


class Tally(msgspec.Struct, frozen=True, kw_only=True):
    """The counters at `t_ns`. Tallies of another `basis` (another process, another counter) are not compared.

    `per_event`: the ITL histogram counts output events and not tokens (vLLM when it speculates).
    """

    t_ns: int
    basis: str
    counters: Counters
    ttft: Histogram | None = None
    itl: Histogram | None = None
    per_event: bool = False


class Rates(msgspec.Struct, frozen=True, kw_only=True):
    """`still_s`: since when no token was counted, prefill included; up to a minute back."""

    still_s: float = 0.0
    generated_tok_s: float | None = None
    prompt_tok_s: float | None = None
    ttft: Latency | None = None
    itl: Latency | None = None
    accept_length: float | None = None
    accept_recent: bool = False
    prefix_hit_rate: float | None = None
    reasons: dict[str, str] = {}


class History:
    """The tallies of one server over the last minute."""

    def __init__(self) -> None:
        self._tallies: deque[Tally] = deque()
        self._known: dict[str, float] = {}
        self._restarted = False

    def __len__(self) -> int:
        return len(self._tallies)

    def clear(self) -> None:
        self._tallies.clear()
        self._known.clear()

    def push(self, tally: Tally) -> bool:
        """Add the newest tally; True if the counters started anew since the last one."""
        seen = {name: getattr(tally.counters, name) for name in _MONOTONIC}
        counts: dict[str, float] = {name: value for name, value in seen.items() if value is not None}
        other = bool(self._tallies) and self._tallies[-1].basis != tally.basis
        self._restarted = other or any(value < self._known.get(name, value) for name, value in counts.items())
        if self._restarted:
            self.clear()
        self._known.update(counts)
        self._tallies.append(tally)
        while len(self._tallies) > 2 and _age_s(self._tallies[1], tally) >= RECENT_S:
            self._tallies.popleft()
        return self._restarted

    def rates(self) -> Rates:
        """Since the last poll where that says enough; else over the recent past; else since the server started."""
        now = self._tallies[-1]
        short, recent = self._short(), self._tallies[0]
        reasons = {}
        if short is None:
            reasons["generated_tok_s"] = reasons["prompt_tok_s"] = RESTARTED if self._restarted else FIRST_POLL
        accept, accept_recent = _recent_or_all(_accept_length, now, recent)
        return Rates(
            still_s=self._still_s(),
            generated_tok_s=_rate(now, short, "generated_tokens"),
            prompt_tok_s=_rate(now, short, "prompt_tokens"),
            ttft=_latency(now, recent, "ttft"),
            itl=_itl_per_token(now, short, recent) if now.per_event else _latency(now, short, "itl"),
            accept_length=accept,
            accept_recent=accept_recent,
            prefix_hit_rate=_recent_or_all(_hit_rate, now, recent)[0],
            reasons=reasons,
        )

    def _still_s(self) -> float:
        now = since = self._tallies[-1]
        for tally in reversed(self._tallies):
            generated, prompt = (_delta(now, tally, field) for field in ("generated_tokens", "prompt_tokens"))
            if generated is None or generated or prompt:  # unknown is not still
                break
            since = tally
        return _age_s(since, now)

    def _short(self) -> Tally | None:
        now = self._tallies[-1]
        earlier = [tally for tally in self._tallies if _age_s(tally, now) >= SHORTEST_S]
        if not earlier:
            return None
        slow = next((tally for tally in earlier if _age_s(tally, now) <= SLOW_WINDOW_S), earlier[-1])
        tokens = _delta(now, slow, "generated_tokens")
        return slow if tokens is not None and tokens < SLOW_TOKENS else earlier[-1]


_MONOTONIC = tuple(
    name
    for name in Counters.__struct_fields__
    if name not in ("spec_accepted_tokens", "spec_accepted_per_position", "finished_tokens")
)
"""SGLang's accepted tokens are a difference of counters that are not read at the same instant."""

_Figure = Callable[[Tally, Tally | None], float | None]


def _age_s(tally: Tally, now: Tally) -> float:
    return (now.t_ns - tally.t_ns) / SECOND_NS


def _delta(now: Tally, before: Tally | None, field: str) -> float | None:
    later = getattr(now.counters, field)
    earlier = 0.0 if before is None else getattr(before.counters, field)
    return None if later is None or earlier is None else later - earlier


def _rate(now: Tally, before: Tally | None, field: str) -> float | None:
    delta = None if before is None else _delta(now, before, field)
    return None if before is None or delta is None else delta / _age_s(before, now)


def _latency(now: Tally, before: Tally | None, field: str) -> Latency | None:
    histogram: Histogram | None = getattr(now, field)
    if histogram is None:
        return None
    if before is not None and before is not now:
        during = latency(histogram.since(getattr(before, field)), _age_s(before, now))
        if during is not None:
            return during
    return latency(histogram, None)


def _itl_per_token(now: Tally, short: Tally | None, recent: Tally) -> Latency | None:
    """Time between output events over the tokens that came in them; the first token of a request has no gap."""
    for before in (short, recent if recent is not now else None, None):
        if now.itl is None or (before is not None and before.itl is None):
            continue
        gaps_s = now.itl.sum_s - (before.itl.sum_s if before is not None and before.itl is not None else 0.0)
        tokens, firsts = _delta(now, before, "generated_tokens"), _delta(now, before, "ttft_count")
        if tokens is not None and firsts is not None and tokens > firsts and gaps_s > 0:
            over_s = None if before is None else _age_s(before, now)
            return Latency(mean_ms=gaps_s / (tokens - firsts) * 1000, count=tokens - firsts, over_s=over_s)
    return None


def _recent_or_all(figure: _Figure, now: Tally, recent: Tally) -> tuple[float | None, bool]:
    lately = figure(now, recent) if recent is not now else None
    return (lately, True) if lately is not None else (figure(now, None), False)


def _accept_length(now: Tally, before: Tally | None) -> float | None:
    """Tokens per verify step including the bonus token: 1 + accepted / drafts."""
    drafts, accepted = _delta(now, before, "spec_drafts"), _delta(now, before, "spec_accepted_tokens")
    return 1 + accepted / drafts if drafts and accepted is not None and accepted >= 0 else None


def _hit_rate(now: Tally, before: Tally | None) -> float | None:
    prompt, cached = _delta(now, before, "prompt_tokens"), _delta(now, before, "cached_tokens")
    return cached / prompt if prompt and cached is not None else None
