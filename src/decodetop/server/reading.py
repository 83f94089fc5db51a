"""What the inference servers of the box say of themselves. No secret ever stands here."""

from __future__ import annotations

from typing import Literal

import msgspec

from decodetop.core.sample import Command, Reading

Engine = Literal["sglang", "vllm", "llamacpp", "tgi", "trtllm", "ollama", "lmdeploy", "unknown"]
Status = Literal["up", "starting", "needs_key", "down", "hung", "not_a_server"]
Role = Literal["api", "scheduler", "detokenizer", "tokenizer", "worker", "engine", "other"]

ENGINE_NAMES: dict[str, str] = {
    "sglang": "SGLang",
    "vllm": "vLLM",
    "llamacpp": "llama.cpp",
    "tgi": "TGI",
    "trtllm": "TensorRT-LLM",
    "ollama": "Ollama",
    "lmdeploy": "LMDeploy",
    "unknown": "unknown engine",
}


class ServerProcess(msgspec.Struct, frozen=True, kw_only=True):
    pid: int
    role: Role
    title: str


class Flag(msgspec.Struct, frozen=True, kw_only=True):
    """A setting the server was started with (`requested`) and what it runs with (`resolved`); redacted."""

    name: str
    requested: str | None = None
    resolved: str | None = None


class Latency(msgspec.Struct, frozen=True, kw_only=True):
    """From a histogram: mean = sum/count. `over_s` is the interval looked at, None = since the server started.

    A quantile is the upper bound of the bucket it falls in; None when it falls in the first or an open one.
    """

    mean_ms: float
    count: float
    over_s: float | None = None
    p50_ms: float | None = None
    p99_ms: float | None = None


class Counters(msgspec.Struct, frozen=True, kw_only=True):
    """Monotonic counts since the server started, summed over ranks; None where the engine has none.

    `finished_tokens`: generated tokens of requests that ended, where the engine counts those alone exactly.
    `spec_accepted_per_position`: drafted tokens accepted at the first, second, ... place of a draft.
    """

    generated_tokens: float | None = None
    finished_tokens: float | None = None
    prompt_tokens: float | None = None
    cached_tokens: float | None = None
    requests: float | None = None
    ttft_sum_s: float | None = None
    ttft_count: float | None = None
    itl_sum_s: float | None = None
    itl_count: float | None = None
    spec_drafts: float | None = None
    spec_accepted_tokens: float | None = None
    spec_draft_tokens: float | None = None
    spec_accepted_per_position: tuple[float, ...] = ()
    graph_decode_passes: float | None = None
    eager_decode_passes: float | None = None
    preemptions: float | None = None


class Generation(msgspec.Struct, frozen=True, kw_only=True):
    """What came of asking for one token at `t_ns` (session time): the time it took, or why it failed."""

    t_ns: int
    took_ms: float | None = None
    error: str | None = None


SIMULATED = "+simulated"
"""The end of the version of decodetop's own simulated server."""


class Server(msgspec.Struct, frozen=True, kw_only=True):
    """One inference server, by endpoint. None = not known, and `reasons[field]` says why.

    `generated_tok_s` is live (never a frozen gauge). `accept_length` includes the bonus token.
    None without a reason: `speculative_algorithm` = off, `quantization` = none, `log` = none is known, `generation` =
    not tried, `retracted` = the engine has no such.
    `retracted`: requests that had begun and were put off for want of KV (SGLang).
    `kv_usage` is 0..1 of `kv_capacity_tokens`; `kv_pool_bytes` is what they take on each GPU. `unit_state` is
    systemd's word (`active`, `failed`, ...). `figures_from`: what the live half is read from; a log's are those of
    its newest line, up to 15 s old. `log` is where it is. `generation` is tried on demand only. `local` = it runs
    on this box, so this box's GPUs are its own.
    """

    endpoint: str
    engine: Engine = "unknown"
    version: str | None = None
    status: Status = "down"
    status_message: str | None = None
    local: bool = True
    model: str | None = None
    served_name: str | None = None
    root_pid: int | None = None
    started_wall_ns: int | None = None
    unit: str | None = None
    unit_state: str | None = None
    gpu_indices: tuple[int, ...] | None = None
    gpu_uuids: tuple[str, ...] | None = None
    processes: tuple[ServerProcess, ...] = ()
    command: tuple[str, ...] = ()
    flags: tuple[Flag, ...] = ()

    tp: int | None = None
    pp: int | None = None
    dp: int | None = None
    ep: int | None = None
    quantization: str | None = None
    weights_dtype: str | None = None
    kv_dtype: str | None = None
    attention_backend: str | None = None
    cuda_graph: bool | None = None
    cuda_graph_max_batch: int | None = None
    cuda_graph_batches: tuple[int, ...] = ()
    speculative_algorithm: str | None = None
    speculative_steps: int | None = None
    speculative_draft_tokens: int | None = None
    context_length: int | None = None
    kv_capacity_tokens: int | None = None
    kv_pool_bytes: int | None = None
    max_running: int | None = None

    running: int | None = None
    queued: int | None = None
    retracted: int | None = None
    kv_usage: float | None = None
    prefix_hit_rate: float | None = None
    generated_tok_s: float | None = None
    prompt_tok_s: float | None = None
    ttft: Latency | None = None
    itl: Latency | None = None
    accept_length: float | None = None
    counters: Counters | None = None
    figures_from: Literal["metrics", "log"] | None = None
    log: str | None = None
    generation: Generation | None = None
    scrape_ms: float | None = None
    reasons: dict[str, str] = {}

    @property
    def simulated(self) -> bool:
        """It is decodetop's own, on whatever box it is seen from."""
        return (self.version or "").endswith(SIMULATED)


class ServerReading(Reading, frozen=True, kw_only=True):
    """All servers found or named; `current` is the endpoint the screen, floor, gates and report mean."""

    servers: tuple[Server, ...] = ()
    current: str | None = None
    searched: tuple[str, ...] = ()

    @property
    def current_server(self) -> Server | None:
        return next((server for server in self.servers if server.endpoint == self.current), None)


def is_simulated(reading: ServerReading | None) -> bool:
    """Whether the server that is meant is a simulated one."""
    current = None if reading is None else reading.current_server
    return current is not None and current.simulated


def restarted(before: Server, after: Server) -> bool:
    """Whether another start of it is seen. One told by the process can't be compared with one told by its metrics."""
    if (before.root_pid is None) != (after.root_pid is None):
        return False
    starts = (before.started_wall_ns, after.started_wall_ns)
    return before.root_pid != after.root_pid or (None not in starts and starts[0] != starts[1])


class TryGeneration(Command, frozen=True, kw_only=True):
    """Let `endpoint` generate one token: does it work?"""

    touches = True
    title = "let the server generate a token"

    endpoint: str


class ChooseServer(Command, frozen=True, kw_only=True):
    """Make `endpoint` the current server."""

    title = "choose a server"

    endpoint: str
