"""Where traces come to lie: on our file systems, in a container, under another user, on another host."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from decodetop.errors import DataError, UsageError
from decodetop.flows import capture_place
from decodetop.flows.capture_place import ThisBox, place_for
from decodetop.server.flags import requested_flags
from decodetop.server.reading import Flag, Server

PID = 4242


class FakeBox:
    """A process as it is described."""

    def __init__(
        self,
        same: bool | None = True,
        user: int | None = None,
        environ: Mapping[str, str] | None = None,
        folder: str | None = None,
        root: Path | None = None,
    ) -> None:
        self._same, self._environ, self._folder, self._root = same, environ, folder, root
        self._user = os.geteuid() if user is None else user

    def same_files(self, pid: int) -> bool | None:
        assert pid == PID
        return self._same

    def user(self, pid: int) -> int | None:
        return self._user

    def environ(self, pid: int) -> Mapping[str, str] | None:
        return self._environ

    def folder(self, pid: int) -> str | None:
        return self._folder

    def root(self, pid: int) -> Path | None:
        return self._root


@pytest.fixture
def shared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Stands for /tmp."""
    folder = tmp_path / "tmp"
    folder.mkdir()
    monkeypatch.setattr(capture_place, "SHARED_TMP", folder)
    return folder


def server(engine: Any = "sglang", flags: Mapping[str, str] | None = None, **more: Any) -> Server:
    named = tuple(Flag(name=name, requested=value) for name, value in (flags or {}).items())
    fields: dict[str, Any] = {"endpoint": "http://127.0.0.1:1", "engine": engine, "root_pid": PID, "flags": named}
    return Server(**(fields | more))


def test_sglang_of_ours_writes_into_the_investigation(tmp_path: Path, shared: Path) -> None:
    folder = tmp_path / "inv" / "captures" / "one"
    place = place_for(server(), folder, FakeBox())
    assert (place.named, place.seen, place.own) == (str(folder), folder, True)
    assert folder.is_dir() and list(shared.iterdir()) == []


@pytest.mark.parametrize("box", [FakeBox(user=1), FakeBox(same=None), FakeBox(same=False)])
def test_one_that_may_not_write_there_is_given_a_folder_for_everybody(
    box: FakeBox, tmp_path: Path, shared: Path
) -> None:
    folder = tmp_path / "inv" / "captures" / "one"
    place = place_for(server(), folder, box)
    assert place.named == str(place.seen) and place.own
    (made,) = shared.iterdir()
    assert place.seen == made and made.name.startswith("decodetop-one-")
    assert stat.S_IMODE(made.stat().st_mode) == 0o1777
    assert not folder.exists()
    assert place_for(server(), folder, box).seen != made  # never one that somebody may have prepared


def test_a_server_whose_process_is_not_seen_too(tmp_path: Path, shared: Path) -> None:
    place = place_for(server(root_pid=None), tmp_path / "one", FakeBox())
    assert place.seen is not None and place.seen.parent == shared


def test_root_may_write_anywhere(tmp_path: Path, shared: Path) -> None:
    assert place_for(server(), tmp_path / "one", FakeBox(user=0)).seen == tmp_path / "one"


def test_a_container_s_folder_is_seen_through_its_root(tmp_path: Path, shared: Path) -> None:
    place = place_for(server(), tmp_path / "one", FakeBox(same=False, root=tmp_path / "root"))
    assert place.named is not None and place.named.startswith(f"{shared}/decodetop-one-")
    assert place.seen == tmp_path / "root" / place.named.lstrip("/")
    assert list(shared.iterdir()) == []  # the server makes it, on its side


def test_sglang_on_another_host_keeps_its_default(tmp_path: Path) -> None:
    place = place_for(server(local=False), tmp_path / "one", FakeBox())
    assert (place.named, place.seen) == (None, None) and "another host" in place.why
    assert not (tmp_path / "one").exists()


def test_a_folder_that_can_not_be_made(tmp_path: Path) -> None:
    (tmp_path / "inv").write_text("a file")
    with pytest.raises(DataError, match="can't make the folder"):
        place_for(server(), tmp_path / "inv" / "one", FakeBox())


CONFIG = '{"profiler":"torch","torch_profiler_dir":"%s","torch_profiler_with_stack":false}'


@pytest.mark.parametrize(
    ("flags", "box", "named", "seen"),
    [
        ({"profiler_config": CONFIG % "/prof"}, FakeBox(), "/prof", "/prof"),
        ({"profiler_config.torch_profiler_dir": "/prof"}, FakeBox(), "/prof", "/prof"),
        ({}, FakeBox(environ={"VLLM_TORCH_PROFILER_DIR": "/old"}), "/old", "/old"),
        ({"profiler_config": CONFIG % "prof"}, FakeBox(folder="/srv"), "/srv/prof", "/srv/prof"),
        ({"profiler_config": CONFIG % "prof"}, FakeBox(folder="/"), "/prof", "/prof"),
        ({"profiler_config": CONFIG % "/prof"}, FakeBox(same=None), "/prof", "/prof"),
        ({"profiler_config": CONFIG % "/prof"}, FakeBox(same=False, root=Path("/r")), "/prof", "/r/prof"),
        ({"profiler_config": CONFIG % "/prof"}, FakeBox(same=False), "/prof", None),
        ({"profiler_config": CONFIG % "prof"}, FakeBox(), "prof", None),
        ({"profiler_config": CONFIG % "gs://bucket/prof"}, FakeBox(), "gs://bucket/prof", None),
        ({"profiler_config": "not json"}, FakeBox(), None, None),
        ({}, FakeBox(), None, None),
    ],
)
def test_vllm_s_folder_is_the_one_it_was_started_with(
    flags: Mapping[str, str], box: FakeBox, named: str | None, seen: str | None, tmp_path: Path
) -> None:
    place = place_for(server("vllm", flags), tmp_path / "one", box)
    assert (place.named, place.seen, place.own) == (named, None if seen is None else Path(seen), False)
    assert bool(place.why) is (seen is None)
    assert not (tmp_path / "one").exists()


def test_the_folder_is_found_in_a_command_line_as_it_is_typed(tmp_path: Path) -> None:
    for words in (["--profiler-config", CONFIG % "/prof"], ["--profiler-config.torch_profiler_dir", "/prof"]):
        flags = requested_flags("vllm", ["/usr/bin/python3", "/usr/bin/vllm", "serve", "tiny", *words, "--port", "1"])
        assert place_for(server("vllm", flags), tmp_path, FakeBox()).named == "/prof"


def test_vllm_on_another_host_or_with_another_profiler(tmp_path: Path) -> None:
    far = place_for(server("vllm", {"profiler_config": CONFIG % "/prof"}, local=False), tmp_path, FakeBox())
    assert (far.named, far.seen) == ("/prof", None) and "another host" in far.why
    with pytest.raises(UsageError, match="'cuda'"):
        place_for(server("vllm", {"profiler_config.profiler": "cuda"}), tmp_path, FakeBox())


def test_this_box_knows_our_own_process_and_nothing_of_a_missing_one() -> None:
    box, pid = ThisBox(), os.getpid()
    assert box.same_files(pid) is True
    assert box.user(pid) == os.geteuid()
    assert box.folder(pid) == str(Path.cwd())
    assert (box.environ(pid) or {}).get("PATH") == os.environ["PATH"]
    root = box.root(pid)
    assert root is not None and (root / "etc").is_dir()
    missing = 2**22 + 1
    assert box.same_files(missing) is None and box.user(missing) is None and box.root(missing) is None
    assert box.environ(missing) is None and box.folder(missing) is None
