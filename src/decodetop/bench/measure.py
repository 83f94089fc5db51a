"""From records to figures: requests, tokens and metrics of a run. Pure. The definitions are in docs/benchmark.md."""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise

import msgspec

from decodetop.bench.reading import Metrics, RequestFault, Requests, Tokens
from decodetop.bench.stats import quantile, quantiles
from decodetop.bench.wire import Record, Result

NS_PER_MS = 1e6
NS_PER_S = 1e9
LONGER = 0.05
"""Share of the tokens asked for by which an answer may be longer without a word."""

TOGETHER_NS = 100_000
"""No engine decodes two steps in a tenth of a millisecond."""


class Figures(msgspec.Struct, frozen=True, kw_only=True):
    """What the records say. `window_s` = the measured window, see `Metrics`; None without one."""

    requests: Requests
    tokens: Tokens
    metrics: Metrics
    window_s: float | None
    send_delay_ms_p99: float | None
    together: float | None
    """Share of the chunks that were read in the same moment as the one before them; None without two in one answer."""
    uncounted: int
    """Answers that came whole but without the server's count of their tokens."""
    longer: int
    """Answers of more tokens than asked for, by more than a rounding."""
    longest: float | None
    """The most tokens an answer had, over those asked for; None without any count."""
    doubted: int
    """Answers with a count of the server's that can't be and is taken as unknown; `doubt` = the first in words."""
    doubt: str
    most_under_way: int
    """Requests of this run that were under way at one time, at most."""
    contradicted: int
    """Answers of whose prompt the server says more tokens came from its cache than it had; then no sum is given."""


def merged(results: Sequence[Result]) -> Result:
    """The results of several load processes as one."""
    cpus = [result.cpu_percent for result in results if result.cpu_percent is not None]
    lags = [result.loop_lag_ms_p99 for result in results if result.loop_lag_ms_p99 is not None]
    sources = {result.source for result in results} - {"unknown"}
    return Result(
        records=sorted((record for result in results for record in result.records), key=lambda record: record.index),
        source=sources.pop() if sources else "unknown",
        partial=any(result.partial for result in results),
        unfinished=sum(result.unfinished for result in results),
        cpu_percent=max(cpus, default=None),
        loop_lag_ms_p99=max(lags, default=None),
        unsteady=max((result.unsteady for result in results if result.unsteady is not None), default=None),
        lost=next((result.lost for result in results if result.lost is not None), None),
    )


def figures(result: Result, slo_ms: Mapping[str, float] | None = None, duration_s: float | None = None) -> Figures:
    """Timings and tokens are of the answers that came whole, those that came short among them.

    `slo_ms`: bounds of a request's ttft, tpot and e2e, for the goodput. `duration_s`: rates are over that time from the
    first write on, and what came later, while the last requests drained, is in no rate.
    """
    whole = [record for record in result.records if record.fault in (None, "short_output") and record.chunks_ns]
    tokens = _tokens(whole, result)
    window = _window(result.records, whole, duration_s)
    window_s = window.seconds if window is not None else None
    delays = sorted((record.write_ns - record.due_ns) / NS_PER_MS for record in result.records if record.write_ns)
    return Figures(
        requests=_requests(result.records),
        tokens=tokens,
        metrics=_metrics(whole, tokens, window, slo_ms or {}),
        window_s=window_s,
        send_delay_ms_p99=quantile(delays, 0.99) if delays else None,
        together=_together(whole),
        uncounted=sum(record.output_tokens is None for record in whole),
        longer=sum(map(_is_longer, whole)),
        longest=max(
            (one.output_tokens / one.asked_tokens for one in whole if one.output_tokens and one.asked_tokens),
            default=None,
        ),
        doubted=sum(bool(record.doubt) for record in whole),
        doubt=next((record.doubt for record in whole if record.doubt), ""),
        most_under_way=result.unfinished + _most_at_once(result.records),
        contradicted=sum(map(_contradicts, whole)),
    )


def _contradicts(record: Record) -> bool:
    cached, prompt = record.cached_tokens, record.prompt_tokens
    return cached is not None and prompt is not None and cached > prompt


def _most_at_once(records: Sequence[Record]) -> int:
    """A request that was given up is taken to be under way at the server until the run's end."""
    begins = sorted(record.write_ns for record in records if record.write_ns is not None)
    ends = sorted(record.end_ns for record in records if record.end_ns is not None and record.fault != "timeout")
    return max((place - bisect_left(ends, begin_ns) for place, begin_ns in enumerate(begins, 1)), default=0)


def _is_longer(record: Record) -> bool:
    """Engines differ by one in whether the token that ends an answer is counted."""
    asked, output = record.asked_tokens, record.output_tokens
    return asked is not None and output is not None and output - asked > max(1.0, LONGER * asked)


def _together(whole: Sequence[Record]) -> float | None:
    gaps = [gap for record in whole for gap in gaps_ns(record)]
    return sum(gap < TOGETHER_NS for gap in gaps) / len(gaps) if gaps else None


def _requests(records: Sequence[Record]) -> Requests:
    faults = Counter(record.fault for record in records if record.fault is not None)
    examples = {record.fault: record.message for record in reversed(records) if record.fault is not None}
    errors = tuple(RequestFault(kind=kind, count=count, example=examples[kind]) for kind, count in faults.most_common())
    failed = sum(faults.values())
    return Requests(ok=len(records) - failed, failed=failed, errors=errors)


def _tokens(whole: Sequence[Record], result: Result) -> Tokens:
    """Sums, where every answer has the count; cached tokens where any has (servers leave out a zero), and none is more
    than the prompt."""
    cached = [record.cached_tokens for record in whole if record.cached_tokens is not None]
    return Tokens(
        output=_sum([record.output_tokens for record in whole]),
        prompt=_sum([record.prompt_tokens for record in whole]),
        cached=sum(cached) if cached and not any(map(_contradicts, whole)) else None,
        source=result.source,
    )


