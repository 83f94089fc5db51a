"""Number formats of weights and KV, and which module of a model has which. Pure.

Bytes per weight include scales: reference notes on the decode floor, section 2.6.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from fnmatch import fnmatchcase
from typing import Literal

import msgspec

Compute = Literal["bf16", "fp8", "fp4", "int8"]

LINEAR = frozenset({
    "attention", "kv_proj", "latent", "indexer", "linear_attention", "mlp", "shared_expert", "expert", "draft_proj",
})  # fmt: skip
"""Roles a scheme quantises unless it excludes them; head, router, norms and embedding stay as they are."""

PREFIXES = ("", "model.", "model.language_model.", "language_model.model.", "language_model.", "backbone.")
"""What checkpoints put before the names we use."""


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
}  # fmt: skip
"""Bytes of one KV value; `fp8_ds_mla` is a layout of whole tokens: see `cache.py`."""

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
            if any(matches(pattern, name) for pattern in rule.patterns for name in names):
                return rule.format or self.base
        return self.default if self.default is not None and role in self.roles else self.base


def matches(pattern: str, name: str) -> bool:
    """Whether `pattern` means the module or something it is inside of.

    `re:` is matched from the start as compressed-tensors does; `*` as modelopt does, over dots; plain words as
    transformers does: they are path components (`gate` is no `gate_proj`).
    """
    if pattern.startswith("re:"):
        compiled = _compiled(pattern[3:])
        return compiled is not None and any(compiled.match(full) for full in _full_names(name))
    if any(letter in pattern for letter in "*?["):
        return any(fnmatchcase(part, pattern) for full in _full_names(name) for part in _ancestors(full))
    wanted = pattern.split(".")
    return any(_holds(full.split("."), wanted) for full in _full_names(name))


def _full_names(name: str) -> Iterator[str]:
    return (prefix + name for prefix in PREFIXES)


def _ancestors(full: str) -> Iterator[str]:
    parts = full.split(".")
    yield f"{full}."
    yield from (".".join(parts[:end]) for end in range(len(parts), 0, -1))


def _holds(parts: Sequence[str], wanted: Sequence[str]) -> bool:
    return any(parts[at : at + len(wanted)] == list(wanted) for at in range(len(parts) - len(wanted) + 1))


_CACHE: dict[str, re.Pattern[str] | None] = {}


def _compiled(pattern: str) -> re.Pattern[str] | None:
    """None for what is no regular expression: a file from outside."""
    if pattern not in _CACHE:
        try:
            _CACHE[pattern] = re.compile(pattern)
        except re.error:
            _CACHE[pattern] = None
    return _CACHE[pattern]
