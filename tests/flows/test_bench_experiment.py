"""Experiments: the order of things, what fails, and that the original server always comes back."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import psutil
import pytest

from decodetop.bench.experiment import Experiment, Outcome, Variant, lines, order, parse, plan_lines
from decodetop.bench.reading import Run
from decodetop.errors import ConfigError, DataError, RequestError
from decodetop.flows.bench_experiment import Experimenter
from decodetop.flows.bench_variant import OVERRIDE, CommandStage, UnitStage, call, tail
from support import states
from support.clock import ManualClock, settle

FILE = """
endpoint = "http://127.0.0.1:30000"
rounds = 2
[variants.base]
argv = ["server", "--graphs"]
[variants.nograph]
argv = ["server", "--no-graphs"]
env = { TOKEN = "secret" }
"""
TWO = parse(FILE, "x.toml")


def test_the_file() -> None:
    assert (TWO.base, TWO.rounds, TWO.preset) == ("base", 2, "single")
    text = plan_lines(TWO, order(TWO, 5))
    assert "base (base): server --graphs" in text and "nograph: TOKEN=… server --no-graphs" in text
    assert not any("secret" in line for line in text)


BAD = {
    "no TOML": "[",
    "one variant": 'endpoint = "x"\n[variants.a]\nargv = ["x"]',
    "a misspelled key": FILE + "[variant.c]\nargv = ['x']",
    "no argv": FILE + "[variants.c]\noverride = ['x']",
    "argv with a unit": FILE.replace("rounds", 'unit = "sglang"\nrounds'),
    "no rounds": FILE.replace("rounds = 2", "rounds = 0"),
    "rounds without end": FILE.replace("rounds = 2", "rounds = 1000000000"),
    "a time that is no number": FILE.replace("rounds = 2", "healthy_s = nan"),
    "a time without end": FILE.replace("rounds = 2", "stop_s = inf"),
    "a threshold that is no number": FILE.replace("rounds = 2", "threshold_percent = nan"),
    "no way back": "original = { stop = ['down'], start = [] }" + FILE,
    "no way there": "original = { stop = [], start = ['up'] }" + FILE,
    "an argument no process takes": FILE.replace("--graphs", "\\u0000"),
    "a variable no process takes": FILE.replace("TOKEN =", "'A=B' ="),
    "a way back no process takes": "original = { stop = ['down'], start = [\"up\\u0000\"] }" + FILE,
    "a unit that is an option": "unit = '--help'" + FILE.replace("argv", "override"),
    "a unit somewhere else": "unit = '../x'" + FILE.replace("argv", "override"),
    "two lines in one of a unit": "unit = 'x'" + FILE.replace("argv", "override").replace("--graphs", "a\\nb"),
}


@pytest.mark.parametrize("name", BAD)
def test_a_wrong_file_is_named(name: str) -> None:
    with pytest.raises(ConfigError, match=r"x\.toml"):
        parse(BAD[name], "x.toml")


def test_every_variant_starts_once_a_round_in_random_order() -> None:
    starts = order(TWO, 1)
    assert starts == order(TWO, 1)
    assert [number for number, _ in starts] == [1, 1, 2, 2]
    assert {name for _, name in starts[:2]} == {name for _, name in starts[2:]} == {"base", "nograph"}
    assert len({tuple(order(TWO, seed)) for seed in range(20)}) == 4


class Box:
    """A stage on which nothing is real: what was done, in order; starts may fail."""

    def __init__(self, experiment: Experiment = TWO, fails: dict[str, str] | None = None) -> None:
        self.done: list[str] = []
        self.clock = ManualClock()
        self.up = False
        self.hang = False
        self.fails = fails or {}
        self.experiment = experiment
        self.current = ""
        self.stop = asyncio.Event()
        self.broken_way_back = False
        self.comes_back: bool | None = None

    async def clear(self) -> None:
        self.done.append("clear")
        if self.comes_back is not None:
            self.up = False

    async def start(self, variant: Variant, log: Path) -> None:
        self.current = next(name for name, one in self.experiment.variants.items() if one is variant)
        self.done.append(f"start {self.current}")
        log.write_text("loading\nAssertionError: page_size == 64\n")
        if self.fails.get(self.current) == "raises":
            raise DataError("can't run server: No such file", "check the argv")
        self.up = self.current not in self.fails

    async def ended(self) -> str | None:
        return "it ended with exit code 1" if self.fails.get(self.current) == "ends" else None

    async def stop_server(self) -> None:
        self.done.append("stop")
        self.up = self.hang

    async def restore(self) -> str:
        self.done.append("restore")
        if self.broken_way_back:
            raise RequestError("systemctl restart failed", "look at the journal")
        self.up = bool(self.comes_back)
        return "back"

    async def answers(self) -> bool:
        return self.up

    async def measure(self) -> Run:
        self.done.append("measure")
        slow = self.current == "nograph"
        return states.run(len(self.done), 50.0 if slow else 200.0, 20.0 if slow else 5.0)

    def experimenter(self, tmp_path: Path) -> Experimenter:
        box = self

        class Stage:
            clear, start, ended, restore, stop = box.clear, box.start, box.ended, box.restore, box.stop_server

        return Experimenter(
            self.experiment, Stage(), self.measure, self.answers, self.clock, tmp_path, lambda words: None
        )

    async def run(self, tmp_path: Path, starts: Sequence[tuple[int, str]] = ((1, "base"), (1, "nograph"))) -> Outcome:
        running = asyncio.ensure_future(self.experimenter(tmp_path).run(starts, self.stop))
        while not running.done():
            await self.clock.advance(1.0)
            await settle()
        return await running


async def test_the_order_of_things(tmp_path: Path) -> None:
    box = Box()
    outcome = await box.run(tmp_path, [(1, "nograph"), (1, "base"), (2, "base"), (2, "nograph")])
    assert box.done[:4] == ["clear", "start nograph", "measure", "stop"]
    assert box.done[-1] == "restore" and box.done.count("measure") == 4
    (found,) = outcome.comparisons
    assert (found.a, found.b, found.verdict.word, found.verdict.effect is not None) == (
        "base",
        "nograph",
        "slower",
        True,
    )
    assert [pair.first for pair in found.pairs] == ["b", "a"]
    text = lines(outcome)
    assert text[-1] == "back" and any(line.startswith("nograph against base: slower in output_tok_s") for line in text)


@pytest.mark.parametrize(
    ("comes_back", "words"),
    [(True, "back; it answers again after 0 s"), (False, "back; it does NOT answer after 900 s: look at its log")],
)
async def test_the_original_server_is_waited_for(tmp_path: Path, comes_back: bool, words: str) -> None:
    box = Box()
    box.up, box.comes_back = True, comes_back
    assert (await box.run(tmp_path)).restored == words


@pytest.mark.parametrize(
    ("fault", "words"),
    [("ends", "exit code 1"), ("raises", "can't run server"), ("hangs", "no answer within 900 s")],
)
async def test_a_variant_that_fails_is_kept_with_its_reason_and_the_others_go_on(
    tmp_path: Path, fault: str, words: str
) -> None:
    box = Box(fails={"base": fault})
    outcome = await box.run(tmp_path)
    first, second = outcome.attempts
    assert first.run is None and first.failed is not None and words in first.failed
    assert "its log ends: loading | AssertionError: page_size == 64" in first.failed
    assert second.run is not None and box.done[-1] == "restore"
    assert outcome.comparisons[0].verdict.effect is None


async def test_stopped_by_the_operator(tmp_path: Path) -> None:
    box = Box(fails={"base": "hangs"})
    asyncio.get_running_loop().call_soon(box.stop.set)
    outcome = await box.run(tmp_path)
    assert outcome.stopped and "restore" in box.done and "measure" not in box.done


async def test_a_server_in_the_way_is_said_before_anything_starts(tmp_path: Path) -> None:
    box = Box()
    box.up = box.hang = True
    with pytest.raises(RequestError, match="still answers"):
        await box.run(tmp_path)
    assert box.done == ["clear", "restore"]


async def test_a_way_back_that_fails_is_loud(tmp_path: Path) -> None:
    box = Box()
    box.broken_way_back = True
    with pytest.raises(RequestError, match="the original server is NOT back: systemctl restart failed"):
        await box.run(tmp_path)


async def test_cancelled_puts_back_first(tmp_path: Path) -> None:
    box = Box(fails={"base": "hangs"})
    task = asyncio.ensure_future(box.experimenter(tmp_path).run([(1, "base")], box.stop))
    while "start base" not in box.done:
        await settle()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert box.done[-1] == "restore"


class Calls:
    """Answers for commands, and what was asked."""

    def __init__(self, codes: dict[str, int] | None = None, said: str = "inactive") -> None:
        self.said: list[str] = []
        self.codes = codes or {}
        self.words = said

    async def __call__(self, argv: Sequence[str]) -> tuple[int, str]:
        words = " ".join(argv)
        self.said.append(words)
        return next((code for part, code in self.codes.items() if part in words), 0), self.words


def unit(**changes: Any) -> Experiment:
    variants = {"base": Variant(), "big": Variant(override=("ExecStart=", "ExecStart=/x --big"), env={"A": "1"})}
    return Experiment(endpoint="http://x", variants=variants, unit="sglang", **changes)


async def test_a_unit_is_overridden_and_put_back(tmp_path: Path) -> None:
    calls = Calls({"is-failed": 1})
    stage = UnitStage(unit(), calls, tmp_path)
    await stage.clear()
    await stage.start(unit().variants["big"], tmp_path / "log")
    drop_in = tmp_path / "sglang.service.d" / OVERRIDE
    assert drop_in.read_text() == '[Service]\nExecStart=\nExecStart=/x --big\nEnvironment="A=1"\n'
    assert await stage.ended() is None
    assert "running" in await stage.restore() and not drop_in.exists()
    assert [words.removeprefix("systemctl ") for words in calls.said] == [
        "is-active sglang.service",
        "stop sglang.service",
        "daemon-reload",
        "restart sglang.service",
        "is-failed sglang.service",
        "daemon-reload",
        "restart sglang.service",
    ]


async def test_a_unit_that_did_not_run_is_stopped_again(tmp_path: Path) -> None:
    calls = Calls({"is-active": 3})
    stage = UnitStage(unit(user=True), calls, tmp_path)
    await stage.clear()
    assert await stage.restore() == "sglang.service is back as it was (stopped)"
    assert calls.said[-1] == "systemctl --user stop sglang.service"
    untouched = UnitStage(unit(), Calls(), tmp_path)
    assert "not touched" in await untouched.restore()


async def test_a_unit_that_is_still_starting_comes_back_running(tmp_path: Path) -> None:
    """`is-active` says `activating` and fails then: it was left stopped."""
    calls = Calls({"is-active": 3}, said="activating")
    stage = UnitStage(unit(), calls, tmp_path)
    await stage.clear()
    assert await stage.restore() == "sglang.service is back as it was (running)"


async def test_without_systemd_nothing_is_touched_and_nothing_said_to_be_lost(tmp_path: Path) -> None:
    calls = Calls({"": 1}, said="Failed to connect to bus: Host is down")
    stage = UnitStage(unit(), calls, tmp_path)
    with pytest.raises(RequestError, match=r"is-active sglang\.service failed: Failed to connect"):
        await stage.clear()
    assert "not touched" in await stage.restore()
    stopped = UnitStage(unit(), Calls({"is-active": 4, " stop": 5}), tmp_path)  # no such unit
    with pytest.raises(RequestError, match=r"stop sglang\.service failed"):
        await stopped.clear()
    assert "not touched" in await stopped.restore()


async def test_what_a_variable_holds_stays_in_it_and_is_for_nobody_elses_eyes(tmp_path: Path) -> None:
    variant = Variant(env={"A": 'say "50 %"\\'})
    stage = UnitStage(unit(), Calls(), tmp_path)
    await stage.start(variant, tmp_path / "log")
    drop_in = tmp_path / "sglang.service.d" / OVERRIDE
    assert 'Environment="A=say \\"50 %%\\"\\\\"\n' in drop_in.read_text()
    assert drop_in.stat().st_mode & 0o077 == 0


async def test_a_command_without_the_right_is_said(tmp_path: Path) -> None:
    stage = UnitStage(unit(), Calls({"restart": 1}), tmp_path)
    await stage.clear()
    with pytest.raises(RequestError, match=r"systemctl restart sglang\.service failed: inactive"):
        await stage.start(unit().variants["base"], tmp_path / "log")


STUBBORN = """
import signal, subprocess, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
print("child", child.pid, flush=True)
time.sleep(600)
"""


async def test_a_command_and_all_it_started_are_gone_after_the_stop(tmp_path: Path) -> None:
    argv = (sys.executable, "-c", STUBBORN)
    variants = {"base": Variant(argv=argv, env={"X": "1"}), "other": Variant(argv=argv)}
    stage = CommandStage(Experiment(endpoint="http://x", variants=variants, stop_s=0.3))
    log = tmp_path / "log"
    await stage.clear()
    await stage.start(variants["base"], log)
    async with asyncio.timeout(60):
        while not log.read_text().startswith("child"):
            await asyncio.sleep(0.01)
    child = int(log.read_text().split()[1])
    assert await stage.ended() is None
    await stage.stop()
    assert not psutil.pid_exists(child) or psutil.Process(child).status() == psutil.STATUS_ZOMBIE
    assert "no server was there before" in await stage.restore()


async def test_a_command_that_ends_or_can_not_run(tmp_path: Path) -> None:
    variants = {
        "base": Variant(argv=(sys.executable, "-c", "raise SystemExit(3)")),
        "none": Variant(argv=("/no/such",)),
    }
    stage = CommandStage(Experiment(endpoint="http://x", variants=variants))
    await stage.start(variants["base"], tmp_path / "log")
    async with asyncio.timeout(60):
        while (ended := await stage.ended()) is None:
            await asyncio.sleep(0.01)
    assert ended == "it ended with exit code 3"
    await stage.stop()
    with pytest.raises(DataError, match="can't run /no/such"):
        await stage.start(variants["none"], tmp_path / "log")


async def test_a_command_that_leaves_a_server_in_the_background_has_returned() -> None:
    """`nohup server &` holds the output of the command open for as long as the server lives: that was waited for."""
    server = [sys.executable, "-c", "import time; time.sleep(600)"]
    start = f"import subprocess; print(subprocess.Popen({server!r}).pid, flush=True)"
    async with asyncio.timeout(60):
        code, said = await call([sys.executable, "-c", start])
    assert code == 0
    psutil.Process(int(said)).kill()


async def test_a_variant_of_any_name_has_its_log(tmp_path: Path) -> None:
    name = "../a b/\0" + "c" * 300
    box = Box(Experiment(endpoint="http://x", variants={name: Variant(argv=("x",)), "b": Variant(argv=("y",))}))
    outcome = await box.run(tmp_path, [(1, name)])
    log = Path(outcome.attempts[0].log or "")
    assert log.parent == tmp_path and log.exists() and log.name.startswith("01-.._a_b__ccc") and len(log.name) < 80


async def test_the_original_is_stopped_first_and_started_last(tmp_path: Path) -> None:
    calls = Calls()
    text = FILE.replace("[variants.base]", '[original]\nstop = ["down"]\nstart = ["up"]\n[variants.base]')
    stage = CommandStage(parse(text, "x.toml"), calls)
    assert "not touched" in await stage.restore()
    await stage.clear()
    assert "started again: up" in await stage.restore()
    assert calls.said == ["down", "up"]


async def test_a_key_on_the_way_back_is_not_repeated(tmp_path: Path) -> None:
    text = FILE.replace(
        "[variants.base]",
        '[original]\nstop = ["down"]\nstart = ["up", "--api-key", "sk-secret-12345"]\n[variants.base]',
    )
    stage = CommandStage(parse(text, "x.toml"), Calls())
    await stage.clear()
    assert "sk-secret" not in await stage.restore()
    broken = CommandStage(parse(text, "x.toml"), Calls({"up": 1}))
    await broken.clear()
    with pytest.raises(RequestError, match=r"up --api-key \*\*\* failed"):
        await broken.restore()


def test_the_end_of_a_log(tmp_path: Path) -> None:
    log = tmp_path / "log"
    assert tail(log) == ""
    log.write_text("\n".join(f"line {n}" for n in range(100)))
    assert tail(log).startswith("line 92 | ") and tail(log).endswith("line 99")
