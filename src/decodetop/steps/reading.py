"""Where a decode step's time goes; the JSON of `steps` is `StepsReport` encoded. Times in us unless named otherwise."""

from __future__ import annotations

from typing import Literal

import msgspec

from decodetop.core.sample import Command, Reading

SCHEMA = 1

KINDS = (
    "gemm",
    "moe",
    "attention",
    "linear_attention",
    "kv_write",
    "copy",
    "quantize",
    "norm",
    "rope",
    "activation",
    "communication",
    "sampling",
    "elementwise",
    "other",
    "idle",
)
"""In the order of the bar. `idle` is no kernel; with it the kinds sum to the period."""

GROUPS = ("compute", "copies", "communication", "idle")

LETTERS = dict(zip(KINDS, "GMALKcQNRaCSEo░", strict=True))
"""One letter a kind, so that the bar reads without colour."""

IDLE_KINDS = ("host_late", "launch_call", "sync", "in_graph", "device_gap", "unknown")


TOP_KERNELS = 64
"""Length of the list of kernels at most; a decode step has 40 to 60 names, so it usually holds all of them."""


def group_of(kind: str) -> str:
    """compute = all kernels but copies and communication."""
    return {"copy": "copies", "communication": "communication", "idle": "idle"}.get(kind, "compute")


class Batch(msgspec.Struct, frozen=True, kw_only=True):
    """Steps of one batch size; figures of the report are of the first in the list."""

    batch_size: int | None
    label: str
    steps_used: int


class Dropped(msgspec.Struct, frozen=True, kw_only=True):
    index: int
    why: str


class StepCounts(msgspec.Struct, frozen=True, kw_only=True):
    found: int
    used: int
    dropped: tuple[Dropped, ...] = ()
    other: dict[str, int] = {}


class Period(msgspec.Struct, frozen=True, kw_only=True):
    """`representative` is the kept step whose period is nearest the median; the rest is over the kept steps."""

    representative: float
    median: float
    p10: float
    p90: float


class Communication(msgspec.Struct, frozen=True, kw_only=True):
    """`transfer` = min over ranks per collective, `waiting` = the rest; both None with one rank (incl. waiting)."""

    transfer: float | None = None
    waiting: float | None = None


class Real(msgspec.Struct, frozen=True, kw_only=True):
    """The unprofiled step: `idle_share` = 1 - (busy - waiting)/ITL, None with `problem` when busy > ITL."""

    step_ms: float
    idle_share: float | None
    source: str = "itl"
    problem: str | None = None


class TopKernel(msgspec.Struct, frozen=True, kw_only=True):
    """`name` is the full demangled name; share is of the representative step's period."""

    name: str
    kind: str
    us_per_step: float
    calls_per_step: float
    share: float


class Coverage(msgspec.Struct, frozen=True, kw_only=True):
    """`ok` False = only totals may be believed, for the `problems` named."""

    ok: bool
    problems: tuple[str, ...] = ()


class Totals(msgspec.Struct, frozen=True, kw_only=True):
    """The whole trace, from the first to the last GPU event: what may be said when no step can be shown."""

    span_us: float
    kinds_us: dict[str, float]
    kernels: int


class StepBar(msgspec.Struct, frozen=True, kw_only=True):
    """One kept step in time order: its period and what made it. Of many steps `kinds_us` stands at an even sample;
    it leaves out what is 0 and, with `idle`, sums to the period.
    """

    index: int
    period_us: float
    idle_us: float
    kinds_us: dict[str, float] = {}


class RankSteps(msgspec.Struct, frozen=True, kw_only=True):
    """One rank's trace. Figures are of the representative step of the commonest batch."""

    rank: int
    file: str
    batches: tuple[Batch, ...] = ()
    steps: StepCounts
    period_us: Period | None = None
    busy_us: float | None = None
    idle_us: float | None = None
    representative_step: int | None = None
    kinds_us: dict[str, float] = {}
    groups_us: dict[str, float] = {}
    idle_split_us: dict[str, float] = {}
    communication_us: Communication = Communication()
    real: Real | None = None
    kernels_per_step: int | None = None
    graph_launches_per_step: int | None = None
    top_kernels: tuple[TopKernel, ...] = ()
    calls_per_step: dict[str, float] = {}
    unknown_share: float = 0.0
    unknown_kernels: tuple[TopKernel, ...] = ()
    kept_steps: tuple[StepBar, ...] = ()
    coverage: Coverage
    totals: Totals | None = None
    events: int = 0
    unreadable_events: int = 0
    device_name: str | None = None


class StepsReport(msgspec.Struct, frozen=True, kw_only=True):
    """The files given: the ranks of one capture."""

    schema: int = SCHEMA
    engine: Literal["sglang", "vllm", "unknown"] = "unknown"
    itl_ms: float | None = None
    accept_length: float | None = None
    ranks: tuple[RankSteps, ...] = ()
    straggler_rank: int | None = None
    errors: tuple[str, ...] = ()


class Delta(msgspec.Struct, frozen=True, kw_only=True):
    """A figure before and after, in us per step; None where that side doesn't know it."""

    name: str
    kind: str
    before_us: float | None
    after_us: float | None
    delta_us: float | None
    percent: float | None
    before_share: float | None = None
    after_share: float | None = None
    before_calls: float | None = None
    after_calls: float | None = None


