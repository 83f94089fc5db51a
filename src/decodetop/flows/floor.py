"""The floor of what is served here: the model, plan and card from the command line, the server and the driver."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec

from decodetop.core.clock import Clock
from decodetop.core.decode import NotDecoded, decode
from decodetop.core.engine import Engine, Probe
from decodetop.core.state import State
from decodetop.errors import DataError, UsageError
from decodetop.floor.calibration import Calibration, completed
from decodetop.floor.calibration import of as calibration_of
from decodetop.floor.drafting import open_draft, with_draft
from decodetop.floor.evidence import Clocks
from decodetop.floor.floor import compute
from decodetop.floor.formats import FORMATS
from decodetop.floor.hardware import Card
from decodetop.floor.locate import locate
from decodetop.floor.measured import breakdown_of, measure, traced_of
from decodetop.floor.model import Model, open_model
from decodetop.floor.moves import offered
from decodetop.floor.practice import Overrides
from decodetop.floor.reading import FloorReport, Plan
from decodetop.floor.verdict import judged
from decodetop.flows.session import new_header, watch
from decodetop.gpu.probe import GpuProbe
from decodetop.gpu.reading import GpuReading
from decodetop.server.probe import ServerProbe
from decodetop.server.reading import Server, ServerReading
from decodetop.steps.reading import StepsReport

LOOK_S = 12.0
BUSY_PERCENT = 50.0
"""Below this a card idles, and its clocks say nothing of a decode step."""


class Ask(msgspec.Struct, frozen=True, kw_only=True):
    """What was asked for; None = as the server or the trace says, else the usual. `dp_attention` 0 = one per GPU.

    `draft_problem` = why the server's draft model is not counted.
    """

    model: Path | None = None
    tp: int | None = None
    pp: int | None = None
    ep: int | None = None
    dp_attention: int | None = None
    batch: int | None = None
    context: int | None = None
    kv_dtype: str | None = None
    weights_dtype: str | None = None
    draft_steps: int | None = None
    draft_model: Path | None = None
    draft_problem: str | None = None
    verify_tokens: int | None = None
    accept_length: float | None = None
    token_ms: float | None = None
    step_ms: float | None = None
    eta: float | None = None
    allreduce_us: float | None = None
    layer_us: float | None = None


class Seen(NamedTuple):
    """What a look at the box found; `gpu_problem` = why there is no GPU reading."""

    server: Server | None = None
    gpus: GpuReading | None = None
    gpu_problem: str | None = None


async def look(clock: Clock, endpoints: Sequence[str], key: str | None, *, server: bool, gpus: bool) -> Seen:
    """One look at the current server and at the GPUs, as far as they are wanted."""
    probes: list[Probe] = []
    if server:
        probes.append(ServerProbe(clock, endpoints=endpoints, api_key=key))
    if gpus:
        probes.append(GpuProbe(clock))
    sources = [probe.source for probe in probes]
    state = await watch(
        Engine(new_header(clock), clock, probes), clock, LOOK_S, ready=lambda state: _heard(state, sources)
    )
    servers = state.last("server", ServerReading)
    failure = state.lane("gpu").failure
    return Seen(
        server=servers.current_server if servers is not None else None,
        gpus=state.last("gpu", GpuReading),
        gpu_problem=failure.message if failure is not None else None,
    )


def _heard(state: State, sources: Sequence[str]) -> bool:
    return all(state.lane(source).last is not None or state.lane(source).failure is not None for source in sources)


def from_server(server: Server, ask: Ask) -> Ask:
    """What was not asked for, as the server has it. Raises UsageError when its model lies elsewhere."""
    path = ask.model or _path_of(server)
    flags = {flag.name: flag.resolved or flag.requested for flag in server.flags}
    grouped = flags.get("enable_dp_attention") == "true"
    draft_steps, verify_tokens = _drafting(server)
    draft_model, draft_problem = (None, None) if ask.draft_model is not None else _draft_model(server, path)
    found = {
        "model": path,
        "tp": server.tp,
        "pp": server.pp,
        "ep": server.ep,
        "dp_attention": server.dp if grouped else None,
        "batch": server.running or None,
        "context": _context(server),
        "kv_dtype": server.kv_dtype,
        "draft_steps": draft_steps,
        "verify_tokens": verify_tokens,
        "draft_model": draft_model,
        "draft_problem": draft_problem,
        "accept_length": None if server.speculative_algorithm is None else server.accept_length,
    }
    changes = {name: value for name, value in found.items() if getattr(ask, name) is None and value is not None}
    return msgspec.structs.replace(ask, **changes)


DRAFT_FLAGS = ("speculative_draft_model_path", "speculative_draft_model", "model_draft", "speculative_model")

_NO_FORWARD = ("ngram", "suffix", "lookahead")
"""Ways to draft that look tokens up instead of running a model."""


def _drafting(server: Server) -> tuple[int | None, int | None]:
    """Forward passes of the draft, and tokens that the target verifies, a sequence and step; None where not known.

    SGLang counts the token that is certain among its draft tokens; vLLM and llama.cpp do not, and run the draft once
    for each of theirs.
    """
    method, tokens = server.speculative_algorithm, server.speculative_draft_tokens
    if method is None:
        return None, None
    if server.engine == "sglang":
        return server.speculative_steps, tokens
    looked_up = any(word in method.lower() for word in _NO_FORWARD)
    return (0 if looked_up else tokens), (None if tokens is None else 1 + tokens)


def _draft_model(server: Server, model: Path) -> tuple[Path | None, str | None]:
    """Of a draft model with its own checkpoint: where it is, or why it can't be counted."""
    name = draft_name(server)
    if name is None:
        return None, None
    try:
        path = locate(name)
        if path.resolve() == model.resolve():
            return None, None  # its own draft layers, under its own name
        open_draft(path)
    except (DataError, UsageError) as error:
        return None, f"the draft model is not counted: {error.message}"
    return path, None


