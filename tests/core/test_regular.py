"""Only files are opened: a pipe or a device of that name is a word, never a wait."""

import os
import socket
from pathlib import Path

import pytest

from decodetop.core.regular import named_path, open_regular, read_regular, read_text
from decodetop.errors import UsageError


def test_what_is_no_file_is_refused_at_once(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link").symlink_to("pipe")
    (tmp_path / "folder").mkdir()
    with socket.socket(socket.AF_UNIX) as heard:
        heard.bind(str(tmp_path / "socket"))
        for name, word in (("pipe", "a pipe"), ("link", "a pipe"), ("folder", "a folder"), ("socket", "a socket")):
            with pytest.raises(OSError, match=f"it is {word}, not a file") as caught:
                read_regular(tmp_path / name)
            assert caught.value.strerror == f"it is {word}, not a file"
    with pytest.raises(OSError, match="it is a device, not a file"):
        read_regular(Path("/dev/zero"))


def test_a_file_that_became_a_pipe_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("x")
    os.mkfifo(tmp_path / "pipe")
    real = os.open
    monkeypatch.setattr(os, "open", lambda path, flags: real(tmp_path / "pipe", flags))
    with pytest.raises(OSError, match="it is a pipe, not a file"):
        open_regular(tmp_path / "file")


def test_files_and_the_null_device_are_read(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"\xef\xbb\xbfwords")
    assert read_text(tmp_path / "file") == "words"
    assert read_regular(Path(os.devnull)) == b""


def test_a_file_has_a_largest_size(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(bytes(2 << 20))
    assert len(read_regular(tmp_path / "file", 2 << 20)) == 2 << 20
    with pytest.raises(OSError, match="it is larger than 1 MiB"):
        read_regular(tmp_path / "file", 1 << 20)


@pytest.mark.parametrize("text", ["", "  ", "~nosuchuser-here/x", "a\0b"])
def test_a_path_that_is_none_is_one_line(text: str) -> None:
    with pytest.raises(UsageError, match="--investigation") as caught:
        named_path(text, "--investigation")
    assert caught.value.message.isprintable() and caught.value.hint


def test_a_home_is_expanded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/me")
    assert named_path("~/x", "--log") == Path("/home/me/x")
    assert named_path("x", "--log") == Path("x")
