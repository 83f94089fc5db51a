"""Model and exact bytes from a GGUF file's header: metadata and one row a tensor, no weight is read.

Layout (little endian): "GGUF", version, tensor count, key count, typed keys, then name, dimensions, type, offset.
Bytes per block: the format's own table (reference notes on the decode floor, section 2.6).
"""

from __future__ import annotations

import re
import struct
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from decodetop.core.regular import open_regular
from decodetop.errors import DataError
from decodetop.floor.formats import Format
from decodetop.floor.shape import EXPERTS_MAX, LAYERS_MAX, Attention, Layer, Mla, Moe, Shape
from decodetop.floor.weights import Role, Weights

MAGIC = b"GGUF"
LONGEST = 64 << 20
"""No string, list or count of a header is longer: more is a damaged file."""

DEEPEST = 4
"""Lists in lists; files have one level."""

TYPES: dict[int, tuple[str, int, int]] = {
    0: ("F32", 1, 4), 1: ("F16", 1, 2), 2: ("Q4_0", 32, 18), 3: ("Q4_1", 32, 20), 6: ("Q5_0", 32, 22),
    7: ("Q5_1", 32, 24), 8: ("Q8_0", 32, 34), 9: ("Q8_1", 32, 36), 10: ("Q2_K", 256, 84), 11: ("Q3_K", 256, 110),
    12: ("Q4_K", 256, 144), 13: ("Q5_K", 256, 176), 14: ("Q6_K", 256, 210), 15: ("Q8_K", 256, 292),
    16: ("IQ2_XXS", 256, 66), 17: ("IQ2_XS", 256, 74), 18: ("IQ3_XXS", 256, 98), 19: ("IQ1_S", 256, 50),
    20: ("IQ4_NL", 32, 18), 21: ("IQ3_S", 256, 110), 22: ("IQ2_S", 256, 82), 23: ("IQ4_XS", 256, 136),
    24: ("I8", 1, 1), 25: ("I16", 1, 2), 26: ("I32", 1, 4), 27: ("I64", 1, 8), 28: ("F64", 1, 8),
    29: ("IQ1_M", 256, 56), 30: ("BF16", 1, 2), 34: ("TQ1_0", 256, 54), 35: ("TQ2_0", 256, 66),
    39: ("MXFP4", 32, 17),
}  # fmt: skip
"""Type number -> name, values per block, bytes per block."""

SUPPORTED = {
    "llama": "llama", "qwen2": "qwen2", "qwen2moe": "qwen2_moe", "qwen3": "qwen3", "qwen3moe": "qwen3_moe",
    "deepseek2": "deepseek_v3", "glm4moe": "glm4_moe", "gpt-oss": "gpt_oss", "phi3": "phi3", "minimax-m2": "minimax_m2",
    "gemma2": "gemma2", "gemma3": "gemma3",
}  # fmt: skip
"""`general.architecture` -> our family; the KV of others would be a guess."""

_SCALARS = {
    0: "<B", 1: "<b", 2: "<H", 3: "<h", 4: "<I", 5: "<i", 6: "<f", 7: "<?", 10: "<Q", 11: "<q", 12: "<d",
}  # fmt: skip
_BLOCK = re.compile(r"^blk\.(\d+)\.(.+)$")
_HINT = "is the file complete, and a GGUF file?"


class Row(NamedTuple):
    name: str
    kind: str
    elements: int
    bytes: float