class Comparison(msgspec.Struct, frozen=True, kw_only=True):
    """Two captures: rank 0 of each, representative steps. `kernels` by the size of the change."""

    schema: int = SCHEMA
    before_files: tuple[str, ...]
    after_files: tuple[str, ...]
    period: Delta
    kinds: tuple[Delta, ...]
    kernels: tuple[Delta, ...]
    problems: tuple[str, ...] = ()
    errors: tuple[str, ...] = ()


class Capture(msgspec.Struct, frozen=True, kw_only=True):
    """A report that was made in this investigation. `id` is stable; `made_wall_ns` is epoch ns of the trace files."""

    id: str
    made_wall_ns: int | None
    files: tuple[str, ...]
    report: StepsReport

    @property
    def likeness(self) -> tuple[str, int] | None:
        """What two captures must share to be one before and after: engine and ranks; None without a step."""
        if all(rank.period_us is None for rank in self.report.ranks):
            return None
        return self.report.engine, len(self.report.ranks)


class Parsing(msgspec.Struct, frozen=True, kw_only=True):
    """A trace being read. `mb_s` counts uncompressed JSON."""

    files: tuple[str, ...]
    done_bytes: int
    total_bytes: int
    mb_s: float | None = None
    eta_s: float | None = None


CAPTURE_STEPS = 20
"""Forward passes asked for; first and last can't be used, and the engine needs one to begin."""

CAPTURE_COSTS = "Profiled steps are slower, and serving stalls while the server writes the trace."

CapturePhase = Literal["preparing", "measuring", "loading", "profiling", "waiting", "reading"]

CAPTURE_PHASES: dict[CapturePhase, str] = {
    "preparing": "looking at the server",
    "measuring": "measuring ITL, not profiled",
    "loading": "starting the load",
    "profiling": "profiling",
    "waiting": "waiting for the trace files",
    "reading": "reading the traces",
}


class Capturing(msgspec.Struct, frozen=True, kw_only=True):
    """A live server being profiled. `since_ns` is session time at which the phase began.

    `streams` are ours, `others` requests of somebody else were running when it began (None = not known).
    `itl_ms` is that of the same load without the profiler. `ranks_wanted` None = how many is not known.
    """

    endpoint: str
    phase: CapturePhase
    since_ns: int
    steps: int
    streams: int | None = None
    others: int | None = None
    itl_ms: float | None = None
    ranks_written: int = 0
    ranks_wanted: int | None = None


class LeftProfiling(msgspec.Struct, frozen=True, kw_only=True):
    """A server whose profiler may still run, for the capture that started it died. `since_wall_ns` is epoch ns."""

    endpoint: str
    engine: str
    host: str
    since_wall_ns: int


class Taking(msgspec.Struct, frozen=True, kw_only=True):
    """How the capture of a live server goes. `error` is why the last one brought nothing."""

    progress: Capturing | None = None
    error: str | None = None
    left: LeftProfiling | None = None


class StepsReading(Reading, frozen=True, kw_only=True):
    """`captures` newest first. `chosen` is the id of the one to show, None = the newest; `compared` those of the two
    that are compared, before and after; `kept` those of the two compared last, unless a capture was made since.
    """

    captures: tuple[Capture, ...] = ()
    chosen: str | None = None
    compared: tuple[str, str] | None = None
    kept: tuple[str, str] | None = None
    parsing: Parsing | None = None
    last_error: str | None = None
    taking: Taking = Taking()

    @property
    def shown(self) -> Capture | None:
        """The capture chosen, or else the newest."""
        return self.capture(self.chosen) or (self.captures[0] if self.captures else None)

    @property
    def before_and_after(self) -> tuple[Capture, Capture] | None:
        """The two that are compared."""
        return self._both(self.compared)

    @property
    def told(self) -> tuple[Capture, Capture] | None:
        """The two a report tells of: those compared (last), else the newest and the one like it that came before."""
        found = self.before_and_after or self._both(self.kept)
        if found is not None or not self.captures:
            return found
        newest, *older = self.captures
        before = next((one for one in older if one.likeness == newest.likeness), None)
        return None if before is None or newest.likeness is None else (before, newest)

    def _both(self, pair: tuple[str, str] | None) -> tuple[Capture, Capture] | None:
        before, after = (self.capture(one) for one in pair or (None, None))
        return None if before is None or after is None else (before, after)

    def capture(self, id: str | None) -> Capture | None:
        return next((one for one in self.captures if one.id == id), None)


class OpenTrace(Command, frozen=True, kw_only=True):
    """Read these files as the ranks of one capture; the ITL is what was measured beside it without the profiler."""

    title = "open a trace"

    paths: tuple[str, ...]
    itl_ms: float | None = None
    accept_length: float | None = None


class ShowCapture(Command, frozen=True, kw_only=True):
    """Show this capture; ends a comparison."""

    title = "show a capture"

    id: str


class CompareCaptures(Command, frozen=True, kw_only=True):
    """Compare two captures; None ends it."""

    title = "compare captures"

    pair: tuple[str, str] | None


class CancelParsing(Command, frozen=True, kw_only=True):
    """Stop reading the trace under way."""

    title = "stop reading the trace"


class CaptureSteps(Command, frozen=True, kw_only=True):
    """Profile `steps` decode steps of `endpoint` (None = the current server) and read the traces.

    `load` streams are started for it. None = none where requests are running already, else one.
    """

    touches = True
    title = "profile the server"

    endpoint: str | None = None
    load: int | None = None
    steps: int = CAPTURE_STEPS


class StopCapture(Command, frozen=True, kw_only=True):
    """Stop the capture under way; when there is none, the profiler that a dead one left running."""

    touches = True
    title = "stop the capture"
