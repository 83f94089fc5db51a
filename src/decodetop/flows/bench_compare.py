"""Pairs of runs against two servers: in random order within a pair, with the same prompts; fresh ones in the next."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Sequence

import msgspec

from decodetop.bench.compare import Side
from decodetop.bench.reading import Plan, Run
from decodetop.core.engine import Engine
from decodetop.errors import DecodetopError
from decodetop.flows.bench import BenchService, new_seed

PairRuns = tuple[Run, Run, Side]


class Measured(msgspec.Struct, frozen=True, kw_only=True):
    """The whole pairs, and what ended the series early, if anything did."""

    pairs: tuple[PairRuns, ...]
    error: DecodetopError | None = None


async def measure_pairs(
    plans: tuple[Plan, Plan],
    pairs: int,
    service: BenchService,
    engine: Engine,
    stop: asyncio.Event,
    told: Callable[[Sequence[PairRuns]], None],
) -> Measured:
    """`plans` of A and B. The number of pairs is fixed beforehand: peeking would find what isn't there."""
    coin = random.Random(plans[0].seed)
    found: list[PairRuns] = []
    for _ in range(pairs):
        first: Side = "a" if coin.random() < 0.5 else "b"
        seed = new_seed()
        runs: dict[Side, Run] = {}
        for side in ("a", "b") if first == "a" else ("b", "a"):
            plan = msgspec.structs.replace(plans[0 if side == "a" else 1], seed=seed)
            outcome = await service.measure([plan], engine, stop)
            if stop.is_set() or outcome.error is not None or not outcome.runs:
                return Measured(pairs=tuple(found), error=outcome.error)
            runs[side] = outcome.runs[0]
        found.append((runs["a"], runs["b"], first))
        told(found)
    return Measured(pairs=tuple(found))