class _Header:
    def __init__(self, path: Path, file: BinaryIO) -> None:
        self._path = path
        self._file = file

    def wrong(self, message: str) -> DataError:
        return DataError(f"{self._path}: {message}", _HINT)

    def take(self, size: int) -> bytes:
        raw = self._file.read(size)
        if len(raw) != size:
            raise self.wrong("the header ends early")
        return raw

    def number(self, code: str) -> Any:
        return struct.unpack(code, self.take(struct.calcsize(code)))[0]

    def count(self) -> int:
        value = int(self.number("<Q"))
        if value > LONGEST:
            raise self.wrong(f"a count of {value} can't be")
        return value

    def text(self) -> str:
        return self.take(self.count()).decode("utf-8", "replace")

    def value(self, kind: int, depth: int = 0) -> Any:
        """Lists of strings (vocabularies) are read over; their length stands for them."""
        if kind in _SCALARS:
            return self.number(_SCALARS[kind])
        if kind == 8:
            return self.text()
        if kind != 9:
            raise self.wrong(f"a key of unknown type {kind}")
        if depth >= DEEPEST:
            raise self.wrong("its lists are nested too deeply")
        inner, length = int(self.number("<I")), self.count()
        if inner in _SCALARS:
            code = _SCALARS[inner]
            raw = self.take(length * struct.calcsize(code))
            return list(struct.unpack(f"<{length}{code[1]}", raw)) if length <= 4096 else length
        for _ in range(length):
            self.value(inner, depth + 1)
        return length


def read(path: Path) -> tuple[dict[str, Any], list[Row]]:
    """Keys and tensors of one file. Raises DataError."""
    try:
        with open_regular(path) as file:
            header = _Header(path, file)
            if header.take(4) != MAGIC:
                raise header.wrong("it does not begin with GGUF")
            version = int(header.number("<I"))
            if version not in (2, 3):
                raise header.wrong(f"GGUF version {version} is not known")
            rows, keys = header.count(), header.count()
            data = {}
            for _ in range(keys):
                name = header.text()
                data[name] = header.value(int(header.number("<I")))
            return data, [_row(header) for _ in range(rows)]
    except OSError as error:
        raise DataError(f"can't read {path}: {error.strerror}", _HINT) from error


def _row(header: _Header) -> Row:
    name = header.text()
    dimensions = int(header.number("<I"))
    if dimensions > 8:
        raise header.wrong(f"tensor {name[:80]!r} has {dimensions} dimensions")
    elements = 1
    for _ in range(dimensions):
        elements *= int(header.number("<Q"))
    number = int(header.number("<I"))
    header.number("<Q")
    if number not in TYPES:
        raise header.wrong(f"tensor {name[:80]!r} is of type {number}, which is not known")
    kind, values, size = TYPES[number]
    return Row(name, kind, elements, elements / values * size)


def files_of(path: Path) -> list[Path]:
    """All parts of a split model (`-00001-of-00003.gguf`), else the file alone."""
    match = re.fullmatch(r"(.*)-\d{5}-of-(\d{5})\.gguf", path.name)
    if match is None:
        return [path]
    return [path.with_name(f"{match[1]}-{at:05d}-of-{match[2]}.gguf") for at in range(1, int(match[2]) + 1)]


def load(path: Path) -> tuple[Shape, list[Weights], str]:
    """Shape, weights and the commonest type. Raises DataError."""
    data: dict[str, Any] = {}
    rows: list[Row] = []
    for part in files_of(path):
        keys, found = read(part)
        data = {**keys, **data}
        rows += found
    shape = _shape(path, data, rows)
    sums: dict[tuple[Role, int | None], list[Row]] = {}
    for row in rows:
        place = _place(row.name)
        if place is not None:
            sums.setdefault(place, []).append(row)
    weights = [_weights(place, found, shape) for place, found in sums.items()]
    by_kind: dict[str, float] = {}
    for row in rows:
        by_kind[row.kind] = by_kind.get(row.kind, 0.0) + row.bytes
    return shape, weights, max(by_kind, key=lambda kind: by_kind[kind])


def _weights(place: tuple[Role, int | None], found: list[Row], shape: Shape) -> Weights:
    role, layer = place
    count = shape.moe.experts if role == "expert" and shape.moe else 1
    total, elements = sum(row.bytes for row in found), sum(row.elements for row in found)
    kind = max(found, key=lambda row: row.bytes).kind
    return Weights(
        name=role if layer is None else f"layers.{layer}.{role}",
        role=role,
        layer=layer,
        params=elements // count,
        bytes=total / count,
        format=Format(kind, total / elements if elements else 0.0, "int8" if kind.startswith("Q8") else "bf16"),
        count=count,
        draft=layer is not None and layer >= len(shape.layers),
    )


