"""An experiment: variants of a server, each started, measured and stopped, several times over. Its file and its table.

A restart is the unit: what a start leaves behind (memory layout, autotuning, where the clocks stand) is in every run
after it, so runs of one start are not independent.
"""

from __future__ import annotations

import random
import re
from collections.abc import Sequence
from typing import Literal

import msgspec

from decodetop.bench.compare import Comparison, Side, of_pairs, said
from decodetop.bench.reading import SCHEMA, Run
from decodetop.bench.text import one_line
from decodetop.bench.verdict import THRESHOLD, Metric
from decodetop.core.decode import NotDecoded, decode_toml
from decodetop.errors import ConfigError

How = Literal["argv", "unit"]

ROUNDS_MAX, VARIANTS_MAX = 200, 100
DAY_S = 86_400.0
UNIT = re.compile(r"[A-Za-z0-9_:.@\\][A-Za-z0-9_:.@\\\-]*")
"""A unit's name (systemd.unit(5)); `--help` is none."""


class Variant(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One way to start the server: a command, or lines that override the unit's [Service] section."""

    argv: tuple[str, ...] = ()
    env: dict[str, str] = {}
    override: tuple[str, ...] = ()


class Original(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Commands that stop the server in place and start it again; both return (systemctl, docker)."""

    stop: tuple[str, ...]
    start: tuple[str, ...]


class Experiment(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The file. With `unit` the variants override that systemd service, else each is a command of its own.

    `healthy_s`: a start may take this long. The first variant is the one the others are compared with.
    """

    endpoint: str
    variants: dict[str, Variant]
    preset: str = "single"
    rounds: int = 3
    healthy_s: float = 900.0
    stop_s: float = 60.0
    unit: str | None = None
    user: bool = False
    original: Original | None = None
    metric: Metric = "output_tok_s"
    threshold_percent: float = 100 * THRESHOLD

    @property
    def base(self) -> str:
        return next(iter(self.variants))


class Attempt(msgspec.Struct, frozen=True, kw_only=True):
    """One start: its run, or why there is none (with the end of the server's log)."""

    variant: str
    round: int
    run: Run | None = None
    failed: str | None = None
    log: str | None = None


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """All starts in their order, each variant against the base, and whether the original server is back."""

    schema: int = SCHEMA
    attempts: tuple[Attempt, ...]
    comparisons: tuple[Comparison, ...]
    restored: str
    stopped: bool = False


def parse(text: str, where: str) -> Experiment:
    """Raises ConfigError naming the file and what is wrong in it."""
    try:
        found = decode_toml(text, Experiment)
    except NotDecoded as error:
        raise ConfigError(f"{where}: {error}", 'see docs/benchmark.md, "Experiments"') from error
    check(found, where)
    return found


def check(found: Experiment, where: str) -> None:
    """Raises ConfigError for what would only be found out when the server in place is stopped already."""
    for word, wrong in (
        (f"from 2 to {VARIANTS_MAX} variants are an experiment", not 2 <= len(found.variants) <= VARIANTS_MAX),
        (f"rounds is not from 1 to {ROUNDS_MAX}", not 1 <= found.rounds <= ROUNDS_MAX),
        ("healthy_s and stop_s must be above 0 and at most a day", not _a_while(found.healthy_s, found.stop_s)),
        ("threshold_percent must be above 0 and at most 100", not 0 < found.threshold_percent <= 100),
        ("with a unit each variant has override lines and no argv", found.unit is not None and _has_argv(found)),
        ("without a unit each variant has an argv and no override", found.unit is None and _lacks_argv(found)),
        ("original is for servers without a unit: a unit is put back by itself", bool(found.unit and found.original)),
        ("original needs a command to stop and one to start the server", _lacks_a_way_back(found)),
        (f"unit {str(found.unit)[:80]!r} is no name of one", found.unit is not None and not UNIT.fullmatch(found.unit)),
        (
            "no process can be given what is in its argv, env or original (a zero character, or = in a name)",
            _odd(found),
        ),
        ("an override or a unit's env is lines of text, one a line", found.unit is not None and _many_lines(found)),
    ):
        if wrong:
            raise ConfigError(f"{where}: {word}", 'see docs/benchmark.md, "Experiments"')


def _a_while(*seconds: float) -> bool:
    return all(0 < one <= DAY_S for one in seconds)  # not a number is neither


def _lacks_a_way_back(found: Experiment) -> bool:
    """Found out before the server in place is stopped, and not when it shall be started again."""
    return found.original is not None and not (found.original.stop and found.original.start)


def _odd(found: Experiment) -> bool:
    commands = [variant.argv for variant in found.variants.values()]
    if found.original is not None:
        commands += [found.original.stop, found.original.start]
    env = [pair for variant in found.variants.values() for pair in variant.env.items()]
    words = [*(word for command in commands for word in command), *(word for pair in env for word in pair)]
    return any("\0" in word for word in words) or any(not name or "=" in name for name, _ in env)


def _many_lines(found: Experiment) -> bool:
    variants = found.variants.values()
    lines_ = [line for variant in variants for line in (*variant.override, *variant.env, *variant.env.values())]
    return any(not line.isprintable() for line in lines_)


def _has_argv(found: Experiment) -> bool:
    return any(variant.argv for variant in found.variants.values())


def _lacks_argv(found: Experiment) -> bool:
    return any(not variant.argv or variant.override for variant in found.variants.values())


def order(experiment: Experiment, seed: int) -> list[tuple[int, str]]:
    """(round, variant) in the order of the starts: every variant once a round, in random order."""
    source = random.Random(seed)
    found = []
    for number in range(1, experiment.rounds + 1):
        names = list(experiment.variants)
        source.shuffle(names)
        found += [(number, name) for name in names]
    return found


def compare(experiment: Experiment, attempts: Sequence[Attempt]) -> tuple[Comparison, ...]:
    """Each variant against the base, paired by round; a round in which one of the two failed is no pair."""
    runs = {(attempt.variant, attempt.round): attempt.run for attempt in attempts if attempt.run is not None}
    places = {(attempt.variant, attempt.round): place for place, attempt in enumerate(attempts)}
    found = []
    for name in list(experiment.variants)[1:]:
        pairs: list[tuple[Run, Run, Side]] = []
        for number in range(1, experiment.rounds + 1):
            a, b = runs.get((experiment.base, number)), runs.get((name, number))
            if a is not None and b is not None:
                first: Side = "a" if places[experiment.base, number] < places[name, number] else "b"
                pairs.append((a, b, first))
        threshold = experiment.threshold_percent / 100
        found.append(of_pairs((experiment.base, name), pairs, experiment.metric, threshold))
    return tuple(found)


def plan_lines(experiment: Experiment, starts: Sequence[tuple[int, str]]) -> list[str]:
    """What would be done, for --dry-run and before asking."""
    found = [f"{len(starts)} starts against {experiment.endpoint}, preset {experiment.preset} after each"]
    if experiment.unit is not None:
        scope = "your own" if experiment.user else "the system's"
        found.append(f"overrides {scope} unit {experiment.unit}, restarts it each time, and puts it back at the end")
    elif experiment.original is not None:
        found.append(f"first: {' '.join(experiment.original.stop)}")
        found.append(f"last:  {' '.join(experiment.original.start)}")
    for name, variant in experiment.variants.items():
        what = " ".join(variant.argv) if variant.argv else "; ".join(variant.override) or "as it is"
        names = "".join(f"{key}=… " for key in variant.env)
        found.append(f"{name}{' (base)' if name == experiment.base else ''}: {names}{what}")
    return [*found, "order: " + ", ".join(f"{name} #{number}" for number, name in starts)]


def lines(outcome: Outcome) -> list[str]:
    """The table at the end."""
    found = []
    for attempt in outcome.attempts:
        what = one_line(attempt.run) if attempt.run is not None else f"failed: {attempt.failed}"
        found.append(f"{attempt.variant} #{attempt.round}  {what}")
    for one in outcome.comparisons:
        found.append(f"{one.b} against {one.a}: {said(one.verdict)} in {one.verdict.metric}: {one.verdict.detail}")
    return [*found, outcome.restored]
