"""The programs of benchmarks/ that measure this client: where they run, and that they still do."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
sys.path.append(str(BENCHMARKS))

import client_accuracy  # noqa: E402  (a program beside the package, not a part of it)


def listing(monkeypatch: pytest.MonkeyPatch, folder: Path, lists: dict[int, str]) -> None:
    for core, words in lists.items():
        (folder / str(core)).write_text(f"{words}\n")
    monkeypatch.setattr(client_accuracy, "SIBLINGS", f"{folder}/{{}}")


@pytest.mark.parametrize(
    ("cores", "lists", "chosen"),
    [
        ([0, 1], {}, (0, 1)),
        ([0, 1, 2, 3], {0: "0-1", 1: "0-1", 2: "2-3", 3: "2-3"}, (0, 2)),
        ([4, 5], {4: "4,5", 5: "4,5"}, (4, 5)),  # nothing better there
        (list(range(8)), {core: f"{core % 4},{core % 4 + 4}" for core in range(8)}, (1, 2)),
        (list(range(8)), {core: f"{core - core % 2}-{core - core % 2 + 1}" for core in range(8)}, (1, 2)),
    ],
)
def test_client_and_server_share_no_core_where_that_can_be(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    cores: list[int],
    lists: dict[int, str],
    chosen: tuple[int, int],
) -> None:
    listing(monkeypatch, tmp_path, lists)
    assert client_accuracy.two_cores(cores) == chosen


def test_one_core_is_too_few() -> None:
    with pytest.raises(ValueError, match="there is 1"):
        client_accuracy.two_cores([3])


def test_every_stream_sends_the_same_number_of_requests_and_few_streams_send_more() -> None:
    assert [client_accuracy.requests_of(streams) for streams in (1, 7, 8, 64)] == [24, 28, 24, 192]


def test_the_fault_matrix_still_runs() -> None:
    argv = [sys.executable, str(BENCHMARKS / "fault_matrix.py"), "--only", "CRLF framing", "--only", "400"]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    assert [line.split()[-1] for line in done.stdout.splitlines()[1:3]] == ["right", "right"]
    assert "aiperf: skipped, not given" in done.stdout
