"""A model's `config.json`: typed look-ups that say which key of which file is wrong."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from decodetop.core.decode import NotDecoded, decode
from decodetop.core.regular import open_regular
from decodetop.errors import DataError

MAX_BYTES = 16 << 20
LARGEST = 1 << 31
"""No count in a config is larger: more is a damaged file."""

_NOT_JSON = re.compile(rb"([\[:,]\s*)(?:-?Infinity|NaN)\b")
"""What Python writes for numbers that JSON has no word for."""

_OUTER = ("tie_word_embeddings", "quantization_config", "compression_config", "torch_dtype", "dtype", "model_type")


class Config:
    """The language model's part of the file; multimodal wrappers are looked through. Raises DataError."""

    def __init__(self, data: Mapping[str, Any], where: str) -> None:
        self.where = where
        inner = data.get("text_config") or data.get("llm_config")
        if isinstance(inner, dict):
            outer = {key: data[key] for key in _OUTER if data.get(key) is not None}
            own = {key: value for key, value in inner.items() if value is not None}
            data = {**inner, **outer, **own}
        self.data = data

    def wrong(self, message: str, hint: str = "") -> DataError:
        return DataError(f"{self.where}: {message}", hint or "is this the config.json of the served model?")

    def maybe(self, *names: str) -> int | None:
        """The first of `names` that is there, a whole number of at least 0."""
        for name in names:
            value = self.data.get(name)
            if value is None:
                continue
            if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < LARGEST:
                raise self.wrong(f"{name} = {str(value)[:40]!r} is no count")
            return value
        return None

    def count(self, *names: str, default: int | None = None) -> int:
        """Like `maybe`, at least 1; without a default it has to be there."""
        value = self.maybe(*names)
        if value is None:
            value = default
        if value is None:
            raise self.wrong(f"{' or '.join(names)} is missing")
        if value < 1:
            raise self.wrong(f"{names[0]} = {value}: at least 1 is needed")
        return value

    def flag(self, name: str, default: bool = False) -> bool:
        value = self.data.get(name)
        if value is None:
            return default
        if not isinstance(value, bool):
            raise self.wrong(f"{name} = {str(value)[:40]!r} is neither true nor false")
        return value

    def word(self, *names: str) -> str | None:
        for name in names:
            value = self.data.get(name)
            if isinstance(value, str) and value:
                return value
        return None

    def words(self, name: str, length: int | None = None) -> list[str] | None:
        """A list of words, of `length` if given."""
        value = self.data.get(name)
        if value is None:
            return None
        if not isinstance(value, list) or not all(isinstance(one, str) for one in value):
            raise self.wrong(f"{name} is no list of words")
        if length is not None and len(value) != length:
            raise self.wrong(f"{name} names {len(value)} layers, the model has {length}")
        return value

    def counts(self, name: str) -> list[int]:
        """A list of whole numbers, empty when it is not there."""
        value = self.data.get(name)
        if value is None:
            return []
        if not isinstance(value, list) or not all(isinstance(one, int) and not isinstance(one, bool) for one in value):
            raise self.wrong(f"{name} is no list of numbers")
        return value

    def table(self, *names: str) -> dict[str, Any] | None:
        """The first that is there; what is no table is not taken for none."""
        for name in names:
            value = self.data.get(name)
            if isinstance(value, dict):
                return value
            if value is not None:
                raise self.wrong(f"{name} = {str(value)[:40]!r} is no table")
        return None


def read_json(path: Path) -> dict[str, Any]:
    """Raises DataError naming the file."""
    try:
        with open_regular(path) as file:
            raw = file.read(MAX_BYTES + 1)
        if len(raw) > MAX_BYTES:
            raise DataError(f"{path} is larger than {MAX_BYTES >> 20} MiB", "it is no config.json")
        data = decode(_NOT_JSON.sub(rb"\1null", raw))
    except OSError as error:
        raise DataError(f"can't read {path}: {error.strerror}", "give --model a folder or a config.json") from error
    except NotDecoded as error:
        raise DataError(f"{path} is not JSON: {error}", "give --model a folder or a config.json") from error
    if not isinstance(data, dict):
        raise DataError(f"{path} holds no JSON object", "give --model a folder or a config.json")
    return data
