"""A run's self-check: what makes it worth less than it looks (suspect) or worth nothing (invalid). Pure."""

from __future__ import annotations

from collections.abc import Iterator

from decodetop.bench.measure import Figures
from decodetop.bench.reading import Environment, Gate, GpuSpan, Plan, ServerSpan, Severity
from decodetop.bench.wire import Result

FAILED_SHARE_MAX = 0.05
"""Failed requests above which what is left says little of the load that was asked for."""

CPU_SUSPECT, CPU_INVALID = 70.0, 95.0
"""Percent of one core: above, reads wait for the client (measured: a saturated client shows p99 of its own)."""

LAG_SUSPECT, LAG_SUSPECT_MS = 0.25, 3.0
LAG_INVALID, LAG_INVALID_MS = 2.0, 50.0
"""Loop lag p99 as a share of the median chunk gap, and below which ms it is never named."""

DELAY_SUSPECT, DELAY_SUSPECT_MS = 0.02, 5.0
DELAY_INVALID, DELAY_INVALID_MS = 0.10, 50.0
"""Send delay p99 as a share of the median E2E: a slow re-dispatch lowers the real concurrency."""

CLIENT_OVER_S = 1.0
"""Of a shorter run the client's own figures say little: one hiccup of the box is all of them."""

CACHED_SHARE_MAX, CACHED_PER_REQUEST = 0.10, 32
"""Prompt tokens from the prefix cache that a chat template's opening explains: up to 10 %, or 32 per request."""

TOGETHER_MAX = 0.5
"""Share of chunks read in the same moment as the one before, above which gaps say nothing of a decode step."""
SPECULATING = 1.05

LENGTH_OFF = 0.05
LONGER_INVALID = 2.0
"""Times the tokens asked for: this is other work than the plan's, or the server counts what it did not send."""
CLOCK_FELL = 0.05
COUNT_OFF = 0.02
FEW_REQUESTS = 20
"""A p99 of fewer is their largest value."""

SLOWED = {0x08: "hardware slowdown", 0x20: "software thermal", 0x40: "hardware thermal", 0x80: "power brake"}
POWER_CAP = 0x04
"""NVML clock event reasons, nvml.h nvmlClocksEventReasons."""


def gates(plan: Plan, result: Result, seen: Figures, environment: Environment) -> tuple[Gate, ...]:
    """All that apply, the worst first."""
    found = [
        *_outcome(plan, result, seen),
        *_lengths(plan, seen),
        *_warmup(result),
        *_client(result, seen),
        *_bursts(seen),
        *(gate for span in environment.gpus for gate in _gpu(span)),
        *_server(environment.server, result, seen),
    ]
    order = ("invalid", "suspect", "info")
    return tuple(sorted(found, key=lambda gate: order.index(gate.severity)))


def _outcome(plan: Plan, result: Result, seen: Figures) -> Iterator[Gate]:
    asked = seen.requests
    total = asked.ok + asked.failed
    short = sum(error.count for error in asked.errors if error.kind == "short_output")
    broken = asked.failed - short
    if asked.ok == 0:
        yield Gate(name="no_result", severity="invalid", detail=f"none of {total} requests succeeded")
    elif broken:
        severity: Severity = "invalid" if broken / total > FAILED_SHARE_MAX else "suspect"
        yield Gate(name="errors", severity=severity, detail=f"{broken} of {total} requests failed")
    if short:
        detail = f"{short} of {total} answers were shorter than {plan.output_tokens} tokens: not the work asked for"
        yield Gate(name="short_output", severity="invalid", detail=detail)
    if result.lost is not None:
        detail = f"{result.lost}; {_of(total, plan)} had ended"
        yield Gate(name="load_lost", severity="suspect", detail=detail)
    elif result.partial:
        detail = f"stopped after {_of(total, plan)}; {result.unfinished} under way were dropped"
        yield Gate(name="partial", severity="suspect", detail=detail)
    elif total < plan.requests and plan.duration_s is None:
        yield Gate(
            name="given_up", severity="invalid", detail=f"nothing but time-outs: {total} of {plan.requests} sent"
        )
    if 0 < asked.ok < FEW_REQUESTS:
        detail = f"{asked.ok} requests: a p99 over requests is the largest of them"
        yield Gate(name="few_requests", severity="info", detail=detail)


def _of(total: int, plan: Plan) -> str:
    return f"{total} requests" if plan.duration_s is not None else f"{total} of {plan.requests} requests"