def draft_name(server: Server) -> str | None:
    """What the engine was told to draft with: SGLang's and llama.cpp's flag, vLLM's JSON or older flag."""
    if server.speculative_algorithm is None:
        return None
    flags = {flag.name: flag.resolved or flag.requested for flag in server.flags}
    name = next((flags[key] for key in DRAFT_FLAGS if flags.get(key)), None)
    try:
        said = decode((flags.get("speculative_config") or "{}").encode())
    except NotDecoded:
        said = None
    model = said.get("model") if isinstance(said, dict) else None
    name = name or (model if isinstance(model, str) else None)
    return None if name is None or name.startswith("[") else name


def _path_of(server: Server) -> Path:
    if not server.model:
        raise UsageError(f"{server.endpoint} does not say which model it serves", "give --model PATH")
    try:
        return locate(server.model)
    except DataError as error:
        raise UsageError(f"{server.endpoint}: {error.message}", error.hint) from error


def _context(server: Server) -> int | None:
    """Tokens a running sequence holds, by the pool's use."""
    if not server.running or server.kv_usage is None or server.kv_capacity_tokens is None:
        return None
    return max(1, round(server.kv_usage * server.kv_capacity_tokens / server.running))


def answer(
    ask: Ask,
    card: Card,
    *,
    steps: StepsReport | None = None,
    server: Server | None = None,
    clocks: Clocks | None = None,
    calibration: Calibration | None = None,
) -> FloorReport:
    """Floor, gap, verdict and moves. A step that was traced is judged by the shipped constants, not its own.

    Raises UsageError, DataError.
    """
    if ask.model is None:
        raise UsageError("there is no model to judge", "give --model PATH")
    model = _drafted(_model(ask.model, ask.weights_dtype, server), ask)
    seen = None if steps is None else breakdown_of(steps)
    batch = seen.batch if seen is not None else None
    plan = plan_of(ask, batch)
    measured = measure(plan, token_ms=ask.token_ms, step_ms=ask.step_ms, steps=steps)
    overrides = Overrides(eta=ask.eta, allreduce_us=ask.allreduce_us, layer_us=ask.layer_us)
    if steps is None:
        overrides = completed(overrides, calibration, plan.tp)
    report = compute(model, plan, card, traced=traced_of(seen), overrides=overrides)
    if batch is not None and batch != plan.batch:
        note = f"the trace is of a batch of {batch}, the floor of {plan.batch}: they can't be compared"
        report = msgspec.structs.replace(report, errors=(*report.errors, note))
    return offered(judged(report, measured, clocks), card, server, steps.engine if steps is not None else None)


def calibrated(ask: Ask, card: Card, steps: StepsReport, source: str) -> Calibration:
    """The constants of this box by a capture. Raises UsageError, DataError."""
    if ask.model is None:
        raise UsageError("there is no model to judge", "give --model PATH")
    seen = breakdown_of(steps)
    plan = plan_of(ask, seen.batch if seen is not None else None)
    measured = measure(plan, token_ms=ask.token_ms, step_ms=ask.step_ms, steps=steps)
    report = compute(_drafted(open_model(ask.model, ask.weights_dtype), ask), plan, card, sweep=False)
    return calibration_of(report, measured, source)


def _model(path: Path, weights_dtype: str | None, server: Server | None) -> Model:
    """A server told to quantise at load serves other bytes than the files hold."""
    model = open_model(path, weights_dtype)
    asked = server.quantization if server is not None else None
    if weights_dtype is None and model.quantization is None and asked in FORMATS:
        return open_model(path, asked)
    return model


def _drafted(model: Model, ask: Ask) -> Model:
    if ask.draft_model is not None and ask.draft_steps:
        return with_draft(model, ask.draft_model)
    if ask.draft_problem is not None and ask.draft_steps:
        return msgspec.structs.replace(model, notes=(*model.notes, ask.draft_problem))
    return model


def plan_of(ask: Ask, batch: int | None = None) -> Plan:
    """`batch` = that of the trace. A chain of K drafts puts K + 1 tokens through the step."""
    tp, draft = ask.tp or 1, ask.draft_steps or 0
    groups = tp if ask.dp_attention == 0 else ask.dp_attention or 1
    return Plan(
        tp=tp,
        pp=ask.pp or 1,
        ep=ask.ep or 1,
        dp_attention=groups,
        batch=ask.batch or batch or 1,
        context=ask.context or 1024,
        kv_dtype=ask.kv_dtype,
        weights_dtype=ask.weights_dtype,
        draft_steps=draft,
        verify_tokens=ask.verify_tokens or draft + 1,
        accept_length=ask.accept_length,
    )


def clocks_of(gpus: GpuReading | None) -> Clocks | None:
    """Of the slowest card under load; None while they idle, for then their clocks say nothing."""
    busy = [gpu for gpu in gpus.gpus if (gpu.utilization_percent or 0.0) >= BUSY_PERCENT] if gpus is not None else []
    if not busy:
        return None
    slowest = min(busy, key=lambda gpu: (gpu.sm_clock_mhz or 0) / (gpu.sm_clock_max_mhz or 1))
    return Clocks(
        sm=slowest.sm_clock_mhz,
        sm_max=slowest.sm_clock_max_mhz,
        memory=slowest.mem_clock_mhz,
        memory_max=slowest.mem_clock_max_mhz,
        reasons=slowest.event_reasons,
        power_w=slowest.power_w,
        power_limit_w=slowest.power_limit_w,
        busy_percent=slowest.utilization_percent,
    )
