"""Which run and which capture still speak of the server as it runs now. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from decodetop.bench.reading import BenchReading, Run
from decodetop.floor.measured import breakdown_of
from decodetop.flows.judging import batch_of, token_ms
from decodetop.server.reading import Server
from decodetop.steps.reading import Capture, StepsReading

OWN_FLAGS = ("seed", "port", "dist_init", "log", "instance_id", "cudagraph_mode")
"""Parts of the names of flags that differ from start to start of the same thing, or are known only once it served."""


def settings_of(flags: Mapping[str, str | None]) -> dict[str, str]:
    """Without what differs from start to start."""
    return {name: value or "" for name, value in flags.items() if not any(part in name for part in OWN_FLAGS)}


def flags_of(server: Server) -> dict[str, str]:
    return settings_of({flag.name: flag.resolved or flag.requested for flag in server.flags})


def standing(
    server: Server, bench: BenchReading | None, steps: StepsReading | None
) -> tuple[Run | None, Capture | None]:
    """The newest run of one stream and the newest capture, as far as they belong together.

    A capture of several sequences explains its own step only. It counts alone where that step was measured, also beside
    a newer run: without a trace there is but guessing where the time goes.
    """
    run = next((one for one in bench.runs if _run_stands(one, server)), None) if bench is not None else None
    capture = next((one for one in steps.captures if capture_stands(one, server)), None) if steps is not None else None
    if capture is None or batch_of(capture.report) in (None, 1):
        return run, capture
    if run is None or capture.report.itl_ms is not None:
        return None, capture
    return run, None


def _run_stands(run: Run, server: Server) -> bool:
    """One stream of this server, measured with the settings it has now."""
    same = run.plan.endpoint.rstrip("/") == server.endpoint.rstrip("/") and run.environment.model in (
        None, server.served_name, server.model,
    )  # fmt: skip
    if not same or run.partial or run.plan.streams != 1 or not run.requests.ok or token_ms(run) is None:
        return False
    known = settings_of(run.environment.flags)
    if known and server.flags:
        return known == flags_of(server)
    return server.started_wall_ns is None or run.started_wall_ns >= server.started_wall_ns


def capture_stands(capture: Capture, server: Server) -> bool:
    """A trace says its engine only; one that is older than the server's process is of another."""
    report = capture.report
    if report.engine not in ("unknown", server.engine) or breakdown_of(report) is None:
        return False
    if server.started_wall_ns is None or capture.made_wall_ns is None:
        return True
    return capture.made_wall_ns >= server.started_wall_ns
