"""The whole new file or the old one; nothing else left behind."""

import os
from pathlib import Path

import pytest

from decodetop.core.atomic import make_folder, replace
from decodetop.errors import DataError


def test_a_file_is_made_and_replaced_with_its_mode(tmp_path: Path) -> None:
    path = tmp_path / "reports" / "x.md"
    make_folder(path.parent)
    replace(path, b"old")
    path.chmod(0o640)
    replace(path, b"new")
    assert path.read_bytes() == b"new" and path.stat().st_mode & 0o777 == 0o640
    assert list(path.parent.iterdir()) == [path]


def test_a_failed_write_leaves_the_old_file_and_nothing_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "x.md"
    replace(path, b"old")

    def full(handle: int, data: bytes) -> int:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched, pytest.raises(DataError, match="No space left") as error:
        patched.setattr(os, "write", full)
        replace(path, b"new")
    assert "free some space" in error.value.hint
    assert path.read_bytes() == b"old" and list(tmp_path.iterdir()) == [path]


def test_a_folder_in_the_way_is_said(tmp_path: Path) -> None:
    (tmp_path / "x.md").mkdir()
    with pytest.raises(DataError, match="can't write"):
        replace(tmp_path / "x.md", b"new")
    (tmp_path / "file").write_text("no folder")
    with pytest.raises(DataError, match="can't write"):
        replace(tmp_path / "file" / "x.md", b"new")
    with pytest.raises(DataError, match="can't write"):
        make_folder(tmp_path / "file" / "folder")


def test_a_mistyped_folder_is_not_made(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="can't write"):
        replace(tmp_path / "repotrs" / "x.md", b"new")
    assert not (tmp_path / "repotrs").exists()


def test_a_pipe_or_device_is_not_replaced(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with pytest.raises(DataError, match="a device or a pipe"):
        replace(pipe, b"new")
    assert pipe.is_fifo()
