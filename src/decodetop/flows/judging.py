"""What a run and a capture say of one decode step of a server, put together into floor, verdict and moves."""

from __future__ import annotations

from pathlib import Path

import msgspec

from decodetop.bench.reading import Run
from decodetop.core.words import significant
from decodetop.errors import DataError, UsageError
from decodetop.findings.owners import gpus_of
from decodetop.floor import hardware
from decodetop.floor.evidence import Clocks
from decodetop.floor.hardware import Card
from decodetop.floor.measured import breakdown_of
from decodetop.floor.reading import FloorReport
from decodetop.flows.capture_load import itl_of
from decodetop.flows.floor import Ask, answer, from_server
from decodetop.gpu.reading import GpuReading
from decodetop.server.reading import Server
from decodetop.steps.reading import StepsReport

BUSY_PERCENT = 50.0


def token_ms(run: Run) -> float | None:
    """Time per token of one stream: ITL where chunks tell their tokens, else TPOT."""
    return itl_of(run.metrics, run.metrics.accept_length)


def of_run(ask: Ask, run: Run) -> Ask:
    """What the run says of the step: its time, its context half way through the answer, and tokens a step."""
    if run.plan.streams != 1:
        raise DataError(f"run {run.id} has {run.plan.streams} streams", "a diagnosis needs a run of one")
    context = run.plan.input_tokens + run.plan.output_tokens // 2
    return msgspec.structs.replace(
        ask,
        token_ms=token_ms(run) if ask.token_ms is None else ask.token_ms,
        accept_length=ask.accept_length or run.metrics.accept_length,
        batch=1,
        context=ask.context or context,
    )


def batch_of(steps: StepsReport | None) -> int | None:
    """Sequences of the step that a breakdown shows; None = there is none, or it does not say."""
    seen = None if steps is None else breakdown_of(steps)
    return None if seen is None else seen.batch


def explains(steps: StepsReport | None) -> str | None:
    """Why a breakdown can't be used for a verdict; None = it can.

    One of several sequences explains its own step only, and needs its own time per token.
    """
    if steps is None or breakdown_of(steps) is None:
        return "no decode step can be shown"
    batch = batch_of(steps)
    if batch not in (None, 1) and steps.itl_ms is None:
        return f"of a batch of {batch}, so it does not explain a step of one stream"
    return None


def conclude(
    ask: Ask,
    card: Card,
    *,
    server: Server | None,
    steps: StepsReport | None,
    run: Run | None,
    gpus: GpuReading | None,
) -> FloorReport:
    """The step of one stream; or, where others were served beside it, that of the capture, by its own time per token.

    Raises UsageError, DataError.
    """
    batch = batch_of(steps)
    if steps is not None and batch not in (None, 1) and steps.itl_ms is not None and ask.token_ms is None:
        accepted = ask.accept_length or steps.accept_length
        ask = msgspec.structs.replace(ask, batch=batch, token_ms=steps.itl_ms, accept_length=accepted)
    elif run is not None:
        ask = of_run(ask, run)
    if server is not None:
        ask = from_server(server, ask)
    return answer(ask, card, steps=steps, server=server, clocks=None if run is None else clocks_of_run(run, gpus))


def clocks_of_run(run: Run, gpus: GpuReading | None) -> Clocks | None:
    """Means while the load ran, of the slowest GPU that was busy."""
    tops = {gpu.index: gpu for gpu in gpus.gpus} if gpus is not None else {}
    busy = [
        span
        for span in run.environment.gpus
        if (span.utilization_percent_mean or 0.0) >= BUSY_PERCENT and span.index in tops
    ]
    if not busy:
        return None
    slowest = min(busy, key=lambda span: span.sm_clock_mhz_mean or float("inf"))
    top = tops[slowest.index]
    return Clocks(
        sm=None if slowest.sm_clock_mhz_mean is None else round(slowest.sm_clock_mhz_mean),
        sm_max=top.sm_clock_max_mhz,
        memory=None if slowest.mem_clock_mhz_mean is None else round(slowest.mem_clock_mhz_mean),
        memory_max=top.mem_clock_max_mhz,
        reasons=slowest.event_reasons,
        power_w=slowest.power_w_mean,
        power_limit_w=top.power_limit_w,
        busy_percent=slowest.utilization_percent_mean,
    )


def card_of(
    server: Server | None,
    gpus: GpuReading | None,
    problem: str | None,
    override: hardware.Override = hardware.Override(),
    own: Path | None = None,
) -> Card:
    """The card the server runs on, by the driver; all of the box where it can't be told which are its own.

    Raises UsageError with the driver's word, ConfigError for the user's table.
    """
    if gpus is None:
        raise UsageError(f"no GPU is found: {problem or 'NVML is silent'}", "give the card's name: --gpu NAME")
    held = gpus_of(server, gpus)
    if held == () and server is not None and not server.local:
        raise UsageError(f"{server.endpoint} runs on another host: its GPU is not known", "give its name: --gpu NAME")
    seen = gpus if not held else msgspec.structs.replace(gpus, gpus=held)
    return hardware.from_nvml(seen, hardware.load(own), override)


def measured_words(run: Run) -> str:
    """run 4: 5.11 ms a token, one stream."""
    name = "a run that was not stored" if run.id is None else f"run {run.id}"
    doubt = "" if run.valid else "; its gates say that it can't be relied on"
    return f"{name}: {significant(token_ms(run))} ms a token, one stream{doubt}"
