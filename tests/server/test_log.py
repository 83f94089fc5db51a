"""Logs of several versions: decode lines of SGLang without metrics, and what vLLM says when it starts."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from decodetop.core.clock import SECOND_NS
from decodetop.server.engines.adapter import AUTO, Facts
from decodetop.server.engines.vllm import facts_of, started
from decodetop.server.log import DecodeLine, DecodeLog, StartUp, start_up
from decodetop.server.logfile import GROWN_BYTES, LogFile
from decodetop.server.probe import ServerProbe
from decodetop.server.reading import ServerReading
from decodetop.server.text import lines
from support.clock import ManualClock
from support.engine_replay import EngineReplay, read, recorded
from support.fake_proc import FakeProc

Make = Callable[..., ServerProbe]

STAMP = "[2026-11-30 08:19:37 DP0 TP0] "
LAST_RECORDED = DecodeLine(running=4, queued=0, kv_usage=0.0, accept_length=4.0, tok_s=1654.96)
HEAD = read("vllm_tp1_graph", "server_head.log").decode()


@pytest.mark.parametrize(
    ("line", "running", "queued", "usage", "tok_s", "accept"),
    [
        (
            "Decode batch. #running-req: 3, #token: 9, token usage: 0.12, "
            "gen throughput (token/s): 55.1, #queue-req: 2",
            3,
            2,
            0.12,
            55.1,
            None,
        ),
        (
            "Decode batch. #running-req: 3, #token: 9, token usage: 0.12, accept len: 2.5, cuda graph: True, "
            "gen throughput (token/s): 55.1, #queue-req: 0, ",
            3,
            0,
            0.12,
            55.1,
            2.5,
        ),
        (
            "Decode batch [40], #running-req: 1, #full token: 9, full token usage: 0.02, #swa token: 4, "
            "swa token usage: 0.50, npu graph: False, gen throughput (token/s): 1e+02, #queue-req: 0",
            1,
            0,
            0.02,
            100.0,
            None,
        ),
        (
            "Decode batch, #running-req: 4, #token: 391, token usage: 0.05, cap len: 3.0, accept len: 3.75, "
            "accept rate: 0.92, cuda graph: True, gen throughput (token/s): 789.65, #queue-req: 0, "
            "est. decode TFLOPS/s (per GPU): 3.1",
            4,
            0,
            0.05,
            789.65,
            3.75,
        ),
        ("Decode batch, #running-req: 1, gen throughput (token/s): nan", 1, None, None, None, None),
    ],
)
def test_decode_lines_of_all_versions(
    line: str, running: int, queued: int | None, usage: float | None, tok_s: float | None, accept: float | None
) -> None:
    log = DecodeLog()
    log.feed(f"{STAMP}{line}\n{STAMP}{line}\n", 0)
    seen = log.at(0)
    assert seen is not None
    assert (seen.running, seen.queued, seen.kv_usage) == (running, queued, usage)
    assert (seen.tok_s, seen.accept_length) == (tok_s, accept)


def test_the_first_line_after_a_prefill_has_no_rate() -> None:
    """It counts its tokens over all the time since the line before: 5.21 tok/s while 241 are made."""
    log = DecodeLog()
    log.feed("Prefill batch, #new-seq: 1\nDecode batch, #running-req: 1, gen throughput (token/s): 5.21\n", 0)
    first = log.at(0)
    assert first is not None and (first.running, first.tok_s) == (1, None)
    log.feed("Decode batch, #running-req: 1, gen throughput", SECOND_NS)
    assert log.at(SECOND_NS) == first, "half a line is not read yet"
    log.feed(" (token/s): 241.49\nsomething else\n", 2 * SECOND_NS)
    second = log.at(2 * SECOND_NS)
    assert second is not None and second.tok_s == 241.49
    assert log.at(16 * SECOND_NS) is not None and log.at(18 * SECOND_NS) is None


def test_data_parallel_ranks_are_put_together() -> None:
    log = DecodeLog()
    lines = [f"[2026-11-30 08:19:37 DP{rank} TP{rank}] Decode batch, #running-req: {rank + 1}, " for rank in (0, 1)]
    for line in lines * 2:
        log.feed(f"{line}token usage: 0.10, gen throughput (token/s): 50.0, #queue-req: 1\n", 0)
    assert log.at(0) == DecodeLine(running=3, queued=2, kv_usage=0.1, tok_s=100.0)


VLLM = "(APIServer pid=7) INFO 11-30 08:19:37 [loggers.py:257] "
VLLM_LINES = [
    (
        VLLM + "Engine 000: Avg prompt throughput: 12.5 tokens/s, Avg generation throughput: 241.2 tokens/s, "
        "Running: 4 reqs, Waiting: 1 reqs, GPU KV cache usage: 5.5%, Prefix cache hit rate: 31.0%",
        DecodeLine(running=4, queued=1, kv_usage=0.055, tok_s=241.2, prompt_tok_s=12.5),
    ),
    (
        VLLM + "Engine 000: Avg prompt throughput: 0.0 tokens/s, Avg generation throughput: 9.0 tokens/s, "
        "Running: 2 reqs, Waiting: 0 reqs, Deferred: 1 reqs, Preemptions: 3, XPU KV cache usage: 1.0%, "
        "Prefix cache hit rate: 0.0%, External prefix cache hit rate: 0.0%",
        DecodeLine(running=2, queued=0, kv_usage=0.01, tok_s=9.0, prompt_tok_s=0.0),
    ),
    (
        "INFO 11-30 08:19:37 metrics.py:345] Avg prompt throughput: 1.0 tokens/s, Avg generation throughput: 20.5 "
        "tokens/s, Running: 3 reqs, Swapped: 0 reqs, Pending: 2 reqs, GPU KV cache usage: 2.0%, "
        "CPU KV cache usage: 0.0%.",
        DecodeLine(running=3, queued=2, kv_usage=0.02, tok_s=20.5, prompt_tok_s=1.0),
    ),
    (
        VLLM + "2 Engines Aggregated: Avg prompt throughput: 0.0 tokens/s, Avg generation throughput: 50.0 tokens/s, "
        "Running: 8 reqs, Waiting: 0 reqs, GPU KV cache usage: 3.0%, Prefix cache hit rate: 0.0%",
        DecodeLine(running=8, queued=0, kv_usage=0.03, tok_s=50.0, prompt_tok_s=0.0),
    ),
]


@pytest.mark.parametrize(("line", "seen"), VLLM_LINES)
def test_vllm_s_stat_lines_of_all_versions(line: str, seen: DecodeLine) -> None:
    log = DecodeLog()
    log.feed(f"{line}\n", 0)
    assert log.at(0) == seen
    assert log.at(16 * SECOND_NS) is None, "silence is idle, and the last figures are not of now"


def test_vllm_s_engines_are_put_together_and_their_speculation_is_read() -> None:
    log = DecodeLog()
    line, seen = VLLM_LINES[0]
    spec = f"{VLLM}SpecDecoding metrics: Mean acceptance length: 2.75, Accepted throughput: 9.0 tokens/s"
    log.feed(f"{line}\n{spec}\n", 0)
    one = log.at(0)
    assert one is not None and (one.accept_length, one.tok_s) == (2.75, seen.tok_s)
    log.feed(f"{line.replace('Engine 000', 'Engine 001')}\n", 0)
    assert log.at(0) == DecodeLine(running=8, queued=2, kv_usage=0.055, tok_s=482.4, prompt_tok_s=25.0)


def test_a_rank_that_does_not_say_makes_the_sum_unknown() -> None:
    log = DecodeLog()
    for rank, queue in ((0, ", #queue-req: 1"), (1, "")):
        log.feed(f"[DP{rank}] Decode batch, #running-req: 2{queue}\n", 0)
    seen = log.at(0)
    assert seen is not None and (seen.running, seen.queued) == (4, None)


def test_a_recorded_log() -> None:
    log = DecodeLog()
    log.feed(read("sglang_ngram_graph", "stat_lines.log").decode(), 0)
    assert log.at(0) == LAST_RECORDED


def test_vllm_s_recorded_start() -> None:
    seen = start_up(HEAD, [729, 1368])
    assert seen == StartUp(
        attention_backend="FLASH_ATTN",
        graph_mode="FULL_AND_PIECEWISE",
        graph_batches=(1, 2, 4, 8, 16, 24, 32, 40, 48, 56, 64),
        weights_dtype="torch.bfloat16",
        tp=1,
        kv_pool_bytes=int(81.08 * 2**30),
    )
    assert start_up(HEAD, [42]) == StartUp(), "another run's lines in the same file"


def test_facts_with_the_start_up_log() -> None:
    facts = started(facts_of({}), start_up(HEAD, [729, 1368]))
    assert (facts.attention_backend, facts.cuda_graph, facts.cuda_graph_max_batch) == ("FLASH_ATTN", True, 64)
    assert (facts.weights_dtype, facts.resolved["cudagraph_mode"]) == ("bf16", "FULL_AND_PIECEWISE")
    eager = started(facts_of(None), start_up(HEAD.replace("enforce_eager=False", "enforce_eager=True"), [1368]))
    assert (eager.cuda_graph, eager.cuda_graph_max_batch, eager.tp) == (False, None, 1)
    assert started(Facts(reasons={"weights_dtype": AUTO}), StartUp()) == Facts(reasons={"weights_dtype": AUTO})


def test_a_silent_downgrade_counts() -> None:
    line = (
        "(EngineCore_DP0 pid=7) WARNING CUDAGraphMode.FULL is not supported with X backend; setting cudagraph_mode=NONE"
    )
    assert start_up(line, [7]).graph_mode == "NONE"


def test_a_log_file_is_followed(tmp_path: Path) -> None:
    path = tmp_path / "server.log"
    path.write_text("old\n")
    log = LogFile(path)
    assert (log.head(), log.grown()) == ("old\n", "")
    with path.open("a") as file:
        file.write("new\n")
    assert (log.grown(), log.grown()) == ("new\n", "")
    path.write_text("x")
    assert log.grown() == "x", "it was cut and began anew"
    path.write_text("y" * (GROWN_BYTES + 10))
    assert len(log.grown()) == GROWN_BYTES
    path.unlink()
    with pytest.raises(OSError, match="No such file"):
        log.grown()


def box(port: int, log: Path, *argv: str) -> FakeProc:
    found = FakeProc()
    found.add(729, *argv, "--port", str(port), listen=[("127.0.0.1", port)])
    found.add(1368, "VLLM::EngineCore", ppid=729)
    found.logs[729] = log
    return found


async def test_sglang_without_metrics_is_read_by_its_log(make_probe: Make, clock: ManualClock, tmp_path: Path) -> None:
    path = tmp_path / "server.log"
    path.write_text("server_args=ServerArgs(api_key='planted')\nDecode batch, #running-req: 9, #queue-req: 9\n")
    async with EngineReplay(recorded("sglang_tp1_graph")) as replay:
        probe = make_probe(discover=True, proc=box(replay.port, path, "python3", "-m", "sglang.launch_server"))
        (server,) = (await probe.read()).servers
        assert (server.status, server.running) == ("up", None)
        assert "started without --enable-metrics; its log has no new decode line" in server.reasons["running"]
        with path.open("a") as file:
            file.write(
                2 * "Decode batch, #running-req: 2, token usage: 0.01, gen throughput (token/s): 99.5, #queue-req: 1\n"
            )
        await clock.advance(1.0)
        (server,) = (await probe.read()).servers
        assert (server.running, server.queued, server.kv_usage, server.generated_tok_s) == (2, 1, 0.01, 99.5)
        assert (server.figures_from, server.log) == ("log", str(path))
        said = lines(ServerReading(servers=(server,)))
        assert any("from its log" in line and str(path) in line for line in said)
        assert server.itl is None and "its log does not say" in server.reasons["itl"]
        await clock.advance(16.0)
        (server,) = (await probe.read()).servers
    assert (server.running, server.generated_tok_s, server.figures_from) == (None, None, None)
    assert "planted" not in repr(server)


async def test_vllm_s_log_tells_what_its_http_does_not(make_probe: Make, tmp_path: Path) -> None:
    path = tmp_path / "server.log"
    path.write_text(HEAD)
    async with EngineReplay(recorded("vllm_tp1_graph", "loaded")) as replay:
        probe = make_probe(discover=True, proc=box(replay.port, path, "vllm", "serve", "m"))
        (server,) = (await probe.read()).servers
    assert (server.attention_backend, server.cuda_graph, server.cuda_graph_max_batch) == ("FLASH_ATTN", True, 64)
    assert (server.weights_dtype, "cuda_graph" in server.reasons) == ("bf16", False)
    assert (server.figures_from, server.log) == ("metrics", str(path))


async def test_a_start_up_log_that_can_t_be_read_is_the_reason(make_probe: Make, tmp_path: Path) -> None:
    async with EngineReplay(recorded("vllm_tp1_graph", "loaded")) as replay:
        probe = make_probe(discover=True, proc=box(replay.port, tmp_path / "gone.log", "vllm", "serve", "m"))
        (server,) = (await probe.read()).servers
    why = "its log can't be read: no such file or directory"
    assert server.reasons["attention_backend"].endswith(why) and server.reasons["cuda_graph"].endswith(why)
    assert server.reasons["log"] == f"{tmp_path / 'gone.log'}: no such file or directory"


async def test_vllm_without_metrics_is_read_by_the_log_that_was_named(
    make_probe: Make, clock: ManualClock, tmp_path: Path
) -> None:
    path = tmp_path / "vllm.log"
    path.write_text("")
    answers = recorded("vllm_tp1_graph")
    answers.pop("/metrics", None)
    async with EngineReplay(answers) as replay:
        probe = make_probe(replay.endpoint, log=path)
        (server,) = (await probe.read()).servers
        assert (server.status, server.running) == ("up", None)
        path.write_text(f"{VLLM_LINES[0][0]}\n")
        await clock.advance(1.0)
        (server,) = (await probe.read()).servers
    assert (server.running, server.queued, server.kv_usage) == (4, 1, 0.055)
    assert (server.generated_tok_s, server.prompt_tok_s) == (241.2, 12.5)
    assert "its log does not say" in server.reasons["itl"]


async def test_a_log_that_can_t_be_read_is_no_fault(make_probe: Make, tmp_path: Path) -> None:
    async with EngineReplay(recorded("sglang_tp1_graph")) as replay:
        gone = tmp_path / "no.log"
        probe = make_probe(discover=True, proc=box(replay.port, gone, "python3", "-m", "sglang.launch_server"))
        (server,) = (await probe.read()).servers
        await asyncio.sleep(0)
    assert server.status == "up" and server.running is None
