"""A draft model with a checkpoint of its own: a smaller model (STANDALONE), or an EAGLE head over the target's layers.

EAGLE reads the target's hidden states and embeddings. EAGLE-1 and 2 put one decoder layer behind `fc` (2h -> h) and use
the target's head; EAGLE-3 joins three hidden states (3h -> h), its attention reads 2h, and it has its own head over a
smaller vocabulary.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from decodetop.errors import DataError
from decodetop.floor import safetensors
from decodetop.floor.config import Config, read_json
from decodetop.floor.formats import FORMATS
from decodetop.floor.model import Model, open_model
from decodetop.floor.of_config import shape_of
from decodetop.floor.shape import Layer, Shape
from decodetop.floor.weights import Weights, pieces

EAGLE_3, EAGLE = "EAGLE-3", "EAGLE"
_OWN = ("architectures", "draft_vocab_size", "target_hidden_size", "speculators_model_type")


class Drafting(NamedTuple):
    """What one draft forward reads: `weights` without an embedding table, the target's head with `target_head`.

    `layers` are those that keep KV, with the dimensions of `shape`.
    """

    shape: Shape
    layers: tuple[Layer, ...]
    weights: tuple[Weights, ...]
    target_head: bool


def of(model: Model) -> Drafting:
    """The model's own draft layers, unless it drafts with another checkpoint."""
    other = model.draft_model
    if other is None:
        own = tuple(one for one in model.weights if one.draft)
        return Drafting(model.shape, model.shape.draft, own, target_head=bool(own))
    main = tuple(one for one in other.weights if not one.draft)
    has_head = other.shape.tied or any(one.role == "head" for one in main)
    read = tuple(one for one in main if one.role != "embedding" or other.shape.tied)
    return Drafting(other.shape, other.shape.layers, read, target_head=not has_head)


def with_draft(model: Model, path: Path) -> Model:
    """`model` drafting with the checkpoint at `path`. Raises DataError naming what can't be read of it."""
    return msgspec.structs.replace(model, draft_model=open_draft(path))


def open_draft(path: Path) -> Model:
    """A folder, a config.json or a GGUF file, as `open_model` takes; EAGLE heads too. Raises DataError."""
    config = path / "config.json" if path.is_dir() else path
    if config.suffix == ".gguf" or not config.is_file():
        return open_model(path)
    found = Config(_inner(read_json(config)), str(config))
    kind = _kind(found)
    if kind is None:
        return open_model(path)
    shape = shape_of(found)
    folder = config.parent if path.is_dir() else None
    if folder is not None and safetensors.has_headers(folder):
        weights, source = _headers(folder, shape), "safetensors"
    else:
        weights, source = _formula(found, shape, kind), "config"
    tied = msgspec.structs.replace(shape, tied=False, draft=())
    return Model(path=str(path), shape=tied, weights=tuple(weights), source=source, notes=(f"an {kind} head",))  # type: ignore[arg-type]


def _inner(data: dict[str, Any]) -> dict[str, Any]:
    """The `speculators` library keeps the layer's config in a table."""
    layer = data.get("transformer_layer_config")
    if not isinstance(layer, dict):
        return data
    return {**layer, **{key: data[key] for key in _OWN if data.get(key) is not None}}


def _kind(config: Config) -> str | None:
    said = config.data.get("architectures")
    words = [str(one).lower() for one in said] if isinstance(said, list) else []
    words.append(str(config.word("speculators_model_type") or "").lower())
    if any("eagle3" in word for word in words):
        return EAGLE_3
    return EAGLE if any("eagle" in word for word in words) else None


def _headers(folder: Path, shape: Shape) -> list[Weights]:
    """Every tensor by what it is; tables that map one vocabulary to the other are not read as a whole."""
    out = []
    for tensor in safetensors.tensors(folder):
        if tensor.name.endswith(("d2t", "t2d")):
            continue
        role = "head" if "lm_head" in tensor.name else "embedding" if "embed" in tensor.name else "mlp"
        if role == "mlp" and tensor.name.endswith("_proj.weight") and "attn" in tensor.name:
            role = "kv_proj" if "k_proj" in tensor.name or "v_proj" in tensor.name else "attention"
        out.append(_weights(tensor.name, role, tensor.elements, tensor.bytes, shape))
    if not out:
        raise DataError(f"{folder}: the draft's files hold no weights", "is the checkpoint complete?")
    return out


def _formula(config: Config, shape: Shape, kind: str) -> list[Weights]:
    h, dtype = shape.hidden, FORMATS[shape.dtype].bytes_per_weight
    found = [
        (piece.name, piece.role, piece.params * piece.count) for layer in shape.layers for piece in pieces(shape, layer)
    ]
    if kind == EAGLE_3:
        a = shape.attention
        target = config.count("target_hidden_size", default=h)
        found += [("fc", "draft_proj", 3 * target * h), ("norm", "norm", h)]
        found += [("lm_head", "head", config.count("draft_vocab_size", default=shape.vocab) * h)]
        if a is not None:
            found += [
                ("q_proj.hidden", "attention", h * a.heads * a.head_dim),
                ("kv_proj.hidden", "kv_proj", 2 * h * a.kv_heads * a.head_dim),
            ]
    else:
        found.append(("fc", "draft_proj", 2 * h * h))
    return [_weights(name, role, params, params * dtype, shape) for name, role, params in found]


def _weights(name: str, role: Any, params: int, size: float, shape: Shape) -> Weights:
    return Weights(name=name, role=role, layer=0, params=params, bytes=size, format=FORMATS[shape.dtype])
