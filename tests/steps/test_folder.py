"""A profiler's folder: which of its files are the newest capture."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from decodetop.errors import TraceError
from decodetop.steps.folder import newest, ranks_in


def put(folder: Path, *names: str) -> None:
    for name in names:
        (folder / name).write_bytes(b"{}")


def names(folder: Path) -> list[str]:
    return [path.name for path in newest(folder)]


def test_sglangs_ranks_have_one_time_in_front(tmp_path: Path) -> None:
    put(tmp_path, "1796077000.25-TP-0.trace.json.gz", "1796077000.25-TP-1.trace.json.gz")
    last = ["1796077711.236262-TP-0.trace.json.gz", "1796077711.236262-TP-1.trace.json.gz"]
    put(tmp_path, *last, "merged-1796077711.236262.trace.json.gz", "server.log")
    put(tmp_path, "1796077711.236262-TP-0-EXTEND.trace.json.gz")
    assert names(tmp_path) == last


def test_vllms_ranks_have_each_their_own_time(tmp_path: Path) -> None:
    put(tmp_path, "rank0.1796076592249985628.pt.trace.json.gz", "vm_1.async_llm.1796076599253116695.pt.trace.json.gz")
    put(tmp_path, "rank0.1796076599361251998.pt.trace.json.gz", "rank1.1796076599461251998.pt.trace.json.gz")
    last = ["rank0.1796076599361251998.pt.trace.json.gz", "rank1.1796076599461251998.pt.trace.json.gz"]
    assert names(tmp_path) == last


def test_a_rank_that_only_an_older_capture_has_is_left_out(tmp_path: Path) -> None:
    put(tmp_path, "rank0.1796076000000000000.pt.trace.json.gz", "rank1.1796076000000000000.pt.trace.json.gz")
    put(tmp_path, "rank0.1796077000000000000.pt.trace.json.gz")
    assert names(tmp_path) == ["rank0.1796077000000000000.pt.trace.json.gz"]


def test_names_without_a_time_go_by_the_files_date(tmp_path: Path) -> None:
    put(tmp_path, "old.trace.json", "new.trace.json")
    os.utime(tmp_path / "old.trace.json", (1_796_000_000, 1_796_000_000))
    os.utime(tmp_path / "new.trace.json", (1_796_077_000, 1_796_077_000))
    assert names(tmp_path) == ["new.trace.json"]


def test_files_are_taken_as_given_and_a_folder_without_traces_is_said_to_be_so(tmp_path: Path) -> None:
    assert ranks_in(["a.json", "b.json.gz"]) == ["a.json", "b.json.gz"]
    put(tmp_path, "notes.json")
    with pytest.raises(TraceError, match="no profiler traces in"):
        ranks_in([str(tmp_path)])
