"""Weights from the headers of safetensors files: exact bytes per tensor, without reading a weight.

A header is 8 bytes of length (little endian) and that much JSON: name -> dtype, shape, data_offsets.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeGuard

from decodetop.core.decode import NotDecoded, decode
from decodetop.core.regular import open_regular
from decodetop.errors import DataError
from decodetop.floor.config import read_json
from decodetop.floor.formats import Compute, Format
from decodetop.floor.shape import Shape
from decodetop.floor.weights import Role, Weights

HEADER_MAX_BYTES = 200 << 20
"""The largest that the format's own library accepts is 100 MB; a damaged file says anything."""

INDEX = "model.safetensors.index.json"
BITS = {
    "F64": 64, "F32": 32, "F16": 16, "BF16": 16, "I64": 64, "I32": 32, "I16": 16, "I8": 8, "U8": 8, "U16": 16,
    "U32": 32, "U64": 64, "C64": 64, "BOOL": 8, "F8_E4M3": 8, "F8_E5M2": 8, "F8_E8M0": 8, "F8_E4M3FNUZ": 8,
    "F8_E5M2FNUZ": 8, "F6_E2M3": 6, "F6_E3M2": 6, "F4": 4,
}  # fmt: skip

_NAMES = {
    "BF16": "bf16",
    "F16": "fp16",
    "F32": "fp32",
    "U8": "packed 4 bit",
    "F4": "fp4",
    "I32": "packed integers",
    "I8": "int8",
}
_VISION = re.compile(r"(^|\.)(visual|vision\w*|audio\w*|multi_modal\w*|mm_\w+|image_\w+|embed_vision|aligner)(\.|$)")
_DRAFT = re.compile(r"(^|\.)(mtp|nextn|eagle)\w*(\.|$)")
_LAYER = re.compile(r"(?:^|\.)(?:layers|blocks|h)\.(\d+)\.(.*)")
_LATENT = re.compile(r"(q_a_proj|kv_a_proj|fused_qkv_a)")


Place = tuple[Role, int | None, bool]
"""Role, layer (None outside the layers), whether draft layers only read it."""


class Tensor(NamedTuple):
    """`elements` as stored (packed values count as one)."""

    name: str
    dtype: str
    elements: int
    bytes: float


LARGEST = 1 << 50
"""Bytes of no tensor: a header that says more is damaged."""


def has_headers(folder: Path) -> bool:
    return (folder / INDEX).is_file() or any(folder.glob("*.safetensors"))


def tensors(folder: Path) -> Iterator[Tensor]:
    """Every tensor of the checkpoint's files. Raises DataError naming the file."""
    index = folder / INDEX
    where: dict[str, str] = {}
    if index.is_file():
        found = read_json(index).get("weight_map")
        if not isinstance(found, dict) or not all(isinstance(name, str) for name in found.values()):
            raise DataError(f"{index} holds no weight_map", "is the checkpoint complete?")
        where = found
        names = sorted(set(where.values()))
    else:
        names = _loaded(sorted(path.name for path in folder.glob("*.safetensors")))
    seen: set[str] = set()
    for name in names:
        path = folder / name
        if path.parent != folder or "\0" in name:
            raise DataError(f"{index} names a file outside its folder", "is the checkpoint complete?")
        for tensor in _header(path):
            if where.get(tensor.name, name) != name:
                continue
            if tensor.name in seen:
                raise DataError(f"{path}: tensor {tensor.name[:80]!r} is in another file too", "which one is served?")
            seen.add(tensor.name)
            yield tensor


def _loaded(names: list[str]) -> list[str]:
    """Without an index engines load `model*.safetensors`; the same weights may stand beside them in other layouts."""
    if "model.safetensors" in names:
        return ["model.safetensors"]
    return [name for name in names if name.startswith("model-")] or names


def _header(path: Path) -> Iterator[Tensor]:
    try:
        with open_regular(path) as file:
            head = file.read(8)
            length = int.from_bytes(head, "little")
            if len(head) < 8 or not 2 <= length <= HEADER_MAX_BYTES:
                raise DataError(f"{path} has no safetensors header", "is the checkpoint complete?")
            raw = file.read(length)
        table = decode(raw, dict[str, dict[str, Any]])
    except OSError as error:
        raise DataError(f"can't read {path}: {error.strerror}", "is the checkpoint complete?") from error
    except NotDecoded as error:
        raise DataError(f"{path} has a damaged header", "is the checkpoint complete?") from error
    spans: list[tuple[int, int]] = []
    for name, said in table.items():
        if name != "__metadata__":
            yield _tensor(path, name, said, spans)
    spans.sort()
    if any(begin < end for (_, end), (begin, _) in itertools.pairwise(spans)):
        raise DataError(f"{path} has a damaged header: tensors overlap", "is the checkpoint complete?")


