"""`decodetop bench`: run a preset, list the runs, mark one as baseline."""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from decodetop.bench import text
from decodetop.bench.definitions import DEFINITIONS
from decodetop.bench.export import csv_table
from decodetop.bench.plan import Overrides, choose, fitting, load_presets, plans_of, several
from decodetop.bench.reading import SCHEMA, Plan, Preset, Run
from decodetop.bench.store import FILE, RunStore
from decodetop.bench.workload import read_lines
from decodetop.cli import bench_compare, bench_experiment
from decodetop.cli.bench_options import (
    INTERRUPTED,
    action,
    measured,
    overrides,
    own_presets,
    plan_options,
    run_number,
)
from decodetop.cli.common import complain, print_json, print_lines, print_text, tell
from decodetop.config import Settings
from decodetop.core.engine import Engine
from decodetop.flows.bench import BenchService, Outcome, new_seed
from decodetop.flows.bench_headless import need_endpoint
from decodetop.flows.bench_window import server_at

EVERY = -1
"""As SQLite's LIMIT: no limit."""


def configure(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    run = action(actions, "run", "measure a server with a preset")
    run.add_argument("preset", nargs="?", default="single", metavar="PRESET", help="single (default), sweep, long, ...")
    plan_options(run)
    presets = action(actions, "presets", "the presets there are")
    listed = action(actions, "list", "the runs of the investigation, newest first")
    listed.add_argument("--last", type=run_number, default=50, metavar="N", help="how many (default 50)")
    show = action(actions, "show", "one run in full")
    show.add_argument("run", type=run_number, metavar="RUN", help="its number")
    export = action(actions, "export", "all runs, for other tools; oldest first")
    export.add_argument("--format", choices=sorted(_FORMATS), default="json", help="default json")
    export.set_defaults(work=_export)
    base = action(actions, "baseline", "mark the run that others are compared with")
    base.add_argument("run", type=_run_or_none, metavar="RUN", help="its number, or none")
    run.set_defaults(work=_run)
    presets.set_defaults(work=_presets)
    listed.set_defaults(work=_list)
    show.set_defaults(work=_show)
    base.set_defaults(work=_baseline)
    bench_compare.configure(actions)
    bench_experiment.configure(actions)


def run(args: argparse.Namespace, settings: Settings) -> int:
    work: Callable[[argparse.Namespace, Settings], int] = args.work
    return work(args, settings)


def _run(args: argparse.Namespace, settings: Settings) -> int:
    presets = load_presets(own_presets(settings))
    preset = choose(presets, args.preset)
    asked, seed = overrides(args), getattr(args, "seed", None)

    if asked.prompts_file is not None and asked.requests is None and asked.duration_s is None:
        lines = read_lines(Path(asked.prompts_file), asked.api or preset.api)
        asked = msgspec.structs.replace(asked, requests=len(lines))

    def plans(endpoint: str) -> Sequence[Plan]:
        return plans_of(preset, endpoint, new_seed() if seed is None else seed, asked)

    for endpoint in settings.endpoints[:1]:
        plans(endpoint)  # a senseless number is refused before anything is opened

    async def work(service: BenchService, engine: Engine, stop: asyncio.Event) -> Outcome:
        endpoint = need_endpoint(settings.endpoints, engine.state)
        server = server_at(engine, endpoint)
        wanted = plans(endpoint)
        room = fitting(wanted, server.context_length if server is not None else None)
        if len(room) < len(wanted):
            tell(f"left out: {len(wanted) - len(room)} of {len(wanted)} runs, longer than the server's context")
        return await service.measure(room, engine, stop)

    ended = measured(work, settings, presets)
    outcome = ended.result
    _print(outcome, preset, asked, as_json=args.json)
    if ended.stopped:
        return INTERRUPTED
    if outcome.error is not None:
        raise outcome.error
    return 0 if all(run.valid and not run.requests.failed for run in outcome.runs) else 1


def _print(outcome: Outcome, preset: Preset, asked: Overrides, *, as_json: bool) -> None:
    runs = outcome.runs if outcome.refused is None else (*outcome.runs, outcome.refused)
    sweep = several(preset, asked)
    if as_json:
        if sweep or not runs:
            print_json({"schema": SCHEMA, "runs": runs, "definitions": dict(DEFINITIONS)})
        else:
            print_json(_defined(runs[0]))
        return
    if sweep and outcome.runs:
        print_lines(text.table(outcome.runs))
        print_lines(f"{text.name(run)} {text.gate_line(gate)}" for run in outcome.runs for gate in run.gates)
        return
    for run in outcome.runs:
        print_lines(text.run_lines(run))


def _defined(run: Run) -> dict[str, object]:
    """A run as data, with what its figures are."""
    return {**{field: getattr(run, field) for field in run.__struct_fields__}, "definitions": dict(DEFINITIONS)}


def _presets(args: argparse.Namespace, settings: Settings) -> int:
    presets = load_presets(own_presets(settings))
    if args.json:
        print_json({"schema": SCHEMA, "presets": presets})
    else:
        width = max(len(preset.name) for preset in presets)
        print_lines(f"{preset.name:<{width}}  {preset.title}" for preset in presets)
    return 0


def _list(args: argparse.Namespace, settings: Settings) -> int:
    runs, baseline_id = _stored(settings, args.last)
    if args.json:
        print_json({"schema": SCHEMA, "runs": runs, "baseline_id": baseline_id})
    elif runs:
        print_lines(text.table(runs, baseline_id))
    else:
        tell(f"no runs in {settings.investigation / FILE} yet")
    return 0


def _stored(settings: Settings, count: int) -> tuple[tuple[Run, ...], int | None]:
    if not (settings.investigation / FILE).exists():
        return (), None
    store = RunStore(settings.investigation)
    try:
        found = store.latest(count), store.baseline_id
        if store.unreadable:
            complain(f"{store.path}: {text.unreadable(store.unreadable)}")
        return found
    finally:
        store.close()


_FORMATS: dict[str, Callable[[Sequence[Run]], None]] = {
    "json": lambda runs: print_json({"schema": SCHEMA, "runs": runs}),
    "csv": lambda runs: print_text(csv_table(runs)),
    "markdown": lambda runs: print_lines(text.markdown_table(runs)),
}


def _export(args: argparse.Namespace, settings: Settings) -> int:
    runs, _ = _stored(settings, EVERY)
    _FORMATS["json" if args.json else args.format](runs[::-1])
    return 0


def _show(args: argparse.Namespace, settings: Settings) -> int:
    store = RunStore(settings.investigation)
    try:
        run = store.get(args.run)
    finally:
        store.close()
    if args.json:
        print_json(_defined(run))
    else:
        print_lines(text.run_lines(run))
    return 0


def _baseline(args: argparse.Namespace, settings: Settings) -> int:
    store = RunStore(settings.investigation)
    try:
        store.mark_baseline(args.run)
    finally:
        store.close()
    return 0


def _run_or_none(word: str) -> int | None:
    return None if word == "none" else run_number(word)
