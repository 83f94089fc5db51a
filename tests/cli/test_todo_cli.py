"""`decodetop todo`: what the pane does, from the command line."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from decodetop.cli import main
from decodetop.errors import DataError


class Cli:
    """Runs `decodetop todo --investigation DIR ...`."""

    def __init__(self, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.folder = folder
        self.path = folder / "todo.json"
        self._capsys = capsys

    def __call__(self, *argv: str) -> tuple[int, str, str]:
        try:
            code = main(["todo", "--investigation", str(self.folder), *argv])
        except SystemExit as stop:
            code = int(stop.code or 0)
        captured = self._capsys.readouterr()
        return code, captured.out, captured.err

    def ok(self, *argv: str) -> str:
        code, out, err = self(*argv)
        assert (code, err) == (0, "")
        return out

    @property
    def todos(self) -> list[dict[str, Any]]:
        return list(json.loads(self.path.read_bytes())["todos"])


@pytest.fixture
def cli(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Cli:
    return Cli(tmp_path / "inv", capsys)


def test_an_investigation_from_its_first_line_to_its_last(cli: Cli) -> None:
    assert "nothing to do yet" in cli.ok()
    cli.ok("question", "why", "51", "tok/s?")
    assert cli.ok("add", "Profile", "decode", "--priority", "high", "--start") == "▶ t1  Profile decode\n"
    assert cli.ok("add", "Break down step", "--notes", "per rank", "--expected", "a cast") == "○ t2  Break down step\n"
    cli.ok("add", "first rank", "--under", "t2")
    cli.ok("add", "between", "--after", "t1")
    cli.ok("attempt", "t1", "trtllm_mla", "--outcome", "failed", "--why", "page_size == 64", "--link", "run 3")
    cli.ok("evidence", "t1", "run", "4", "--summary", "51.7 tok/s")
    assert cli.ok("done", "t1", "--why", "one cast") == "✓ t1  Profile decode\n"
    cli.ok("cancel", "#2", "--why", "no need")
    cli.ok("move", "t2", "-9")
    cli.ok("edit", "t2", "Break", "down", "the", "step", "--blocked-by", "t1")
    cli.ok("priority", "t2", "low")
    assert cli.ok("question") == "why 51 tok/s?\n"
    assert [line for line in cli.ok("list").splitlines() if line.strip().startswith("#")] == [
        "  #1 ○ t2  Break down the step  low",
        "  #2 ○ t3    first rank  medium",
        "  #3 ✓ t1  Profile decode  high",
        "  #4 ✗ t4  between  medium",
    ]
    shown = json.loads(cli.ok("--json"))
    assert (shown["schema"], shown["title"], shown["path"]) == (1, "why 51 tok/s?", str(cli.path))
    assert shown["todos"] == [*cli.todos]
    done = next(todo for todo in shown["todos"] if todo["id"] == "t1")
    assert (done["status"], done["reason"], done["evidence"][0]["summary"]) == ("completed", "one cast", "51.7 tok/s")
    assert done["attempts"][0]["links"] == ["run 3"]


@pytest.mark.parametrize("argv", [("--json", "add", "a"), ("add", "a", "--json")])
def test_json_and_the_folder_may_stand_before_or_behind_the_action(cli: Cli, argv: tuple[str, ...]) -> None:
    shown = json.loads(cli.ok(*argv))
    assert [(todo["id"], todo["content"]) for todo in shown["todos"]] == [("t1", "a")]
    other = cli.folder.parent / "other"
    cli.ok("add", "b", "--investigation", str(other))
    assert json.loads((other / "todo.json").read_bytes())["todos"][0]["content"] == "b"


@pytest.mark.parametrize(
    ("name", "found"),
    [("t1", "t1"), ("#2", "t12"), ("2", "t12"), ("t12", "t12"), ("ab", "abc"), ("7", "7"), ("#4", "7"), ("4", "7")],
)
def test_an_item_by_id_beginning_or_place(cli: Cli, name: str, found: str) -> None:
    cli.folder.mkdir()
    ids = ("t1", "t12", "abc", "7")
    cli.path.write_text(json.dumps([{"id": id, "content": id} for id in ids]))
    cli.ok("start", name)
    assert [todo["id"] for todo in cli.todos if todo["status"] == "in_progress"] == [found]


@pytest.mark.parametrize(
    ("argv", "word"),
    [
        (("start", "t9"), "no item 't9' in the checklist"),
        (("start", "#9"), "no item '#9'"),
        (("start", "t"), "'t' may mean t1, t12"),
        (("edit", "t1"), "edit changes nothing"),
        (("edit", "t1", " "), "needs words"),
        (("add", " "), "needs words"),
        (("add",), "the following arguments are required"),
        (("move", "t1", "up"), "invalid int value"),
        (("priority", "t1", "urgent"), "invalid choice"),
        (("dance", "t1"), "invalid choice"),
    ],
)
def test_usage_is_exit_code_2_and_changes_nothing(cli: Cli, argv: tuple[str, ...], word: str) -> None:
    cli.folder.mkdir()
    cli.path.write_text('[{"id": "t1", "content": "a"}, {"id": "t12", "content": "b"}]')
    data = cli.path.read_bytes()
    code, out, err = cli(*argv)
    assert (code, out) == (2, "") and word in err
    assert cli.path.read_bytes() == data


def test_soft_words_go_to_stderr_and_the_edit_is_made(cli: Cli) -> None:
    cli.ok("add", "a", "--start")
    code, out, err = cli("add", "b", "--start")
    assert (code, out) == (0, "▶ t2  b\n")
    assert err == "decodetop: 2 items are in progress: t1, t2 (one at a time is the habit)\n"
    code, _, err = cli("done", "t1")
    assert code == 0 and err.startswith("decodetop: t1 closed with no word of why")
    assert cli.ok("reopen", "t1") == "○ t1  a\n"


def test_a_broken_file_is_kept_and_told(cli: Cli) -> None:
    cli.folder.mkdir()
    cli.path.write_text('{"todos": [{"content": "a", "status": "pending"}, {"con')
    data = cli.path.read_bytes()
    code, out, err = cli()
    assert (code, out) == (1, "")
    assert [line[:10] for line in err.splitlines()] == ["decodetop:", "  hint: me"]
    code, out, err = cli("add", "b")
    assert (code, out) == (1, "") and "a copy is in todo.json.broken-1" in err
    assert cli.path.read_bytes() == (cli.folder / "todo.json.broken-1").read_bytes() == data
    cli.path.unlink()
    code, out, _ = cli("import", str(cli.folder / "todo.json.broken-1"))
    assert code == 0 and "1 added" in out and "cut off" in out
    assert [todo["content"] for todo in cli.todos] == ["a"]


def test_a_folder_that_cannot_be_written_is_one_line_and_a_hint(cli: Cli) -> None:
    cli.folder.write_text("a file")
    code, out, err = cli("add", "a")
    assert (code, out) == (1, "")
    first, hint = err.splitlines()
    assert first.startswith("decodetop: can't write") and "--investigation DIR" in hint


def test_import_from_standard_input_and_export_and_again(
    cli: Cli, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    pasted = (
        'The plan:\n[{"content": "a", "status": "pending", "priority": "high"}, {"content": "b", "status": "doing"}]\n'
    )
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(pasted.encode())))
    assert cli.ok("import", "-") == "2 added, 0 changed, 0 as they were\n○ t1  a\n▶ t2  b\n"
    for format in ("json", "markdown", "todotxt"):
        file = tmp_path / f"out.{format}"
        assert cli.ok("export", str(file), "--format", format) == ""
        assert cli.ok("export", "--format", format) == file.read_text()
        assert cli.ok("import", str(file)) == "0 added, 0 changed, 2 as they were\n"
    exported = json.loads(cli.ok("export"))
    assert exported["schema"] == 1 and exported["todos"] == cli.todos
    markdown = tmp_path / "out.markdown"
    markdown.write_text(markdown.read_text().replace("- [ ] a", "- [x] a"))
    assert cli.ok("import", str(markdown)) == "0 added, 1 changed, 1 as they were\n✓ t1  a\n"


@pytest.mark.parametrize(
    ("content", "argv", "word"),
    [
        (b"hello", (), "no checklist in the text"),
        (b"\xff\xfe", (), "is not UTF-8 text"),
        (b"- [ ] a", ("--format", "json"), "no json checklist"),
        (None, (), "can't read"),
    ],
)
def test_an_import_that_cannot_be_read(
    cli: Cli, tmp_path: Path, content: bytes | None, argv: tuple[str, ...], word: str
) -> None:
    file = tmp_path / "in"
    if content is not None:
        file.write_bytes(content)
    code, out, err = cli("import", str(file), *argv)
    assert (code, out) == (1, "") and word in err and "hint: " in err
    assert not cli.path.exists()


def test_an_export_that_cannot_be_written(cli: Cli, tmp_path: Path) -> None:
    cli.ok("add", "a")
    code, _, err = cli("export", str(tmp_path / "none" / "x"))
    assert code == 1 and err.startswith("decodetop: can't write") and "hint: give another FILE" in err
    data = cli.path.read_bytes()
    code, _, err = cli("export", str(cli.path))
    assert code == 2 and "is the checklist itself" in err
    assert cli.path.read_bytes() == data


def test_words_from_outside_do_not_move_the_cursor(cli: Cli) -> None:
    cli.folder.mkdir()
    cli.path.write_text(json.dumps([{"id": "t1", "content": "a\x1b[2Jb\r\nc"}]))
    assert "#1 ○ t1  a [2Jb c\n" in cli.ok()
    assert cli.ok("start", "t1") == "▶ t1  a [2Jb c\n"
    cli.path.write_text('[{"content": "half \\ud83d", "status": "pending"}]')
    assert json.loads(cli.ok("--json"))["todos"][0]["content"] == "half ?"
    for argv in (("list",), ("export",), ("export", "--format", "markdown"), ("export", str(cli.folder / "x"))):
        cli.ok(*argv)
    assert cli.ok("add", "b") == "○ t3  b\n"


def test_agents_plans_are_shown(cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("CLAUDE_CONFIG_DIR", "CODEX_HOME", "OPENCODE_DB", "XDG_DATA_HOME"):
        monkeypatch.delenv(name, raising=False)
    assert cli.ok("follow").startswith("no agent's plan found in ~/.claude/tasks, ")
    plan = tmp_path / "plan.md"
    plan.write_text("- [x] a\n- [ ] b\n")
    assert cli.ok("follow", str(plan)) == "plan.md plan  ~/plan.md\n  ✓ a\n  ○ b\n"
    shown = json.loads(cli.ok("follow", str(plan), "--json"))
    assert [todo["status"] for todo in shown["plans"][0]["todos"]] == ["completed", "pending"]
    code, out, _ = cli("follow", str(tmp_path / "none"))
    assert (code, out) == (1, "~/none: not there\n")


@pytest.mark.parametrize(("typed", "reason"), [("  one   cast\n", "one cast"), ("\n", None)])
def test_at_a_terminal_closing_with_nothing_said_asks_why(
    cli: Cli, monkeypatch: pytest.MonkeyPatch, typed: str, reason: str | None
) -> None:
    cli.ok("add", "a")
    cli.ok("add", "b")
    cli.ok("evidence", "t2", "run", "4")
    stdin = io.StringIO(typed)
    monkeypatch.setattr(stdin, "isatty", lambda: True)
    monkeypatch.setattr(sys, "stdin", stdin)
    assert "why is it done?" not in cli("done", "t2")[2], "there is evidence"
    code, _, err = cli("done", "t1")
    assert code == 0 and err.startswith("why is it done? ")
    assert cli.todos[0].get("reason") == reason


def test_an_item_becomes_a_part_of_another(cli: Cli) -> None:
    cli.ok("add", "a")
    cli.ok("add", "b")
    cli.ok("edit", "t2", "--under", "t1")
    assert cli.todos[1]["parent"] == "t1"
    assert cli("edit", "t1", "--under", "t2")[0] == 2
    cli.ok("edit", "t2", "--under", "")
    assert "parent" not in cli.todos[1]


def test_edits_of_commands_are_taken_back_and_made_again(cli: Cli) -> None:
    cli.ok("add", "a")
    cli.ok("add", "b")
    cli.ok("start", "t1")
    assert "undone: " in cli.ok("undo") and cli.todos[0]["status"] == "pending"
    cli.ok("undo")
    assert [todo["content"] for todo in cli.todos] == ["a"]
    cli.ok("redo")
    cli.ok("redo")
    assert [(todo["content"], todo["status"]) for todo in cli.todos] == [("a", "in_progress"), ("b", "pending")]
    assert cli("redo")[0] == 2
    cli.ok("edit", "t2", "b!")
    assert "nothing to redo" in cli("redo")[2]


def test_undo_leaves_what_was_edited_elsewhere_since(cli: Cli) -> None:
    cli.ok("add", "a")
    cli.ok("start", "t1")
    whole = json.loads(cli.path.read_bytes())
    whole["todos"].append({"id": "t2", "content": "from elsewhere", "status": "pending"})
    cli.path.write_text(json.dumps(whole))
    cli.ok("undo")
    assert [(todo["content"], todo["status"]) for todo in cli.todos] == [
        ("a", "pending"),
        ("from elsewhere", "pending"),
    ]


def test_a_way_back_that_a_newer_decodetop_wrote_is_left_alone(cli: Cli) -> None:
    cli.ok("add", "a")
    path = cli.folder / ".todo.json.undo"
    path.write_text(path.read_text().replace('"schema": 1', '"schema": 2'))
    before = path.read_bytes()
    cli.ok("add", "b")
    code, _, err = cli("undo")
    assert code == 1 and "has schema 2" in err and path.read_bytes() == before and len(cli.todos) == 2


def test_an_undo_that_can_not_be_remembered_is_made_and_says_so(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    cli.ok("add", "a")

    def full(path: Path, *args: Any, **more: Any) -> bool:
        raise DataError(f"can't write {path}: No space left on device", "free some space there")

    monkeypatch.setattr("decodetop.todo.past.replace", full)
    code, out, err = cli("undo")
    assert (code, cli.todos) == (0, []) and out.startswith("undone: ")
    assert "undo is made, but not remembered: can't write" in err and "hint: free some space" in err


@pytest.mark.parametrize("junk", ["", "{", "[]", '{"done": [[1, 2]], "undone": []}', '{"done": [3], "undone": []}'])
def test_a_broken_way_back_is_no_trouble(cli: Cli, junk: str) -> None:
    cli.ok("add", "a")
    (cli.folder / ".todo.json.undo").write_text(junk)
    assert "nothing to undo" in cli("undo")[2]
    cli.ok("add", "b")
    cli.ok("undo")
    assert [todo["content"] for todo in cli.todos] == ["a"]


def test_the_way_back_is_bounded(cli: Cli) -> None:
    for number in range(25):
        cli.ok("add", f"n{number}")
    kept = json.loads((cli.folder / ".todo.json.undo").read_bytes())
    assert len(kept["done"]) == 20
