"""Runs for other tools. Pure."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence

from decodetop.bench.reading import Run
from decodetop.bench.text import METRIC_FIELDS, state

_CSV_PLAN = ("preset", "endpoint", "api", "streams", "requests", "input_tokens", "output_tokens", "seed")
_CSV_QUANTILES = ("mean", "p50", "p90", "p99")


def csv_table(runs: Sequence[Run]) -> str:
    """A row a run, all figures unrounded; an unknown one is an empty cell."""
    out = io.StringIO()
    spreads = [(field, part) for _, field in METRIC_FIELDS for part in _CSV_QUANTILES]
    plan = [f"asked_{field}" if "tokens" in field or field == "requests" else field for field in _CSV_PLAN]
    totals = ("output_tok_s", "request_s", "goodput_request_s", "accept_length")
    writer = csv.writer(out, lineterminator="\n")
    head = ["id", "started_wall_ns", "state", "model", *plan, "ok", "failed", "output_tokens", "prompt_tokens"]
    writer.writerow([*head, *totals, *(f"{field}_{part}" for field, part in spreads)])
    for run in runs:
        writer.writerow(
            [
                run.id,
                run.started_wall_ns,
                state(run),
                run.environment.model or run.plan.model,
                *(getattr(run.plan, field) for field in _CSV_PLAN),
                run.requests.ok,
                run.requests.failed,
                run.tokens.output,
                run.tokens.prompt,
                *(getattr(run.metrics, field) for field in totals),
                *(getattr(getattr(run.metrics, field), part, None) for field, part in spreads),
            ]
        )
    return out.getvalue()
