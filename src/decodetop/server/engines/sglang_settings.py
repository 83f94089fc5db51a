"""What SGLang's settings are: by `/server_info`, which knows what was resolved, or by its command line alone. Pure."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from typing import Any

from decodetop.server.engines.adapter import NO_SPECULATION, Facts, dtype_word, text_of, whole_of
from decodetop.server.flags import requested_flags, shown, whole

_TOLD = (
    "model_path served_model_name revision load_format dtype quantization kv_cache_dtype context_length tp_size "
    "pp_size dp_size ep_size nnodes enable_dp_attention enable_dp_lm_head device base_gpu_id mem_fraction_static "
    "max_running_requests max_total_tokens chunked_prefill_size max_prefill_tokens page_size schedule_policy "
    "schedule_conservativeness num_continuous_decode_steps stream_interval decode_log_interval attention_backend "
    "decode_attention_backend prefill_attention_backend sampling_backend grammar_backend mm_attention_backend "
    "linear_attn_backend moe_runner_backend moe_a2a_backend fp8_gemm_runner_backend fp4_gemm_runner_backend "
    "bf16_gemm_backend disable_cuda_graph disable_cuda_graph_padding disable_decode_cuda_graph "
    "disable_prefill_cuda_graph cuda_graph_max_bs_decode cuda_graph_bs_decode cuda_graph_backend_decode "
    "enable_torch_compile torch_compile_max_bs disable_overlap_schedule disable_radix_cache enable_mixed_chunk "
    "disable_custom_all_reduce enable_mscclpp enable_symm_mem enable_torch_symm_mem enable_nccl_nvls "
    "enable_flashinfer_allreduce_fusion flashinfer_allreduce_fusion_backend enable_fused_moe_sum_all_reduce "
    "enable_fused_qk_norm_rope enable_two_batch_overlap enable_single_batch_overlap speculative_algorithm "
    "speculative_draft_model_path speculative_num_steps speculative_eagle_topk speculative_num_draft_tokens "
    "speculative_adaptive speculative_attention_mode disaggregation_mode enable_hierarchical_cache enable_lora "
    "enable_metrics enable_mfu_metrics enable_metrics_for_all_schedulers skip_server_warmup host port "
    "enable_deterministic_inference trust_remote_code"
)
TOLD = tuple(_TOLD.split())
"""The settings taken from `/server_info`, which also holds `api_key`, `admin_api_key` and `ssl_keyfile_password`."""

BATCHES_MAX = 4096
"""Captured batch sizes of a server; it has some dozens."""

TELLING = (
    "attention_backend",
    "kv_cache_dtype",
    "page_size",
    "max_running_requests",
    "chunked_prefill_size",
    "disable_overlap_schedule",
    "speculative_algorithm",
    "speculative_num_draft_tokens",
)


_FACTS = "version tp pp dp ep quantization weights_dtype kv_dtype attention_backend cuda_graph max_running"
TOLD_FIELDS = (*_FACTS.split(), "speculative_algorithm")
"""What is unknown where `/server_info` does not answer."""


def facts_of(info: Mapping[str, Any]) -> Facts:
    """From the body of `/server_info`, by allow-list."""
    info = _flat(info)
    states = info.get("internal_states")
    first = states[0] if isinstance(states, list) and states else states
    state = first if isinstance(first, dict) else {}
    graph = info.get("cuda_graph_config")
    decode = graph.get("decode") if isinstance(graph, dict) else None
    decode = decode if isinstance(decode, dict) else {}
    reasons: dict[str, str] = {}
    dp = whole_of(info.get("dp_size")) or 1
    backend = text_of(info.get("decode_attention_backend")) or text_of(info.get("attention_backend"))
    on, largest, batches = _graphs(info, state, decode, reasons)
    resolved = _resolved(info, state, decode, dp)
    algorithm = text_of(info.get("speculative_algorithm"))
    if algorithm is None:
        reasons["accept_length"] = NO_SPECULATION
    launched = text_of(info.get("launch_command"))
    return Facts(
        version=text_of(info.get("version")),
        model=text_of(info.get("model_path")),
        served_name=text_of(info.get("served_model_name")),
        tp=whole_of(info.get("tp_size")),
        pp=whole_of(info.get("pp_size")),
        dp=dp,
        ep=whole_of(info.get("ep_size")),
        quantization=text_of(info.get("quantization")),
        weights_dtype=dtype_word(info.get("dtype"), "weights_dtype", reasons),
        kv_dtype=dtype_word(info.get("kv_cache_dtype"), "kv_dtype", reasons),
        attention_backend=backend,
        cuda_graph=on,
        cuda_graph_max_batch=largest,
        cuda_graph_batches=batches,
        speculative_algorithm=algorithm,
        speculative_steps=(whole_of(info.get("speculative_num_steps")) or None) if algorithm else None,
        speculative_draft_tokens=whole_of(info.get("speculative_num_draft_tokens")) if algorithm else None,
        context_length=whole_of(info.get("context_length")),
        kv_capacity_tokens=_times(whole_of(info.get("max_total_num_tokens")), dp),
        kv_pool_bytes=_pool_bytes(state),
        max_running=whole_of(resolved.get("max_running_requests")),
        resolved=resolved,
        requested=requested_flags("sglang", _split(launched)) if launched else {},
        reasons=reasons,
    )


def _flat(info: Mapping[str, Any]) -> Mapping[str, Any]:
    """Versions nest the arguments or the scheduler's figures in an object of their own, or do not."""
    nested = (info.get(name) for name in ("scheduler_info", "server_args"))
    return {key: value for part in nested if isinstance(part, dict) for key, value in part.items()} | dict(info)


