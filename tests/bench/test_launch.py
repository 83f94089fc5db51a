"""The load's own process, started for real: its results, its end, and what it agrees on with the server first."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shutil
import signal
import socket
import ssl
import subprocess
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import psutil
import pytest

from decodetop.bench import launch
from decodetop.bench.gates import gates
from decodetop.bench.launch import LoadFailed, environment, run_load, shares
from decodetop.bench.measure import figures
from decodetop.bench.prompts import WORDS
from decodetop.bench.reading import Environment, Plan
from decodetop.bench.wire import Ready, Result, Tick
from support.token_server import MODELS, Seen, Step, TokenServer, Wait, completions, reply


class Heard:
    """A listener that keeps what it was told."""

    def __init__(self) -> None:
        self.ticks: list[Tick] = []
        self.terms: Ready | None = None
        self.under_way = asyncio.Event()

    def tick(self, ticks: Sequence[Tick]) -> None:
        self.ticks = list(ticks)
        if sum(one.done for one in ticks) > 0:
            self.under_way.set()

    async def ready(self, ready: Ready) -> None:
        self.terms = ready


async def asked(server: TokenServer) -> None:
    """Until the first request came."""
    async with asyncio.timeout(60):
        while not server.posts:
            await asyncio.sleep(0.01)


def plan_for(url: str, **changes: Any) -> Plan:
    settings = {"streams": 2, "requests": 4, "input_tokens": 32, "output_tokens": 8, "timeout_s": 30.0, "seed": 7}
    return Plan(preset="t", endpoint=url, **{**settings, **changes})


async def load(
    script: Callable[[Seen], Iterable[Step]], key: str | None = None, **changes: Any
) -> tuple[Result, Ready, list[Seen]]:
    heard = Heard()
    async with TokenServer(script) as server:
        result = await run_load(plan_for(server.url, **changes), key, heard, asyncio.Event())
        assert heard.terms is not None
        return result, heard.terms, server.seen


async def test_a_whole_run() -> None:
    result, terms, seen = await load(lambda one: completions(one, ttft_s=0.05), warmup_requests=3)
    assert [record.index for record in result.records] == [0, 1, 2, 3]
    assert all(record.fault is None and record.output_tokens == 8 for record in result.records)
    assert (result.partial, result.unfinished, result.source, terms.model) == (False, 0, "usage", "tiny")
    assert result.loop_lag_ms_p99 is not None and result.cpu_percent is not None
    posts = [one for one in seen if one.method == "POST"]
    assert len(posts) == 1 + 3 + 4  # the trial, the warm-up, the load
    assert {len(one.body["prompt"]) for one in posts} == {32}
    firsts = [one.body["prompt"][0] for one in posts]
    assert len(set(firsts)) == len(firsts)  # not one token of a prefix in common, warm-up included
    assert {one.body["model"] for one in posts} == {"tiny"}


async def test_the_same_seed_gives_the_same_prompts_and_another_seed_others() -> None:
    def prompts(seen: list[Seen]) -> list[list[int]]:
        return sorted(one.body["prompt"] for one in seen if one.method == "POST")

    first = prompts((await load(completions))[2])
    assert prompts((await load(completions))[2]) == first
    other = prompts((await load(completions, seed=8))[2])
    assert not {tuple(prompt[:16]) for prompt in first} & {tuple(prompt[:16]) for prompt in other}


async def test_several_processes_share_a_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launch, "STREAMS_PER_PROCESS", 2)
    result, _, seen = await load(completions, streams=3, requests=7, warmup_requests=3)
    assert [record.index for record in result.records] == list(range(7))
    measured = [tuple(one.body["prompt"]) for one in seen if one.method == "POST"]
    assert len(measured) == 2 + 3 + 7


def test_shares_add_up() -> None:
    whole = plan_for("http://x", streams=1000, requests=1001, warmup_requests=5)
    jobs = shares(whole)
    assert sum(job.plan.streams for job in jobs) == 1000
    assert sum(job.plan.requests for job in jobs) == 1001
    assert sum(job.plan.warmup_requests for job in jobs) == 5
    taken = [job.first_index + n * job.stride for job in jobs for n in range(job.plan.requests)]
    assert sorted(taken) == list(range(1001))


def slow_after(count: int) -> Callable[[Seen], Iterable[Step]]:
    """Well-behaved for `count` posts, and then never ending."""
    posts = 0

    def script(seen: Seen) -> Iterable[Step]:
        nonlocal posts
        posts += seen.method == "POST"
        steps = completions(seen)
        return steps if posts <= count else [*steps[:2], Wait(60)]

    return script


async def test_stopped_keeps_what_finished() -> None:
    stop, heard = asyncio.Event(), Heard()
    async with TokenServer(slow_after(4)) as server:  # the trial, one warm-up, two measured
        plan = plan_for(server.url, requests=50, warmup_requests=1)
        running = asyncio.ensure_future(run_load(plan, None, heard, stop))
        await asyncio.wait_for(heard.under_way.wait(), 60)
        stop.set()
        result = await running
    assert result.partial and len(result.records) == 2 and result.unfinished == 2
    assert figures(result).requests.ok == 2


async def test_stopped_before_the_load_has_no_records() -> None:
    stop, heard = asyncio.Event(), Heard()
    async with TokenServer(slow_after(0)) as server:
        running = asyncio.ensure_future(run_load(plan_for(server.url), None, heard, stop))
        await asked(server)
        stop.set()
        result = await running
    assert result.partial and result.records == [] and heard.terms is None


def load_processes() -> list[psutil.Process]:
    found = []
    for child in psutil.Process().children():
        with contextlib.suppress(psutil.Error):
            if "decodetop.bench.worker" in child.cmdline():
                found.append(child)
    return found


async def test_a_killed_load_process_loses_no_finished_request() -> None:
    heard = Heard()
    async with TokenServer(slow_after(5)) as server:  # the trial, two of warm-up, two measured
        plan = plan_for(server.url, requests=50, warmup_requests=2)
        running = asyncio.ensure_future(run_load(plan, None, heard, asyncio.Event()))
        await asyncio.wait_for(heard.under_way.wait(), 60)
        (child,) = load_processes()
        child.send_signal(signal.SIGKILL)
        result = await running
    assert load_processes() == []
    assert result.partial and result.lost is not None and "by signal 9 before its result" in result.lost
    assert [record.output_tokens for record in result.records] == [8] * len(result.records) != []
    assert result.source == "usage" and figures(result).metrics.tpot_ms is not None


async def test_killed_before_anything_finished_is_a_word() -> None:
    async with TokenServer(slow_after(0)) as server:
        running = asyncio.ensure_future(run_load(plan_for(server.url), None, Heard(), asyncio.Event()))
        await asyncio.wait_for(asked(server), 60)
        (child,) = load_processes()
        child.send_signal(signal.SIGKILL)
        with pytest.raises(LoadFailed, match="by signal 9 before its result") as caught:
            await running
    assert "run it again" in caught.value.hint and load_processes() == []


async def test_of_several_load_processes_one_is_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launch, "STREAMS_PER_PROCESS", 1)
    heard = Heard()
    async with TokenServer(slow_after(8)) as server:  # two trials, two of warm-up, four measured
        running = asyncio.ensure_future(run_load(plan_for(server.url, requests=50), None, heard, asyncio.Event()))
        await asyncio.wait_for(heard.under_way.wait(), 60)
        load_processes()[0].send_signal(signal.SIGKILL)
        result = await running
    assert load_processes() == [] and result.lost is not None and result.partial and result.records


async def test_a_load_process_that_is_held_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    heard = Heard()
    async with TokenServer(slow_after(4)) as server:
        running = asyncio.ensure_future(run_load(plan_for(server.url, requests=50), None, heard, asyncio.Event()))
        await asyncio.wait_for(heard.under_way.wait(), 60)
        (child,) = load_processes()
        child.send_signal(signal.SIGSTOP)
        monkeypatch.setattr(launch, "LOOK_S", 0.01)
        result = await asyncio.wait_for(running, 60)
    assert result.lost is not None and "said nothing" in result.lost and result.records
    assert load_processes() == []


async def test_a_killed_parent_takes_its_load_process_with_it() -> None:
    """Also where the end of stdin would not be seen: here it stays open."""
    code = (
        "import os, subprocess, sys\n"
        "child = subprocess.Popen([sys.executable, '-m', 'decodetop.bench.worker'], stdout=subprocess.DEVNULL)\n"
        "print(child.pid, flush=True)\n"
        "child.wait()\n"
    )
    pipe = asyncio.subprocess.PIPE
    async with TokenServer(slow_after(0)) as server:
        parent = await asyncio.create_subprocess_exec(sys.executable, "-c", code, stdin=pipe, stdout=pipe)
        assert parent.stdin is not None and parent.stdout is not None
        worker = psutil.Process(int(await parent.stdout.readline()))
        job = {"plan": {"preset": "t", "endpoint": server.url}, "parent": parent.pid}
        parent.stdin.write(json.dumps(job).encode() + b"\n")
        await asked(server)
        parent.send_signal(signal.SIGKILL)
        await parent.wait()
        await asyncio.to_thread(psutil.wait_procs, [worker], 30)
        assert not worker.is_running() or worker.status() == psutil.STATUS_ZOMBIE
        parent.stdin.close()


async def test_a_parent_that_died_at_once_is_noticed() -> None:
    job = {"plan": {"preset": "t", "endpoint": "http://127.0.0.1:9"}, "parent": os.getpid() + 1}
    child = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "decodetop.bench.worker", stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE
    )
    out, _ = await asyncio.wait_for(child.communicate(json.dumps(job).encode() + b"\n"), 60)
    assert (child.returncode, out) == (1, b"")


async def test_cancelled_leaves_no_process() -> None:
    heard = Heard()
    async with TokenServer(slow_after(4)) as server:
        running = asyncio.ensure_future(run_load(plan_for(server.url, requests=50), None, heard, asyncio.Event()))
        await asyncio.wait_for(heard.under_way.wait(), 60)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
    assert load_processes() == []


async def test_it_ends_by_itself_when_its_parent_is_gone() -> None:
    async with TokenServer(slow_after(0)) as server:
        job = {"plan": {"preset": "t", "endpoint": server.url}}
        argv = (sys.executable, "-m", "decodetop.bench.worker")
        pipe = asyncio.subprocess.PIPE
        child = await asyncio.create_subprocess_exec(*argv, stdin=pipe, stdout=pipe)
        assert child.stdin is not None
        child.stdin.write(json.dumps(job).encode() + b"\n")
        await asked(server)
        child.stdin.close()
        assert await asyncio.wait_for(child.wait(), 20) == 1
        await child.communicate()


KEY = "sk-very-secret-key-0123456789"


ESCAPES = "\x1b]0;owned\x07\u202egnp.exe"


async def test_what_a_server_says_moves_no_terminal() -> None:
    def script(seen: Seen) -> Iterable[Step]:
        if seen.method == "POST" and seen.asked == 8 and len(seen.body["prompt"]) == 31:
            return [reply("307 Moved", b"", extra=f"location: /{ESCAPES}\r\n")]
        return [reply("400 Bad", ESCAPES.encode(), "text/plain")] if seen.method == "POST" else [MODELS]

    for tokens in (32, 31):
        try:
            result, _, _ = await load(script, input_tokens=tokens)
        except LoadFailed as error:
            said = [str(error)]
        else:
            said = [record.message for record in result.records]
        assert said and all(word.isprintable() for word in said)


def guarded(seen: Seen) -> Iterable[Step]:
    """Wants the key, and is careless enough to repeat it."""
    given = seen.headers.get("authorization", "none")
    if given != f"Bearer {KEY}":
        words = json.dumps({"error": {"message": f"invalid key: {given}"}}).encode()
        return [reply("401 Unauthorized", words)]
    if seen.method == "POST" and seen.asked == 8 and len(seen.body["prompt"]) == 31:
        return [reply("500 Oops", f"no luck with {KEY}".encode(), "text/plain")]
    return completions(seen)


async def test_the_key_reaches_the_server_and_nothing_else() -> None:
    result, _, _ = await load(guarded, key=KEY)
    assert all(record.fault is None for record in result.records)
    result, _, _ = await load(guarded, key=KEY, input_tokens=31)
    assert {record.message for record in result.records} == {"500: no luck with ***"}
    with pytest.raises(LoadFailed, match="401") as caught:
        await load(guarded, key=KEY[:-1])
    assert KEY[:-1] not in str(caught.value) and "DECODETOP_API_KEY" in caught.value.hint


def test_the_key_goes_by_the_environment_of_the_child_alone() -> None:
    base = {"PATH": "/bin", "DECODETOP_API_KEY": "old"}
    assert environment(base, "new") == {"PATH": "/bin", "DECODETOP_API_KEY": "new"}
    assert environment(base, None) == {"PATH": "/bin"}
    assert "DECODETOP_API_KEY" not in os.environ


async def test_a_key_that_can_not_be_sent() -> None:
    with pytest.raises(LoadFailed, match="line break"):
        await load(completions, key="sk-abc\r\nX-Injected: 1")


async def test_nobody_listens() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{free.getsockname()[1]}"
        with pytest.raises(LoadFailed, match=r"can't connect to http://127\.0\.0\.1:\d+: Connection refused") as caught:
            await run_load(plan_for(url), None, Heard(), asyncio.Event())
    assert caught.value.kind == "cut" and "address" in caught.value.hint


REFUSALS: dict[str, tuple[bytes, str, str]] = {
    "wants a key": (reply("401 Unauthorized", b'{"error":"no key"}'), "401: no key", "DECODETOP_API_KEY"),
    "no such path": (reply("404 Not Found", b'{"detail":"Not Found"}'), "404: Not Found", "--api"),
    "a web page": (reply("200 OK", b"<html>hi</html>", "text/html"), "not an event stream", "no inference server"),
    "not HTTP": (b"220 mail.example ESMTP\r\n\r\n", "not HTTP/1.1", "no inference server"),
    "elsewhere": (reply("307 Moved", b"", extra="location: https://y/\r\n"), "307: to https://y/", "points to"),
}


@pytest.mark.parametrize("name", REFUSALS)
async def test_no_inference_server(name: str) -> None:
    answer, words, hint = REFUSALS[name]
    with pytest.raises(LoadFailed) as caught:
        await load(lambda _: [answer])
    assert words in caught.value.message and hint in caught.value.hint and "\n" not in caught.value.message


def refusing(unwanted: Callable[[dict[str, Any]], bool]) -> Callable[[Seen], Iterable[Step]]:
    """A server that answers 400 to requests with a field it does not know."""

    def script(seen: Seen) -> Iterable[Step]:
        if seen.method == "POST" and unwanted(seen.body):
            return [reply("400 Bad Request", b'{"error":{"message":"unknown field"}}')]
        return completions(seen, continuous="continuous_usage_stats" in str(seen.body.get("stream_options")))

    return script


async def test_extras_a_server_refuses_are_left_out() -> None:
    def options(body: dict[str, Any]) -> Any:
        return body.get("stream_options", {})

    result, terms, _ = await load(refusing(lambda body: "continuous_usage_stats" in options(body)))
    assert (terms.dialect.usage, terms.dialect.continuous) == (True, False)
    assert all(record.chunk_tokens is None and record.output_tokens == 8 for record in result.records)

    _, terms, _ = await load(refusing(lambda body: "stream_options" in body))
    assert (terms.dialect.usage, terms.dialect.token_ids) == (False, True)

    result, terms, seen = await load(refusing(lambda body: isinstance(body["prompt"], list)))
    assert (terms.dialect.token_ids, terms.dialect.usage, terms.dialect.continuous) == (False, True, True)
    assert set(seen[-1].body["prompt"].split()) <= set(WORDS)

    _, terms, _ = await load(refusing(lambda body: "ignore_eos" in body))
    assert (terms.dialect.ignore_eos, terms.dialect.usage) == (False, True)


async def test_what_is_refused_in_any_form_is_counted_as_it_comes() -> None:
    result, terms, _ = await load(refusing(lambda _: True), requests=3, streams=1)
    assert [record.fault for record in result.records] == ["http"] * 3
    assert terms.trouble == "http: 400: unknown field" and terms.dialect.token_ids


async def test_a_minimum_length_is_asked_for_when_ignore_eos_did_not_do() -> None:
    def script(seen: Seen) -> Iterable[Step]:
        if seen.method == "POST" and "min_tokens" not in seen.body:
            seen.body["max_tokens"] = min(3, seen.body["max_tokens"])
        return completions(seen)

    result, terms, seen = await load(script, warmup_requests=2)
    assert terms.dialect.min_tokens and seen[-1].body["min_tokens"] == 8
    assert all(record.fault is None for record in result.records)


async def test_a_time_ends_a_run_and_what_is_under_way_drains() -> None:
    result, _, seen = await load(
        lambda one: completions(one, ttft_s=0.05, itl_s=0.01), duration_s=0.5, requests=1_000_000, warmup_requests=0
    )
    assert not result.partial and result.unfinished == 0
    assert all(record.fault is None and record.output_tokens == 8 for record in result.records)
    begin_ns = min(record.write_ns or 0 for record in result.records)
    late_s = max((record.due_ns - begin_ns) / 1e9 for record in result.records)
    assert 2 <= len(result.records) == len([one for one in seen if one.method == "POST"]) - 1
    assert late_s < 5.0  # a loaded test machine
    metrics = figures(result, duration_s=0.5).metrics
    assert metrics.concurrency is not None and 0 < metrics.concurrency <= 2.0


def slowing(*gaps_s: float) -> Callable[[Seen], Iterable[Step]]:
    """After the trial, one gap between tokens after the other; the last stays."""
    left = [gaps_s[0], *gaps_s]

    def script(seen: Seen) -> Iterable[Step]:
        if seen.method != "POST":
            return completions(seen)
        return completions(seen, itl_s=left.pop(0) if len(left) > 1 else left[0])

    return script


@pytest.mark.parametrize(("gaps_s", "rounds", "steady"), [((0.2, 0.1, 0.1), 3, True), ((0.01, 0.1) * 4, 6, False)])
async def test_warm_up_goes_on_until_the_pace_is_steady(gaps_s: tuple[float, ...], rounds: int, steady: bool) -> None:
    shape = {"streams": 1, "requests": 1, "warmup_requests": 1, "warmup_steady": True}
    result, _, seen = await load(slowing(*gaps_s), **shape)
    posts = len([one for one in seen if one.method == "POST"]) - 2  # the trial, the one measured
    assert rounds <= posts <= 6 if steady else posts == rounds
    assert len(result.records) == 1
    if not steady:
        assert result.unsteady is not None and result.unsteady > 0.05
        plan = plan_for("http://x", **shape)
        found = [
            gate
            for gate in gates(plan, result, figures(result), Environment(decodetop="0"))
            if gate.name == "not_steady"
        ]
        assert [gate.severity for gate in found] == ["info"]


def chatty(per_word: float, overhead: int) -> Callable[[Seen], Iterable[Step]]:
    """A chat server whose template adds `overhead` tokens, and whose tokenizer makes `per_word` of a word."""

    def script(seen: Seen) -> Iterable[Step]:
        if seen.path.endswith("/models"):
            return [MODELS]
        words = len(seen.body["messages"][0]["content"].split())
        seen.body["prompt"] = [0] * (round(words * per_word) + overhead)
        return completions(seen)

    return script


@pytest.mark.parametrize(("per_word", "overhead"), [(1.0, 0), (1.0, 24), (5.0, 12), (1.25, 7)])
async def test_chat_prompts_get_the_asked_length_by_what_the_server_counts(per_word: float, overhead: int) -> None:
    result, terms, seen = await load(chatty(per_word, overhead), api="chat", input_tokens=200)
    assert {record.prompt_tokens for record in result.records} == {terms.prompt_tokens}
    assert abs(result.records[0].prompt_tokens - 200) <= max(1, per_word / 2)  # type: ignore[operator]
    contents = [one.body["messages"][0]["content"] for one in seen if one.method == "POST"]
    assert len(set(contents)) == len(contents)


@pytest.fixture
def certificate(tmp_path: Path) -> Path:
    """A self-signed certificate for 127.0.0.1, with its key in the same file."""
    found = shutil.which("openssl")
    if found is None:
        pytest.skip("no openssl to make a certificate with")
    key, cert = tmp_path / "key.pem", tmp_path / "cert.pem"
    new = ("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2")
    name = ("-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1")
    subprocess.run([found, *new, *name, "-keyout", key, "-out", cert], check=True, capture_output=True)
    cert.write_text(cert.read_text() + key.read_text())
    return cert


async def test_https(certificate: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(certificate)
    async with TokenServer(completions, tls) as server:
        with pytest.raises(LoadFailed, match=r"certificate verify failed") as caught:
            await run_load(plan_for(server.url), None, Heard(), asyncio.Event())
        assert "SSL_CERT_FILE" in caught.value.hint
        monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
        result = await run_load(plan_for(server.url), None, Heard(), asyncio.Event())
    assert [record.fault for record in result.records] == [None] * 4


async def test_a_proxy_in_the_environment_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "HTTP_PROXY", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    result, _, _ = await load(completions)
    assert [record.fault for record in result.records] == [None] * 4
