"""`decodetop investigation`: several side by side, one open, none lost."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from decodetop import config
from decodetop.cli import main
from decodetop.cli.tui import switched
from decodetop.config import Settings, load
from decodetop.todo.reading import Switch


class Cli:
    def __init__(self, root: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.root = root
        self._capsys = capsys

    def __call__(self, *argv: str) -> tuple[int, str, str]:
        try:
            code = main(["investigation", *argv])
        except SystemExit as stop:
            code = int(stop.code or 0)
        captured = self._capsys.readouterr()
        return code, captured.out, captured.err

    def found(self, *argv: str) -> list[dict[str, Any]]:
        return list(json.loads(self(*argv, "--json")[1])["investigations"])

    @property
    def in_force(self) -> tuple[Path, str]:
        settings = load({}, {})
        return settings.investigation, settings.origin["investigation"]


@pytest.fixture
def cli(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Cli:
    monkeypatch.setattr(config.platformdirs, "user_data_dir", lambda _: str(tmp_path / "data"))
    monkeypatch.setattr(config.platformdirs, "user_config_dir", lambda _: str(tmp_path / "config"))
    return Cli(tmp_path / "data" / "investigations", capsys)


def test_new_asks_its_question_and_is_the_one_in_use_from_then_on(cli: Cli) -> None:
    assert cli.in_force == (cli.root / "default", "default")
    code, out, err = cli("new", "why-51", "why", "51", "tok/s?")
    assert (code, err) == (0, "") and out.startswith("* why-51") and "why 51 tok/s?" in out
    assert cli.in_force == (cli.root / "why-51", "opened")
    assert main(["todo", "add", "a"]) == 0
    assert (cli.root / "why-51" / "todo.json").exists()
    cli("new", "ttft")
    cli("open", "why-51")
    assert cli.in_force == (cli.root / "why-51", "opened")


def test_the_list_tells_them_apart(cli: Cli) -> None:
    cli("new", "a", "one?")
    main(["todo", "add", "x"])
    main(["todo", "done", "1", "--why", "y"])
    cli("new", "b", "two?")
    (cli.root / "b" / "todo.json").write_text("{")
    (cli.root / "stray").mkdir()
    found = {one["name"]: one for one in cli.found("list")}
    assert set(found) == {"a", "b"}
    assert (found["a"]["question"], found["a"]["todos"], found["a"]["closed"], found["a"]["current"]) == (
        "one?",
        1,
        1,
        False,
    )
    assert found["b"]["todos"] is None and "not a checklist" in found["b"]["problem"] and found["b"]["current"]
    out = cli()[1]
    assert "1/1 closed" in out and "not a checklist" in out


def test_one_put_away_keeps_its_data_and_comes_back_when_opened(cli: Cli) -> None:
    cli("new", "a", "one?")
    main(["todo", "add", "x"])
    before = (cli.root / "a" / "todo.json").read_bytes()
    assert "(put away)" in cli("archive", "a")[1]
    assert cli.in_force == (cli.root / "default", "opened") and "a" not in [one["name"] for one in cli.found("list")]
    assert "a" in [one["name"] for one in cli.found("list", "--all")]
    assert (cli.root / "a" / "todo.json").read_bytes() == before
    cli("open", "a")
    assert cli.in_force[0] == cli.root / "a" and not cli.found("list")[0]["archived"]
    assert cli.found("list")[0]["question"] == "one?"


@pytest.mark.parametrize(
    ("argv", "word"),
    [
        (("open", "nothing"), "there is no investigation 'nothing'"),
        (("archive", "nothing"), "there is no investigation"),
        (("new", ".."), "is no name for an investigation"),
        (("new", " "), "is no name for an investigation"),
        (("new", "a"), "is an investigation already"),
        (("new", "/"), "is the root folder"),
        (("new", "/tmp/.."), "is the root folder"),
        (("open", "/./"), "is the root folder"),
        (("list", "--investigation", "/"), "is the root folder"),
        (("dance",), "invalid choice"),
    ],
)
def test_usage(cli: Cli, argv: tuple[str, ...], word: str) -> None:
    cli("new", "a")
    code, out, err = cli(*argv)
    assert (code, out) == (2, "") and word in err


def test_a_path_is_an_investigation_too(cli: Cli, tmp_path: Path) -> None:
    cli("new", str(tmp_path / "elsewhere" / "x"), "why?")
    assert cli.in_force[0] == tmp_path / "elsewhere" / "x"
    assert cli.found("list")[0]["current"], "the one in use is listed wherever it is"


def test_what_names_one_on_the_way_comes_first_and_is_said(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DECODETOP_INVESTIGATION", str(cli.root / "mine"))
    code, _, err = cli("new", "a")
    assert code == 0 and "DECODETOP_INVESTIGATION names" in err


@pytest.mark.parametrize("junk", [b"", b"{", b"[]", b'{"folder": 3}', b'{"folder": ""}', b"\xff"])
def test_a_broken_note_of_the_open_one_is_no_trouble(cli: Cli, junk: bytes) -> None:
    cli.root.mkdir(parents=True)
    (cli.root / ".opened.json").write_bytes(junk)
    assert cli.in_force == (cli.root / "default", "default")


def test_the_screen_goes_on_with_another_or_a_new_one(cli: Cli) -> None:
    cli("new", "a", "one?")
    settings = switched(Settings(origin={"investigation": "default"}), Switch(question="Why is TTFT 2 s?"))
    assert settings.investigation == cli.root / "why-is-ttft-2-s" and cli.in_force[0] == settings.investigation
    assert switched(settings, Switch(question="why is TTFT 2 s")).investigation == cli.root / "why-is-ttft-2-s-2"
    back = switched(settings, Switch(path=str(cli.root / "a")))
    assert (back.investigation, back.origin["investigation"]) == (cli.root / "a", "opened")
    assert cli.in_force[0] == cli.root / "a"


def test_a_folder_whose_name_is_not_utf_8_is_opened_and_listed(cli: Cli, tmp_path: Path) -> None:
    folder = tmp_path / os.fsdecode(b"inv\xff")
    assert main(["todo", "--investigation", str(folder), "add", "a"]) == 0
    assert cli("open", str(folder))[0] == 0
    assert cli.in_force == (folder, "opened")
    assert "inv?" in {one["name"] for one in cli.found("list")}


def test_what_a_newer_decodetop_wrote_is_read_and_never_overwritten(cli: Cli, tmp_path: Path) -> None:
    cli("new", "a")
    note, question = cli.root / ".opened.json", cli.root / "b" / "investigation.json"
    question.parent.mkdir()
    note.write_text(json.dumps({"schema": 2, "folder": str(cli.root / "a"), "more": 1}))
    question.write_text('{"schema": 2, "question": "later?"}')
    before = note.read_bytes(), question.read_bytes()
    assert cli.in_force == (cli.root / "a", "opened") and cli.found("list", "--all")[0]["question"] == "later?"
    for argv, schema in ((("open", "b"), note), (("archive", "b"), question)):
        code, _, err = cli(*argv)
        assert code == 1 and f"{schema} has schema 2" in err and "leaves it alone" in err and "hint: " in err
    assert (note.read_bytes(), question.read_bytes()) == before


@pytest.mark.parametrize("name", ["~nobody-of-that-name/x", "n" * 300, "a/" + "n" * 300])
def test_names_that_can_not_be_folders(cli: Cli, name: str) -> None:
    for verb in ("new", "open", "archive"):
        code, _, err = cli(verb, name)
        assert code in (1, 2) and err.startswith("decodetop: ") and "Traceback" not in err


@pytest.mark.parametrize("kept", ["[]", "5", '{"folder": 5}', '{"folder": "a\\u0000b"}', "{", ""])
def test_what_says_which_one_is_open_may_be_damaged(cli: Cli, kept: str) -> None:
    cli.root.mkdir(parents=True)
    (cli.root / ".opened.json").write_text(kept)
    assert cli.in_force == (cli.root / "default", "default")
