"""A model's name on this box: paths and the hub's local cache."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from decodetop.errors import DataError
from decodetop.floor.locate import cache_of, locate


def snapshot(cache: Path, name: str, number: int, *files: str) -> Path:
    folder = cache / f"models--{name.replace('/', '--')}" / "snapshots" / f"{number:040x}"
    folder.mkdir(parents=True)
    for file in files:
        (folder / file).write_text("{}", "utf-8")
    os.utime(folder, (number, number))
    return folder


def test_the_newest_snapshot_with_a_model(tmp_path: Path) -> None:
    snapshot(tmp_path, "Qwen/Qwen3-8B", 1, "config.json")
    newest = snapshot(tmp_path, "Qwen/Qwen3-8B", 2, "config.json")
    snapshot(tmp_path, "Qwen/Qwen3-8B", 3, "README.md")
    gguf = snapshot(tmp_path, "a/b", 4, "b-Q4_K_M.gguf")
    environ = {"HF_HUB_CACHE": str(tmp_path)}
    assert locate("Qwen/Qwen3-8B", environ) == newest
    assert locate("a/b", environ) == gguf
    assert locate(str(tmp_path), environ) == tmp_path, "a path goes first"


@pytest.mark.parametrize("name", ["Qwen/Qwen3-9B", "/gone/model", "model", "a/../b", "a/b/c"])
def test_what_is_not_there(tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(DataError) as caught:
        locate(name, {"HF_HUB_CACHE": str(tmp_path)})
    assert "--model" in caught.value.hint


def test_where_the_cache_is() -> None:
    assert cache_of({"HF_HUB_CACHE": "/a", "HF_HOME": "/b"}) == Path("/a")
    assert cache_of({"HF_HOME": "/b"}) == Path("/b/hub")
    assert cache_of({"XDG_CACHE_HOME": "/c"}) == Path("/c/huggingface/hub")
    assert cache_of({}) == Path("~/.cache/huggingface/hub").expanduser()
