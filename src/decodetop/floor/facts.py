"""What is true of this model, plan, card and server: the words that moves ask for. Pure."""

from __future__ import annotations

from decodetop.floor.hardware import Card
from decodetop.floor.reading import FloorReport
from decodetop.server.reading import Server

WORDS: dict[str, tuple[str, str]] = {
    "accept_unknown": ("the accept length is not known", "the accept length is known"),
    "batch_fills_gpus": ("there is a sequence for every GPU", "there are fewer sequences than GPUs"),
    "batch_over_graphs": ("the batch is above the captured sizes", "the batch is not above the captured graph sizes"),
    "below_break_even": (
        "the accept length is below the break-even",
        "the accept length is above the break-even, or not known",
    ),
    "blackwell": ("the card is a Blackwell for data centres", "the card is no B200 or its like"),
    "expert_parallel": ("experts are spread whole over GPUs", "no expert parallelism"),
    "flags_unknown": ("the server's flags are not known", "the server's flags are known"),
    "gpu_fp8": ("the card has FP8 tensor cores", "the card has no FP8 tensor cores"),
    "graphs_off": ("CUDA graphs are off", "CUDA graphs are on"),
    "graphs_on": ("CUDA graphs are on", "CUDA graphs are off"),
    "has_mtp": ("the model has its own draft layer", "the model has no draft layer of its own"),
    "hopper": ("the card is a Hopper", "the card is no Hopper"),
    "hopper_or_blackwell": (
        "the card is a Hopper or Blackwell for data centres",
        "the card is neither Hopper nor B200",
    ),
    "kv_16bit": ("KV is in 16 bit", "KV is not in 16 bit"),
    "kv_fp8": ("KV is in FP8", "KV is not in FP8"),
    "kv_matters": ("KV is a tenth of the bytes or more", "KV is less than a tenth of the bytes"),
    "kv_replicated": ("GPUs read the same KV", "every GPU reads its own KV"),
    "many_gpus": ("tensor parallelism", "one GPU"),
    "mla": ("the model has latent attention", "the model has no latent attention"),
    "moe": ("the model has experts", "the model has no experts"),
    "no_trace": ("no step breakdown is given", "a step breakdown is there"),
    "nvlink": ("NVLink between the GPUs", "no NVLink between the GPUs"),
    "qk_norm": ("the model norms q and k", "the model does not norm q and k"),
    "small_batch": ("eight sequences or fewer", "more than eight sequences"),
    "speculating": ("the server speculates", "the server does not speculate"),
    "weights_16bit": ("weights are in 16 bit", "weights are quantised already"),
    "weights_fp8": ("weights are in FP8", "weights are not in FP8"),
    "weights_4bit": ("weights are in 4 bit already", "weights are not in 4 bit"),
}
"""Fact -> (how it reads when it holds, how it reads when it does not)."""

_FOUR_BIT = ("fp4", "int4", "4 bit", "awq", "gptq", "Q4", "IQ4", "MXFP4", "mxfp4")
_QK_NORM = frozenset({"qwen3", "qwen3_moe", "qwen3_vl", "qwen3_vl_moe", "gemma3", "minimax_m2"})


def facts_of(report: FloorReport, card: Card, server: Server | None) -> frozenset[str]:
    plan, model = report.plan, report.model
    quantised = model.quantization or ""
    low_bit = any(word in quantised for word in _FOUR_BIT)
    speculates = plan.draft_steps > 0 or plan.verify_tokens > 1
    groups = plan.tp // plan.dp_attention
    known = {
        "accept_unknown": plan.accept_length is None,
        "batch_fills_gpus": plan.batch >= plan.tp,
        "batch_over_graphs": _over_graphs(plan.batch, server),
        "below_break_even": _below_break_even(report),
        "blackwell": card.arch == "blackwell",
        "expert_parallel": plan.ep > 1,
        "flags_unknown": server is None,
        "gpu_fp8": report.hardware.peak_fp8_tflops is not None,
        "graphs_off": _graphs(report, server) is False,
        "graphs_on": _graphs(report, server) is True,
        "has_mtp": model.draft_layers > 0,
        "hopper": card.arch == "hopper",
        "hopper_or_blackwell": card.arch in ("hopper", "blackwell"),
        "kv_16bit": model.kv_dtype in ("bf16", "fp16", "f16"),
        "kv_fp8": model.kv_dtype.startswith("fp8"),
        "kv_matters": report.bytes.kv >= 0.1 * report.bytes.total,
        "kv_replicated": groups > 1 and (model.is_mla or model.kv_heads < groups),
        "many_gpus": plan.tp > 1,
        "mla": model.is_mla,
        "moe": model.is_moe,
        "no_trace": report.graph_launches_per_step is None,
        "nvlink": report.hardware.link == "nvlink",
        "qk_norm": model.family in _QK_NORM,
        "small_batch": plan.batch <= 8,
        "speculating": speculates,
        "weights_16bit": model.quantization is None and plan.weights_dtype in (None, "bf16", "fp16"),
        "weights_4bit": low_bit,
        "weights_fp8": "fp8" in quantised and not low_bit,
    }
    return frozenset(fact for fact, holds in known.items() if holds)


def _below_break_even(report: FloorReport) -> bool:
    """R4 of the reference notes: drafting then reads more bytes a token than it saves."""
    accepted, needed = report.plan.accept_length, report.break_even_accept_length
    return accepted is not None and needed is not None and accepted < needed


def _graphs(report: FloorReport, server: Server | None) -> bool | None:
    """The trace knows best; then the server's own word."""
    if report.graph_launches_per_step is not None:
        return report.graph_launches_per_step > 0
    return server.cuda_graph if server is not None else None


def _over_graphs(batch: int, server: Server | None) -> bool:
    largest = server.cuda_graph_max_batch if server is not None else None
    return largest is not None and batch > largest
