"""Which layer of a `config.json` has which mixer, window and feed-forward, and what drafts. Pure.

Keys and their order: reference notes on the decode floor, section 3.1.
"""

from __future__ import annotations

from decodetop.floor.config import Config
from decodetop.floor.families import Family
from decodetop.floor.shape import LAYERS_MAX, Layer

GDN_FULL_INTERVAL = 4
SPARSE = "deepseek_sparse_attention"
"""Newer checkpoints name it so; the indexer's keys say the rest, as in those without the list."""
NOPE_INTERVAL = 4
"""Llama-4: every fourth layer attends to everything, the others to their chunk."""


def layers_of(config: Config, name: str, family: Family) -> list[Layer]:
    """Raises DataError: a list that is not as long as the model, a kind that is not known."""
    pattern = config.word("hybrid_override_pattern")
    if name == "nemotron_h" and pattern is not None:
        if len(pattern) > LAYERS_MAX:
            raise config.wrong(f"hybrid_override_pattern of {len(pattern)} layers can't be")
        return [_block(config, letter) for letter in pattern]
    total = config.count("num_hidden_layers")
    if total > LAYERS_MAX:
        raise config.wrong(f"num_hidden_layers = {total} can't be")
    kinds = config.words("layer_types", total)
    indexers = config.words("indexer_types", total)
    has_indexer = config.maybe("index_topk") is not None
    mla = config.maybe("kv_lora_rank") is not None
    moe = _moe_layers(config, total)
    layers = []
    for at in range(total):
        kind = kinds[at] if kinds else _kind(config, name, family, at)
        window, chunked = _window(config, kind)
        layers.append(
            Layer(
                mixer="gdn" if kind == "linear_attention" else "mla" if mla else "attention",
                ffn="moe" if moe[at] else "dense",
                window=window,
                chunked=chunked,
                indexer=has_indexer and (indexers is None or indexers[at] != "shared"),
            )
        )
    return layers


def _block(config: Config, letter: str) -> Layer:
    """Nemotron-H: a layer is one block."""
    if letter == "M":
        return Layer(mixer="mamba2", ffn="none")
    if letter == "*":
        return Layer(mixer="attention", ffn="none")
    if letter in "-E":
        return Layer(mixer="none", ffn="dense" if letter == "-" else "moe")
    raise config.wrong(f"block {letter!r} of the layer pattern is not known", "known are M, *, - and E")


def _kind(config: Config, name: str, family: Family, at: int) -> str:
    """What a layer attends to where the config has no list."""
    if name in ("qwen3_next", "qwen3_5", "qwen3_5_moe"):
        interval = config.count("full_attention_interval", default=GDN_FULL_INTERVAL)
        return "linear_attention" if (at + 1) % interval else "full_attention"
    if name == "llama4":
        return "chunked_attention" if (at + 1) % NOPE_INTERVAL else "full_attention"
    if family.sliding == "flag":
        first = config.maybe("max_window_layers") or 0
        return "sliding_attention" if config.flag("use_sliding_window") and at >= first else "full_attention"
    if family.sliding == "pattern":
        every = config.count("sliding_window_pattern", default=6)
        return "sliding_attention" if (at + 1) % every else "full_attention"
    sliding = family.sliding == "all" or (family.sliding == "every_other" and at % 2 == 0)
    return "sliding_attention" if sliding else "full_attention"


def _window(config: Config, kind: str) -> tuple[int | None, bool]:
    if kind == "chunked_attention":
        return config.count("attention_chunk_size", default=8192), True
    if kind == "sliding_attention":
        return config.maybe("sliding_window"), False
    if kind == SPARSE and config.maybe("index_topk") is None:
        raise config.wrong(f"layer type {kind!r} without index_topk")
    if kind not in ("full_attention", "linear_attention", SPARSE):
        raise config.wrong(f"layer type {kind[:40]!r} is not known")
    return None, False


def _moe_layers(config: Config, total: int) -> list[bool]:
    if not config.maybe("n_routed_experts", "num_experts", "num_local_experts"):
        return [False] * total
    kinds = config.words("mlp_layer_types", total)
    if kinds is not None:
        return [kind == "sparse" for kind in kinds]
    listed = config.data.get("moe_layer_freq")
    if isinstance(listed, list):
        return [bool(one) for one in config.counts("moe_layer_freq")[:total]] + [False] * (total - len(listed))
    first = config.maybe("first_k_dense_replace") or 0
    step = config.count("decoder_sparse_step", "interleave_moe_layer_step", "moe_layer_freq", default=1)
    dense = set(config.counts("mlp_only_layers"))
    offset = 0 if config.data.get("moe_layer_freq") is not None else 1
    return [at >= first and at not in dense and (at + offset) % step == 0 for at in range(total)]


def draft_of(config: Config, name: str, layers: list[Layer]) -> list[Layer]:
    """The layers of one draft forward of multi-token prediction; the main model's last kinds of mixer and FFN."""
    pattern = config.word("mtp_hybrid_override_pattern")
    if pattern is not None and config.maybe("num_nextn_predict_layers"):
        if len(pattern) > LAYERS_MAX:
            raise config.wrong(f"{len(pattern)} draft layers can't be")
        return [_block(config, letter) for letter in pattern]
    modules = config.maybe("num_nextn_predict_layers", "mtp_num_hidden_layers", "num_mtp_modules")
    if not modules or name == "nemotron_h":
        return []
    last = next((layer for layer in reversed(layers) if layer.mixer in ("attention", "mla")), None)
    if last is None:
        return []
    count = modules if name.startswith("qwen3_5") else config.count("mtp_transformer_layers", default=1)
    if count > LAYERS_MAX:
        raise config.wrong(f"{count} draft layers can't be")
    return [Layer(mixer=last.mixer, ffn=layers[-1].ffn, indexer=last.indexer)] * count
