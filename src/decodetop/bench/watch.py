"""How a load is doing while it runs: the live figures, and whether the loop that stamps the tokens keeps up."""

from __future__ import annotations

import asyncio
from collections import deque
from copy import copy

import msgspec

from decodetop.bench.http import Now
from decodetop.bench.load import Load
from decodetop.bench.stats import quantile
from decodetop.bench.wire import Phase, Tick

LAG_PERIOD_S = 0.01
LAGS_KEPT = 60_000
"""Ten minutes of them."""


class LagMeter:
    """How late the loop calls back what was due; every 10 ms."""

    def __init__(self, loop: asyncio.AbstractEventLoop, now: Now) -> None:
        self._loop = loop
        self._now = now
        self._lags_ms: deque[float] = deque(maxlen=LAGS_KEPT)
        self._due_ns = 0
        self._handle: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Forget what was; measure from now on."""
        self.stop()
        self._lags_ms.clear()
        self._arm()

    def stop(self) -> None:
        if self._handle is not None:
            self._handle.cancel()

    @property
    def p99_ms(self) -> float | None:
        return quantile(sorted(self._lags_ms), 0.99) if self._lags_ms else None

    def _arm(self) -> None:
        self._due_ns = self._now() + int(LAG_PERIOD_S * 1e9)
        self._handle = self._loop.call_later(LAG_PERIOD_S, self._late)

    def _late(self) -> None:
        self._lags_ms.append(max(0, self._now() - self._due_ns) / 1e6)
        self._arm()


class _Sums(msgspec.Struct):
    """See Tick."""

    done: int = 0
    failed: int = 0
    chunks: int = 0
    tokens: int = 0
    counted_chunks: int = 0
    gaps: int = 0
    gap_sum_ns: int = 0
    first_tokens: int = 0
    ttft_sum_ns: int = 0

    def add(self, first_ns: int, last_ns: int, chunks: int, tokens: int) -> None:
        """A stream of `chunks` between two stamps counted from its write; `tokens` 0 = not said."""
        self.chunks += chunks
        self.tokens += tokens
        self.counted_chunks += chunks if tokens else 0
        self.gaps += chunks - 1
        self.gap_sum_ns += last_ns - first_ns
        self.first_tokens += 1
        self.ttft_sum_ns += first_ns


class Live:
    """Sums over what a load has finished, each record added once, and over what is under way."""

    def __init__(self, load: Load) -> None:
        self._load = load
        self._seen = 0
        self._finished = _Sums()

    def tick(self, phase: Phase, elapsed_s: float, lag_ms: float | None) -> Tick:
        for record in self._load.records[self._seen :]:
            self._seen += 1
            self._finished.done += 1
            self._finished.failed += record.fault is not None
            if record.chunks_ns:
                stamps = record.chunks_ns
                self._finished.add(stamps[0], stamps[-1], len(stamps), record.output_tokens or 0)
        sums = copy(self._finished)
        for exchange in self._load.under_way:
            stamps, start_ns = exchange.log.stamps_ns, exchange.write_ns
            if stamps and start_ns is not None:
                sums.add(stamps[0] - start_ns, stamps[-1] - start_ns, len(stamps), exchange.log.known_tokens)
        return Tick(phase=phase, elapsed_s=elapsed_s, loop_lag_ms_p99=lag_ms, **msgspec.structs.asdict(sums))
