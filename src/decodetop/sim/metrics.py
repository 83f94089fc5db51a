"""The simulated server's /metrics: the names, labels and habits of SGLang 0.5.15.

Habits kept: `generation_tokens_total` and its like move when a request ends, `realtime_tokens_total` and the latency
histograms move with every token. Running, queued and KV use are renewed by a prefill and every 40 decode steps only,
and stand still for half a minute when the server goes idle; `gen_throughput` keeps its last value. A mode not seen yet
has no sample; capacity gauges and graph passes stand once per rank; the `is_cuda_graph` gauge says 0 whatever runs.
"""

from __future__ import annotations

import os
import tomllib
from bisect import bisect_left
from collections import Counter
from collections.abc import Collection, Iterator
from importlib import resources
from typing import Any, NamedTuple, Protocol

from decodetop.sim.batch import Pass
from decodetop.sim.serving import Request

THROUGHPUT_WINDOW_NS = 250_000_000
RENEWED_EVERY = 40
"""Decode steps: SGLang's --decode-log-interval."""
IDLE_RENEWED_NS = 30_000_000_000
CONTENT_TYPE = b"text/plain; version=0.0.4; charset=utf-8"


class Serving(Protocol):
    """What the gauges read."""

    @property
    def running(self) -> Collection[Request]: ...

    @property
    def waiting(self) -> Collection[Request]: ...

    @property
    def kv_tokens(self) -> int: ...


def families() -> dict[str, Any]:
    """`still`, `help` and `bounds` of metrics.toml."""
    return tomllib.loads(resources.files("decodetop.sim").joinpath("metrics.toml").read_text("utf-8"))


class Gauges(NamedTuple):
    """As they were when they were renewed."""

    running: int = 0
    waiting: int = 0
    kv_tokens: int = 0


class Histogram:
    """Prometheus histogram; `bounds` are the texts of the upper bounds, the last is +Inf."""

    def __init__(self, bounds: list[str]) -> None:
        self._texts = bounds
        self._bounds = [float(text) for text in bounds]
        self._counts = [0] * len(bounds)
        self.sum = 0.0
        self.count = 0

    def observe(self, value: float, times: int = 1) -> None:
        self._counts[bisect_left(self._bounds, value)] += times
        self.sum += value * times
        self.count += times

    def lines(self, name: str, labels: list[str]) -> Iterator[str]:
        """Nothing before the first value, as SGLang; labels in the order of their names."""
        if not self.count:
            return
        plain = ",".join(labels)
        yield f"sglang:{name}_sum{{{plain}}} {self.sum!r}"
        so_far = 0
        for text, count in zip(self._texts, self._counts, strict=True):
            so_far += count
            joined = ",".join(sorted([*labels, f'le="{text}"']))
            yield f"sglang:{name}_bucket{{{joined}}} {float(so_far)!r}"
        yield f"sglang:{name}_count{{{plain}}} {float(self.count)!r}"


