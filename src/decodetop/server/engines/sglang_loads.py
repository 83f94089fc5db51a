"""SGLang's `/v1/loads`: what its schedulers do now, told without metrics. From 0.5.15 out of shared memory."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from decodetop.server.engines.adapter import Look, whole_of
from decodetop.server.metrics import IMPOSSIBLE


def look_at_loads(body: Mapping[str, Any], reasons: dict[str, str]) -> Look:
    """From `/v1/loads`, which needs no `--enable-metrics`; its throughput and hit rate do, so they are not taken.
    Data-parallel ranks add up."""
    listed = body.get("loads")
    loads = [one for one in listed if isinstance(one, dict)] if isinstance(listed, list) else []
    usages = [one["token_usage"] for one in loads if isinstance(one.get("token_usage"), (int, float))]
    accepts = [length for one in loads if (length := _accept_of(one))]
    return Look(
        basis="none",
        running=_sum_of(loads, "num_running_reqs"),
        queued=_sum_of(loads, "num_waiting_reqs"),
        kv_usage=sum(usages) / len(usages) if usages and all(0 <= usage <= 1 for usage in usages) else None,
        kv_capacity_tokens=_sum_of(loads, "max_total_num_tokens"),
        accept_gauge=sum(accepts) / len(accepts) if accepts else None,
        speculating=bool(accepts),
        reasons=reasons,
    )


def _sum_of(loads: list[dict[str, Any]], field: str) -> int | None:
    values = [whole_of(one.get(field)) for one in loads]
    known = [value for value in values if value is not None and value >= 0]
    return sum(known) if values and len(known) == len(values) else None


def _accept_of(load: Mapping[str, Any]) -> float | None:
    told = load.get("speculative")
    length = told.get("accept_length") if isinstance(told, dict) else None
    return float(length) if isinstance(length, (int, float)) and 0 < length < IMPOSSIBLE else None
