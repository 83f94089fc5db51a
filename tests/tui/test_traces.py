"""What the file picker offers."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from decodetop_tui.traces import look, size_words, typed_paths

SGLANG = ("1796023716.3312356-TP-0.trace.json.gz", "1796023716.3312356-TP-1.trace.json.gz")
VLLM = ("rank0.1796024831652490405.pt.trace.json.gz", "rank1.1796024831768828225.pt.trace.json.gz")


def folder(tmp_path: Path, *names: str) -> Path:
    for age, name in enumerate(names):
        path = tmp_path / name
        path.write_bytes(b"x" * 1000)
        os.utime(path, (10**9 - age, 10**9 - age))
    return tmp_path


def names(typed: str) -> list[str]:
    return [entry.name for entry in look(typed).entries]


def test_folders_first_then_the_newest_traces_and_nothing_else(tmp_path: Path) -> None:
    folder(tmp_path, "b.json", "a.json.gz", "notes.txt")
    (tmp_path / "prof").mkdir()
    (tmp_path / ".git").mkdir()
    assert names(f"{tmp_path}/") == ["prof/", "b.json", "a.json.gz"]


@pytest.mark.parametrize(
    ("ranks", "name"),
    [(SGLANG, "1796023716.3312356-TP-*.trace.json.gz"), (VLLM, "rank*.1796024831652490405.pt.trace.json.gz")],
)
def test_the_ranks_of_one_capture_are_one_entry(tmp_path: Path, ranks: tuple[str, ...], name: str) -> None:
    folder(tmp_path, *reversed(ranks))
    entry = look(f"{tmp_path}/").entries[0]
    assert entry.name == f"{name}  all 2 ranks" and entry.size == 2000
    assert entry.paths == tuple(str(tmp_path / rank) for rank in ranks)


def test_two_captures_are_not_mixed(tmp_path: Path) -> None:
    folder(tmp_path, SGLANG[0], SGLANG[1].replace("1796023716", "1796029999"))
    assert all(len(entry.paths) == 1 for entry in look(f"{tmp_path}/").entries)


def test_ten_ranks_stand_in_the_order_of_their_numbers(tmp_path: Path) -> None:
    folder(tmp_path, *(SGLANG[0].replace("TP-0", f"TP-{rank}") for rank in range(12)))
    paths = look(f"{tmp_path}/").entries[0].paths
    assert [path.split("TP-")[1].split(".")[0] for path in paths] == [str(rank) for rank in range(12)]


def test_what_is_typed_narrows_and_beginnings_come_first(tmp_path: Path) -> None:
    folder(tmp_path, "my_decode.json", "decode.json", "prefill.json")
    assert names(f"{tmp_path}/dec") == ["decode.json", "my_decode.json"]


def test_a_folder_that_cannot_be_read_says_so(tmp_path: Path) -> None:
    found = look(f"{tmp_path}/nowhere/x")
    assert found.entries == () and found.problem is not None and "No such file" in found.problem


def test_a_typed_path_or_pattern_names_files(tmp_path: Path) -> None:
    folder(tmp_path, *SGLANG, "x.json")
    assert typed_paths(f"{tmp_path}/x.json") == (str(tmp_path / "x.json"),)
    assert typed_paths(f"{tmp_path}/*TP-*.gz") == tuple(str(tmp_path / name) for name in SGLANG)
    assert typed_paths(f"{tmp_path}/none*") == typed_paths(f"{tmp_path}/") == typed_paths("\0*") == ()


def test_small_files_have_sizes_too() -> None:
    assert [size_words(size) for size in (12_345, 999_400, 4_000_000)] == ["12 kB", "999 kB", "4.0 MB"]