def _place(name: str) -> tuple[Role, int | None] | None:
    match = _BLOCK.match(name)
    if match is None:
        if name.startswith("token_embd"):
            return "embedding", None
        return ("head", None) if name.startswith("output.") else ("norm", None)
    layer, rest = int(match[1]), match[2]
    if "norm" in rest or rest.startswith("rope"):
        return "norm", layer
    if "_exps" in rest:
        return "expert", layer
    if "_shexp" in rest:
        return "shared_expert", layer
    if rest.startswith(("ffn_gate_inp", "exp_probs")):
        return "router", layer
    if rest.startswith(("attn_q_a", "attn_kv_a")):
        return "latent", layer
    if rest.startswith(("attn_k.", "attn_v.")):
        return "kv_proj", layer
    if rest.startswith("nextn"):
        return "draft_proj", layer
    return ("attention", layer) if rest.startswith("attn") else ("mlp", layer)


def _shape(path: Path, data: dict[str, Any], rows: list[Row]) -> Shape:
    arch = str(data.get("general.architecture", ""))
    if arch not in SUPPORTED:
        known = ", ".join(sorted(SUPPORTED))
        raise DataError(f"{path}: GGUF architecture {arch[:40]!r} is not supported", f"supported are {known}")

    def need(key: str, default: int | None = None, most: int = LONGEST) -> int:
        value = data.get(f"{arch}.{key}")
        if isinstance(value, list) and value:
            value = max(value)
        value = default if value is None else value
        if isinstance(value, bool) or not isinstance(value, int) or not 0 < value <= most:
            raise DataError(f"{path}: key {arch}.{key} is missing or no count that can be", _HINT)
        return value

    def maybe(key: str, most: int = LONGEST) -> int:
        """0 where it is not there."""
        return need(key, most=most) if data.get(f"{arch}.{key}") else 0

    names = {row.name: row for row in rows}
    embedding = names.get("token_embd.weight")
    hidden, heads = need("embedding_length"), need("attention.head_count")
    if embedding is None:
        raise DataError(f"{path}: there is no embedding table", _HINT)
    experts, total = maybe("expert_count", EXPERTS_MAX), need("block_count", most=LAYERS_MAX)
    draft = maybe("nextn_predict_layers", total - 1)
    kv_rank = maybe("attention.kv_lora_rank")
    mla = None
    if kv_rank:
        rope, key = need("rope.dimension_count"), need("attention.key_length_mla", 192)
        mla = Mla(
            q_rank=maybe("attention.q_lora_rank") or None,
            kv_rank=kv_rank,
            nope=max(0, key - rope),
            rope=rope,
            v=need("attention.value_length_mla", 128),
        )
    layers = [_layer(at, names, arch, data, mla) for at in range(total - draft)]
    return Shape(
        family=SUPPORTED[arch],
        hidden=hidden,
        vocab=embedding.elements // hidden,
        tied="output.weight" not in names,
        layers=tuple(layers),
        attention=Attention(
            heads=heads,
            kv_heads=need("attention.head_count_kv", heads),
            head_dim=need("attention.key_length", hidden // heads),
        ),
        mla=mla,
        moe=Moe(
            experts=experts, top_k=need("expert_used_count", most=experts), width=need("expert_feed_forward_length", 1)
        )
        if experts
        else None,
        dense_width=need("feed_forward_length", 1),
        draft=(layers[-1],) if draft else (),
    )


def _layer(at: int, names: dict[str, Row], arch: str, data: dict[str, Any], mla: Mla | None) -> Layer:
    window = data.get(f"{arch}.attention.sliding_window")
    sliding = isinstance(window, int) and window > 0
    if arch in ("gpt-oss", "gemma2"):
        sliding = sliding and at % 2 == 0
    elif arch == "gemma3":
        sliding = sliding and (at + 1) % 6 != 0
    moe = any(f"blk.{at}.ffn_{half}_exps.weight" in names for half in ("up", "gate", "down"))
    return Layer(
        mixer="mla" if mla else "attention",
        ffn="moe" if moe else "dense",
        window=window if sliding and isinstance(window, int) else None,
    )
