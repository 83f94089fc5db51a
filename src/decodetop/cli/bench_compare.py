"""`decodetop bench compare A B`: is B faster? Two servers measured in pairs, or runs that are stored."""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import Sequence

from decodetop.bench.compare import METRICS, Comparison, differences, lines, of_pairs, of_runs, pair_line, plan_lines
from decodetop.bench.plan import choose, load_presets, plans_of, several
from decodetop.bench.reading import SCHEMA, Plan, Run
from decodetop.bench.store import RunStore
from decodetop.bench.verdict import PAIRS, THRESHOLD, Metric, detectable, pair_sd, pairs_for, value
from decodetop.cli.bench_options import (
    INTERRUPTED,
    action,
    link_comparisons,
    measured,
    overrides,
    own_presets,
    plan_options,
    run_number,
)
from decodetop.cli.common import finite, print_json, print_lines, tell
from decodetop.config import Settings, load
from decodetop.core.engine import Engine
from decodetop.errors import UsageError
from decodetop.flows.bench import BenchService, new_seed
from decodetop.flows.bench_compare import Measured, PairRuns, measure_pairs

ASSUMED_SD = 0.01 * 2**0.5
"""Of one log ratio, when nothing is known: 1 % from run to run, as quiet boxes show."""


def configure(actions: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = action(actions, "compare", "is B faster than A?")
    parser.add_argument("a", metavar="A", help="a server's address, or numbers of stored runs (3 or 3,5,8)")
    parser.add_argument("b", metavar="B", help="the same of what it is compared with")
    parser.add_argument("--preset", default="single", metavar="NAME", help="what each run is (default single)")
    parser.add_argument("--pairs", type=int, default=PAIRS, metavar="N", help=f"fixed beforehand (default {PAIRS})")
    parser.add_argument("--metric", choices=METRICS, default="output_tok_s", help="the one question asked")
    threshold = f"a smaller difference is none (default {100 * THRESHOLD:g})"
    parser.add_argument("--threshold", type=finite, default=100 * THRESHOLD, metavar="PERCENT", help=threshold)
    parser.add_argument("--plan", action="store_true", default=False, help="only say what the pairs could find")
    parser.add_argument("--effect", type=finite, default=3.0, metavar="PERCENT", help="for --plan (default 3)")
    parser.add_argument("--spread", type=finite, default=None, metavar="PERCENT", help="for --plan: run to run")
    plan_options(parser)
    parser.set_defaults(work=_compare)


def _compare(args: argparse.Namespace, settings: Settings) -> int:
    if args.pairs < 2 or args.threshold <= 0 or args.effect <= 0:
        raise UsageError("--pairs must be 2 or more, --threshold and --effect above 0", "leave them out for the usual")
    stored = [_numbers(side) for side in (args.a, args.b)]
    if args.plan:
        return _plan(args, settings, [number for side in stored for number in side or ()])
    if all(side is not None for side in stored):
        return _stored(args, settings, stored[0] or (), stored[1] or ())
    if any(side is not None for side in stored):
        raise UsageError(f"{args.a} and {args.b} are not of one kind", "give two addresses, or runs on both sides")
    return _live(args, settings)


def _numbers(side: str) -> tuple[int, ...] | None:
    """Run numbers, or None for an address."""
    parts = [part.strip() for part in side.split(",")]
    if not all(part.removeprefix("#").isdigit() for part in parts):
        return None
    try:
        return tuple(run_number(part) for part in parts)
    except argparse.ArgumentTypeError as error:
        raise UsageError(str(error), "numbers of stored runs, or addresses") from error


def _live(args: argparse.Namespace, settings: Settings) -> int:
    addresses = load({"endpoints": [args.a, args.b], "config": settings.config_path}, {}).endpoints
    presets = load_presets(own_presets(settings))
    preset, asked = choose(presets, args.preset), overrides(args)
    if several(preset, asked):
        hint = "one question at a time: add --streams N or --input-tokens I"
        raise UsageError(f"preset {preset.name} is more than one run", hint)
    seed = getattr(args, "seed", None) or new_seed()
    plans: tuple[Plan, Plan] = (
        plans_of(preset, addresses[0], seed, asked)[0],
        plans_of(preset, addresses[1], seed, asked)[0],
    )

    def told(pairs: Sequence[PairRuns]) -> None:
        if sys.stderr.isatty():
            so_far = of_pairs((args.a, args.b), pairs, args.metric, args.threshold / 100)
            tell(pair_line(len(pairs), so_far.pairs[-1]))

    async def work(service: BenchService, engine: Engine, stop: asyncio.Event) -> Measured:
        return await measure_pairs(plans, args.pairs, service, engine, stop, told)

    ended = measured(work, settings, presets, addresses, link=False)
    found = of_pairs((addresses[0], addresses[1]), ended.result.pairs, args.metric, args.threshold / 100)
    _print(args, found, ended.result.pairs[-1:])
    link_comparisons(settings, [found])
    if ended.stopped:
        return INTERRUPTED
    if ended.result.error is not None:
        raise ended.result.error
    return 0 if found.verdict.effect is not None else 1


def _stored(args: argparse.Namespace, settings: Settings, a: Sequence[int], b: Sequence[int]) -> int:
    runs_a, runs_b = _runs(settings, a), _runs(settings, b)
    found = of_runs(runs_a, runs_b, args.metric, args.threshold / 100)
    _print(args, found, [(runs_a[0], runs_b[0], "a")])
    return 0


def _runs(settings: Settings, numbers: Sequence[int]) -> list[Run]:
    store = RunStore(settings.investigation)
    try:
        return [store.get(number) for number in numbers]
    finally:
        store.close()


def _print(args: argparse.Namespace, found: Comparison, example: Sequence[PairRuns]) -> None:
    unlike = differences(example[0][0], example[0][1]) if example else []
    if args.json:
        print_json({**_fields(found), "differences": unlike})
    else:
        print_lines([*lines(found), *(f"differs  {one}" for one in unlike)])


def _fields(found: Comparison) -> dict[str, object]:
    return {field: getattr(found, field) for field in found.__struct_fields__}


def _plan(args: argparse.Namespace, settings: Settings, numbers: Sequence[int]) -> int:
    sd, source = _spread(args, settings, numbers, args.metric)
    if args.json:
        pairs = pairs_for(sd, args.effect / 100)
        print_json(
            {
                "schema": SCHEMA,
                "pair_sd_percent": 100 * sd,
                "source": source,
                "pairs": args.pairs,
                "detectable_percent": 100 * detectable(sd, args.pairs),
                "effect_percent": args.effect,
                "pairs_needed": pairs,
            }
        )
    else:
        print_lines(plan_lines(sd, source, args.effect / 100))
    return 0


def _spread(args: argparse.Namespace, settings: Settings, numbers: Sequence[int], metric: Metric) -> tuple[float, str]:
    """The sd of one log ratio, and where it is from: the option, the runs named, or an assumption."""
    if args.spread is not None:
        if args.spread <= 0:
            raise UsageError("--spread is not above 0", "use for example --spread 1")
        return args.spread / 100 * 2**0.5, "as given"
    values = [found for run in _runs(settings, numbers) if (found := value(run, metric)) is not None]
    sd = pair_sd(values)
    if sd is not None and sd > 0:
        return sd, f"of {len(values)} stored runs"
    return ASSUMED_SD, "assumed: 1 % from run to run; name three or more runs of one setting to know"
