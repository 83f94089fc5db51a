"""`decodetop bench compare`: live pairs, stored runs, and the plan."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from pathlib import Path

import msgspec
import pytest

from decodetop.bench.store import RunStore
from decodetop.cli import main
from support import states
from support.token_server import Seen, Step, TokenServer, completions

FAST = ("--requests", "2", "--warmup", "1", "--input-tokens", "16", "--output-tokens", "12")


async def compare(tmp_path: Path, *argv: str) -> tuple[int, str, str]:
    config = tmp_path / "config.toml"
    config.write_text("")
    common = ("--investigation", str(tmp_path / "investigation"), "--config", str(config))
    pipe = asyncio.subprocess.PIPE
    words = (sys.executable, "-m", "decodetop", "bench", "compare", *argv, *common)
    process = await asyncio.create_subprocess_exec(*words, stdout=pipe, stderr=pipe, env=dict(os.environ))
    out, err = await process.communicate()
    assert process.returncode is not None
    return process.returncode, out.decode(), err.decode()


async def test_two_servers_in_interleaved_pairs(tmp_path: Path) -> None:
    order: list[str] = []

    def server(name: str, itl_s: float) -> TokenServer:
        def script(seen: Seen) -> list[Step]:
            if seen.method == "POST":
                order.append(f"{name}{seen.body['prompt'][0]}")
            return completions(seen, ttft_s=0.02, itl_s=itl_s)

        return TokenServer(script)

    async with server("A", 0.03) as slow, server("B", 0.01) as fast:
        code, out, err = await compare(tmp_path, slow.url, fast.url, "--pairs", "3", *FAST, "--json")
    assert (code, err) == (0, "")
    found = json.loads(out)
    assert found["verdict"]["word"] == "faster" and found["verdict"]["paired"] is True
    assert found["verdict"]["effect"]["n"] == 3 and found["verdict"]["effect"]["low"] > 1.2
    assert [(pair["a"] is not None, pair["b"] is not None) for pair in found["pairs"]] == [(True, True)] * 3
    prompts_a, prompts_b = ({one[1:] for one in order if one[0] == side} for side in "AB")
    assert prompts_a == prompts_b and len(prompts_a) == 3 * 4  # the same within a pair, fresh in the next
    assert len(RunStore(tmp_path / "investigation").latest()) == 6


async def test_an_endpoint_that_is_down_is_said(tmp_path: Path) -> None:
    async with TokenServer(completions) as server:
        code, _, err = await compare(tmp_path, server.url, "http://127.0.0.1:1", *FAST)
    assert code == 1 and "can't connect to http://127.0.0.1:1" in err


class Here:
    """The command in this process, for what starts nothing."""

    def __init__(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        config = tmp_path / "config.toml"
        config.write_text("")
        self._common = ["--investigation", str(tmp_path / "investigation"), "--config", str(config)]
        self._capsys = capsys

    def __call__(self, *argv: str) -> tuple[int, str, str]:
        code = main(["bench", "compare", *argv, *self._common])
        out, err = self._capsys.readouterr()
        return code, out, err


@pytest.fixture
def here(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Here:
    return Here(tmp_path, capsys)


def test_stored_runs_and_the_plan(tmp_path: Path, here: Here) -> None:
    store = RunStore(tmp_path / "investigation")
    for tok_s in (50.0, 50.5, 49.5, 60.0, 60.6, 59.4):
        store.add(msgspec.structs.replace(states.run(1, tok_s, 1000 / tok_s), id=None))
    store.close()
    code, out, _ = here("1,2,3", "4,5,6")
    assert code == 0 and "B is faster as it looks: +20.0 %" in out
    code, out, _ = here("1", "4", "--json")
    assert (code, json.loads(out)["verdict"]["word"]) == (0, "not_resolved")
    code, out, _ = here("1,2,3", "1", "--plan")
    assert code == 0 and "of 4 stored runs" in out and "pairs find a difference" in out
    code, out, _ = here("http://x", "http://y", "--plan", "--spread", "1", "--json")
    plan = json.loads(out)
    assert code == 0 and plan["pairs_needed"] == 6 and abs(plan["detectable_percent"] - 2.0) < 0.1


def test_usage(here: Here) -> None:
    for argv, words in (
        (("1", "http://y"), "not of one kind"),
        (("http://x", "http://y", "--preset", "sweep"), "more than one run"),
        (("http://x", "http://y", "--pairs", "1"), "--pairs"),
        (("http://x", "http://y", "--readonly"), "--readonly"),
    ):
        code, out, err = here(*argv)
        assert (code, out) == (2, "") and words in err
    code, _, err = here("8", "9")
    assert code == 1 and "no run 8" in err
