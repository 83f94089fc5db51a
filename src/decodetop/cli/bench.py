"""`decodetop bench`: run a preset, list the runs, mark one as baseline."""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from decodetop.bench import text
from decodetop.bench.plan import Overrides, choose, load_presets, plans_of
from decodetop.bench.reading import SCHEMA, Plan, Preset, Progress, Run
from decodetop.bench.store import FILE, RunStore
from decodetop.cli.common import add_common, print_json, print_lines
from decodetop.config import Settings, api_key
from decodetop.core.clock import SystemClock
from decodetop.errors import UsageError
from decodetop.flows.bench import BenchService, Outcome, new_seed
from decodetop.flows.bench_headless import box_probes, need_endpoint, run_headless

INTERRUPTED = 130


def configure(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    run = _action(actions, "run", "measure a server with a preset")
    run.add_argument("preset", nargs="?", default="single", metavar="PRESET", help="single (default), sweep, long, ...")
    _plan_options(run)
    presets = _action(actions, "presets", "the presets there are")
    listed = _action(actions, "list", "the runs of the investigation, newest first")
    listed.add_argument("--last", type=int, default=50, metavar="N", help="how many (default 50)")
    show = _action(actions, "show", "one run in full")
    show.add_argument("run", type=int, metavar="RUN", help="its number")
    base = _action(actions, "baseline", "mark the run that others are compared with")
    base.add_argument("run", metavar="RUN", help="its number, or none")
    run.set_defaults(work=_run)
    presets.set_defaults(work=_presets)
    listed.set_defaults(work=_list)
    show.set_defaults(work=_show)
    base.set_defaults(work=_baseline)


def _action(
    actions: argparse._SubParsersAction[argparse.ArgumentParser], name: str, summary: str
) -> argparse.ArgumentParser:
    # SUPPRESS: an option not typed after the action must not undo one typed before it
    parser = actions.add_parser(
        name, help=summary, description=summary, allow_abbrev=False, argument_default=argparse.SUPPRESS
    )
    add_common(parser)
    parser.add_argument("--json", action="store_true", default=False, help="data on stdout")
    return parser


def _plan_options(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("instead of what the preset says")
    apis = ("chat", "completions", "generate", "completion")
    group.add_argument("--model", metavar="NAME", help="as the server calls it (default: its first)")
    group.add_argument("--api", choices=apis, help="generate is SGLang's own, completion llama.cpp's own")
    group.add_argument("--streams", type=int, metavar="N", help="requests under way at once")
    group.add_argument("--requests", type=int, metavar="M", help="measured requests in all")
    group.add_argument("--input-tokens", type=int, metavar="I", help="of every prompt")
    group.add_argument("--output-tokens", type=int, metavar="O", help="of every answer")
    group.add_argument("--timeout-s", type=float, metavar="S", help="for one request as a whole")
    group.add_argument("--warmup", dest="warmup_requests", type=int, metavar="N", help="requests before (1 per stream)")
    group.add_argument("--temperature", type=float, metavar="T", help="of the sampling (default 0)")
    group.add_argument("--shared-prefix", dest="shared_prefix_tokens", type=int, metavar="N", help="tokens in common")
    group.add_argument("--seed", type=int, metavar="N", help="of the prompts (default: another one each time)")
    allow = "answers may end before --output-tokens"
    group.add_argument("--allow-eos", dest="ignore_eos", action="store_const", const=False, help=allow)


def run(args: argparse.Namespace, settings: Settings) -> int:
    work: Callable[[argparse.Namespace, Settings], int] = args.work
    return work(args, settings)


def own_presets(settings: Settings) -> Path:
    """The user's presets file, in the investigation."""
    return settings.investigation / "presets.toml"


def _run(args: argparse.Namespace, settings: Settings) -> int:
    if settings.readonly:
        raise UsageError("bench run puts load on a server: refused with --readonly", "leave --readonly out")
    presets = load_presets(own_presets(settings))
    preset = choose(presets, args.preset)
    asked = Overrides(**{field: getattr(args, field, None) for field in Overrides.__struct_fields__})
    seed = getattr(args, "seed", None)

    def plans(current: str | None) -> Sequence[Plan]:
        endpoint = need_endpoint(settings.endpoints, current)
        return plans_of(preset, endpoint, new_seed() if seed is None else seed, asked)

    if settings.endpoints:
        plans(None)  # a senseless number is refused before anything is opened
    key = api_key(settings)
    service = BenchService(settings.investigation, presets, lambda: key)
    probes = box_probes(settings.endpoints, key)
    meter = _Meter(sys.stderr.isatty())
    outcome, stopped, problem = asyncio.run(run_headless(plans, service, SystemClock(), meter.show, probes))
    meter.clear()
    if problem is not None:
        print(f"decodetop: not stored: {problem}", file=sys.stderr)
    _print(outcome, preset, asked, as_json=args.json)
    if stopped:
        return INTERRUPTED
    if outcome.error is not None:
        raise outcome.error
    return 0 if all(run.valid and not run.requests.failed for run in outcome.runs) else 1


def _print(outcome: Outcome, preset: Preset, asked: Overrides, *, as_json: bool) -> None:
    runs = outcome.runs if outcome.refused is None else (*outcome.runs, outcome.refused)
    sweep = asked.streams is None and len(preset.streams) > 1
    if as_json:
        if sweep or not runs:
            print_json({"schema": SCHEMA, "runs": runs})
        else:
            print_json(runs[0])
        return
    if sweep and outcome.runs:
        print_lines(text.table(outcome.runs))
        print_lines(f"{text.name(run)} {text.gate_line(gate)}" for run in outcome.runs for gate in run.gates)
        return
    for run in outcome.runs:
        print_lines(text.run_lines(run))


class _Meter:
    """One line on the terminal that is written over."""

    def __init__(self, on: bool) -> None:
        self._on = on

    def show(self, progress: Progress) -> None:
        if self._on:
            sys.stderr.write(f"\r\x1b[K{text.progress_line(progress)}")
            sys.stderr.flush()

    def clear(self) -> None:
        if self._on:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()


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
        print(f"no runs in {settings.investigation / FILE} yet", file=sys.stderr)
    return 0


def _stored(settings: Settings, count: int) -> tuple[tuple[Run, ...], int | None]:
    if not (settings.investigation / FILE).exists():
        return (), None
    store = RunStore(settings.investigation)
    try:
        return store.latest(count), store.baseline_id
    finally:
        store.close()


def _show(args: argparse.Namespace, settings: Settings) -> int:
    store = RunStore(settings.investigation)
    try:
        run = store.get(args.run)
    finally:
        store.close()
    if args.json:
        print_json(run)
    else:
        print_lines(text.run_lines(run))
    return 0


def _baseline(args: argparse.Namespace, settings: Settings) -> int:
    wanted = None if args.run == "none" else args.run.removeprefix("#")
    if wanted is not None and not wanted.isdigit():
        raise UsageError(f"{args.run!r} is no run's number", "use a number of `decodetop bench list`, or none")
    store = RunStore(settings.investigation)
    try:
        store.mark_baseline(None if wanted is None else int(wanted))
    finally:
        store.close()
    return 0
