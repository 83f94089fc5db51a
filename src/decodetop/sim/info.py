"""What the simulated server says of itself: /server_info and /model_info in SGLang 0.5.15's shape.

A choice of the recorded 450 fields: those a monitor reads, and the key that the real one leaks.
"""

from __future__ import annotations

from typing import Any

import msgspec

from decodetop.server.reading import SIMULATED
from decodetop.sim.model import KV_CAPACITY, KvCast, kv_pool_bytes

VERSION = f"0.5.15{SIMULATED}"
MODEL_PATH = "/srv/models/simulated-8b"
MODEL_CONFIG = {
    "architectures": ["Qwen3ForCausalLM"],
    "model_type": "qwen3",
    "hidden_size": 4096,
    "intermediate_size": 12_288,
    "num_hidden_layers": 36,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "vocab_size": 151_936,
    "max_position_embeddings": 40_960,
    "tie_word_embeddings": False,
    "torch_dtype": "bfloat16",
}
"""What `config.json` in the model's folder says, where there is one: the dimensions of the recorded model."""
GRAPH_BATCHES = (1, 2, 4, 8, 12, 16, 24, 32, 40, 48, 56, 64, 80, 96, 112, 128, 160, 192, 224, 256)


class Setup(msgspec.Struct, frozen=True, kw_only=True):
    """How the simulated server was started. `graph_max_batch` is the largest batch captured, were graphs on;
    `kv_tokens` None = as many as the recorded one held; with a `kv_cast` the KV cache is FP8.
    """

    served_name: str = "simulated-8b"
    model_path: str = MODEL_PATH
    port: int = 0
    tp: int = 1
    graphs: bool = True
    graph_max_batch: int = 32
    context_length: int = 16_384
    max_running: int = 256
    kv_tokens: int | None = None
    kv_cast: KvCast = "none"
    api_key: str | None = None

    @property
    def kv_capacity(self) -> int:
        return self.kv_tokens or KV_CAPACITY[self.tp]


def model_info(setup: Setup) -> dict[str, Any]:
    return {
        "model_path": setup.model_path,
        "tokenizer_path": setup.model_path,
        "is_generation": True,
        "preferred_sampling_params": None,
        "weight_version": "default",
        "has_image_understanding": False,
        "has_audio_understanding": False,
        "model_type": "qwen3",
        "architectures": ["Qwen3ForCausalLM"],
    }


def models(setup: Setup, created: int) -> dict[str, Any]:
    card = {
        "id": setup.served_name,
        "object": "model",
        "created": created,
        "owned_by": "sglang",
        "root": setup.served_name,
        "parent": None,
        "max_model_len": setup.context_length,
    }
    return {"object": "list", "data": [card]}


def server_info(setup: Setup, gen_throughput: float) -> dict[str, Any]:
    """Flat resolved arguments, then the scheduler's view, as recorded."""
    arguments = _arguments(setup)
    state = {
        **arguments,
        "last_gen_throughput": gen_throughput,
        "memory_usage": {
            "weight": round(15.28 / setup.tp, 2),
            "kvcache": round(kv_pool_bytes(setup.tp, setup.kv_cast, setup.kv_capacity) / 2**30, 2),
            "token_capacity": setup.kv_capacity,
            "graph": 0.09 if setup.graphs else 0.0,
        },
        "effective_max_running_requests_per_dp": setup.max_running,
    }
    return {
        **arguments,
        "status": "ready",
        "max_total_num_tokens": setup.kv_capacity,
        "max_req_input_len": setup.context_length - 6,
        "internal_states": [state],
        "version": VERSION,
        "kv_events": None,
    }


def _arguments(setup: Setup) -> dict[str, Any]:
    batches = [batch for batch in GRAPH_BATCHES if batch <= setup.graph_max_batch]
    decode = {"backend": "full" if setup.graphs else "disabled", "max_bs": setup.graph_max_batch, "bs": batches}
    return {
        "model_path": setup.model_path,
        "tokenizer_path": setup.model_path,
        "load_format": "dummy",
        "context_length": setup.context_length,
        "dtype": "bfloat16",
        "quantization": None,
        "kv_cache_dtype": "bf16" if setup.kv_cast == "none" else "fp8_e4m3",
        "mem_fraction_static": 0.7,
        "max_running_requests": setup.max_running,
        "max_total_tokens": setup.kv_tokens,
        "chunked_prefill_size": 8192,
        "schedule_policy": "fcfs",
        "page_size": 1,
        "disable_radix_cache": False,
        "disable_overlap_schedule": False,
        "num_continuous_decode_steps": 1,
        "tp_size": setup.tp,
        "pp_size": 1,
        "dp_size": 1,
        "ep_size": 1,
        "device": "cuda",
        "base_gpu_id": 0,
        "host": "127.0.0.1",
        "port": setup.port,
        "api_key": setup.api_key,
        "admin_api_key": None,
        "ssl_keyfile_password": None,
        "served_model_name": setup.served_name,
        "stream_interval": 1,
        "enable_metrics": True,
        "decode_log_interval": 40,
        "attention_backend": "triton",
        "decode_attention_backend": None,
        "prefill_attention_backend": None,
        "sampling_backend": "pytorch",
        "cuda_graph_config": {"decode": {**decode, "tc_compiler": "eager", "full_prefill_max_req": None}},
        "cuda_graph_max_bs_decode": setup.graph_max_batch,
        "disable_decode_cuda_graph": False,
        "disable_cuda_graph": not setup.graphs,
        "disable_cuda_graph_padding": False,
        "disable_custom_all_reduce": False,
        "enable_torch_compile": False,
        "speculative_algorithm": None,
        "speculative_num_steps": None,
        "speculative_eagle_topk": None,
        "speculative_num_draft_tokens": None,
        "moe_runner_backend": "auto",
        "disaggregation_mode": "null",
        "random_seed": 0,
    }
