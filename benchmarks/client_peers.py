"""Other load generators against the same server, for client_accuracy.py and fault_matrix.py: how they are started, and
where they say what.

Each lives in a venv of its own and is named by its interpreter. Tried with AIPerf 0.13.0, guidellm 0.8.1 (it needs
torch) and inference-perf 0.7.0 (Python 3.12). Their prompts are synthetic; a byte-level tokenizer is made for them, so
none of them asks a hub. inference-perf counts tokens with it, and its ITL is therefore not per token here.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

T = TypeVar("T")

TIMEOUT_S = 600.0
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
    """One run of a peer: `requests` of `tokens` output tokens on `streams` streams."""

    python: Path
    endpoint: str
    streams: int
    requests: int
    tokens: int
    folder: Path

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
    """What a client made of its requests; `tokens` = output tokens of a successful one on average, if it says."""

    ok: int
    failed: int
    tokens: float | None


@dataclass(frozen=True)
class Peer:
    """`report`: run it and read what it wrote; `said` and `outcome`: what stands there."""

    report: Callable[[Task, str], dict[str, Any]]
    said: Callable[[dict[str, Any]], Said]
    outcome: Callable[[dict[str, Any]], Outcome]
    apis: tuple[str, ...] = ("completions", "chat")


def run_peer(name: str, task: Task) -> Said:
    """Raises PeerFailed."""
    return _read_of(name, task, "completions", PEERS[name].said)


def outcome_of(name: str, task: Task, api: str) -> Outcome:
    """Raises PeerFailed."""
    return _read_of(name, task, api, PEERS[name].outcome)


def _read_of(name: str, task: Task, api: str, read: Callable[[dict[str, Any]], T]) -> T:
    if not task.tokenizer.exists():
        task.tokenizer.mkdir()
        _call([str(task.python), "-c", TOKENIZER, str(task.tokenizer)], {})
    try:
        return read(PEERS[name].report(task, api))
    except (OSError, KeyError, TypeError, ValueError) as error:
        raise PeerFailed(f"no report of {name} as expected: {error!r}") from error


def _aiperf(task: Task, api: str) -> dict[str, Any]:
    out = task.folder / "aiperf"
    argv = [task.program("aiperf"), "profile", "--model", MODEL, "--url", task.endpoint]
    argv += ["--endpoint-type", api, "--streaming", "--tokenizer", str(task.tokenizer)]
    argv += ["--concurrency", str(task.streams), "--request-count", str(task.requests), "--isl", "64"]
    argv += ["--osl", str(task.tokens), "--extra-inputs", "ignore_eos:true", "--use-server-token-count"]
    argv += ["--extra-inputs", f"min_tokens:{task.tokens}", "--workers-max", "1", "--ui-type", "none"]
    argv += ["--no-gpu-telemetry", "--no-server-metrics", "--artifact-dir", str(out)]
    _call(argv, {})
    return _read(out / "profile_export_aiperf.json")


def _aiperf_said(found: dict[str, Any]) -> Said:
    ttft, gaps = found["time_to_first_token"], found["inter_chunk_latency"]
    return Said(ttft["p50"], ttft["p99"], gaps["p99"], found["request_throughput"]["avg"])


def _aiperf_outcome(found: dict[str, Any]) -> Outcome:
    def count(name: str) -> int:
        return int((found.get(name) or {}).get("avg") or 0)

    lengths = found.get("output_sequence_length") or {}
    return Outcome(count("request_count"), count("error_request_count"), lengths.get("avg"))


def _guidellm(task: Task, api: str) -> dict[str, Any]:
    out = task.folder / "guidellm.json"
    argv = [task.program("guidellm"), "run", "--disable-console"]
    path = "/v1/chat/completions" if api == "chat" else "/v1/completions"
    backend = f"kind=openai_http,target={task.endpoint},model={MODEL},http2=false,request_format={path}"
    argv += ["--backend", backend]
    argv += ["--profile", f"kind=concurrent,streams={task.streams}"]
    argv += ["--constraint", f"kind=max_requests,count={task.requests}"]
    argv += ["--tokenizer", f"kind=hf_auto,model={task.tokenizer}"]
    argv += ["--data", f"kind=synthetic_text,prompt_tokens=64,output_tokens={task.tokens}"]
    argv += ["--output", f"kind=json,path={out}"]
    _call(argv, {"HF_HUB_OFFLINE": "1"})
    found: dict[str, Any] = _read(out)["benchmarks"][0]["metrics"]
    return found


def _guidellm_said(found: dict[str, Any]) -> Said:
    ttft = found["time_to_first_token_ms"]["successful"]["percentiles"]
    gaps = found["inter_token_latency_ms"]["successful"]["percentiles"]
    return Said(ttft["p50"], ttft["p99"], gaps["p99"], found["requests_per_second"]["successful"]["mean"])


def _guidellm_outcome(found: dict[str, Any]) -> Outcome:
    totals = found["request_totals"]
    tokens = found["output_token_count"]["successful"]["mean"]
    return Outcome(totals["successful"], totals["errored"] + totals["incomplete"], tokens or None)


def _inference_perf(task: Task, api: str) -> dict[str, Any]:
    out = task.folder / "inference-perf"
    total = task.requests
    lengths = {"type": "fixed", "std_dev": 0, "total_count": total}
    settings = {
        "load": {
            "type": "concurrent",
            "stages": [{"num_requests": total, "concurrency_level": task.streams}],
            "num_workers": 1,
        },
        "api": {"type": "completion", "streaming": True},
        "server": {"type": "vllm", "model_name": MODEL, "base_url": task.endpoint, "ignore_eos": True},
        "tokenizer": {"pretrained_model_name_or_path": str(task.tokenizer)},
        "data": {
            "type": "synthetic",
            "input_distribution": {**lengths, "min": 64, "max": 64, "mean": 64},
            "output_distribution": {**lengths, "min": task.tokens, "max": task.tokens, "mean": task.tokens},
        },
        "report": {"request_lifecycle": {"summary": True, "per_stage": True, "per_request": False}},
        "storage": {"local_storage": {"path": str(out)}},
    }
    config = task.folder / "inference-perf.yml"
    config.write_text(json.dumps(settings))  # JSON is YAML
    _call([task.program("inference-perf"), "-c", str(config)], {"HF_HUB_OFFLINE": "1"})
    return _read(out / "stage_0_lifecycle_metrics.json")


def _inference_perf_said(report: dict[str, Any]) -> Said:
    found = report["successes"]
    ttft, gaps = found["latency"]["time_to_first_token"], found["latency"]["inter_token_latency"]
    rate = found["throughput"]["requests_per_sec"]
    return Said(1e3 * ttft["median"], 1e3 * ttft["p99"], 1e3 * gaps["p99"], rate)


def _inference_perf_outcome(report: dict[str, Any]) -> Outcome:
    good = report["successes"]
    tokens = (good.get("output_len") or {}).get("mean")
    return Outcome(int(good["count"]), int(report["failures"]["count"]), tokens)


PEERS: dict[str, Peer] = {
    "aiperf": Peer(_aiperf, _aiperf_said, _aiperf_outcome),
    "guidellm": Peer(_guidellm, _guidellm_said, _guidellm_outcome),
    "inference-perf": Peer(_inference_perf, _inference_perf_said, _inference_perf_outcome, ("completions",)),
}


def _call(argv: list[str], more: dict[str, str]) -> None:
    try:
        done = subprocess.run(argv, capture_output=True, text=True, timeout=TIMEOUT_S, env={**os.environ, **more})
    except (OSError, subprocess.TimeoutExpired) as error:
        raise PeerFailed(str(error)) from error
    if done.returncode != 0:
        words = (done.stderr or done.stdout).strip().splitlines()
        raise PeerFailed(words[-1] if words else f"exit code {done.returncode}")


def _read(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(path.read_text())
    return found