def asked(flags: Mapping[str, str]) -> Facts:
    """What the command line alone says: a flag that was not given may have been resolved to anything."""
    off = flags.get("disable_cuda_graph") == "true"
    return Facts(
        model=flags.get("model_path"),
        served_name=flags.get("served_model_name"),
        tp=whole(flags.get("tp_size")),
        pp=whole(flags.get("pp_size")),
        dp=whole(flags.get("dp_size")),
        ep=whole(flags.get("ep_size")),
        quantization=flags.get("quantization"),
        attention_backend=flags.get("attention_backend"),
        cuda_graph=False if off else None,
        speculative_algorithm=flags.get("speculative_algorithm"),
        context_length=whole(flags.get("context_length")),
        max_running=whole(flags.get("max_running_requests")),
        reasons={"cuda_graph_max_batch": "graphs are off"} if off else {},
    )


def _graphs(
    info: Mapping[str, Any], state: Mapping[str, Any], decode: Mapping[str, Any], reasons: dict[str, str]
) -> tuple[bool | None, int | None, tuple[int, ...]]:
    """On or off, largest and all captured batch sizes: `cuda_graph_config` (0.5.15+) or the older fields."""
    if decode:
        on: bool | None = decode.get("backend") != "disabled" and info.get("disable_cuda_graph") is not True
    elif isinstance(info.get("disable_cuda_graph"), bool):
        on = not info["disable_cuda_graph"]
    else:
        on, reasons["cuda_graph"] = None, "/server_info does not say"
    if not on:
        reasons["cuda_graph_max_batch"] = "graphs are off" if on is False else reasons["cuda_graph"]
        return on, None, ()
    sizes = decode.get("bs") or info.get("cuda_graph_bs") or state.get("decode_cuda_graph_bs") or ()
    given = sizes if isinstance(sizes, (list, tuple)) and len(sizes) <= BATCHES_MAX else ()
    batches = tuple(size for size in map(whole_of, given) if size)
    largest = whole_of(decode.get("max_bs")) or whole_of(info.get("cuda_graph_max_bs")) or max(batches, default=None)
    return on, largest, batches


def _pool_bytes(state: Mapping[str, Any]) -> int | None:
    """`memory_usage.kvcache` is called GB and is GiB: 82.06 of them are 597,532 tokens of 147,456 bytes."""
    used = state.get("memory_usage")
    gib = used.get("kvcache") if isinstance(used, dict) else None
    return int(gib * 2**30) if isinstance(gib, (int, float)) and 0 < gib < 2**20 else None


def _resolved(info: Mapping[str, Any], state: Mapping[str, Any], decode: Mapping[str, Any], dp: int) -> dict[str, str]:
    extra: dict[str, Any] = {
        "max_running_requests": _times(whole_of(state.get("effective_max_running_requests_per_dp")), dp),
        "cuda_graph_max_bs_decode": decode.get("max_bs", info.get("cuda_graph_max_bs")),
        "cuda_graph_bs_decode": decode.get("bs", info.get("cuda_graph_bs")),
        "cuda_graph_backend_decode": decode.get("backend"),
    }
    values = {name: shown(name, info.get(name) if info.get(name) is not None else extra.get(name)) for name in TOLD}
    return {name: value for name, value in values.items() if value is not None}


def _split(command: str) -> list[str]:
    try:
        return shlex.split(command)
    except ValueError:
        return command.split()


def _times(value: int | None, factor: int) -> int | None:
    return None if value is None else value * factor
