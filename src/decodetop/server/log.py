"""What a server's log says that its HTTP does not: decode lines of SGLang and vLLM, vLLM's start-up. Pure.

Versions order and punctuate the lines differently, so they are read as key/value pairs. Nothing else of a log is
kept: SGLang's `server_args=` line holds keys.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import TypeVar

import msgspec

from decodetop.core.clock import SECOND_NS
from decodetop.server.metrics import IMPOSSIBLE

LINE_MAX = 2000
"""Characters of a line with figures. Longer ones hold a prompt, and looking for pairs in one could take for ever."""

FRESH_S = 15.0
"""SGLang writes a line every 40 decode steps (`--decode-log-interval`): 10 s for steps of 250 ms. vLLM one each 10 s
(`VLLM_LOG_STATS_INTERVAL`), none while idle."""

_STATS = re.compile(r"(?P<kind>Decode|Prefill) batch(?: \[\d+\])?[.,] (?P<pairs>.*)")
_VLLM = re.compile(r"\b(?P<who>Engine \d+|\d+ Engines Aggregated): (?P<pairs>(?:Avg prompt|Avg generation) .*)")
_VLLM_SPEC = re.compile(r"\bSpecDecoding metrics: (?P<pairs>.*)")
_VLLM_V0 = re.compile(r"\bmetrics\.py:\d+\] (?P<pairs>Avg prompt throughput: .*)")
_VLLM_PAIR = re.compile(r"([A-Za-z][\w .]*?): (-?\d+(?:\.\d+)?)(?: ?(?:tokens/s|reqs|%))?(?=[,.]? |[,.]?\s*$)")
_RANK = re.compile(r"\bDP\d+")
_PAIR = re.compile(r"(#?[A-Za-z][\w .()/%-]*?): (-?\d+(?:\.\d+)?(?:e[+-]?\d+)?)(?=,|\s*$)")


class DecodeLine(msgspec.Struct, frozen=True, kw_only=True):
    """`tok_s` is None for the first line after a prefill: its time includes what came before."""

    running: int | None = None
    queued: int | None = None
    kv_usage: float | None = None
    accept_length: float | None = None
    tok_s: float | None = None
    prompt_tok_s: float | None = None


class DecodeLog:
    """The newest decode line of a log that is fed as it grows; of each data-parallel rank, put together."""

    def __init__(self) -> None:
        self._rest = ""
        self._steady: set[str] = set()
        self._last: dict[str, tuple[DecodeLine, int]] = {}

    def feed(self, text: str, t_ns: int) -> None:
        """`text` may end within a line."""
        *lines, self._rest = (self._rest + text).split("\n")
        self._rest = self._rest[-LINE_MAX - 1 :]
        for line in lines:
            if len(line) > LINE_MAX:
                continue
            found = _STATS.search(line)
            if found is None:
                self._vllm(line, t_ns)
                continue
            rank = _RANK.search(line[: found.start()])
            key = rank[0] if rank else ""
            if found["kind"] == "Decode":
                self._last[key] = decode_line(found["pairs"], steady=key in self._steady), t_ns
                self._steady.add(key)
            else:
                self._steady.discard(key)

    def _vllm(self, line: str, t_ns: int) -> None:
        """Accept lengths stand in a line of their own, after the engine's."""
        if (spec := _VLLM_SPEC.search(line)) is not None:
            accepted = _vllm_values(spec["pairs"]).get("Mean acceptance length")
            newest = max(self._last, key=lambda key: self._last[key][1], default=None)
            if newest is not None and accepted is not None:
                seen, when_ns = self._last[newest]
                self._last[newest] = msgspec.structs.replace(seen, accept_length=accepted), when_ns
        elif (found := _VLLM.search(line)) is not None:
            self._last[found["who"]] = vllm_line(found["pairs"]), t_ns
        elif (found := _VLLM_V0.search(line)) is not None:
            self._last[""] = vllm_line(found["pairs"]), t_ns

    def at(self, now_ns: int) -> DecodeLine | None:
        """None when no line is younger than `FRESH_S`."""
        fresh = [line for line, t_ns in self._last.values() if now_ns - t_ns <= FRESH_S * SECOND_NS]
        if len(fresh) < 2:
            return fresh[0] if fresh else None
        usages = [line.kv_usage for line in fresh if line.kv_usage is not None]
        return DecodeLine(
            running=_sum(line.running for line in fresh),
            queued=_sum(line.queued for line in fresh),
            kv_usage=sum(usages) / len(usages) if usages else None,
            tok_s=_sum(line.tok_s for line in fresh),
            prompt_tok_s=_sum(line.prompt_tok_s for line in fresh),
        )


Count = TypeVar("Count", int, float)


def _sum(values: Iterable[Count | None]) -> Count | None:
    """Over the ranks; unknown when a rank's share is."""
    known = list(values)
    return None if None in known else sum(value for value in known if value is not None)


