"""The process table from /proc's files."""

from __future__ import annotations

from pathlib import Path

from decodetop.server.proctable import ANEW, YOUNG, ProcTable


def process(proc: Path, pid: int, program: str, *argv: str, ppid: int = 1, started_ticks: int = 100) -> None:
    folder = proc / str(pid)
    folder.mkdir(exist_ok=True)
    fields = ["S", str(ppid), *["0"] * 17, str(started_ticks), "0"]
    (folder / "stat").write_text(f"{pid} ({program}) {' '.join(fields)}\n")
    (folder / "cmdline").write_bytes("\0".join(argv).encode())


def box(tmp_path: Path) -> Path:
    process(tmp_path, 1, "init")
    (tmp_path / "self").symlink_to("1")
    (tmp_path / "uptime").touch()
    return tmp_path


def test_names_with_brackets_and_titles_with_empty_words(tmp_path: Path) -> None:
    proc = box(tmp_path)
    process(proc, 40, "a) (b", "sglang::scheduler_TP0", "", "", ppid=39)
    found = {one.pid: one for one in ProcTable(proc).look()}
    assert set(found) == {1, 40}
    assert (found[40].ppid, found[40].argv, found[40].program) == (39, ("sglang::scheduler_TP0",), "a) (b")
    assert found[1].argv == ()


def test_a_young_process_that_takes_a_title_and_an_old_one_whose_pid_is_given_away(tmp_path: Path) -> None:
    proc = box(tmp_path)
    process(proc, 40, "python", "python", "-c", "spawn_main")
    table = ProcTable(proc)

    def argv() -> tuple[str, ...]:
        return next(one.argv for one in table.look() if one.pid == 40)

    assert argv() == ("python", "-c", "spawn_main")
    process(proc, 40, "VLLM::EngineCor", "VLLM::EngineCore", "")
    assert argv() == ("VLLM::EngineCore",)
    for _ in range(YOUNG):
        argv()
    process(proc, 40, "bash", "bash")
    assert ("bash",) in [argv() for _ in range(ANEW)]


def test_a_process_that_has_ended_is_gone_at_once(tmp_path: Path) -> None:
    proc = box(tmp_path)
    process(proc, 40, "python", "python")
    table = ProcTable(proc)
    for _ in range(YOUNG + 1):
        table.look()
    (proc / "40").rename(proc / "gone")
    assert [one.pid for one in table.look()] == [1]
