"""A simulated inference box inside the test's process, on the test's clock: what it serves takes exactly known times.

The server answers with the simulator's words (/server_info, /metrics) and serves with its requests and counters; only
the wire is missing. Load, probes and services see it as they see any box.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from decodetop.bench.launch import Listener
from decodetop.bench.reading import Plan
from decodetop.bench.request import Dialect
from decodetop.bench.wire import Ready, Record, Result
from decodetop.core.clock import SECOND_NS
from decodetop.server.client import SafeClient
from decodetop.server.fetch import Fetched
from decodetop.server.processes import Process
from decodetop.sim import asks, info
from decodetop.sim.chunks import Answer, token_ids
from decodetop.sim.info import Setup
from decodetop.sim.metrics import Metrics
from decodetop.sim.serving import Emitter, Faults, Request
from support.clock import ManualClock
from support.fake_nvml_layer import FakeGpu, FakeLibrary
from support.fake_proc import FakeProc

PID = 4200
PORT = 30000
ENDPOINT = f"http://127.0.0.1:{PORT}"
IDLE_MW = 38_000
HOST_BRIDGE, SAME_BOARD = 30, 0
"""NVML's names of paths between cards."""


class Pace(msgspec.Struct, frozen=True, kw_only=True):
    """Times of one stream. `tokens` = how many each step brings, over and over (drafts accepted, and the bonus)."""

    ttft_ms: float
    step_ms: float
    tokens: tuple[int, ...] = (1,)


class Serving:
    """Serves each request by the clock alone, as the simulator's `Exact`, with steps of several tokens."""

    def __init__(self, clock: ManualClock, emitter: Emitter, pace: Pace) -> None:
        self.running: list[Request] = []
        self.waiting: tuple[Request, ...] = ()
        self._clock, self._emitter, self._pace = clock, emitter, pace
        self._busy_ns = 0
        self._since_ns = 0

    @property
    def busy_ns(self) -> int:
        """How long something was served."""
        return self._busy_ns + (self._clock.now_ns() - self._since_ns if self.running else 0)

    @property
    def kv_tokens(self) -> int:
        return sum(request.context for request in self.running)

    async def serve(self, request: Request) -> None:
        self._emitter.accept(request)
        if not self.running:
            self._since_ns = self._clock.now_ns()
        self.running.append(request)
        due_ns = request.received_ns + int(self._pace.ttft_ms * 1e6)
        for tokens in itertools.chain((1,), itertools.cycle(self._pace.tokens)):
            await self._clock.sleep_until(due_ns)
            self._emitter.emit(request, tokens, self._clock.now_ns)
            if request.end is not None:
                break
            due_ns += int(self._pace.step_ms * 1e6)
        self._busy_ns, self._since_ns = self.busy_ns, self._clock.now_ns()
        self.running.remove(request)


class Cards(FakeLibrary):
    """Cards that work while something is served, and idle as theirs do: low clocks, PCIe gen 1, little power."""

    def __init__(self, clock: ManualClock, serving: Serving, gpus: Sequence[FakeGpu], path: int) -> None:
        super().__init__(*gpus)
        self._clock, self._serving, self._path = clock, serving, path
        self._idle: dict[str, object] = {
            "utilization": (0, 0), "clock_sm": 210, "clock_mem": 405, "power_mw": IDLE_MW, "performance_state": 8,
            "event_reasons": 1, "pcie_gen": 1, "pcie_kb_s": (0, 0), "temperature": 34,
        }  # fmt: skip

    def topology(self, one: tuple[int, int], other: tuple[int, int]) -> int:
        super().topology(one, other)
        return self._path

    def _of(self, gpu: tuple[int, int], method: str) -> Any:
        value = super()._of(gpu, method)
        if method == "energy_mj":
            busy_s, all_s = self._serving.busy_ns / SECOND_NS, self._clock.now_ns() / SECOND_NS
            return int(IDLE_MW * (all_s - busy_s) + self.gpus[gpu[1]].power_mw * busy_s)
        return value if self._serving.running else self._idle.get(method, value)


class Outlet:
    """Where the bytes go: counted by when they were sent."""

    def __init__(self, clock: ManualClock) -> None:
        self._clock = clock

    def send(self, data: bytes) -> int:
        return self._clock.now_ns()

    def finish(self, status: int, body: bytes | None) -> None:
        assert status == 200

    def cut(self) -> None:
        raise AssertionError("no fault was asked for")