def decode_line(pairs: str, *, steady: bool) -> DecodeLine:
    """From `#running-req: 4, #token: 391, token usage: 0.05, gen throughput (token/s): 241.2, ...`."""
    values = _values(_PAIR, pairs)
    running, queued = values.get("#running-req"), values.get("#queue-req")
    return DecodeLine(
        running=None if running is None else int(running),
        queued=None if queued is None else int(queued),
        kv_usage=_first(values, ("full token usage", "token usage")),
        accept_length=values.get("accept len"),
        tok_s=values.get("gen throughput (token/s)") if steady else None,
    )


def vllm_line(pairs: str) -> DecodeLine:
    """From `Avg prompt throughput: 0.0 tokens/s, Avg generation throughput: 241.2 tokens/s, Running: 4 reqs, ...`.

    The throughputs are means over the engine's interval. V0 calls the queue `Pending`.
    """
    values = _vllm_values(pairs)
    running, queued = values.get("Running"), _first(values, ("Waiting", "Pending"))
    # the device before the words is a variable of vLLM's
    usage = next(
        (value for name, value in values.items() if name.endswith(" KV cache usage") and "CPU" not in name), None
    )
    return DecodeLine(
        running=None if running is None else int(running),
        queued=None if queued is None else int(queued),
        kv_usage=None if usage is None else usage / 100,
        tok_s=values.get("Avg generation throughput"),
        prompt_tok_s=values.get("Avg prompt throughput"),
    )


def _vllm_values(pairs: str) -> dict[str, float]:
    return _values(_VLLM_PAIR, pairs)


def _values(pair: re.Pattern[str], pairs: str) -> dict[str, float]:
    """Without what can't be: a log holds prompts too, and those hold anything."""
    found = {name.strip(): float(text) for name, text in pair.findall(pairs)}
    return {name: value for name, value in found.items() if 0 <= value < IMPOSSIBLE}


class StartUp(msgspec.Struct, frozen=True, kw_only=True):
    """What vLLM wrote when it started. `graph_mode` is `NONE`, `FULL_AND_PIECEWISE`...; names as in `Facts`."""

    attention_backend: str | None = None
    graph_mode: str | None = None
    graph_batches: tuple[int, ...] = ()
    weights_dtype: str | None = None
    quantization: str | None = None
    tp: int | None = None
    kv_pool_bytes: int | None = None


_POOL = re.compile(r"Available KV cache memory: (\d{1,6}(?:\.\d+)?) GiB")
_PID = re.compile(r"\([^()]*\bpid=(\d{1,9})\)")
_ATTENTION = re.compile(r"Using (\w+) (?:attention )?backend out of potential backends|Using (\w+) attention backend")
_ENGINE = re.compile(r"Initializing a V\d LLM engine .*? with config: (.*)")
_DOWNGRADE = re.compile(r"setting cudagraph_mode=(?:CUDAGraphMode\.)?(\w+)")


def start_up(text: str, pids: Iterable[int]) -> StartUp:
    """From the log's lines of these processes; those of an earlier run in the same file are left out."""
    wanted = set(pids)
    seen = StartUp()
    for line in text.splitlines():
        who = _PID.search(line)
        if who is None or int(who[1]) not in wanted:
            continue
        if (found := _ATTENTION.search(line)) is not None:
            seen = msgspec.structs.replace(seen, attention_backend=found[1] or found[2])
        elif (found := _ENGINE.search(line)) is not None:
            seen = _engine(seen, found[1])
        elif (found := _POOL.search(line)) is not None:
            seen = msgspec.structs.replace(seen, kv_pool_bytes=int(float(found[1]) * 2**30))
        elif (found := _DOWNGRADE.search(line)) is not None:
            seen = msgspec.structs.replace(seen, graph_mode=found[1])
    return seen


def _engine(seen: StartUp, config: str) -> StartUp:
    """The configuration as vLLM prints it: `dtype=torch.bfloat16, ..., enforce_eager=False, ...`."""
    mode = re.search(r"'cudagraph_mode': <CUDAGraphMode\.(\w+)", config)
    sizes = re.search(r"'cudagraph_capture_sizes': \[([\d, ]*)\]", config)
    eager = re.search(r"enforce_eager=True", config)
    tp = re.search(r"tensor_parallel_size=(\d{1,9})\b", config)
    return msgspec.structs.replace(
        seen,
        graph_mode="NONE" if eager else mode[1] if mode else None,
        graph_batches=tuple(int(size) for size in re.findall(r"\d{1,9}", sizes[1])) if sizes else (),
        weights_dtype=_word(config, "dtype"),
        quantization=_word(config, "quantization"),
        tp=int(tp[1]) if tp else None,
    )


def _word(config: str, name: str) -> str | None:
    found = re.search(rf"(?:^|[ ,]){name}=([\w.]+)", config)
    return None if found is None or found[1] == "None" else found[1]


def _first(values: Mapping[str, float], names: tuple[str, ...]) -> float | None:
    return next((values[name] for name in names if name in values), None)
