"""The simulated box of `decodetop demo`: real probes and services on a simulated server, GPUs and investigation.

What is simulated: the inference server (a process on loopback), the GPUs. What is real: this host's CPU and memory, the
server probe, the checklist, the benchmark, the trace reader. All lies in a temporary folder that goes at the end.
The case: an attention kernel that takes BF16 only, so the whole FP8 KV pool is cast in every layer of every step.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from decodetop.config import Settings
from decodetop.core.clock import SECOND_NS, Clock
from decodetop.core.decode import NotDecoded
from decodetop.core.engine import Context, Engine
from decodetop.core.sample import Command
from decodetop.errors import ProbeError
from decodetop.flows.bench_window import server_at
from decodetop.flows.capture_load import watched
from decodetop.flows.demo_folder import demo_folder
from decodetop.flows.live import assemble
from decodetop.flows.session import new_header
from decodetop.server.probe import ServerProbe
from decodetop.server.reading import Server, ServerProcess, ServerReading
from decodetop.sim.client import SimClient
from decodetop.sim.gpus import SimGpuProbe, gpu_uuid
from decodetop.sim.info import MODEL_CONFIG
from decodetop.sim.model import KvCast
from decodetop.sim.process import SimServer, start_server
from decodetop.steps.reading import OpenTrace

VISITORS = 3
KV_TOKENS = 68_000
"""With two GPUs the cast of this pool is 69 % of the step: 7.5 ms of 10.9."""
CAPTURE_STEPS = 12
CAPTURE_WAIT_S = 30.0
LOOK_NS = SECOND_NS // 5


class DemoBox(msgspec.Struct, frozen=True, kw_only=True):
    """A running simulated box. `folder` holds the investigation, the traces and the model's config."""

    server: SimServer
    folder: Path
    tp: int
    gpu_count: int

    @property
    def investigation(self) -> Path:
        return self.folder / "investigation"

    @property
    def traces(self) -> Path:
        return self.folder / "traces"


@contextlib.contextmanager
def demo_box(*, tp: int = 2, gpu_count: int = 2, graphs: bool = True, kv_cast: KvCast = "full") -> Iterator[DemoBox]:
    """Start the simulated server in a temporary folder; both are gone afterwards. Raises DataError."""
    with demo_folder() as folder:
        model = folder / "models" / "simulated-8b"
        traces = folder / "traces"
        model.mkdir(parents=True)
        traces.mkdir()
        (model / "config.json").write_bytes(msgspec.json.encode(MODEL_CONFIG))
        with start_server(
            tp=tp,
            graphs=graphs,
            kv_cast=kv_cast,
            kv_tokens=KV_TOKENS,
            visitors=VISITORS,
            profile_dir=traces,
            more=("--model-path", str(model), "--scratch", str(folder)),
        ) as server:
            box = DemoBox(server=server, folder=folder, tp=tp, gpu_count=gpu_count)
            seed_investigation(box.investigation)
            yield box


def demo_settings(settings: Settings, box: DemoBox) -> Settings:
    """The operator's settings, but for what would touch their data or their servers."""
    origin = {**settings.origin, "investigation": "demo", "endpoints": "demo", "api_key_file": "demo"}
    return msgspec.structs.replace(
        settings,
        investigation=box.investigation,
        endpoints=(box.server.endpoint,),
        api_key_file=None,
        origin=origin,
    )


def build_demo(settings: Settings, clock: Clock, box: DemoBox) -> Engine:
    """The engine for the simulated box, as `build_live` makes the one for the real box."""
    client = SimClient(box.server.port)
    server = SimServerProbe(clock, box)
    return assemble(
        demo_settings(settings, box),
        clock,
        new_header(clock, simulated=True),
        lambda clock, quiet: SimGpuProbe(client, clock, box.gpu_count),
        server,
        lambda: None,
        (FirstCapture(client, box),),
    )