class InferenceBox:
    """`said` = answers of /server_info that differ from the simulated server's usual ones."""

    def __init__(
        self,
        clock: ManualClock,
        pace: Pace,
        command: Sequence[str],
        *,
        setup: Setup,
        gpu: FakeGpu,
        said: Mapping[str, Any],
        started_s: float,
        path: int = HOST_BRIDGE,
    ) -> None:
        gpus = [
            gpu.but(uuid=f"GPU-51a00000-0000-4000-8000-{at:012x}", pci_bus_id=f"00000000:{at + 1:02X}:00.0")
            for at in range(setup.tp)
        ]
        self.proc = FakeProc()
        devices = ",".join(str(at) for at in range(setup.tp))
        self.proc.add(PID, *command, listen=[("127.0.0.1", PORT)], devices=devices)
        self.proc.processes = [Process(pid=PID, ppid=1, argv=tuple(command), created_s=started_s)]
        self._clock, self._setup, self._said = clock, setup, said
        self._metrics = Metrics(setup.served_name, setup.tp, setup.kv_capacity, setup.context_length)
        self._serving = Serving(clock, Emitter(Faults(), (self._metrics,)), pace)
        self._metrics.serving = self._serving
        self.cards = Cards(clock, self._serving, gpus, path)
        self._visit: asyncio.Task[None] | None = None

    def visit(self) -> None:
        """Somebody else's request, long enough to run until we leave."""
        self._visit = asyncio.ensure_future(self._serving.serve(self._request("completions", 2048, 100_000, 10**6)))

    async def close(self) -> None:
        if self._visit is not None:
            self._visit.cancel()
            await asyncio.wait({self._visit})

    async def fetch(self, client: SafeClient, path: str) -> Fetched:
        """In place of the wire below `SafeClient`."""
        answers: dict[str, Callable[[], Any]] = {
            "/v1/models": lambda: info.models(self._setup, 0),
            "/model_info": lambda: info.model_info(self._setup),
            "/server_info": self._about,
        }
        if path == "/metrics":
            return Fetched(code=200, content_type="text/plain", body=self._metrics.render(self._clock.now_ns()))
        if path not in answers:
            return Fetched(code=404, content_type="application/json", body=b'{"detail":"Not Found"}')
        return Fetched(code=200, content_type="application/json", body=msgspec.json.encode(answers[path]()))

    def _about(self) -> dict[str, Any]:
        about = {**info.server_info(self._setup, 0.0), **self._said}
        about["internal_states"] = [{**about["internal_states"][0], **self._said}]
        return about

    async def load(self, plan: Plan, key: str | None, listener: Listener, stop: asyncio.Event) -> Result:
        """A benchmark's load: one stream after another, measured as a client sees it."""
        await listener.ready(Ready(dialect=Dialect(), model=self._setup.served_name))
        records = [await self._one(plan, index) for index in range(plan.requests)]
        return Result(
            records=records,
            source="native" if plan.api == "generate" else "usage",
            partial=False,
            unfinished=0,
            cpu_percent=2.0,
            loop_lag_ms_p99=0.2,
        )

    def _request(self, api: asks.Api, input_tokens: int, output_tokens: int, number: int) -> Request:
        ask = asks.Ask(
            api=api,
            model=self._setup.served_name,
            prompt=tuple(range(input_tokens)),
            max_tokens=output_tokens,
            stream=True,
            include_usage=True,
            continuous_usage=True,
        )
        answer = Answer(ask, f"{number:032x}", 0, token_ids(0, number))
        return Request(ask, answer, Outlet(self._clock), self._clock.now_ns())

    async def _one(self, plan: Plan, index: int) -> Record:
        assert plan.streams == 1 and plan.api in ("completions", "generate")
        start_ns = self._clock.now_ns()
        api: asks.Api = "generate" if plan.api == "generate" else "completions"
        request = self._request(api, plan.input_tokens, plan.output_tokens, index)
        await self._serving.serve(request)
        drafts = request.chunk_tokens[1:]
        return Record(
            index=index,
            due_ns=start_ns,
            write_ns=start_ns,
            end_ns=self._clock.now_ns(),
            chunks_ns=[sent_ns - start_ns for sent_ns in request.sent_ns],
            chunk_tokens=request.chunk_tokens,
            output_tokens=request.emitted,
            prompt_tokens=plan.input_tokens,
            # what SGLang's native answer counts: verify steps; the first token comes of the prefill
            steps=len(drafts) if plan.api == "generate" else None,
        )


def hub(folder: Path, name: str, config: Path) -> Path:
    """A local Hugging Face cache that holds `name`: a config.json, or a folder with one. Returns the cache."""
    snapshot = folder / f"models--{name.replace('/', '--')}" / "snapshots" / "0"
    snapshot.mkdir(parents=True)
    files = list(config.iterdir()) if config.is_dir() else [config]
    for file in files:
        target = snapshot / (file.name if config.is_dir() else "config.json")
        target.write_bytes(file.read_bytes())
    return folder


def wall_ns(hour: int, minute: int) -> int:
    """That time of 2026-11-30, UTC."""
    return (1_795_996_800 + hour * 3600 + minute * 60) * SECOND_NS
