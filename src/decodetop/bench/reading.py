"""A benchmark's plan, progress and result; the JSON of `bench run` is `Run` encoded."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from decodetop.core.sample import Command, Reading

SCHEMA = 1
Api = Literal["chat", "completions", "generate", "completion"]
Severity = Literal["info", "suspect", "invalid"]
ErrorKind = Literal["stream_error", "http", "cut", "timeout", "short_output", "protocol"]


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """What is to be run. Lengths in tokens; a sweep is one plan per number of streams.

    `ignore_eos` False lets the model end where it likes: a shorter output is then no fault. `shared_prefix_tokens` of
    every prompt are the same. `timeout_s` is for one request as a whole. `request_rate_s` is a Poisson rate; None =
    closed loop. `prompts_file` holds real prompts instead of synthetic ones. `slo_ms`: bounds of ttft, tpot or e2e.
    `duration_s`: no request begins later than that after the first; `requests` is then only the most there can be.
    `warmup_steady`: warm-up goes on, `warmup_requests` at a time, until the pace of a token does not change any more.
    """

    preset: str
    endpoint: str
    api: Api = "completions"
    model: str | None = None
    streams: int = 1
    requests: int = 8
    warmup_requests: int = 1
    input_tokens: int = 128
    output_tokens: int = 256
    timeout_s: float = 120.0
    seed: int = 0
    temperature: float = 0.0
    ignore_eos: bool = True
    shared_prefix_tokens: int = 0
    request_rate_s: float | None = None
    prompts_file: str | None = None
    slo_ms: dict[str, float] = {}
    duration_s: float | None = None
    warmup_steady: bool = False


class Preset(msgspec.Struct, frozen=True, kw_only=True):
    """A named plan of bench/presets.toml or of the user's file. `streams` with several values is a sweep.

    `contexts`: several input lengths, a run each (a ladder); `input_tokens` is then the first of them.
    """

    name: str
    title: str
    streams: tuple[int, ...] = (1,)
    requests_per_stream: int = 4
    input_tokens: int = 128
    output_tokens: int = 256
    api: Api = "completions"
    timeout_s: float = 120.0
    contexts: tuple[int, ...] = ()


class Gate(msgspec.Struct, frozen=True, kw_only=True):
    """A self-check of a run; `invalid` makes the run invalid."""

    name: str
    severity: Severity
    detail: str


class RequestFault(msgspec.Struct, frozen=True, kw_only=True):
    """`example` is one message of this kind, redacted, one line."""

    kind: ErrorKind
    count: int
    example: str


class Requests(msgspec.Struct, frozen=True, kw_only=True):
    ok: int
    failed: int
    errors: tuple[RequestFault, ...] = ()


class Tokens(msgspec.Struct, frozen=True, kw_only=True):
    """Counted by the server (`usage` or native counts) and by nothing else; None when it sends none."""

    output: int | None
    prompt: int | None
    cached: int | None
    source: Literal["usage", "native", "unknown"]


class Quantiles(msgspec.Struct, frozen=True, kw_only=True):
    """Of `n` values."""

    n: int
    mean: float
    p50: float
    p90: float
    p99: float


class Metrics(msgspec.Struct, frozen=True, kw_only=True):
    """TTFT from the client's write of the request to the first token; ITL = chunk gap / its tokens where the stream
    says how many, else None; ICL = raw chunk gap; TPOT = (last token - first)/(tokens - 1); E2E to the last token.
    `output_tok_s` is over the measured window: first write to last token, or to the end of the plan's `duration_s`, so
    that the drain stays out. `goodput_request_s` counts the requests within every bound of the plan's SLO; None without
    one. `concurrency` is the mean number of requests under way in the window.
    """

    ttft_ms: Quantiles | None
    itl_ms: Quantiles | None
    icl_ms: Quantiles | None
    tpot_ms: Quantiles | None
    e2e_ms: Quantiles | None
    output_tok_s: float | None
    request_s: float | None
    accept_length: float | None
    goodput_request_s: float | None = None
    concurrency: float | None = None
    accept_per_position: tuple[float, ...] | None = None


class ClientCheck(msgspec.Struct, frozen=True, kw_only=True):
    """How the load generator itself did. Send delay = due time to write."""

    loop_lag_ms_p99: float | None
    cpu_percent: float | None
    send_delay_ms_p99: float | None


class GpuSpan(msgspec.Struct, frozen=True, kw_only=True):
    """One GPU over the measured window: the mean of its samples, and what changed. n = samples seen.

    `sm_clock_mhz_start` and `_end`: means of the first and the last quarter of the samples with the GPU busy, as those
    of the temperature. PCIe bytes/s are means, as the GPU sends (tx) and receives (rx).
    """

    index: int
    n: int
    sm_clock_mhz_mean: float | None = None
    sm_clock_mhz_min: float | None = None
    sm_clock_mhz_start: float | None = None
    sm_clock_mhz_end: float | None = None
    mem_clock_mhz_mean: float | None = None
    power_w_mean: float | None = None
    energy_j: float | None = None
    temperature_c_max: float | None = None
    utilization_percent_mean: float | None = None
    dram_bandwidth_percent_mean: float | None = None
    pcie_gen_min: int | None = None
    event_reasons: int = 0
    foreign_pids: tuple[int, ...] = ()
    temperature_c_start: float | None = None
    temperature_c_end: float | None = None
    pcie_tx_bytes_s_mean: float | None = None
    pcie_rx_bytes_s_mean: float | None = None


class ServerSpan(msgspec.Struct, frozen=True, kw_only=True):
    """The server's own counters over the run (after minus before), beside the client's figures.

    `under_way_median`: requests running or queued at a time, the median over the looks taken under the load.
    """

    generated_tokens: float | None = None
    requests: float | None = None
    ttft_mean_ms: float | None = None
    itl_mean_ms: float | None = None
    accept_length: float | None = None
    cached_tokens: float | None = None
    accept_per_position: tuple[float, ...] = ()
    under_way_median: float | None = None
    unknown: str = ""
    """Why none of the counts is known, if so."""


class Environment(msgspec.Struct, frozen=True, kw_only=True):
    """What the run ran on. `flags` and `command` are the server's, redacted."""

    decodetop: str
    host: str | None = None
    engine: str | None = None
    engine_version: str | None = None
    model: str | None = None
    tp: int | None = None
    command: tuple[str, ...] = ()
    flags: dict[str, str] = {}
    driver: str | None = None
    gpu_names: tuple[str, ...] = ()
    gpus: tuple[GpuSpan, ...] = ()
    server: ServerSpan | None = None
    simulated: bool = False


