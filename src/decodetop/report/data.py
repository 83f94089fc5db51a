"""A snapshot as data: what two of them are compared by. Fields are added, never renamed; units stand in the names."""

from __future__ import annotations

from typing import ClassVar

import msgspec

SCHEMA = 2
"""1 had front matter only."""


class Fact(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Two facts of a kind are the same thing when their `key` fields agree. `quiet` fields are shown, not compared."""

    key: ClassVar[tuple[str, ...]] = ()
    quiet: ClassVar[frozenset[str]] = frozenset()

    @property
    def name(self) -> str:
        """What it is called where it appears, vanishes or changes."""
        return " ".join(str(getattr(self, field)) for field in self.key)


class Card(Fact, frozen=True, kw_only=True):
    """One GPU, by what does not move with the load."""

    key = ("index",)

    index: int
    model: str | None = None
    state: str = "ok"
    memory_total_bytes: int | None = None
    sm_clock_max_mhz: int | None = None
    mem_clock_max_mhz: int | None = None
    power_limit_w: float | None = None
    pcie_gen_max: int | None = None
    pcie_width_max: int | None = None
    mig_enabled: bool | None = None
    ecc_uncorrected: int | None = None

    @property
    def name(self) -> str:
        return f"GPU {self.index} {self.model or ''}".rstrip()


class Box(Fact, frozen=True, kw_only=True):
    host: str | None = None
    driver: str | None = None
    cuda: str | None = None
    kernel: str | None = None
    cpu_count: int | None = None
    cpu_limit_cores: float | None = None
    memory_total_bytes: int | None = None
    memory_limit_bytes: int | None = None
    cards: tuple[Card, ...] = ()


class ServerFact(Fact, frozen=True, kw_only=True):
    """`asked` = flags of the command line, `in_force` = what the server runs with."""

    key = ("endpoint",)

    endpoint: str
    engine: str
    version: str | None = None
    status: str = "down"
    model: str | None = None
    served_name: str | None = None
    tp: int | None = None
    pp: int | None = None
    dp: int | None = None
    ep: int | None = None
    quantization: str | None = None
    weights_dtype: str | None = None
    kv_dtype: str | None = None
    attention_backend: str | None = None
    cuda_graph: bool | None = None
    cuda_graph_max_batch: int | None = None
    speculative_algorithm: str | None = None
    speculative_steps: int | None = None
    context_length: int | None = None
    kv_capacity_tokens: int | None = None
    max_running: int | None = None
    command: str | None = None
    asked: dict[str, str] = {}
    in_force: dict[str, str] = {}


class FindingFact(Fact, frozen=True, kw_only=True):
    """`evidence` holds a figure that moves."""

    key = ("id",)
    quiet = frozenset({"evidence"})

    id: str
    severity: str
    title: str
    evidence: str

    @property
    def name(self) -> str:
        return f"{self.severity}: {self.title}: {self.evidence}"


class FloorFact(Fact, frozen=True, kw_only=True):
    """Times are of a step; the sentence repeats them."""

    quiet = frozenset({"sentence"})

    what: str
    t_phys_ms: float
    t_prac_ms: float
    t_meas_ms: float | None = None
    accept_length: float | None = None
    verdict: str | None = None
    confidence: str | None = None
    sentence: str | None = None
    moves: tuple[str, ...] = ()


class CaptureFact(Fact, frozen=True, kw_only=True):
    """The first rank that has a step. Times are of the representative step; idle is one of its kinds."""

    key = ("id",)
    quiet = frozenset({"sha256", "made"})

    id: str
    sha256: str
    made: str | None = None
    engine: str = "unknown"
    ranks: int = 1
    batch: int | None = None
    itl_ms: float | None = None
    period_us: float | None = None
    kinds_us: dict[str, float] = {}

    @property
    def name(self) -> str:
        period = "no step to show" if self.period_us is None else f"{self.period_us / 1e3:.2f} ms a step"
        return f"{self.id}: {period}"


class RunFact(Fact, frozen=True, kw_only=True):
    """Times are means, but for the one named p99. `gates` = severity and name of each that spoke."""

    key = ("id",)

    id: int | None = None
    sha256: str
    started: str
    preset: str
    streams: int
    input_tokens: int
    output_tokens: int
    state: str
    ok: int
    failed: int
    output_tok_s: float | None = None
    ttft_ms: float | None = None
    itl_ms: float | None = None
    tpot_ms: float | None = None
    icl_p99_ms: float | None = None
    accept_length: float | None = None
    gates: tuple[str, ...] = ()
    words: str = ""

    quiet = frozenset({"words", "sha256", "started"})

    @property
    def name(self) -> str:
        return self.words


class AttemptFact(Fact, frozen=True, kw_only=True):
    key = ("change", "made")

    change: str
    outcome: str
    reason: str | None = None
    made: str | None = None
    links: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        return f"{self.change}: {self.outcome}" + (f": {self.reason}" if self.reason else "")


class ItemFact(Fact, frozen=True, kw_only=True):
    """One item of the checklist."""

    key = ("id",)

    id: str
    content: str
    status: str
    priority: str | None = None
    parent: str | None = None
    reason: str | None = None
    hypothesis: str | None = None
    expected: str | None = None
    notes: str | None = None
    blocked_by: tuple[str, ...] = ()
    attempts: tuple[AttemptFact, ...] = ()
    evidence: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        return f"{self.id} {self.content}"


class Snapshot(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """`made` is UTC. `hashes` = SHA-256 of what the instruments said, before anything was hidden.

    `servers`: the current one first; `captures` and `runs`: the newest first.
    """

    schema: int
    decodetop: str
    made: str
    host: str
    simulated: bool = False
    anonymous: bool = False
    question: str | None = None
    hashes: dict[str, str] = {}
    box: Box = Box()
    servers: tuple[ServerFact, ...] = ()
    findings: tuple[FindingFact, ...] = ()
    floor: FloorFact | None = None
    captures: tuple[CaptureFact, ...] = ()
    runs: tuple[RunFact, ...] = ()
    baseline: int | None = None
    items: tuple[ItemFact, ...] = ()