def _lengths(plan: Plan, seen: Figures) -> Iterator[Gate]:
    ttft = seen.metrics.ttft_ms
    if ttft is None:
        return
    tokens = seen.tokens
    if seen.doubted:
        detail = f"{seen.doubted} of {ttft.n} answers had a count that can't be, taken as unknown: {seen.doubt}"
        yield Gate(name="count_impossible", severity="suspect", detail=detail)
    if seen.contradicted:
        detail = f"{seen.contradicted} of {ttft.n} answers had more cached than prompt tokens by the server's count: "
        yield Gate(
            name="count_impossible",
            severity="invalid",
            detail=f"{detail}whether prompts came from the prefix cache is not known",
        )
    if seen.longer and seen.longest is not None:
        severe = seen.longest > LONGER_INVALID
        often = f"{seen.longer} of {ttft.n} answers were longer than asked"
        detail = f"{often}, up to {seen.longest:.3g} times: not the work asked for"
        yield Gate(name="long_output", severity="invalid" if severe else "suspect", detail=detail)
    if seen.uncounted:
        detail = f"{seen.uncounted} of {ttft.n} answers came without the server's token count: chunk figures only"
        yield Gate(name="tokens_unknown", severity="suspect", detail=detail)
    if tokens.prompt is None or plan.prompts_file is not None:
        return
    per_request = tokens.prompt / ttft.n
    if abs(per_request - plan.input_tokens) > max(1.0, LENGTH_OFF * plan.input_tokens):
        detail = f"prompts had {per_request:.0f} tokens on average, {plan.input_tokens} were asked for"
        yield Gate(name="prompt_length", severity="suspect", detail=detail)
    if tokens.cached is None:
        return
    expected = plan.shared_prefix_tokens * ttft.n
    allowed = expected + max(CACHED_SHARE_MAX * tokens.prompt, CACHED_PER_REQUEST * ttft.n)
    if tokens.cached > allowed:
        detail = f"{100 * tokens.cached / tokens.prompt:.0f} % of the prompt tokens came from the prefix cache"
        yield Gate(name="cached_tokens", severity="suspect", detail=detail)


def _warmup(result: Result) -> Iterator[Gate]:
    if result.unsteady is not None:
        detail = f"the pace of a token still changed by {100 * result.unsteady:.0f} % when warm-up ended"
        yield Gate(name="not_steady", severity="info", detail=detail)


def _client(result: Result, seen: Figures) -> Iterator[Gate]:
    metrics = seen.metrics
    if seen.window_s is None or seen.window_s < CLIENT_OVER_S or metrics.e2e_ms is None:
        return
    if result.cpu_percent is not None and result.cpu_percent > CPU_SUSPECT:
        severe = result.cpu_percent > CPU_INVALID
        yield _bound(severe, f"the load process used {result.cpu_percent:.0f} % of one core")
    gap = metrics.icl_ms.p50 if metrics.icl_ms is not None else None
    lag = result.loop_lag_ms_p99
    if gap is not None and lag is not None and lag > max(LAG_SUSPECT_MS, LAG_SUSPECT * gap):
        severe = lag > max(LAG_INVALID_MS, LAG_INVALID * gap)
        yield _bound(severe, f"loop lag p99 {lag:.1f} ms beside a chunk gap of {gap:.1f} ms")
    delay, whole = seen.send_delay_ms_p99, metrics.e2e_ms.p50
    if delay is not None and delay > max(DELAY_SUSPECT_MS, DELAY_SUSPECT * whole):
        severe = delay > max(DELAY_INVALID_MS, DELAY_INVALID * whole)
        yield _bound(severe, f"requests left up to {delay:.1f} ms late (p99)")


def _bursts(seen: Figures) -> Iterator[Gate]:
    """Speculation sends accepted tokens together where each has a chunk of its own."""
    accept = seen.metrics.accept_length
    if seen.together is None or seen.together <= TOGETHER_MAX or (accept is not None and accept > SPECULATING):
        return
    detail = f"{100 * seen.together:.0f} % of the chunks came together with the one before: held back by the server, "
    yield Gate(name="bursts", severity="suspect", detail=f"{detail}what lies between, or a box short of CPU")


def _bound(severe: bool, why: str) -> Gate:
    return Gate(name="client_bound", severity="invalid" if severe else "suspect", detail=why)


def _gpu(span: GpuSpan) -> Iterator[Gate]:
    start, end = span.sm_clock_mhz_start, span.sm_clock_mhz_end
    if start and end is not None and (start - end) / start > CLOCK_FELL:
        detail = f"GPU {span.index}: SM clock fell {100 * (start - end) / start:.0f} % ({start:.0f} to {end:.0f} MHz)"
        yield Gate(name="sm_clock", severity="suspect", detail=detail)
    slowed = [word for bit, word in SLOWED.items() if span.event_reasons & bit]
    if slowed:
        yield Gate(name="throttled", severity="suspect", detail=f"GPU {span.index}: {', '.join(slowed)}")
    if span.event_reasons & POWER_CAP:
        yield Gate(name="power_cap", severity="info", detail=f"GPU {span.index}: clocks held by the power limit")
    if span.foreign_pids:
        pids = ", ".join(str(pid) for pid in span.foreign_pids)
        yield Gate(
            name="foreign_process", severity="suspect", detail=f"another process used GPU {span.index}: pid {pids}"
        )


def _server(server: ServerSpan | None, result: Result, seen: Figures) -> Iterator[Gate]:
    """The server's counters beside ours. More on its side: others used it too, and shared its steps."""
    if server is None or result.partial:
        return
    if server.unknown:
        yield Gate(name="server_counters", severity="suspect", detail=server.unknown)
    ours = seen.tokens.output
    if server.generated_tokens is not None and ours and not seen.requests.failed:
        off = server.generated_tokens / ours - 1
        if abs(off) > COUNT_OFF:
            detail = f"the server counted {server.generated_tokens:.0f} output tokens, this run {ours}"
            yield Gate(name="server_count", severity="suspect", detail=detail)
    sent = seen.requests.ok + seen.requests.failed
    if server.requests is not None and server.requests > sent:
        detail = f"the server finished {server.requests:.0f} requests, this run sent {sent}"
        yield Gate(name="other_load", severity="suspect", detail=detail)
    elif server.under_way_median is not None and server.under_way_median > seen.most_under_way:
        detail = f"{server.under_way_median:g} requests ran or waited at the server, at most {seen.most_under_way} ours"
        yield Gate(name="other_load", severity="suspect", detail=detail)
