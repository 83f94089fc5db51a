"""Which files are a capture's, and when they are whole."""

from __future__ import annotations

import gzip
import os
import shutil
from pathlib import Path

import pytest

from decodetop.errors import DataError
from decodetop.flows.capture_files import Folder, Found, cleared, taken, whole
from decodetop.steps import inflate
from decodetop.steps.folder import is_rank

TRACE = b'{"schemaVersion": 1,\n"traceEvents": [\n' + b",\n".join(b'{"ph": "X", "ts": %d}' % n for n in range(9000))
END = b'\n], "traceName": "/tmp/x.json"\n}\n'


@pytest.mark.parametrize(
    ("name", "is_one"),
    [
        ("1796023540.7916422-TP-0.trace.json.gz", True),
        ("run-1796023540.79-TP-1-DP-0-DECODE.trace.json.gz", True),
        ("rank0.1796024681965832257.pt.trace.json.gz", True),
        ("dp0_pp0_tp0_dcp0_ep0_rank0.179.pt.trace.json.gz", True),
        ("host_77.1796.pt.trace.json", True),
        ("vm_729.async_llm.1796024681709588197.pt.trace.json.gz", False),
        ("merged-1796023540.7916422.trace.json.gz", False),
        ("1796023540.79-TP-0.trace.json.gz.tmp", False),
        (".1796-TP-0.trace.json.gz.tmp", False),
        ("graph_capture_rank_0.trace.json.gz", False),
        ("1796-TP-0-memory.pickle", False),
        ("profiler_out_0.txt", False),
        ("profile_log.json", False),
    ],
)
def test_names(name: str, is_one: bool) -> None:
    assert is_rank(name) is is_one


def test_a_whole_file_has_its_end(tmp_path: Path) -> None:
    packed = gzip.compress(TRACE + END)
    half = TRACE[:-5]
    cases = {
        "whole.json.gz": (packed, True),
        "two_members.json.gz": (gzip.compress(TRACE) + gzip.compress(END), True),
        "no_trailer.json.gz": (packed[:-8], False),
        "a_byte_short.json.gz": (packed[:-1], False),
        "wrong_checksum.json.gz": (packed[:-8] + bytes(4) + packed[-4:], False),
        "half.json.gz": (packed[: len(packed) // 2], False),
        "whole_gzip_of_half_a_trace.json.gz": (gzip.compress(half), False),
        "header_only.json.gz": (packed[:6], False),
        "empty.json.gz": (b"", False),
        "whole.json": (TRACE + END, True),
        "a_list.json": (b"[" + TRACE[-30:] + b"]", True),
        "half.json": (half, False),
        "empty.json": (b"", False),
    }
    for name, (data, _) in cases.items():
        (tmp_path / name).write_bytes(data)
    assert {name: whole(tmp_path / name) for name in cases} == {name: is_one for name, (_, is_one) in cases.items()}
    assert not whole(tmp_path / "missing.json.gz")


def test_only_new_files_count_and_only_when_they_hold_still(tmp_path: Path) -> None:
    packed = gzip.compress(TRACE + END)
    old = tmp_path / "rank0.1.pt.trace.json.gz"
    old.write_bytes(packed)
    folder = Folder(tmp_path)
    folder.begin()
    assert folder.look().stamps == ()
    new = tmp_path / "rank0.2.pt.trace.json.gz"
    new.write_bytes(packed[:-9])
    assert folder.look().unfinished == (new,)
    assert folder.look().unfinished == (new,)  # it holds still, and has no end
    new.write_bytes(packed)
    assert folder.look().unfinished == (new,)  # it has an end, and may still grow
    found = folder.look()
    assert found.whole == (new,) and found.unfinished == ()
    assert folder.look() == found


def test_a_file_of_before_that_is_written_anew_is_new(tmp_path: Path) -> None:
    one = tmp_path / "1-TP-0.trace.json.gz"
    one.write_bytes(b"before")
    folder = Folder(tmp_path)
    folder.begin()
    one.write_bytes(gzip.compress(TRACE + END))
    folder.look()
    assert folder.look().whole == (one,)


def test_files_one_folder_below_are_found_and_a_missing_folder_is_empty(tmp_path: Path) -> None:
    folder = Folder(tmp_path / "profile")
    folder.begin()
    assert folder.look().stamps == ()
    below = tmp_path / "profile" / "20261130"
    below.mkdir(parents=True)
    (below / "1-TP-0.trace.json.gz").write_bytes(gzip.compress(TRACE + END))
    folder.look()
    assert folder.look().whole == (below / "1-TP-0.trace.json.gz",)


def test_taking_copies_and_a_disk_that_refuses_leaves_nothing(tmp_path: Path) -> None:
    source = tmp_path / "from" / "1-TP-0.trace.json.gz"
    source.parent.mkdir()
    source.write_bytes(b"trace")
    (copy,) = taken((source,), tmp_path / "inv" / "captures" / "one")
    assert copy.read_bytes() == b"trace" and copy.name == source.name
    with pytest.raises(DataError, match="can't copy") as caught:
        taken((source.with_name("missing"),), tmp_path / "other")
    assert "decodetop steps" in caught.value.hint
    assert list((tmp_path / "other").iterdir()) == []
    cleared(source.parent)
    assert not source.parent.exists()
    cleared(source.parent)


def test_a_file_that_unpacks_to_a_bomb_is_no_whole_trace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inflate, "PACKED_OVER_BYTES", 32 << 20)
    path = tmp_path / "TP-0.trace.json.gz"
    path.write_bytes(gzip.compress(TRACE) + gzip.compress(b" " * (256 << 20)) + gzip.compress(END))
    content = inflate.TraceBytes(path)
    unpacked = sum(map(len, content))
    content.close()
    assert unpacked < 80 << 20 and content.damage is not None and "over 250 times its size" in content.damage
    assert not whole(path)


def test_what_is_no_regular_file_is_no_trace_that_came(tmp_path: Path) -> None:
    folder = Folder(tmp_path)
    folder.begin()
    os.mkfifo(tmp_path / "1-TP-0.trace.json.gz")
    (tmp_path / "1-TP-1.trace.json.gz").symlink_to("/dev/zero")
    (tmp_path / "1-TP-2.trace.json.gz").mkdir()
    assert folder.look() == Found() == folder.look()


def test_a_look_at_a_long_file_ends_when_nobody_waits(tmp_path: Path) -> None:
    (tmp_path / "1-TP-0.trace.json").write_bytes(TRACE + END)
    folder = Folder(tmp_path)
    folder.look()
    folder.leave()
    assert folder.look().whole == ()


def test_a_copy_under_way_is_called_no_trace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a kill leaves of it is not taken for a capture's file."""
    path = tmp_path / "1-TP-0.trace.json"
    path.write_bytes(TRACE + END)
    under_way: list[str] = []
    copyfile = shutil.copyfile

    def noted(source: Path, copy: Path) -> object:
        done = copyfile(source, copy)
        under_way.extend(one.name for one in copy.parent.iterdir())
        return done

    monkeypatch.setattr(shutil, "copyfile", noted)
    (copy,) = taken([path], tmp_path / "inv")
    assert copy.read_bytes() == TRACE + END and under_way and not any(map(is_rank, under_way))
    assert [one.name for one in copy.parent.iterdir()] == [path.name]