class SimServerProbe(ServerProbe):
    """Asks the simulated server only, and knows its process, which discovery would not take for an engine."""

    def __init__(self, clock: Clock, box: DemoBox) -> None:
        super().__init__(clock, endpoints=(box.server.endpoint,), discover=False, usual_ports=False)
        self._box = box

    async def read(self) -> ServerReading:
        reading = await super().read()
        return msgspec.structs.replace(reading, servers=tuple(map(self._placed, reading.servers)))

    def _placed(self, server: Server) -> Server:
        process = self._box.server.process
        known = {"root_pid", "gpu_indices", "gpu_uuids"}
        ours = ServerProcess(pid=process.pid, role="scheduler", title="simulated server")
        reasons = {name: reason for name, reason in server.reasons.items() if name not in known}
        return msgspec.structs.replace(
            server,
            root_pid=process.pid,
            processes=(ours,) if process.poll() is None else (),
            gpu_indices=tuple(range(self._box.tp)),
            gpu_uuids=tuple(gpu_uuid(index) for index in range(self._box.tp)),
            command=self._box.server.command,
            reasons={**reasons, "unit": "simulated", "started_wall_ns": "simulated"},
        )


class FirstCapture:
    """Once the box is busy: the ITL by the server's own counters over a few seconds, then a profile of some steps
    under that load; so the steps pane has something, and the unprofiled step beside it."""

    source = "demo"
    commands: tuple[type[Command], ...] = ()

    def __init__(self, client: SimClient, box: DemoBox) -> None:
        self._client = client
        self._box = box

    async def run(self, context: Context) -> None:
        """Ends when the traces are opened. Raises ProbeError when the server does not get to it."""
        deadline_ns = context.clock.now_ns() + int(CAPTURE_WAIT_S * SECOND_NS)
        asked, unprofiled = False, None
        while context.clock.now_ns() < deadline_ns:
            try:
                counted = server_at(context, self._box.server.endpoint)
                if not asked and counted is not None and (await self._client.load()).decode_busy_ns:
                    unprofiled = await watched(context, self._box.server.endpoint)
                    await self._client.start_profile(CAPTURE_STEPS, str(self._box.traces))
                    asked = True
            except (OSError, NotDecoded) as error:
                raise ProbeError("lost", f"the simulated server does not answer: {error}") from error
            files = sorted(self._box.traces.glob("*.trace.json.gz"))
            if len(files) >= self._box.tp:
                itl_ms = unprofiled.itl_ms if unprofiled is not None else None
                accept_length = unprofiled.accept_length if unprofiled is not None else None
                paths = tuple(map(str, files))
                context.submit(OpenTrace(paths=paths, itl_ms=itl_ms, accept_length=accept_length))
                return
            await context.clock.sleep_until(context.clock.now_ns() + LOOK_NS)
        raise ProbeError("stalled", f"the simulated server wrote no trace within {CAPTURE_WAIT_S:g} s")

    async def handle(self, command: Command, context: Context) -> None:
        """It takes none."""


def seed_investigation(folder: Path) -> None:
    """A checklist as an operator's agent left it: the plan, what was tried, and why it failed."""
    folder.mkdir(parents=True)
    document = {"schema": 1, "title": "why 91 tok/s?", "next_id": len(PLAN) + 1, "todos": PLAN}
    (folder / "todo.json").write_bytes(msgspec.json.format(msgspec.json.encode(document), indent=2) + b"\n")


def _item(number: int, content: str, status: str, priority: str, **more: object) -> dict[str, object]:
    return {"id": f"t{number}", "content": content, "status": status, "priority": priority, **more}


PLAN: Sequence[dict[str, object]] = (
    _item(1, "Profile SGLang decode: identify bottlenecks", "in_progress", "high"),
    _item(2, "Break down the step: kernels, all-reduce, scheduling", "pending", "high"),
    _item(
        3,
        "Try trtllm_mla attention backend (reads FP8 KV)",
        "cancelled",
        "high",
        attempts=[
            {
                "change": "--attention-backend trtllm_mla",
                "outcome": "failed",
                "reason": "assertion qk_nope_head_dim == 128: the model has another head size",
            }
        ],
        reason="needs qk_nope_head_dim 128",
    ),
    _item(
        4,
        "Try flashmla attention backend",
        "cancelled",
        "medium",
        attempts=[
            {
                "change": "--attention-backend flashmla",
                "outcome": "failed",
                "reason": "assertion page_size == 64: the KV pool is paged by 1",
            }
        ],
        reason="needs page_size 64",
    ),
    _item(
        5,
        "Cast only the active rows of the KV pool, not all of it",
        "pending",
        "high",
        hypothesis="the FP8 to BF16 cast of the whole pool is 69 % of the step",
        expected="TPOT 10.9 -> about 3.5 ms (decodetop demo --kv-cast active is the fixed box)",
    ),
    _item(6, "Compare before and after with the sweep benchmark", "pending", "medium"),
    _item(7, "Write the snapshot for the team", "pending", "low"),
)
