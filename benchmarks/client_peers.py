"""Other load generators against the same server, for client_accuracy.py and fault_matrix.py: how they are started, and
where they say what.

Each lives in a venv of its own and is named by its interpreter. Tried with AIPerf 0.13.0, guidellm 0.8.1 (it needs
torch) and inference-perf 0.7.0 (Python 3.12). Their prompts are synthetic; a byte-level tokenizer is made for them, so
none of them asks a hub. inference-perf counts tokens with it, and its ITL is therefore not per token here.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

T = TypeVar("T")

TIMEOUT_S = 600.0
WORDS_MAX = 120
FAVOUR = -15
"""The niceness of a peer where this program has real-time priority."""
REQUESTS_FAILED = re.compile(r"inference request\(s\) failed")
"""AIPerf ends with 1 when no request succeeded, but its records are all there."""
MODEL = "simulated-8b"

TOKENIZER = """
import json, sys
from pathlib import Path
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
folder = Path(sys.argv[1])
vocab = {letter: number for number, letter in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}
vocab["<|end|>"] = len(vocab)
made = Tokenizer(models.BPE(vocab=vocab, merges=[]))
made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
made.decoder = decoders.ByteLevel()
made.save(str(folder / "tokenizer.json"))
settings = {"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": "<|end|>", "model_max_length": 16384}
(folder / "tokenizer_config.json").write_text(json.dumps(settings))
"""


class PeerFailed(Exception):
    """A peer did not run; the message is its last line."""


@dataclass(frozen=True)
class Task:
    """One run of a peer: `requests` of `tokens` output tokens on `streams` streams, none longer than `timeout_s`."""

    python: Path
    endpoint: str
    streams: int
    requests: int
    tokens: int
    folder: Path
    timeout_s: float = 120.0

    @property
    def tokenizer(self) -> Path:
        return self.folder / "tokenizer"

    def program(self, name: str) -> str:
        """Its command, beside the interpreter."""
        return str(self.python.parent / name)


@dataclass(frozen=True)
class Said:
    """What a peer reported, in ms and requests/s; its p99 of gaps is whatever it calls inter-token latency."""

    ttft_p50: float
    ttft_p99: float
    gap_p99: float
    request_s: float


@dataclass(frozen=True)
class Outcome:
    """What a client made of one request: `tokens` = output tokens it counted, if it says; `why` it failed."""

    ok: bool
    tokens: float | None = None
    why: str = ""


@dataclass(frozen=True)
class Peer:
    """`run`: it writes a report. `said`: what stands there of the whole run; `outcomes`: of each request, in order."""

    run: Callable[[Task, str], None]
    said: Callable[[Task], Said]
    outcomes: Callable[[Task], list[Outcome]]
    apis: tuple[str, ...] = ("completions", "chat")


def run_peer(name: str, task: Task) -> Said:
    """Raises PeerFailed."""
    return _read_of(name, task, "completions", PEERS[name].said)


def outcomes_of(name: str, task: Task, api: str) -> list[Outcome]:
    """Raises PeerFailed."""
    return _read_of(name, task, api, PEERS[name].outcomes)


def _read_of(name: str, task: Task, api: str, read: Callable[[Task], T]) -> T:
    if not task.tokenizer.exists():
        task.tokenizer.mkdir()
        _call([str(task.python), "-c", TOKENIZER, str(task.tokenizer)], {})
    PEERS[name].run(task, api)
    try:
        return read(task)
    except (OSError, KeyError, TypeError, ValueError) as error:
        raise PeerFailed(f"no report of {name} as expected: {error!r}") from error


def _aiperf(task: Task, api: str) -> None:
    argv = [task.program("aiperf"), "profile", "--model", MODEL, "--url", task.endpoint]
    argv += ["--endpoint-type", api, "--streaming", "--tokenizer", str(task.tokenizer)]
    argv += ["--concurrency", str(task.streams), "--request-count", str(task.requests), "--isl", "64"]
    argv += ["--osl", str(task.tokens), "--extra-inputs", "ignore_eos:true", "--use-server-token-count"]
    argv += ["--extra-inputs", f"min_tokens:{task.tokens}", "--workers-max", "1", "--ui-type", "none"]
    argv += ["--request-timeout-seconds", str(task.timeout_s)]
    argv += ["--no-gpu-telemetry", "--no-server-metrics", "--artifact-dir", str(task.folder / "aiperf")]
    _call(argv, {})


def _aiperf_said(task: Task) -> Said:
    found = _read(task.folder / "aiperf" / "profile_export_aiperf.json")
    ttft, gaps = found["time_to_first_token"], found["inter_chunk_latency"]
    return Said(ttft["p50"], ttft["p99"], gaps["p99"], found["request_throughput"]["avg"])


def _aiperf_outcomes(task: Task) -> list[Outcome]:
    lines = (task.folder / "aiperf" / "profile_export.jsonl").read_text().splitlines()
    records = sorted(map(json.loads, lines), key=lambda record: record["metadata"]["request_start_ns"])

    def outcome(record: dict[str, Any]) -> Outcome:
        length = record["metrics"].get("output_sequence_length")
        error = record.get("error")
        return Outcome(error is None, length and length["value"], _short(error and error["message"]))

    return list(map(outcome, records))


def _guidellm(task: Task, api: str) -> None:
    argv = [task.program("guidellm"), "run", "--disable-console"]
    path = "/v1/chat/completions" if api == "chat" else "/v1/completions"
    backend = f"kind=openai_http,target={task.endpoint},model={MODEL},http2=false,request_format={path}"
    backend += f",timeout={task.timeout_s:g},timeout_connect={task.timeout_s:g}"
    argv += ["--backend", backend]
    argv += ["--profile", f"kind=concurrent,streams={task.streams}"]
    argv += ["--constraint", f"kind=max_requests,count={task.requests}"]
    argv += ["--tokenizer", f"kind=hf_auto,model={task.tokenizer}"]
    argv += ["--data", f"kind=synthetic_text,prompt_tokens=64,output_tokens={task.tokens}"]
    argv += ["--output", f"kind=json,path={task.folder / 'guidellm.json'}"]
    _call(argv, {"HF_HUB_OFFLINE": "1"})


def _guidellm_said(task: Task) -> Said:
    found = _read(task.folder / "guidellm.json")["benchmarks"][0]["metrics"]
    ttft = found["time_to_first_token_ms"]["successful"]["percentiles"]
    gaps = found["inter_token_latency_ms"]["successful"]["percentiles"]
    return Said(ttft["p50"], ttft["p99"], gaps["p99"], found["requests_per_second"]["successful"]["mean"])


def _guidellm_outcomes(task: Task) -> list[Outcome]:
    found = _read(task.folder / "guidellm.json")["benchmarks"][0]["requests"]
    records = [record for kind in ("successful", "errored", "incomplete") for record in found[kind]]
    records.sort(key=lambda record: record["info"]["timings"]["resolve_start"])
    return [
        Outcome(record["info"]["status"] == "completed", record["output_tokens"], _short(record["info"]["error"]))
        for record in records
    ]


def _inference_perf(task: Task, api: str) -> None:
    total = task.requests
    lengths = {"type": "fixed", "std_dev": 0, "total_count": total}
    settings = {
        "load": {
            "type": "concurrent",
            "stages": [{"num_requests": total, "concurrency_level": task.streams}],
            "num_workers": 1,
            "request_timeout": task.timeout_s,
        },
        "api": {"type": "completion", "streaming": True},
        "server": {"type": "vllm", "model_name": MODEL, "base_url": task.endpoint, "ignore_eos": True},
        "tokenizer": {"pretrained_model_name_or_path": str(task.tokenizer)},
        "data": {
            "type": "synthetic",
            "input_distribution": {**lengths, "min": 64, "max": 64, "mean": 64},
            "output_distribution": {**lengths, "min": task.tokens, "max": task.tokens, "mean": task.tokens},
        },
        "report": {"request_lifecycle": {"summary": True, "per_stage": True, "per_request": True}},
        "storage": {"local_storage": {"path": str(task.folder / "inference-perf")}},
    }
    config = task.folder / "inference-perf.yml"
    config.write_text(json.dumps(settings))  # JSON is YAML
    _call([task.program("inference-perf"), "-c", str(config)], {"HF_HUB_OFFLINE": "1"})


def _inference_perf_said(task: Task) -> Said:
    found = _read(task.folder / "inference-perf" / "stage_0_lifecycle_metrics.json")["successes"]
    ttft, gaps = found["latency"]["time_to_first_token"], found["latency"]["inter_token_latency"]
    rate = found["throughput"]["requests_per_sec"]
    return Said(1e3 * ttft["median"], 1e3 * ttft["p99"], 1e3 * gaps["p99"], rate)


def _inference_perf_outcomes(task: Task) -> list[Outcome]:
    records = _read(task.folder / "inference-perf" / "per_request_lifecycle_metrics.json")
    records = sorted(records, key=lambda record: record["start_time"])

    def outcome(record: dict[str, Any]) -> Outcome:
        error, said = record["error"], record["info"].get("response_metrics") or {}
        usage = said.get("server_usage")
        tokens = said.get("output_tokens") if usage is None else usage["completion_tokens"]
        return Outcome(error is None, tokens, _short(error and f"{error['error_type']} {error['error_msg']}"))

    return list(map(outcome, records))


PEERS: dict[str, Peer] = {
    "aiperf": Peer(_aiperf, _aiperf_said, _aiperf_outcomes),
    "guidellm": Peer(_guidellm, _guidellm_said, _guidellm_outcomes),
    "inference-perf": Peer(_inference_perf, _inference_perf_said, _inference_perf_outcomes, ("completions",)),
}


def _call(argv: list[str], more: dict[str, str]) -> None:
    """Raises PeerFailed when it can't be started or doesn't end; one that ends badly may have written its report."""
    own = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}  # ours is of another Python
    options: dict[str, Any] = {"capture_output": True, "text": True, "timeout": TIMEOUT_S, "env": {**own, **more}}
    if os.sched_getscheduler(0) != os.SCHED_OTHER:
        options["preexec_fn"] = _take_turns
    try:
        done = subprocess.run(argv, **options)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise PeerFailed(str(error)) from error
    words = [line for line in f"{done.stdout}\n{done.stderr}".splitlines() if "error" in line.lower()]
    if done.returncode != 0 and not REQUESTS_FAILED.search(done.stdout):
        raise PeerFailed(_short(words[-1] if words else None) or f"exit code {done.returncode}")


def _take_turns() -> None:
    """Several processes on one core at real-time priority would wait 100 ms for each other."""
    os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))
    os.nice(FAVOUR)


def _short(words: str | None) -> str:
    return "" if words is None else " ".join(words.split())[:WORDS_MAX]


def _read(path: Path) -> Any:
    return json.loads(path.read_text())