class Run(msgspec.Struct, frozen=True, kw_only=True):
    """One benchmark run. `partial` = ended early: by the operator, or since a load process was lost (a gate says so).

    `id` is None until stored.
    """

    schema: int = SCHEMA
    id: int | None = None
    started_wall_ns: int
    duration_s: float
    valid: bool
    partial: bool = False
    gates: tuple[Gate, ...]
    plan: Plan
    environment: Environment
    requests: Requests
    tokens: Tokens
    metrics: Metrics
    client: ClientCheck


class Progress(msgspec.Struct, frozen=True, kw_only=True):
    """A run under way. `step` of `steps` for a sweep. Figures are so far, of finished and running requests.

    With `duration_s` the end is a time, and `requests_total` is 0.
    """

    preset: str
    endpoint: str
    phase: Literal["starting", "warmup", "measuring", "draining", "stopping"]
    step: int = 1
    steps: int = 1
    streams: int = 1
    requests_done: int = 0
    requests_total: int = 0
    errors: int = 0
    elapsed_s: float = 0.0
    eta_s: float | None = None
    output_tok_s: float | None = None
    ttft_ms_mean: float | None = None
    icl_ms_mean: float | None = None
    loop_lag_ms_p99: float | None = None
    duration_s: float | None = None


class BenchReading(Reading, frozen=True, kw_only=True):
    """`runs` is newest first, the last 50 of the investigation's store. `problem` = why nothing can be stored.

    `unreadable` = runs of the store that can't be read.
    """

    presets: tuple[Preset, ...] = ()
    progress: Progress | None = None
    runs: tuple[Run, ...] = ()
    baseline_id: int | None = None
    last_error: str | None = None
    problem: str | None = None
    unreadable: int = 0
    notes: dict[str, Any] = {}


class StartBench(Command, frozen=True, kw_only=True):
    """Run a preset against `endpoint` (None = the current server)."""

    touches = True
    title = "start a benchmark"

    preset: str
    endpoint: str | None = None


class StopBench(Command, frozen=True, kw_only=True):
    """Stop the run under way; what finished is kept and marked partial."""

    title = "stop the benchmark"


class MarkBaseline(Command, frozen=True, kw_only=True):
    """`run_id` None = no baseline."""

    title = "choose the baseline"

    run_id: int | None
