"""The journal of a server's unit and its state, through a journalctl and a systemctl of ours on PATH."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from decodetop.server.journal import AGAIN_S, HEAD_S, STATE_S, Journal, Unit, unit_state
from decodetop.server.logfile import GROWN_BYTES, HEAD_BYTES
from decodetop.server.probe import ServerProbe
from decodetop.server.reading import Server
from support.clock import ManualClock
from support.engine_replay import EngineReplay, recorded
from support.fake_proc import FakeProc

Make = Callable[..., ServerProbe]
Command = Callable[[str, str], None]

UNIT = Unit(name="sglang.service")
LINE = "Decode batch, #running-req: 2, token usage: 0.01, gen throughput (token/s): 99.5, #queue-req: 1"


@pytest.fixture
def command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Command:
    """Makes a shell script of a name on PATH. `$ASKED` holds the arguments of every call."""
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setenv("ASKED", str(tmp_path / "asked"))

    def make(name: str, body: str) -> None:
        path = tmp_path / name
        path.write_text(f'#!/bin/sh\necho "{name} $*" >> "$ASKED"\n{body}\n')
        path.chmod(0o755)

    return make


def asked(tmp_path: Path) -> list[str]:
    return (tmp_path / "asked").read_text().splitlines()


async def grown(journal: Journal) -> str:
    """What comes next: the child writes when it likes."""
    async with asyncio.timeout(10):
        while not (text := await journal.grown()):
            await asyncio.sleep(0)
    return text


async def test_a_journal_is_followed_and_its_child_ends_with_us(
    command: Command, clock: ManualClock, tmp_path: Path
) -> None:
    pid, more = tmp_path / "pid", tmp_path / "more"
    os.mkfifo(more)
    command("journalctl", f"echo $$ > {pid}; echo first; cat {more}; exec sleep 600")
    journal = Journal(UNIT, 1_700_000_000.5, clock)
    assert await journal.grown() == "", "nothing the first time"
    assert await grown(journal) == "first\n"
    await asyncio.to_thread(more.write_text, "second\n")
    assert await grown(journal) == "second\n"
    await journal.close()
    with pytest.raises(ProcessLookupError):
        os.kill(int(pid.read_text()), 0)
    assert asked(tmp_path) == ["journalctl -u sglang.service -o cat --no-pager -f -n 0"]


async def test_what_a_journal_pours_out_is_bounded(command: Command, clock: ManualClock, tmp_path: Path) -> None:
    command("journalctl", f"head -c {GROWN_BYTES * 4} /dev/zero; echo; echo end; touch {tmp_path / 'done'}")
    journal = Journal(UNIT, 0, clock)
    await journal.grown()
    assert journal._reader is not None
    await journal._reader
    text = await journal.grown()
    assert len(text) == GROWN_BYTES and text.endswith("end\n")
    command("journalctl", "exec cat /dev/zero")
    assert len(await journal.head()) == HEAD_BYTES, "and the beginning is"
    await journal.close()


async def test_a_journal_that_ended_is_followed_again_later(
    command: Command, clock: ManualClock, tmp_path: Path
) -> None:
    command("journalctl", "echo one")
    journal = Journal(Unit(name="vllm.service", of_user=True), 0, clock)
    await journal.grown()
    assert await grown(journal) == "one\n"
    assert journal._reader is not None
    await journal._reader
    assert await journal.grown() == ""
    assert journal.trouble == "journalctl ended by itself"
    assert len(asked(tmp_path)) == 1, "not each second"
    await clock.advance(AGAIN_S)
    await journal.grown()
    assert await grown(journal) == "one\n"
    assert asked(tmp_path) == 2 * ["journalctl --user -u vllm.service -o cat --no-pager -f -n 0"]
    await journal.close()


FORBIDDEN = "No journal files were opened due to insufficient permissions."


@pytest.mark.parametrize(
    ("body", "why"),
    [
        (f"echo '{FORBIDDEN}' >&2; exit 1", FORBIDDEN),
        ("echo 'Hint: You are not seeing messages of --api-key=planted-1' >&2; exit 1", "messages of --api-key=***"),
        ("printf 'No \\033[31mjournal\\n' >&2; exit 1", "No [31mjournal"),
        ("exit 1", "journalctl ended by itself"),
    ],
)
async def test_a_journal_that_may_not_be_read_says_so(
    command: Command, clock: ManualClock, body: str, why: str
) -> None:
    command("journalctl", body)
    journal = Journal(UNIT, 0, clock)
    assert await journal.grown() == ""
    assert journal._reader is not None
    await journal._reader
    assert await journal.grown() == "" and journal.trouble is not None and why in journal.trouble
    if "ended" not in why:
        assert await journal.head() == "" and why in journal.trouble
    await journal.close()


async def test_a_box_without_journalctl_says_so(clock: ManualClock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nonexistent")
    journal = Journal(UNIT, 0, clock)
    assert await journal.grown() == "" and journal.trouble == "journalctl can't be run here"
    assert await journal.head() == "" and "is not here or did not answer within 5 s" in journal.trouble
    await journal.close()


async def test_the_pane_s_reasons_name_the_journal(command: Command, make_probe: Make) -> None:
    command("journalctl", f"echo '{FORBIDDEN}' >&2; exit 1")
    command("systemctl", "echo active")
    async with EngineReplay(recorded("sglang_tp1_graph")) as replay:
        probe = make_probe(discover=True, proc=box(replay.port, "0::/system.slice/sglang.service\n"))
        seen = await until(probe, lambda server: FORBIDDEN in server.reasons.get("running", ""))
        assert seen.reasons["running"] == f"started without --enable-metrics; its log can't be read: {FORBIDDEN}"
        seen = await until(probe, lambda server: server.log is None and "log" in server.reasons)
        assert seen.reasons["log"] == f"the journal of sglang.service: {FORBIDDEN}"


async def test_the_beginning_of_a_journal_is_that_of_this_start(
    command: Command, clock: ManualClock, tmp_path: Path
) -> None:
    command("journalctl", "echo started")
    journal = Journal(UNIT, 1_700_000_000.5, clock)
    assert await journal.head() == "started\n"
    assert asked(tmp_path) == ["journalctl -u sglang.service -o cat --no-pager --since @1700000000"]
    command("journalctl", "exec sleep 600")
    late = asyncio.ensure_future(journal.head())
    while len(asked(tmp_path)) < 2:
        await asyncio.sleep(0)
    await clock.advance(HEAD_S)
    assert await late == ""
    await journal.close()


@pytest.mark.parametrize(
    ("body", "state", "why"),
    [
        ("echo active", "active", ""),
        ("echo failed; exit 3", "failed", ""),
        ("echo inactive; exit 4", "inactive", ""),
        ("echo 'Failed to connect to bus' >&2; exit 1", None, "systemctl did not say"),
        ("printf '\\033[31mx'", None, "systemctl did not say"),
    ],
)
async def test_the_state_of_a_unit(
    command: Command, clock: ManualClock, body: str, state: str | None, why: str
) -> None:
    command("systemctl", body)
    assert await unit_state(UNIT, clock) == (state, why)


async def test_a_systemd_that_hangs_or_is_not_there(
    command: Command, clock: ManualClock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    command("systemctl", "exec sleep 600")
    late = asyncio.ensure_future(unit_state(UNIT, clock))
    while not (tmp_path / "asked").exists():
        await asyncio.sleep(0)
    await clock.advance(STATE_S)
    state, why = await late
    assert state is None and "did not answer within 2 s" in why
    monkeypatch.setenv("PATH", "/nonexistent")
    assert (await unit_state(UNIT, clock))[0] is None


def box(port: int, cgroup: str) -> FakeProc:
    found = FakeProc()
    found.add(729, "python3", "-m", "sglang.launch_server", "--port", str(port), listen=[("127.0.0.1", port)])
    found.cgroups[729] = cgroup
    return found


async def until(probe: ServerProbe, good: Callable[[Server], bool]) -> Server:
    async with asyncio.timeout(10):
        while not good(server := (await probe.read()).servers[0]):
            await asyncio.sleep(0)
    return server


async def test_sglang_in_a_unit_is_read_by_its_journal(
    command: Command, make_probe: Make, clock: ManualClock, tmp_path: Path
) -> None:
    command("journalctl", f"echo '{LINE}'; echo '{LINE}'; exec sleep 600")
    command("systemctl", "echo active")
    async with EngineReplay(recorded("sglang_tp1_graph")) as replay:
        probe = make_probe(discover=True, proc=box(replay.port, "0::/system.slice/sglang.service\n"))
        seen = await until(probe, lambda server: server.running is not None and server.unit_state is not None)
        assert (seen.unit, seen.unit_state, seen.running, seen.generated_tok_s) == ("sglang.service", "active", 2, 99.5)
        assert "journalctl -u sglang.service -o cat --no-pager -f -n 0" in asked(tmp_path)
        await clock.advance(16.0)
        assert (await until(probe, lambda server: server.running is None)).status == "up"


async def test_a_server_started_by_hand_asks_systemd_nothing(
    command: Command, make_probe: Make, tmp_path: Path
) -> None:
    command("journalctl", "exit 1")
    command("systemctl", "exit 1")
    async with EngineReplay(recorded("sglang_tp1_graph")) as replay:
        probe = make_probe(discover=True, proc=box(replay.port, "0::/user.slice/session-3.scope\n"))
        (server,) = (await probe.read()).servers
    assert (server.unit_state, server.reasons["unit_state"]) == (None, "started by hand, by no unit")
    assert not (tmp_path / "asked").exists()


async def test_a_server_that_ended_says_what_became_of_its_unit(
    command: Command, make_probe: Make, clock: ManualClock
) -> None:
    command("journalctl", "exec sleep 600")
    command("systemctl", "echo failed; exit 3")
    async with EngineReplay(recorded("sglang_tp1_graph")) as replay:
        proc = box(replay.port, "0::/system.slice/sglang.service\n")
        probe = make_probe(discover=True, proc=proc)
        await until(probe, lambda server: server.unit_state == "failed")
    proc.remove(729)
    for _ in range(3):
        await clock.advance(11.0)
        await probe.read()
    message = "its process has ended; sglang.service is failed"
    assert (await until(probe, lambda server: server.status_message == message)).status == "down"


async def test_a_log_that_was_named_goes_before_all_others(
    command: Command, make_probe: Make, clock: ManualClock, tmp_path: Path
) -> None:
    command("journalctl", "exit 1")
    command("systemctl", "echo active")
    path = tmp_path / "named.log"
    path.write_text("")
    async with EngineReplay(recorded("sglang_tp1_graph")) as replay:
        proc = box(replay.port, "0::/system.slice/sglang.service\n")
        probe = make_probe(discover=True, proc=proc, log=path)
        await probe.read()
        path.write_text(f"{LINE}\n{LINE}\n")
        await clock.advance(1.0)
        (server,) = (await probe.read()).servers
    assert server.running == 2
    assert not any("-f" in line.split() for line in asked(tmp_path))
