"""A model's shape and the bytes of its weights: from the checkpoint's headers where they are, else by formula."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import msgspec

from decodetop.errors import DataError
from decodetop.floor import gguf, safetensors
from decodetop.floor.config import Config, read_json
from decodetop.floor.formats import FORMATS
from decodetop.floor.of_config import shape_of
from decodetop.floor.quantisation import forced, scheme_of
from decodetop.floor.reading import Params
from decodetop.floor.shape import Shape
from decodetop.floor.weights import Weights, of_shape

QUANTISED = ("quantization_config", "compression_config")
OFF = 0.01
"""Headers and formula may differ by this share before a word is said: biases and scales."""


class Model(msgspec.Struct, frozen=True, kw_only=True):
    """`weights` hold the embedding table too (a step reads rows of it only). `kv_dtype` = what the file declares.

    `draft_model` = the checkpoint that drafts for it, None = its own draft layers do, if any.
    """

    path: str
    shape: Shape
    weights: tuple[Weights, ...]
    source: Literal["safetensors", "gguf", "config"]
    quantization: str | None = None
    kv_dtype: str | None = None
    notes: tuple[str, ...] = ()
    draft_model: Model | None = None

    @property
    def params(self) -> Params:
        """Counts by formula (GGUF: by the tensors), without draft layers."""
        shape = self.shape
        main = [one for one in self.weights if not one.draft]
        total = sum(one.params * one.count for one in main)
        top_k = shape.moe.top_k if shape.moe else 1
        active = sum(one.params * (top_k if one.role == "expert" else one.count) for one in main)
        embedding = sum(one.params for one in main if one.role == "embedding")
        return Params(total=total, active=active, active_without_embedding=active if shape.tied else active - embedding)


def open_model(path: Path, weights_dtype: str | None = None) -> Model:
    """`path`: a checkpoint's folder, a `config.json` or a GGUF file. Raises DataError, naming what is missing.

    `weights_dtype` (a name of `FORMATS`) = the engine quantises the linear layers when it loads them.
    """
    if weights_dtype is not None and weights_dtype not in FORMATS:
        raise DataError(f"weights dtype {weights_dtype[:40]!r} is not known", f"known are {', '.join(FORMATS)}")
    if path.suffix == ".gguf" and path.is_file():
        return _gguf(path, weights_dtype)
    if path.is_dir():
        config = path / "config.json"
        if config.is_file():
            return _checkpoint(config, path, weights_dtype)
        parts = sorted(path.glob("*.gguf"))
        if parts:
            return _gguf(parts[0], weights_dtype)
        raise DataError(f"{path} holds neither config.json nor a GGUF file", "give --model a folder or a config.json")
    if not path.exists():
        raise DataError(f"there is no {path}", "give --model a checkpoint's folder, a config.json or a GGUF file")
    return _checkpoint(path, path.parent if path.name == "config.json" else None, weights_dtype)


def _gguf(path: Path, weights_dtype: str | None) -> Model:
    if weights_dtype is not None:
        raise DataError(f"{path}: a GGUF file's weights are what they are", "leave --weights-dtype out")
    shape, weights, kind = gguf.load(path)
    return Model(path=str(path), shape=shape, weights=tuple(weights), source="gguf", quantization=kind)


def _checkpoint(config_path: Path, folder: Path | None, weights_dtype: str | None) -> Model:
    config = Config(read_json(config_path), str(config_path))
    shape = shape_of(config)
    base = FORMATS[shape.dtype]
    if weights_dtype is not None:
        scheme = forced(weights_dtype, base)
        note = f"linear layers in {weights_dtype} as asked for; head, router and norms as in the file"
        weights = tuple(of_shape(shape, scheme))
        return Model(
            path=str(config_path),
            shape=shape,
            weights=weights,
            source="config",
            quantization=scheme.name,
            notes=(note,),
        )
    separate = _separate(folder)
    if folder is not None and safetensors.has_headers(folder):
        return _headers(folder, shape, config, separate)
    scheme = scheme_of(config.table(*QUANTISED), separate, base, str(config_path))
    return Model(
        path=str(config_path),
        shape=shape,
        weights=tuple(of_shape(shape, scheme)),
        source="config",
        quantization=scheme.name,
        kv_dtype=scheme.kv,
    )


def _separate(folder: Path | None) -> dict[str, Any] | None:
    path = None if folder is None else folder / "hf_quant_config.json"
    return read_json(path) if path is not None and path.is_file() else None


def _headers(folder: Path, shape: Shape, config: Config, separate: dict[str, Any] | None) -> Model:
    """Bytes need no scheme, so one that is not known costs only its name and the KV format it declares."""
    notes: list[str] = []
    name: str | None
    try:
        name = "unknown"
        said = config.table(*QUANTISED)
        name = str((said or {}).get("quant_method", name))
        scheme = scheme_of(said, separate, FORMATS[shape.dtype], str(folder))
        name, kv = scheme.name, scheme.kv
    except DataError as error:
        kv = None
        notes.append(f"{error.message}; the bytes are from the file headers")
    unquantised = scheme_of(None, None, FORMATS[shape.dtype], "")
    formula = of_shape(shape, unquantised)
    weights = safetensors.weights_of(folder, shape, formula)
    tied = not any(one.role == "head" for one in weights)
    if tied != shape.tied:
        notes.append(f"config.json says the head is {'tied' if shape.tied else 'not tied'}; the files say otherwise")
        shape = msgspec.structs.replace(shape, tied=tied)
        formula = of_shape(shape, unquantised)
        weights = safetensors.weights_of(folder, shape, formula)
    stored, expected = (sum(one.bytes * one.count for one in found if not one.draft) for found in (weights, formula))
    if name is None and abs(stored / expected - 1) > OFF:
        notes.append(f"the files hold {stored / 1e9:.2f} GB, the formula says {expected / 1e9:.2f}: the files count")
    return Model(
        path=str(folder),
        shape=shape,
        weights=tuple(weights),
        source="safetensors",
        quantization=name,
        kv_dtype=kv,
        notes=tuple(notes),
    )
