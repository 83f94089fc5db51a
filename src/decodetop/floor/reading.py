"""Can this hardware do better; the JSON of `floor` is `FloorReport` encoded. Bytes per GPU and step, times per step."""

from __future__ import annotations

from typing import Literal

import msgspec

from decodetop.core.sample import Command, Reading

SCHEMA = 1

VerdictId = Literal[
    "hardware_bound",
    "memory_bound_near_limit",
    "host_bound",
    "communication_bound",
    "copy_bound",
    "attention_bound",
    "compute_bound",
    "clock_limited",
    "not_enough_evidence",
]
Confidence = Literal["high", "medium", "low"]
Origin = Literal["table", "nvml", "user", "measured", "default"]


class Bytes(msgspec.Struct, frozen=True, kw_only=True):
    """What one GPU reads (and for `state` also writes) in a step; with pipeline stages the sum along the step."""

    weights: float
    kv: float
    state: float
    draft: float

    @property
    def total(self) -> float:
        return self.weights + self.kv + self.state + self.draft


class Parts(msgspec.Struct, frozen=True, kw_only=True):
    """`t_prac_ms` in pieces that sum to it: bytes at the full bandwidth, then what practice adds.

    `efficiency` = the bytes take longer because kernels reach a share of the bandwidth only; `compute` = arithmetic
    beyond the time of the bytes.
    """

    weights: float
    kv: float
    state: float
    draft: float
    allreduce: float
    per_layer: float
    efficiency: float = 0.0
    compute: float = 0.0


class Params(msgspec.Struct, frozen=True, kw_only=True):
    """Of the text model without draft layers and vision. `active` counts the embedding table, as labels mostly do."""

    total: int
    active: int
    active_without_embedding: int


class Experts(msgspec.Struct, frozen=True, kw_only=True):
    """Distinct experts of one layer that the slowest rank reads: hard minimum, uniform routing, maximum."""

    low: float
    expected: float
    high: float


class RuledOut(msgspec.Struct, frozen=True, kw_only=True):
    what: str
    because: str


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """One sentence, what speaks for it, and what was looked at and is not it. `capture` = what would settle it."""

    id: VerdictId
    confidence: Confidence
    sentence: str
    because: tuple[str, ...] = ()
    ruled_out: tuple[RuledOut, ...] = ()
    capture: tuple[str, ...] = ()


class Constant(msgspec.Struct, frozen=True, kw_only=True):
    """A figure the practical time rests on, and where it is from."""

    name: str
    value: float
    unit: str
    origin: Origin
    source: str


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """How the model is served. `batch` = running sequences, `context` = tokens each of them has read.

    `dp_attention` = groups that each hold whole attention weights and their own sequences (1 = off).
    `verify_tokens` = tokens one sequence puts through a step (1 + draft tokens).
    """

    tp: int = 1
    pp: int = 1
    ep: int = 1
    dp_attention: int = 1
    batch: int = 1
    context: int = 1024
    kv_dtype: str | None = None
    weights_dtype: str | None = None
    draft_steps: int = 0
    verify_tokens: int = 1
    accept_length: float | None = None


class Hardware(msgspec.Struct, frozen=True, kw_only=True):
    """One GPU and how it reaches the others. Bandwidth: the larger figure bounds, the smaller is practice.

    `peak_*` dense TFLOPS with FP32 accumulation; None = not known, or the format has no tensor cores. `memory` = its
    kind, `memory_bytes` = how much one GPU has.
    """

    name: str
    memory: str | None
    bandwidth_gb_s: float
    practical_gb_s: float
    l2_bytes: float = 0.0
    peak_bf16_tflops: float | None = None
    peak_fp8_tflops: float | None = None
    peak_fp4_tflops: float | None = None
    link: Literal["nvlink", "pcie"] = "pcie"
    link_gb_s: float | None = None
    memory_bytes: float | None = None
    origin: Origin = "table"
    source: str = ""
    notes: tuple[str, ...] = ()


class Capacity(msgspec.Struct, frozen=True, kw_only=True):
    """What one GPU must hold at least, in bytes, beside its `memory`; `fits` None = that is not known.

    `sequences` = how many of the plan's context fit at most beside the weights, all attention groups together; None
    also where a sequence holds nothing.
    """

    weights: float
    kv: float
    state: float
    total: float
    memory: float | None
    fits: bool | None
    sequences: int | None


class ModelFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What the floor rests on. `source` = where the weights' bytes come from; `draft_model` = a checkpoint apart."""

    path: str
    family: str
    source: Literal["safetensors", "gguf", "config"]
    layers: int
    quantization: str | None
    kv_dtype: str
    is_moe: bool
    is_mla: bool
    draft_layers: int
    kv_heads: int
    draft_model: str | None = None


class Move(msgspec.Struct, frozen=True, kw_only=True):
    """What to try next. `gain_ms` = at most, per step; None = can't be said beforehand. `effort` 1 (a restart) to 3.

    `set` is the exact flag or step; `inactive` says when it silently does nothing; `failures` are known start-up ones.
    """

    id: str
    title: str
    set: str
    why: str
    gain_ms: float | None
    gain_words: str
    effort: int
    trade: str = ""
    inactive: tuple[str, ...] = ()
    failures: tuple[str, ...] = ()


class BatchPoint(msgspec.Struct, frozen=True, kw_only=True):
    """The floor at another batch size; `tok_s` is of all sequences together at `t_prac_ms`.

    `fits` False = one GPU's memory can't hold so many sequences; None = how much it has is not known.
    """

    batch: int
    t_phys_ms: float
    t_prac_ms: float
    tok_s: float | None
    bound: Literal["memory", "compute"]
    fits: bool | None = None


class FloorReport(msgspec.Struct, frozen=True, kw_only=True):
    """Three times, never one percentage: a hard lower bound, what practice adds, what was measured.

    `t_meas_ms` is the step: with speculation the time per token times the accept length, None without one.
    `t_meas_profiled` = only the profiler saw that step, and it stretches it.
    `gap_ms` sums to `t_meas_ms - t_phys_ms`; None without a measurement or when that lies below the bound.
    `tok_s_at_floor` is of all sequences together; None when the step drafts and no accept length is known.
    `break_even_accept_length`: below it drafting reads more bytes a token than not drafting (expected bytes).
    """

    schema: int = SCHEMA
    bytes: Bytes
    flops: float
    t_phys_ms: float
    t_prac_ms: float
    t_meas_ms: float | None
    parts_ms: Parts
    weights_share_of_bytes: float
    gap_ms: dict[str, float] | None
    verdict: Verdict | None
    params: Params
    assumptions: tuple[str, ...]
    tok_s_at_floor: float | None
    bound: Literal["memory", "compute"]
    bytes_low: Bytes
    bytes_high: Bytes
    t_memory_ms: float
    t_compute_ms: float | None
    experts: Experts | None
    allreduces_per_step: int
    break_even_accept_length: float | None
    plan: Plan
    hardware: Hardware
    model: ModelFacts
    constants: tuple[Constant, ...]
    capacity: Capacity | None = None
    draft_layers_per_step: int = 0
    graph_launches_per_step: int | None = None
    t_meas_profiled: bool = False
    batches: tuple[BatchPoint, ...] = ()
    moves: tuple[Move, ...] = ()
    moves_left_out: tuple[RuledOut, ...] = ()
    errors: tuple[str, ...] = ()


class WhatIf(msgspec.Struct, frozen=True, kw_only=True):
    """What is asked to be otherwise than it is; None = as it is. `gpu` = a card by its name in the table."""

    batch: int | None = None
    context: int | None = None
    kv_dtype: str | None = None
    weights_dtype: str | None = None
    tp: int | None = None
    gpu: str | None = None


NOTHING_ELSE = WhatIf()


class AskWhatIf(Command, frozen=True, kw_only=True):
    """Compute the floor with these things otherwise; all None = none is asked any more."""

    title = "change the what-if"

    ask: WhatIf


class Choices(msgspec.Struct, frozen=True, kw_only=True):
    """What a what-if may be asked for by name."""

    kv_dtypes: tuple[str, ...] = ()
    weights_dtypes: tuple[str, ...] = ()
    gpus: tuple[str, ...] = ()


class FloorReading(Reading, frozen=True, kw_only=True):
    """The floor of the current server, or why there is none.

    `run_id` and `capture_id` = what the measured step is from. `what_if` is the floor with `asked` otherwise, without a
    measurement; None with `what_if_problem` when that can't be.
    """

    report: FloorReport | None = None
    problem: str | None = None
    hint: str = ""
    endpoint: str | None = None
    run_id: int | None = None
    capture_id: str | None = None
    asked: WhatIf = NOTHING_ELSE
    what_if: FloorReport | None = None
    what_if_problem: str | None = None
    choices: Choices = Choices()
