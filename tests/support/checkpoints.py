"""Checkpoints that consist of their headers: what the floor reads of them, in kilobytes instead of gigabytes."""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping, Sequence
from pathlib import Path

Tensors = Mapping[str, tuple[str, Sequence[int]]]
"""name -> (dtype as safetensors names it, shape)."""


def write_safetensors(path: Path, tensors: Tensors) -> None:
    """A header with the offsets the weights would have."""
    table: dict[str, object] = {"__metadata__": {"format": "pt"}}
    at = 0
    bits = {"BF16": 16, "F32": 32, "F16": 16, "U8": 8, "I32": 32, "F8_E4M3": 8, "I8": 8, "I64": 64, "F4": 4}
    for name, (dtype, shape) in tensors.items():
        size = bits[dtype]
        for side in shape:
            size *= side
        size //= 8
        table[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [at, at + size]}
        at += size
    raw = json.dumps(table).encode()
    path.write_bytes(len(raw).to_bytes(8, "little") + raw)


def write_sharded(folder: Path, tensors: Tensors, shards: int) -> None:
    """`shards` files and their index."""
    names = list(tensors)
    where = {name: f"model-{at % shards + 1:05d}-of-{shards:05d}.safetensors" for at, name in enumerate(names)}
    for file in sorted(set(where.values())):
        write_safetensors(folder / file, {name: tensors[name] for name in names if where[name] == file})
    index = {"metadata": {"total_size": 0}, "weight_map": where}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index), "utf-8")


def write_gguf(
    path: Path, keys: Mapping[str, int | float | str | Sequence[str]], tensors: Sequence[tuple[str, int, Sequence[int]]]
) -> None:
    """GGUF version 3: keys, then (name, type number, dimensions) a tensor; no data."""

    def text(value: str) -> bytes:
        raw = value.encode()
        return struct.pack("<Q", len(raw)) + raw

    out = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(keys))
    for name, value in keys.items():
        out += text(name)
        if isinstance(value, str):
            out += struct.pack("<I", 8) + text(value)
        elif isinstance(value, int):
            out += struct.pack("<II", 4, value)
        elif isinstance(value, float):
            out += struct.pack("<If", 6, value)
        else:
            out += struct.pack("<IIQ", 9, 8, len(value)) + b"".join(text(one) for one in value)
    for name, kind, dimensions in tensors:
        out += text(name) + struct.pack("<I", len(dimensions))
        out += struct.pack(f"<{len(dimensions)}Q", *dimensions) + struct.pack("<IQ", kind, 0)
    path.write_bytes(out)