class Metrics:
    """Counts as an observer of requests and a watcher of passes, and renders."""

    profiling = False

    def __init__(self, model_name: str, tp: int, kv_capacity: int, context_length: int) -> None:
        self.requests: Counter[tuple[str, str]] = Counter()
        self.responses: Counter[tuple[str, str, int]] = Counter()
        self.gen_throughput = 0.0
        self.serving: Serving | None = None
        """What the gauges are read from, once it is there."""
        self._gauges = Gauges()
        self._decodes = 0
        self._last_pass_ns: int | None = None
        self._families = families()
        self._histograms = {name: Histogram(bounds) for name, bounds in self._families["bounds"].items()}
        self._labels = ['engine_type="unified"', f'model_name="{model_name}"']
        self._tp = tp
        self._kv_capacity = kv_capacity
        self._context_length = context_length
        self._totals: Counter[str] = Counter()
        self._realtime: Counter[str] = Counter()
        self._passes: Counter[str] = Counter()
        self._hit_rate = 0.0
        self._window: tuple[int, int] = (0, 0)
        self._itl = self._histograms["inter_token_latency_seconds"]

    def passed(self, one: Pass) -> None:
        kind = "prefill" if one.new_tokens else "decode"
        self._passes[f"{kind}_cuda_graph" if one.graphed else f"{kind}_none"] += 1
        self._last_pass_ns = one.end_ns
        self._decodes += kind == "decode"
        if kind == "prefill" or self._decodes % RENEWED_EVERY == 0:
            self._renew()

    def chunk(self, request: Request, tokens: int) -> None:
        sent_ns = request.sent_ns
        self._realtime["decode"] += tokens
        if len(sent_ns) > 1:
            self._itl.observe((sent_ns[-1] - sent_ns[-2]) / 1e9 / tokens, tokens)
        else:
            self._first(request)
        start_ns, count = self._window
        if sent_ns[-1] - start_ns >= THROUGHPUT_WINDOW_NS:
            if start_ns:
                self.gen_throughput = (count + tokens) * 1e9 / (sent_ns[-1] - start_ns)
            self._window = (sent_ns[-1], 0)
        else:
            self._window = (start_ns, count + tokens)

    def ended(self, request: Request) -> None:
        if request.end != "finished":
            return
        prompt = len(request.ask.prompt)
        self._totals["prompt_tokens_total"] += prompt
        self._totals["generation_tokens_total"] += request.emitted
        self._totals["num_requests_total"] += 1
        self._totals["cached_tokens_total"] += request.cached
        seen = self._histograms
        seen["e2e_request_latency_seconds"].observe((request.sent_ns[-1] - request.received_ns) / 1e9)
        seen["prompt_tokens_histogram"].observe(prompt)
        seen["uncached_prompt_tokens_histogram"].observe(prompt - request.cached)
        seen["generation_tokens_histogram"].observe(request.emitted)

    def _first(self, request: Request) -> None:
        prompt = len(request.ask.prompt)
        self._realtime["prefill_compute"] += prompt - request.cached
        if request.cached:
            self._realtime["prefill_cache"] += request.cached
        self._hit_rate = request.cached / prompt
        waited_ns = request.sent_ns[0] - request.received_ns
        self._histograms["time_to_first_token_seconds"].observe(waited_ns / 1e9)
        self._histograms["queue_time_seconds"].observe(max(0, request.admitted_ns - request.received_ns) / 1e9)

    def render(self, now_ns: int) -> bytes:
        """The exposition text, version 0.0.4. Without passes (exact times) the gauges are live."""
        if self._last_pass_ns is None or now_ns - self._last_pass_ns > IDLE_RENEWED_NS:
            self._renew()
        out: list[str] = []
        self._http(out)
        self._counters(out)
        for name in self._families["bounds"]:
            if name != "queue_time_seconds":
                self._family(out, name, "histogram", self._histograms[name].lines(name, self._labels))
        self._state(out)
        queue = self._histograms["queue_time_seconds"]
        ranks = (line for rank in range(self._tp) for line in queue.lines("queue_time_seconds", self._ranked(rank)))
        self._family(out, "queue_time_seconds", "histogram", ranks)
        return ("\n".join(out) + "\n").encode()

    def _renew(self) -> None:
        if self.serving is not None:
            self._gauges = Gauges(len(self.serving.running), len(self.serving.waiting), self.serving.kv_tokens)

    def _family(self, out: list[str], name: str, kind: str, lines: Iterator[str], text: str | None = None) -> None:
        out.append(f"# HELP sglang:{name} {text or self._families['help'][name]}")
        out.append(f"# TYPE sglang:{name} {kind}")
        out.extend(lines)

    def _ranked(self, rank: int, *more: str) -> list[str]:
        return sorted([*self._labels, *more, 'moe_ep_rank="0"', 'pp_rank="0"', f'tp_rank="{rank}"'])

    def _http(self, out: list[str]) -> None:
        in_user, in_kernel, *_ = os.times()
        cpu = f'sglang:process_cpu_seconds_total{{component="tokenizer"}} {in_user + in_kernel!r}'
        self._family(out, "process_cpu_seconds_total", "counter", iter([cpu]))
        asked = (
            f'sglang:http_requests_total{{endpoint="{path}",method="{method}"}} {n}.0'
            for (path, method), n in self.requests.items()
        )
        self._family(out, "http_requests_total", "counter", asked)
        answered = (
            f'sglang:http_responses_total{{endpoint="{path}",method="{method}",status_code="{status}"}} {n}.0'
            for (path, method, status), n in self.responses.items()
        )
        self._family(out, "http_responses_total", "counter", answered)

    def _counters(self, out: list[str]) -> None:
        plain = ",".join(self._labels)
        for name in ("prompt_tokens_total", "generation_tokens_total", "num_requests_total"):
            value = self._totals[name]
            lines = [f"sglang:{name}{{{plain}}} {value}.0"] if value else []
            self._family(out, name, "counter", iter(lines))
        cached = self._totals["cached_tokens_total"]
        lines = [f'sglang:cached_tokens_total{{cache_source="device",{plain}}} {cached}.0'] if cached else []
        self._family(out, "cached_tokens_total", "counter", iter(lines))
        for name, modes, ranks in (
            ("cuda_graph_passes_total", self._passes, self._tp),
            ("realtime_tokens_total", self._realtime, 1),
        ):
            counted = (
                f"sglang:{name}{{{','.join(self._ranked(rank, f'mode={chr(34)}{mode}{chr(34)}'))}}} {count}.0"
                for rank in range(ranks)
                for mode, count in modes.items()
            )
            self._family(out, name, "counter", counted)

    def _state(self, out: list[str]) -> None:
        used, capacity = self._gauges.kv_tokens, self._kv_capacity
        per_rank = {
            "max_total_num_tokens": capacity,
            "page_size": 1,
            "num_pages": capacity,
            "context_len": self._context_length,
            "kv_available_tokens": capacity - used,
            "kv_evictable_tokens": 0,
            "kv_used_tokens": used,
        }
        once = {
            "num_running_reqs": self._gauges.running,
            "num_queue_reqs": self._gauges.waiting,
            "gen_throughput": self.gen_throughput,
            "cache_hit_rate": self._hit_rate,
            "decode_sum_seq_lens": used,
            "token_usage": round(used / capacity, 2),
            "full_token_usage": used / capacity,
            "num_used_tokens": used,
        }
        for values, ranks in ((per_rank, self._tp), (once, 1)):
            for name, value in values.items():
                lines = (f"sglang:{name}{{{','.join(self._ranked(rank))}}} {float(value)!r}" for rank in range(ranks))
                self._family(out, name, "gauge", lines)
        for name, text, about in self._families["still"]:
            line = f"sglang:{name}{{{','.join(self._ranked(0))}}} {text}"
            self._family(out, name, "gauge", iter([line]), about)
