"""One load at a time on a server: within a process, and among all of this user's."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from decodetop.errors import UsageError
from decodetop.flows import claim
from decodetop.flows.claim import claimed


@pytest.fixture(autouse=True)
def locks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    return tmp_path / "decodetop"


def test_a_server_is_held_by_one_load_under_all_its_names() -> None:
    with claimed(["http://127.0.0.1:30000"], "a benchmark"):
        for name in ("http://127.0.0.1:30000/v1", "http://localhost:30000", "http://0.0.0.0:30000"):
            with pytest.raises(UsageError, match="by a benchmark of process") as caught, claimed([name], "a capture"):
                pass
            assert "stop it first" in caught.value.hint
        with claimed(["http://127.0.0.1:30001", "http://elsewhere:30000"], "a benchmark"):
            pass
    with claimed(["http://localhost:30000"], "a capture"):
        pass


def test_two_names_of_one_server_are_one_claim() -> None:
    with claimed(["http://127.0.0.1:30000", "http://localhost:30000/v1"], "a benchmark"):
        pass


def test_what_was_taken_is_given_back_when_one_is_held() -> None:
    with claimed(["http://b:1"], "a capture"):
        with pytest.raises(UsageError), claimed(["http://a:1", "http://b:1", "http://c:1"], "a benchmark"):
            pass
        with claimed(["http://a:1", "http://c:1"], "a benchmark"):
            pass


HOLDER = """
import sys
from decodetop.flows.claim import claimed
with claimed(["http://127.0.0.1:30000"], "a benchmark"):
    print("held", flush=True)
    sys.stdin.read()
"""


def test_another_process_holds_it_until_it_is_gone() -> None:
    pipe = subprocess.PIPE
    with subprocess.Popen([sys.executable, "-c", HOLDER], stdin=pipe, stdout=pipe) as holder:
        assert holder.stdout is not None and holder.stdout.readline() == b"held\n"
        words = f"by a benchmark of process {holder.pid}"
        with pytest.raises(UsageError, match=words), claimed(["http://127.0.0.1:30000"], "a benchmark"):
            pass
        holder.kill()
    with claimed(["http://127.0.0.1:30000"], "a benchmark"):
        pass


def test_without_a_place_for_locks_the_load_goes_on(locks: Path) -> None:
    locks.write_text("in the way")
    with claimed(["http://127.0.0.1:30000"], "a benchmark"):
        pass


def test_a_link_in_the_way_is_not_followed(locks: Path, tmp_path: Path) -> None:
    target = tmp_path / "precious"
    target.write_text("x")
    locks.mkdir()
    (locks / claim._name("http://127.0.0.1:30000")).symlink_to(target)
    with claimed(["http://127.0.0.1:30000"], "a benchmark"):
        pass
    assert target.read_text() == "x"