def _sum(values: Sequence[int | None]) -> int | None:
    known = [value for value in values if value is not None]
    return sum(known) if known and len(known) == len(values) else None


class _Window(msgspec.Struct, frozen=True):
    """What rates are over, in ns of the records' clock."""

    begin_ns: int
    end_ns: int

    @property
    def seconds(self) -> float:
        return (self.end_ns - self.begin_ns) / NS_PER_S

    def holds(self, record: Record) -> bool:
        """Its last token came inside."""
        return record.write_ns is not None and record.write_ns + record.chunks_ns[-1] <= self.end_ns

    def tokens(self, record: Record) -> float:
        """Output tokens that came inside: by its chunks' own counts, else as evenly as its chunks came."""
        if self.holds(record) or record.write_ns is None or not record.output_tokens:
            return record.output_tokens or 0
        inside = bisect_right(record.chunks_ns, self.end_ns - record.write_ns)
        if record.chunk_tokens is not None:
            return sum(record.chunk_tokens[:inside])
        return record.output_tokens * inside / len(record.chunks_ns)

    def busy_ns(self, record: Record) -> int:
        """How long the request was under way inside."""
        begin_ns = record.write_ns
        return 0 if begin_ns is None else max(0, min(begin_ns + record.chunks_ns[-1], self.end_ns) - begin_ns)


def _window(records: Sequence[Record], whole: Sequence[Record], duration_s: float | None) -> _Window | None:
    writes = [record.write_ns for record in records if record.write_ns is not None]
    ends = [record.write_ns + record.chunks_ns[-1] for record in whole if record.write_ns is not None]
    if not writes or not ends or max(ends) <= min(writes):
        return None
    begin_ns, end_ns = min(writes), max(ends)
    return _Window(begin_ns, end_ns if duration_s is None else min(end_ns, begin_ns + round(duration_s * NS_PER_S)))


def _metrics(whole: Sequence[Record], tokens: Tokens, window: _Window | None, slo_ms: Mapping[str, float]) -> Metrics:
    several = [record for record in whole if len(record.chunks_ns) > 1]
    counted = bool(several) and all(record.chunk_tokens is not None for record in several)
    rates = _rates(whole, tokens, window, slo_ms)
    return Metrics(
        ttft_ms=quantiles(record.chunks_ns[0] / NS_PER_MS for record in whole),
        itl_ms=quantiles(itl for record in several for itl in _itls_ms(record)) if counted else None,
        icl_ms=quantiles(gap / NS_PER_MS for record in several for gap in gaps_ns(record)),
        tpot_ms=quantiles(tpot for record in several for tpot in _tpot_ms(record)),
        e2e_ms=quantiles(record.chunks_ns[-1] / NS_PER_MS for record in whole),
        accept_length=_accept_length(whole),
        output_tok_s=rates.output_tok_s,
        request_s=rates.request_s,
        goodput_request_s=rates.goodput_request_s,
        concurrency=rates.concurrency,
    )


class _Rates(msgspec.Struct, frozen=True, kw_only=True):
    output_tok_s: float | None = None
    request_s: float | None = None
    goodput_request_s: float | None = None
    concurrency: float | None = None


def _rates(whole: Sequence[Record], tokens: Tokens, window: _Window | None, slo_ms: Mapping[str, float]) -> _Rates:
    if window is None:
        return _Rates()
    ended, seconds = [record for record in whole if window.holds(record)], window.seconds
    return _Rates(
        output_tok_s=sum(map(window.tokens, whole)) / seconds if tokens.output is not None else None,
        request_s=sum(record.fault is None for record in ended) / seconds,
        goodput_request_s=sum(_within(record, slo_ms) for record in ended) / seconds if slo_ms else None,
        concurrency=sum(map(window.busy_ns, whole)) / NS_PER_S / seconds,
    )


def _within(record: Record, slo_ms: Mapping[str, float]) -> bool:
    """A whole answer inside every bound. One of unknown tokens can't be said to keep a TPOT."""
    tpot = next(_tpot_ms(record), 0.0 if record.output_tokens == 1 else math.inf)
    chunks = record.chunks_ns
    seen = {"ttft": chunks[0] / NS_PER_MS, "tpot": tpot, "e2e": chunks[-1] / NS_PER_MS}
    return record.fault is None and all(seen[metric] <= bound for metric, bound in slo_ms.items())


def gaps_ns(record: Record) -> Iterator[int]:
    """Between one token-carrying chunk and the next."""
    return (after - before for before, after in pairwise(record.chunks_ns))


def _itls_ms(record: Record) -> Iterator[float]:
    """A chunk's gap shared by the tokens it carried, once for each of them."""
    assert record.chunk_tokens is not None
    for gap_ns, tokens in zip(gaps_ns(record), record.chunk_tokens[1:], strict=True):
        yield from [gap_ns / tokens / NS_PER_MS] * tokens


def _tpot_ms(record: Record) -> Iterator[float]:
    if record.output_tokens is not None and record.output_tokens > 1:
        yield (record.chunks_ns[-1] - record.chunks_ns[0]) / (record.output_tokens - 1) / NS_PER_MS


def _accept_length(whole: Sequence[Record]) -> float | None:
    """Tokens per verify step as the server counted both (SGLang's and llama.cpp's native answers)."""
    tokens, steps = _sum([record.output_tokens for record in whole]), _sum([record.steps for record in whole])
    return tokens / steps if tokens is not None and steps else None
