"""What a model's own `config.json` says of its numbers: a server told `auto` does not say itself. Blocking."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from decodetop.core.decode import decode
from decodetop.core.regular import open_regular
from decodetop.server.engines.adapter import AUTO, Facts, dtype_word

CONFIG_MAX_BYTES = 4 << 20


class Declared(msgspec.Struct, frozen=True, kw_only=True):
    """`dtype` as SGLang and vLLM take it for `auto`: float32 weights are served as float16."""

    dtype: str | None = None
    quantization: str | None = None
    kv_quantized: bool = False


def declared(model: str) -> Declared | None:
    """Of a model in a folder of this box; None for any other name and for a folder without a readable config."""
    folder = Path(model)
    if not folder.is_absolute():
        return None
    try:
        with open_regular(folder / "config.json") as file:
            config = decode(file.read(CONFIG_MAX_BYTES))
    except (OSError, ValueError):
        return None
    return _declared(config) if isinstance(config, dict) else None


def _declared(config: dict[str, Any]) -> Declared:
    inner = config.get("text_config")
    inner = inner if isinstance(inner, dict) else {}
    dtype = dtype_word(_first(config, inner, "dtype", "torch_dtype"), "", {})
    scheme = _first(config, inner, "quantization_config", "compression_config")
    scheme = scheme if isinstance(scheme, dict) else {}
    method = scheme.get("quant_method") or scheme.get("quant_algo")
    return Declared(
        dtype="fp16" if dtype == "fp32" else dtype,
        quantization=str(method).lower() if method else None,
        kv_quantized=bool(scheme.get("kv_cache_scheme") or scheme.get("kv_cache_quant_algo")),
    )


def completed(facts: Facts, seen: Declared) -> Facts:
    """`facts` with what `auto` means for this model. KV of a quantised cache scheme stays unknown."""
    reasons = dict(facts.reasons)
    changes: dict[str, Any] = {}
    if facts.weights_dtype is None and reasons.get("weights_dtype") == AUTO and seen.dtype is not None:
        changes["weights_dtype"] = seen.dtype
        reasons.pop("weights_dtype")
    if facts.kv_dtype is None and reasons.get("kv_dtype") == AUTO and seen.dtype is not None and not seen.kv_quantized:
        changes["kv_dtype"] = seen.dtype
        reasons.pop("kv_dtype")
    if facts.quantization is None and seen.quantization is not None:
        changes["quantization"] = seen.quantization
        reasons.pop("quantization", None)
    return msgspec.structs.replace(facts, **changes, reasons=reasons)


def _first(config: dict[str, Any], inner: dict[str, Any], *names: str) -> Any:
    return next((value for place in (config, inner) for name in names if (value := place.get(name)) is not None), None)
