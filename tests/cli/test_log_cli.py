"""`decodetop log`: the timeline from the shell, also of what no decodetop has logged yet."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path

import pytest

from decodetop.bench.store import RunStore
from decodetop.cli import main
from decodetop.core.clock import SECOND_NS, SystemClock
from decodetop.errors import UsageError
from decodetop.log.reading import Entry
from decodetop.log.since import since_ns
from decodetop.log.store import LogStore
from support import states

NOW_NS = int(datetime(2026, 11, 30, 14, 3, tzinfo=UTC).timestamp()) * SECOND_NS
HOUR_NS = 3600 * SECOND_NS


class Cli:
    def __init__(self, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.folder = folder
        self._capsys = capsys

    def __call__(self, *argv: str, command: str = "log") -> tuple[int, str, str]:
        try:
            code = main([command, "--investigation", str(self.folder), *argv])
        except SystemExit as stop:
            code = int(stop.code or 0)
        captured = self._capsys.readouterr()
        return code, captured.out, captured.err


@pytest.fixture
def cli(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Cli:
    return Cli(tmp_path / "inv", capsys)


def test_an_empty_log_is_a_word_and_makes_no_folder(cli: Cli) -> None:
    assert cli() == (0, "nothing happened yet\n", "") and not cli.folder.exists()
    assert cli("--since", "2h")[1] == "nothing happened since 2h\n"


def test_what_the_commands_did_stands_in_it_without_a_screen_ever_open(cli: Cli) -> None:
    cli("add", "Profile decode", "--start", command="todo")
    cli("attempt", "t1", "--outcome", "failed", "--why", "page_size == 64", "--", "--kv", "fp8", command="todo")
    cli("done", "t1", "--why", "one cast", command="todo")
    store = RunStore(cli.folder)
    store.add(states.run(1, 51.7, 19.3))
    store.close()
    assert cli("add", "reloaded", "the", "driver", "api_key=sk-abcdefghij")[0] == 0
    code, out, err = cli("--json")
    found = json.loads(out)
    assert (code, err, found["schema"], found["errors"]) == (0, "", 1, [])
    assert [(entry["kind"], entry["text"]) for entry in found["entries"]] == [
        ("run", found["entries"][0]["text"]),
        ("status", "added, started: Profile decode"),
        ("attempt", "failed: --kv fp8: page_size == 64 (for: Profile decode)"),
        ("status", "done: Profile decode (one cast)"),
        ("note", "reloaded the driver api_key=***"),
    ]
    assert "#1 single" in found["entries"][0]["text"] and "51.7 tok/s" in found["entries"][0]["text"]
    (only,) = json.loads(cli("--json", "--kind", "attempt")[1])["entries"]
    assert only["ref"] == "t1"


def test_since_leaves_out_what_was_before_and_days_have_headings(cli: Cli) -> None:
    now_ns = SystemClock().wall_ns()
    old, new = (Entry(wall_ns=now_ns - hours * HOUR_NS, kind="note", text=f"{hours} h ago") for hours in (72, 1))
    LogStore(cli.folder).append([old, new])
    code, out, _ = cli("--since", "2h")
    assert code == 0 and "1 h ago" in out and "72 h" not in out
    lines = cli()[1].splitlines()
    assert len([line for line in lines if not line.startswith("  ")]) == 2, lines


def test_an_entry_from_outside_moves_no_cursor(cli: Cli) -> None:
    LogStore(cli.folder).append([Entry(wall_ns=0, kind="no\x1b[2Jte", text="a\x1b]0;x\x07b")])
    assert "\x1b" not in cli()[1]


def test_a_broken_store_is_said_and_the_rest_is_shown(cli: Cli) -> None:
    cli("add", "here")
    (cli.folder / "todo.json").write_text("{")
    (cli.folder / "runs.sqlite").write_bytes(b"not a database at all, long enough to be none" * 9)
    (cli.folder / "log.ndjson").open("ab").write(b"junk\n")
    code, out, err = cli()
    assert code == 0 and "here" in out
    assert "todo.json is not a checklist" in err and "runs.sqlite" in err and "1 lines of" in err


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("yesterday", datetime(2026, 11, 29, tzinfo=UTC)),
        ("Today", datetime(2026, 11, 30, tzinfo=UTC)),
        ("2h", datetime(2026, 11, 30, 12, 3, tzinfo=UTC)),
        ("90 min", datetime(2026, 11, 30, 12, 33, tzinfo=UTC)),
        ("1.5d", datetime(2026, 11, 29, 2, 3, tzinfo=UTC)),
        ("2026-11-01", datetime(2026, 11, 1, tzinfo=UTC)),
        ("2026-11-30T13:00", datetime(2026, 11, 30, 13, tzinfo=UTC)),
        ("2026-11-30T13:00+01:00", datetime(2026, 11, 30, 12, tzinfo=UTC)),
    ],
)
def test_since_when(text: str, expected: datetime) -> None:
    assert since_ns(text, NOW_NS) == int(expected.timestamp()) * SECOND_NS


@pytest.mark.parametrize("text", ["", "soon", "2", "h", "2026-13-01", "99999999999d", "-2h"])
def test_what_is_no_time_is_usage(text: str) -> None:
    with pytest.raises(UsageError, match="is no time since when") as caught:
        since_ns(text, NOW_NS)
    assert "yesterday" in caught.value.hint
