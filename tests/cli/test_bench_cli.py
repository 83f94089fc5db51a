"""`decodetop bench` as a process: what it prints, where, and how it ends."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import sqlite3
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NamedTuple

import psutil
import pytest

from decodetop.bench.store import FILE, RunStore
from decodetop.cli import main
from support.token_server import HEAD, Break, Seen, Step, TokenServer, Wait, chunk, completions, event, reply

FAST = ("--streams", "2", "--requests", "4", "--input-tokens", "16", "--output-tokens", "6", "--warmup", "2")


class Ended(NamedTuple):
    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


async def start(tmp_path: Path, *argv: str, env: dict[str, str] | None = None) -> asyncio.subprocess.Process:
    config = tmp_path / "config.toml"
    config.write_text("")
    common = ("--investigation", str(tmp_path / "investigation"), "--config", str(config))
    return await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "decodetop",
        "bench",
        *argv,
        *common,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env={**os.environ, **(env or {})},
    )


async def ended(process: asyncio.subprocess.Process) -> Ended:
    out, err = await process.communicate()
    assert process.returncode is not None
    return Ended(process.returncode, out.decode(), err.decode())


class Here:
    """The command in this process, for what starts nothing."""

    def __init__(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        config = tmp_path / "config.toml"
        config.write_text("")
        self._common = ["--investigation", str(tmp_path / "investigation"), "--config", str(config)]
        self._capsys = capsys

    def __call__(self, *argv: str) -> Ended:
        code = main(["bench", *argv, *self._common])
        return Ended(code, *self._capsys.readouterr())


@pytest.fixture
def here(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Here:
    return Here(tmp_path, capsys)


async def bench(tmp_path: Path, *argv: str, env: dict[str, str] | None = None) -> Ended:
    return await ended(await start(tmp_path, *argv, env=env))


async def run(tmp_path: Path, script: Callable[[Seen], Iterable[Step]], *argv: str) -> Ended:
    async with TokenServer(script) as server:
        return await bench(tmp_path, "run", *argv, "--endpoint", server.url)


def steady(seen: Seen) -> list[Step]:
    return completions(seen, ttft_s=0.02, itl_s=0.005)


async def test_one_run_as_json_is_the_contract(tmp_path: Path) -> None:
    done = await run(tmp_path, steady, "single", *FAST, "--json")
    assert (done.code, done.err) == (0, "")
    found = done.json
    assert {"schema", "valid", "gates", "plan", "environment", "requests", "tokens", "metrics", "client"} <= set(found)
    assert (found["schema"], found["valid"], found["id"]) == (1, True, 1)
    assert found["requests"] == {"ok": 4, "failed": 0, "errors": []}
    assert found["tokens"] == {"output": 24, "prompt": 64, "cached": None, "source": "usage"}
    metrics = {"ttft_ms", "itl_ms", "icl_ms", "tpot_ms", "e2e_ms", "output_tok_s", "request_s", "accept_length"}
    assert metrics <= set(found["metrics"])
    assert set(found["metrics"]["ttft_ms"]) == {"n", "mean", "p50", "p90", "p99"}
    assert set(found["client"]) == {"loop_lag_ms_p99", "cpu_percent", "send_delay_ms_p99"}
    assert (found["plan"]["streams"], found["plan"]["output_tokens"], found["plan"]["model"]) == (2, 6, "tiny")
    assert found["metrics"]["ttft_ms"]["mean"] >= 20


async def test_plain_output_and_the_list(tmp_path: Path, here: Here) -> None:
    done = await run(tmp_path, steady, *FAST)
    assert done.code == 0 and done.err == ""
    assert "single: 2 streams, 16 in, 6 out, 4 requests, completions" in done.out
    assert "4 ok, 0 failed" in done.out and "TPOT" in done.out
    listed = here("list")
    assert listed.code == 0 and "#1" in listed.out.splitlines()[1]
    assert (here("baseline", "1")).code == 0
    assert (here("list", "--json")).json["baseline_id"] == 1
    exported = here("export", "--format", "csv")
    assert exported.code == 0 and exported.out.splitlines()[1].startswith("1,")
    shown = here("show", "1", "--json")
    assert shown.json["id"] == 1
    missing = here("show", "7")
    assert missing.code == 1 and "no run 7" in missing.err and "hint: " in missing.err


async def test_a_sweep_prints_its_runs(tmp_path: Path, here: Here) -> None:
    folder = tmp_path / "investigation"
    folder.mkdir()
    (folder / "presets.toml").write_text(
        "[steps]\nstreams = [1, 3]\nrequests_per_stream = 1\ninput_tokens = 8\noutput_tokens = 4\n"
    )
    done = await run(tmp_path, steady, "steps", "--json")
    assert done.code == 0 and set(done.json) == {"schema", "runs", "definitions"}
    assert [one["plan"]["streams"] for one in done.json["runs"]] == [1, 3]
    assert "steps" in here("presets").out


async def test_failed_requests_are_in_the_json_and_in_the_exit_code(tmp_path: Path) -> None:
    posts = 0

    def script(seen: Seen) -> Iterable[Step]:
        nonlocal posts
        posts += seen.method == "POST"
        if posts > 4:  # the trial, two of warm-up and one measured are answered
            return [HEAD, chunk(event({"error": {"message": "CUDA error"}})), Break()]
        return steady(seen)

    done = await run(tmp_path, script, *FAST, "--json")
    assert done.code == 1
    assert done.json["requests"]["errors"] == [{"kind": "stream_error", "count": 3, "example": "CUDA error"}]
    assert (done.json["requests"]["ok"], done.json["valid"]) == (1, False)


async def test_nothing_succeeded_is_a_line_a_hint_and_json(tmp_path: Path) -> None:
    def script(seen: Seen) -> Iterable[Step]:
        return [HEAD, Wait(30)] if seen.method == "POST" else steady(seen)

    done = await run(tmp_path, script, *FAST, "--timeout-s", "0.3", "--json")
    assert done.code == 1
    assert done.json["requests"]["failed"] == 4 and done.json["metrics"]["ttft_ms"] is None
    assert done.json["valid"] is False
    line, hint = done.err.strip().splitlines()
    assert "no request succeeded: 4 x timeout" in line and "--timeout-s" in hint


REFUSED: dict[str, tuple[bytes, str, str]] = {
    "401": (reply("401 Unauthorized", b'{"error":"no key"}'), "401: no key", "DECODETOP_API_KEY"),
    "a web page": (
        reply("200 OK", b"<html></html>", "text/html"),
        ": the answer is text/html, not an",
        "no inference server",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
async def test_no_server_to_measure_is_a_line_a_hint_and_json(tmp_path: Path, here: Here, name: str) -> None:
    answer, words, hint = REFUSED[name]
    done = await run(tmp_path, lambda _: [answer], "--json")
    assert done.code == 1
    first, second = done.err.strip().splitlines()
    assert words in first and second.startswith("  hint: ") and hint in second
    assert done.json["valid"] is False and done.json["requests"]["failed"] == 1
    assert not here("list", "--json").json["runs"]


async def test_an_endpoint_that_is_down(tmp_path: Path) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{free.getsockname()[1]}"
        done = await bench(tmp_path, "run", "--endpoint", url)
    assert (done.code, done.out) == (1, "")
    assert "can't connect" in done.err and "hint: " in done.err and "Traceback" not in done.err


async def test_ctrl_c_keeps_what_finished(tmp_path: Path, here: Here) -> None:
    posts = 0
    reached = asyncio.Event()

    def script(seen: Seen) -> Iterable[Step]:
        nonlocal posts
        posts += seen.method == "POST"
        if posts > 5:  # the trial, two of warm-up, two measured: now both streams hang
            if posts > 6:
                reached.set()
            return [*steady(seen)[:3], Wait(60)]
        return steady(seen)

    async with TokenServer(script) as server:
        process = await start(tmp_path, "run", "--endpoint", server.url, *FAST, "--requests", "50", "--json")
        await asyncio.wait_for(reached.wait(), 60)
        process.send_signal(signal.SIGINT)
        done = await asyncio.wait_for(ended(process), 60)
    assert done.code == 130
    assert (done.json["partial"], done.json["requests"]["ok"]) == (True, 2)
    assert here("list", "--json").json["runs"][0]["partial"] is True


KEY = "sk-cli-secret-0123456789"


async def test_the_key_from_the_environment_is_sent_and_nowhere_shown(tmp_path: Path) -> None:
    keys = set()

    def script(seen: Seen) -> Iterable[Step]:
        if seen.method == "POST":
            keys.add(seen.headers.get("authorization"))
        return steady(seen)

    async with TokenServer(script) as server:
        env = {"DECODETOP_API_KEY": KEY}
        done = await bench(tmp_path, "run", "--endpoint", server.url, *FAST, "--json", env=env)
    assert done.code == 0 and keys == {f"Bearer {KEY}"}
    assert KEY not in done.out + done.err
    kept = b"".join(path.read_bytes() for path in (tmp_path / "investigation").iterdir())
    assert KEY.encode() not in kept


def test_usage_errors(here: Here) -> None:
    cases = [
        (("run", "--endpoint", "http://127.0.0.1:1", "--streams", "0"), "--streams 0"),
        (("run", "dubbel", "--endpoint", "http://127.0.0.1:1"), "no preset 'dubbel'"),
        (("run", "--endpoint", "http://127.0.0.1:1", "--readonly"), "--readonly"),
        (("baseline", "x"), "no run's number"),
        (("baseline", "²"), "no run's number"),
        (("show", "9" * 40), "no run's number"),
        (("show", "-1"), "no run's number"),
        (("list", "--last", "9" * 40), "no run's number"),
        (("compare", "²", "1"), "no run's number"),
        (("compare", "9" * 40, "1"), "no run's number"),
        (("compare", "1", "2", "--threshold", "nan"), "nan"),
        (("compare", "1", "2", "--effect", "inf"), "inf"),
        (("run", "--endpoint", "http://127.0.0.1:1", "--temperature", "nan"), "nan"),
        (("run", "--endpoint", "http://127.0.0.1:1", "--slo", "ttft=nan"), "--slo"),
        (("run", "--endpoint", "http://127.0.0.1:1", "--input-tokens", "9" * 12), "--input-tokens"),
        (("run", "--endpoint", "http://127.0.0.1:1", "--requests", "9" * 12), "--requests"),
    ]
    for argv, words in cases:
        try:
            done = here(*argv)
        except SystemExit as left:  # argparse's own refusal
            assert left.code == 2, argv
            continue
        assert (done.code, done.out) == (2, "") and words in done.err


async def test_a_store_that_can_not_be_used_does_not_lose_the_result(tmp_path: Path) -> None:
    (tmp_path / "investigation").write_text("in the way")
    done = await run(tmp_path, steady, *FAST, "--json")
    assert done.code == 0 and done.json["requests"]["ok"] == 4 and done.json["id"] is None
    assert "not stored" in done.err


async def test_a_run_of_a_given_time(tmp_path: Path) -> None:
    shape = ("--streams", "2", "--input-tokens", "8", "--output-tokens", "4", "--warmup", "1", "--duration-s", "0.5")
    done = await run(tmp_path, steady, *shape, "--json")
    assert done.code == 0, done.err
    assert done.json["plan"]["duration_s"] == 0.5 and done.json["requests"]["ok"] >= 2
    assert done.json["valid"] and {gate["name"] for gate in done.json["gates"]}.isdisjoint({"given_up", "partial"})


async def test_a_damaged_store_does_not_lose_the_result(tmp_path: Path, here: Here) -> None:
    folder = tmp_path / "investigation"
    RunStore(folder).close()
    with sqlite3.connect(folder / FILE) as raw:
        raw.execute("DROP TABLE runs")
    raw.close()
    done = await run(tmp_path, steady, *FAST)
    assert done.code == 0 and "4 ok, 0 failed" in done.out
    line, hint = done.err.splitlines()
    assert "not stored" in line and FILE in line and "move it away" in hint
    listed = here("list")
    assert listed.code == 1 and FILE in listed.err and "hint: " in listed.err


async def test_runs_that_can_not_be_read_are_counted(tmp_path: Path, here: Here) -> None:
    done = await run(tmp_path, steady, *FAST)
    assert done.err == ""
    raw = sqlite3.connect(tmp_path / "investigation" / FILE)
    raw.execute("INSERT INTO runs (started_wall_ns, preset, endpoint, streams, valid, json) VALUES (1,'x','y',1,1,'{')")
    raw.commit()
    raw.close()
    listed = here("list")
    assert listed.code == 0 and "#1" in listed.out and "1 stored run can't be read" in listed.err
    done = await run(tmp_path, steady, *FAST, "--json")
    assert (done.code, done.err, done.json["id"]) == (0, "", 3)


def hanging_after(count: int, reached: asyncio.Event) -> Callable[[Seen], Iterable[Step]]:
    """Answers `count` posts; the next hang."""
    posts = 0

    def script(seen: Seen) -> Iterable[Step]:
        nonlocal posts
        posts += seen.method == "POST"
        if posts <= count:
            return steady(seen)
        if posts > count + 1:
            reached.set()
        return [*steady(seen)[:3], Wait(60)]

    return script


async def test_a_killed_load_process_leaves_figures_and_a_line(tmp_path: Path, here: Here) -> None:
    reached = asyncio.Event()
    async with TokenServer(hanging_after(5, reached)) as server:  # the trial, two of warm-up, two measured
        process = await start(tmp_path, "run", "--endpoint", server.url, *FAST, "--requests", "50", "--json")
        await asyncio.wait_for(reached.wait(), 60)
        (worker,) = psutil.Process(process.pid).children()
        worker.kill()
        done = await asyncio.wait_for(ended(process), 60)
    assert (done.code, done.json["requests"]["ok"], done.json["partial"]) == (1, 2, True)
    line, hint = done.err.splitlines()
    assert "signal 9" in line and "2 of 50 requests" in line and "run it again" in hint
    assert here("list", "--json").json["runs"][0]["requests"]["ok"] == 2


async def test_a_hangup_that_nohup_ignores_ends_nothing(tmp_path: Path) -> None:
    reached = asyncio.Event()
    async with TokenServer(hanging_after(5, reached)) as server:
        before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
        try:
            process = await start(tmp_path, "run", "--endpoint", server.url, *FAST, "--requests", "50", "--json")
        finally:
            signal.signal(signal.SIGHUP, before)
        await asyncio.wait_for(reached.wait(), 60)
        process.send_signal(signal.SIGHUP)
        process.send_signal(signal.SIGWINCH)  # delivered after it
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(asyncio.shield(process.wait()), 1.0)
        process.send_signal(signal.SIGTERM)
        done = await asyncio.wait_for(ended(process), 60)
    assert done.code == 130 and done.json["requests"]["ok"] == 2


@pytest.mark.parametrize("key", ["sk-clé-0123456789", "sk-a b-0123456789"])
async def test_a_key_that_can_not_be_sent_is_a_line(tmp_path: Path, key: str) -> None:
    async with TokenServer(steady) as server:
        done = await bench(tmp_path, "run", "--endpoint", server.url, *FAST, env={"DECODETOP_API_KEY": key})
    assert done.code in (1, 2) and "Traceback" not in done.err and key not in done.err
    assert "key" in done.err and "hint: " in done.err


async def test_real_prompts_at_a_rate_with_an_slo(tmp_path: Path) -> None:
    prompts = tmp_path / "prompts.jsonl"
    prompts.write_text("".join(json.dumps({"prompt": f"tell me of {n}"}) + "\n" for n in range(5)))
    shape = ("--prompts", str(prompts), "--rate", "50", "--slo", "ttft=5000,tpot=5000", "--output-tokens", "4")
    got: list[Any] = []

    def script(seen: Seen) -> list[Step]:
        if seen.method == "POST":
            got.append(seen.body["prompt"])
        return steady(seen)

    done = await run(tmp_path, script, *shape, "--json")
    assert done.code == 0, done.err
    assert done.json["requests"]["ok"] == 5 and done.json["plan"]["request_rate_s"] == 50
    assert sorted(prompt for prompt in got if isinstance(prompt, str)) == [f"tell me of {n}" for n in range(5)]
    assert done.json["metrics"]["goodput_request_s"] == pytest.approx(done.json["metrics"]["request_s"])
    wrong = await run(tmp_path, script, "--prompts", str(tmp_path / "none"))
    assert wrong.code == 1 and "can't read" in wrong.err and "hint: " in wrong.err
