"""`decodetop bench experiment`: variants of a server, each started, measured and stopped, then all put back."""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import Sequence
from pathlib import Path

import msgspec

from decodetop.bench.experiment import Experiment, Original, Outcome, Variant, lines, order, parse, plan_lines
from decodetop.bench.plan import choose, load_presets, plans_of, several
from decodetop.bench.reading import SCHEMA, Run
from decodetop.cli import bench_move
from decodetop.cli.bench_options import (
    INTERRUPTED,
    action,
    link_comparisons,
    measured,
    overrides,
    own_presets,
    plan_options,
)
from decodetop.cli.common import agreed, path_option, print_json, print_lines, tell
from decodetop.config import Settings, api_key, load
from decodetop.core.clock import SystemClock
from decodetop.core.engine import Engine
from decodetop.core.regular import read_text, why
from decodetop.errors import ConfigError, DataError, RequestError, UsageError
from decodetop.flows.bench import BenchService, new_seed
from decodetop.flows.bench_experiment import Answers, Experimenter
from decodetop.flows.bench_variant import stage_of
from decodetop.server.client import NoAnswer, SafeClient
from decodetop.server.redact import MASK, is_secret_name, learn, redact, redact_text

READY = frozenset({200, 401, 403, 404})
"""What a server that is up says to GET /v1/models; llama.cpp says 503 while it loads."""
ANSWER_S = 5.0


def configure(actions: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = action(actions, "experiment", "measure variants of a server, restarting it")
    file = "TOML: endpoint, variants, rounds (docs/benchmark.md)"
    parser.add_argument("file", nargs="?", type=path_option, default=None, metavar="FILE", help=file)
    parser.add_argument("--dry-run", action="store_true", default=False, help="only say what would be done")
    parser.add_argument("--yes", action="store_true", default=False, help="don't ask before stopping anything")
    bench_move.configure(parser)
    plan_options(parser)
    parser.set_defaults(work=_experiment)


def _experiment(args: argparse.Namespace, settings: Settings) -> int:
    if (args.file is None) == (args.move is None):
        raise UsageError("an experiment is a FILE or a --move, one of them", "decodetop bench experiment --help")
    if args.file is not None:
        bench_move.refuse_with_file(args)
    experiment = _read(args.file) if args.file is not None else bench_move.experiment_of_move(args, settings)
    (endpoint,) = load({"endpoints": [experiment.endpoint], "config": settings.config_path}, {}).endpoints
    seed = getattr(args, "seed", None) or new_seed()
    starts = order(experiment, seed)
    presets = load_presets(own_presets(settings))
    preset, asked = choose(presets, experiment.preset), overrides(args)
    if several(preset, asked):
        hint = "one question at a time: add --streams N or --input-tokens I"
        raise UsageError(f"preset {preset.name} is more than one run", hint)
    if args.dry_run:
        _say_plan(args, experiment, starts)
        return 0
    if settings.readonly:
        raise UsageError("an experiment stops and starts servers: refused with --readonly", "--dry-run is allowed")
    _ask(args, experiment, starts)
    for variant in experiment.variants.values():
        learn(variant.argv)  # a server's log may repeat its key
    logs = _folder(settings)
    answers = answers_of(endpoint, api_key(settings))

    async def work(service: BenchService, engine: Engine, stop: asyncio.Event) -> Outcome:
        async def measure() -> Run:
            outcome = await service.measure(plans_of(preset, endpoint, new_seed(), asked), engine, stop)
            if outcome.error is not None or not outcome.runs:
                raise outcome.error or RequestError("stopped before the first request ended")
            return outcome.runs[0]

        stage = stage_of(experiment)
        experimenter = Experimenter(experiment, stage, measure, answers, engine.clock, logs, tell)
        return await experimenter.run(starts, stop)

    ended = measured(work, settings, presets, [endpoint], link=False)
    link_comparisons(settings, ended.result.comparisons)
    if args.json:
        print_json(ended.result)
    else:
        print_lines(lines(ended.result))
    if ended.stopped:
        return INTERRUPTED
    return 0 if all(attempt.run is not None for attempt in ended.result.attempts) else 1


def _read(path: Path) -> Experiment:
    try:
        text = read_text(path)
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"can't read {path}: {why(error)}", 'see docs/benchmark.md, "Experiments"') from error
    return parse(text, str(path))


def _masked(experiment: Experiment) -> Experiment:
    """As it may be shown: keys stand on command lines and in variables."""

    def variant(one: Variant) -> Variant:
        env = {name: MASK if is_secret_name(name) else redact_text(value) for name, value in one.env.items()}
        return Variant(argv=redact(one.argv), env=env, override=tuple(map(redact_text, one.override)))

    original = experiment.original
    if original is not None:
        original = Original(stop=redact(original.stop), start=redact(original.start))
    variants = {name: variant(one) for name, one in experiment.variants.items()}
    return msgspec.structs.replace(experiment, variants=variants, original=original)


def _say_plan(args: argparse.Namespace, experiment: Experiment, starts: Sequence[tuple[int, str]]) -> None:
    if args.json:
        found = [{"round": number, "variant": name} for number, name in starts]
        print_json({"schema": SCHEMA, "experiment": _masked(experiment), "starts": found})
    else:
        print_lines(plan_lines(_masked(experiment), starts))


def _ask(args: argparse.Namespace, experiment: Experiment, starts: Sequence[tuple[int, str]]) -> None:
    """Raises UsageError when nobody said yes."""
    if args.yes:
        return
    if not sys.stdin.isatty():
        raise UsageError(
            "an experiment stops and starts servers, and there is nobody to ask", "add --yes (or --dry-run)"
        )
    for line in plan_lines(_masked(experiment), starts):
        tell(line)
    if not agreed():
        raise UsageError("not begun", "nothing was touched")


def _folder(settings: Settings) -> Path:
    """A new folder for the servers' logs. Raises DataError."""
    parent = settings.investigation / "experiments"
    try:
        parent.mkdir(parents=True, exist_ok=True)
        number = 1 + max((int(path.name) for path in parent.iterdir() if path.name.isdigit()), default=0)
        folder = parent / f"{number:03d}"
        folder.mkdir()
    except OSError as error:
        raise DataError(f"can't make a folder in {parent}: {error.strerror}", "use --investigation DIR") from error
    return folder


def answers_of(endpoint: str, key: str | None) -> Answers:
    """Asks as everything else does: with a deadline and a limit of size."""

    async def answers() -> bool:
        client = SafeClient(endpoint, SystemClock(), key)
        try:
            return (await client.get("unknown", "/v1/models", ANSWER_S)).code in READY
        except NoAnswer:
            return False
        finally:
            await client.close()  # a server that shall end may wait for its connections

    return answers
