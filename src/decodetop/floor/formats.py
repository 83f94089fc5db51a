"""Number formats of weights and KV, and which module of a model has which. Pure.

Bytes per weight include scales: reference notes on the decode floor, section 2.6.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import msgspec

from decodetop.floor.patterns import compiled

Compute = Literal["bf16", "fp8", "fp4", "int8"]

LINEAR = frozenset({
    "attention", "kv_proj", "latent", "indexer", "linear_attention", "mlp", "shared_expert", "expert", "draft_proj",
})  # fmt: skip
"""Roles a scheme quantises unless it excludes them; head, router, norms and embedding stay as they are."""


class Format(msgspec.Struct, frozen=True):
    """`bytes_per_weight` with its scales; `compute` = the fastest tensor-core format a kernel could use for it."""

    name: str
    bytes_per_weight: float
    compute: Compute


BF16 = Format("bf16", 2.0, "bf16")

FORMATS: dict[str, Format] = {
    "bf16": BF16,
    "fp16": Format("fp16", 2.0, "bf16"),
    "fp32": Format("fp32", 4.0, "bf16"),
    "fp8": Format("fp8", 1.0, "fp8"),
    "fp8_block": Format("fp8_block", 1.0 + 4 / (128 * 128), "fp8"),
    "int8": Format("int8", 1.0, "int8"),
    "int4": Format("int4", 0.5 + 2.5 / 128, "bf16"),
    "mxfp8": Format("mxfp8", 1.0 + 1 / 32, "fp8"),
    "mxfp4": Format("mxfp4", 0.5 + 1 / 32, "fp4"),
    "nvfp4": Format("nvfp4", 0.5 + 1 / 16, "fp4"),
    "w4a16_nvfp4": Format("w4a16_nvfp4", 0.5 + 1 / 16, "bf16"),
}
"""Names `--weights-dtype` takes. int4 = AWQ or GPTQ with groups of 128, asymmetric."""

DTYPES = {
    "bfloat16": "bf16", "bf16": "bf16", "float16": "fp16", "fp16": "fp16", "half": "fp16", "float32": "fp32",
    "fp32": "fp32", "float": "fp32",
}  # fmt: skip
"""`torch_dtype` in its spellings."""

KV_BYTES = {
    "bf16": 2.0, "fp16": 2.0, "fp32": 4.0, "fp8": 1.0, "fp8_e4m3": 1.0, "fp8_e5m2": 1.0, "int8": 1.0,
    "fp4": 0.5 + 1 / 16, "fp4_e2m1": 0.5 + 1 / 16, "q8_0": 8.5 / 8, "q4_0": 4.5 / 8, "f16": 2.0, "f32": 4.0,
    "bfloat16": 2.0, "float16": 2.0, "half": 2.0, "nvfp4": 0.5 + 1 / 16, "fp8_per_token_head": 1.0,
    "int8_per_token_head": 1.0,
}  # fmt: skip
"""Bytes of one KV value; `fp8_ds_mla` is a layout of whole tokens, and some have scales beside: see `cache.py`."""

PER_TOKEN_HEAD = "_per_token_head"
"""Ends the name of a KV format with a scale of its own for every token and head (vLLM)."""

FP8_DS_MLA = "fp8_ds_mla"


def grouped(bits: int, group: int | None, *, symmetric: bool, scale_bytes: float = 2.0) -> Format:
    """Integer weights with a scale (and, asymmetric, a zero point) per group; no group = one scale a channel."""
    if group is None or group <= 0:
        return FORMATS["int8"] if bits == 8 else Format(f"int{bits}", bits / 8, "bf16")
    overhead = scale_bytes + (0.0 if symmetric else bits / 8)
    return Format(f"int{bits}_g{group}", bits / 8 + overhead / group, "bf16")


class Rule(msgspec.Struct, frozen=True):
    """Modules whose name matches get `format`; None = they stay as they are."""

    patterns: tuple[str, ...]
    format: Format | None


class Scheme(msgspec.Struct, frozen=True, kw_only=True):
    """First rule that matches, else `default` for `roles`, else `base`. `kv` = the cache format the file declares."""

    base: Format = BF16
    default: Format | None = None
    roles: frozenset[str] = LINEAR
    rules: tuple[Rule, ...] = ()
    kv: str | None = None
    name: str | None = None

    def format_of(self, names: Sequence[str], role: str) -> Format:
        """`names`: what the module may be called, without a prefix."""
        for rule in self.rules:
            patterns = compiled(rule.patterns)
            if any(patterns.match(name) for name in names):
                return rule.format or self.base
        return self.default if self.default is not None and role in self.roles else self.base