def _tensor(path: Path, name: str, said: dict[str, Any], spans: list[tuple[int, int]]) -> Tensor:
    """Its place in the file is added to `spans`."""
    dtype, shape = said.get("dtype"), said.get("shape")
    if not _counts(shape):
        raise DataError(f"{path}: tensor {name[:80]!r} has no shape", "is the checkpoint complete?")
    bits = BITS.get(str(dtype))
    if bits is None:
        raise DataError(f"{path}: tensor {name[:80]!r} is of unknown type {str(dtype)[:20]!r}", "report this type")
    elements = 1
    for side in shape:
        elements *= side
        if elements > LARGEST:
            raise DataError(f"{path}: tensor {name[:80]!r} can't be that large", "is the checkpoint complete?")
    span = said.get("data_offsets")
    if not _counts(span) or len(span) != 2 or span[1] - span[0] != -(-elements * bits // 8):
        raise DataError(
            f"{path}: tensor {name[:80]!r} does not have the bytes of its shape", "is the checkpoint complete?"
        )
    if elements:
        spans.append((span[0], span[1]))
    return Tensor(name, str(dtype), elements, elements * bits / 8)


def _counts(value: Any) -> TypeGuard[list[int]]:
    return isinstance(value, list) and all(type(one) is int and one >= 0 for one in value)


def weights_of(folder: Path, shape: Shape, formula: Sequence[Weights]) -> list[Weights]:
    """Bytes by role and layer from the headers, parameters from the `formula`. Vision and audio are left out.

    Raises DataError.
    """
    sums: dict[Place, list[Tensor]] = {}
    for tensor in tensors(folder):
        place = role_of(tensor.name, shape)
        if place is not None:
            sums.setdefault(place, []).append(tensor)
    if not any(role == "embedding" for role, _, _ in sums):
        raise DataError(f"{folder}: the checkpoint holds no embedding table", "is it complete, and a language model?")
    params: dict[Place, int] = {}
    for one in formula:
        key = (one.role, one.layer, one.draft)
        params[key] = params.get(key, 0) + one.params
    return [_sum(place, found, params.get(place, 0), shape) for place, found in sums.items()]


def _sum(place: Place, found: list[Tensor], params: int, shape: Shape) -> Weights:
    """`params` of one expert, or of all modules of the role."""
    role, layer, draft = place
    count = shape.moe.experts if role == "expert" and shape.moe is not None else 1
    total = sum(tensor.bytes for tensor in found)
    kind = _largest(found)
    compute: Compute = "bf16"
    if kind in ("U8", "F4"):
        compute = "fp4"
    elif kind.startswith("F8"):
        compute = "fp8"
    elif kind == "I8":
        compute = "int8"
    name = _NAMES.get(kind, "fp8" if kind.startswith("F8") else kind.lower())
    return Weights(
        name=role if layer is None else f"layers.{layer}.{role}",
        role=role,
        layer=layer,
        params=params,
        bytes=total / count,
        format=Format(name, total / count / params if params else 0.0, compute),
        count=count,
        draft=draft,
    )


def role_of(name: str, shape: Shape) -> Place | None:
    """(role, layer, is it of a draft layer); None for what a decode step of the language model does not read."""
    if _VISION.search(name):
        return None
    match = _LAYER.search(name)
    draft = _DRAFT.search(name) is not None or (match is not None and int(match[1]) >= len(shape.layers))
    if draft:
        rest = match[2] if match else name
        role = _role_in_layer(rest, None, shape)
        shared = role in ("embedding", "head") or "embed_tokens" in rest or "shared_head.head" in rest
        return None if shared else (role, len(shape.layers), True)
    if match is not None:
        layer = int(match[1])
        return _role_in_layer(match[2], layer, shape), layer, False
    if "embed" in name or name.endswith("wte.weight"):
        return "embedding", None, False
    return ("head", None, False) if "lm_head" in name or name.startswith("output.") else ("norm", None, False)


def _role_in_layer(rest: str, layer: int | None, shape: Shape) -> Role:
    if "norm" in rest or "layernorm" in rest:
        return "norm"
    if re.search(r"(^|\.)experts\.", rest):
        return "expert"
    if "shared_expert_gate" in rest or re.search(r"(^|\.)(gate|router|e_score_correction_bias)(\.|$)", rest):
        return "router"
    if "shared_expert" in rest or "shared_mlp" in rest:
        return "shared_expert"
    if "indexer" in rest:
        return "indexer"
    if _LATENT.search(rest):
        return "latent"
    if re.search(r"\.(k_proj|v_proj)\.", f".{rest}"):
        return "kv_proj"
    if "linear_attn" in rest or (rest.startswith("mixer.") and _mixer_at(shape, layer) == "mamba2"):
        return "linear_attention"
    if "attn" in rest or "attention" in rest or (rest.startswith("mixer.") and _mixer_at(shape, layer) == "attention"):
        return "attention"
    return "draft_proj" if re.search(r"(eh_proj|^fc\.|mtp\.fc)", rest) else "mlp"


def _mixer_at(shape: Shape, layer: int | None) -> str | None:
    return shape.layers[layer].mixer if layer is not None and layer < len(shape.layers) else None


def _largest(found: list[Tensor]) -> str:
    """The type that holds most of the bytes."""
    by_type: dict[str, float] = {}
    for tensor in found:
        by_type[tensor.dtype] = by_type.get(tensor.dtype, 0.0) + tensor.bytes
    return max(by_type, key=lambda kind: by_type[kind])
