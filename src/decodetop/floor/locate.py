"""A model's name on this box: a path, or what Hugging Face's local cache holds under it. Nothing is fetched."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from decodetop.core.regular import named_path
from decodetop.errors import DataError


def locate(name: str, environ: Mapping[str, str] | None = None) -> Path:
    """`name` as a path where it is one, else the newest snapshot of `owner/model` in the cache. Raises DataError."""
    path = named_path(name, "--model")
    if path.exists():
        return path
    cache = cache_of(os.environ if environ is None else environ)
    hint = "give --model: a checkpoint's folder, a config.json or a GGUF file"
    if path.is_absolute() or name.count("/") != 1 or ".." in name:
        raise DataError(f"there is no {name[:200]}", hint)
    snapshots = cache / f"models--{name.replace('/', '--')}" / "snapshots"
    try:
        found = [one for one in snapshots.iterdir() if (one / "config.json").exists() or any(one.glob("*.gguf"))]
        newest = max(found, key=lambda one: one.stat().st_mtime, default=None)
    except OSError:
        newest = None
    if newest is None:
        raise DataError(f"{name[:200]} is neither a path nor in the local cache {cache}", hint)
    return newest


def cache_of(environ: Mapping[str, str]) -> Path:
    """Where the hub's own client keeps models."""
    if environ.get("HF_HUB_CACHE"):
        return Path(environ["HF_HUB_CACHE"]).expanduser()
    home = environ.get("HF_HOME") or str(Path(environ.get("XDG_CACHE_HOME") or "~/.cache") / "huggingface")
    return Path(home).expanduser() / "hub"
