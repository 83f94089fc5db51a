"""A move as variants of a server's own command: what "what to try next" says, put on and measured against it. Pure.

What a move sets is read from its words, which are the flag itself: `--flag value`, `--flag a | b` (one variant each),
`remove --flag`, `NAME=a | b in the environment`, and `--flag x (SGLang), --flag y (vLLM)`. A word of another kind (`an
FP8 checkpoint`, `halve --tp`) is a step for a person.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence

import msgspec

from decodetop.bench.experiment import Experiment, Original, Variant
from decodetop.errors import UsageError
from decodetop.server.reading import ENGINE_NAMES

BASE = "baseline"
BY_HAND = "write the variants down: decodetop bench experiment FILE (docs/benchmark.md)"

_PER_ENGINE = re.compile(r"(?P<words>[^()]+) \((?P<engine>[^()]+)\)(?:, |$)")
_ENVIRONMENT = re.compile(r"(?P<name>[A-Z][A-Z0-9_]*)=(?P<values>.+) in the environment")
_FLAG = re.compile(r"--?[a-z][\w-]*")
_ASIDE = re.compile(r", (?=[a-zA-Z])")
_VALUE = re.compile(r"[\w./:+-]+|\{.*\}")
_WANTING = re.compile(r"-(backend|size|sizes|tokens|requests|seqs|steps)")
"""Flags that mean nothing without a value; their words name none where the choice is the operator's."""
_CHANGES = frozenset({"lower", "higher", "more", "less"})
"""Values that are none: they say which way to go from what is there."""


class Change(msgspec.Struct, frozen=True, kw_only=True):
    """One way to make the move: flags (each with its value, if it has one), flags to take away, and variables."""

    adds: tuple[tuple[str, ...], ...] = ()
    drops: tuple[str, ...] = ()
    env: dict[str, str] = {}


def changes(words: str, engine: str, value: str | None = None) -> tuple[Change, ...]:
    """The ways that a move's `set` names for `engine`; `value` stands for its N, or for the choice it leaves open.

    Raises UsageError when the words are none that can be put on a command line.
    """
    own = _of_engine(words, engine)
    if own.startswith("remove "):
        drops = own.removeprefix("remove ").replace(", if it is set", "").split(" or ")
        if all(_FLAG.fullmatch(drop.partition("=")[0]) for drop in drops):
            return (Change(drops=tuple(drops)),)
        raise _by_hand(words)
    found = _ENVIRONMENT.fullmatch(own)
    if found is not None:
        choices = [value] if value is not None else found["values"].split(" | ")
        return tuple(Change(env={found["name"]: choice}) for choice in choices)
    return _flags(words, _ASIDE.split(own)[0], value)


def _of_engine(words: str, engine: str) -> str:
    parts = {part["engine"]: part["words"] for part in _PER_ENGINE.finditer(words)}
    return parts.get(ENGINE_NAMES.get(engine, engine), words)


def _flags(words: str, own: str, value: str | None) -> tuple[Change, ...]:
    try:
        tokens = shlex.split(own)
    except ValueError:
        raise _by_hand(words) from None
    adds: list[list[str]] = []
    choices: list[str] = []
    for before, token in zip(["", *tokens], tokens, strict=False):
        if _FLAG.fullmatch(token):
            adds.append([token])
        elif token == "|":
            continue
        elif not adds or not _VALUE.fullmatch(token) or token in _CHANGES:
            raise _by_hand(words)
        elif before == "|":
            choices.append(token)
        elif len(adds[-1]) == 1:
            adds[-1].append(token)
        else:
            raise _by_hand(words)
    if not adds:
        raise _by_hand(words)
    last = adds[-1]
    is_open = last[1:] == ["N"] or (len(last) == 1 and _WANTING.search(last[0]) is not None)
    if is_open and value is None:
        raise UsageError(f"the move leaves open what {last[0]} is: {words}", "say it: --value X")
    if value is not None and not (is_open or choices):
        raise UsageError(f"the move has no choice that --value could make: {words}", "leave --value out")
    values = [value] if value is not None else [*last[1:], *choices]
    ends: list[tuple[str, ...]] = [(last[0], one) for one in values] or [(last[0],)]
    return tuple(Change(adds=(*map(tuple, adds[:-1]), end)) for end in ends)


def _by_hand(words: str) -> UsageError:
    return UsageError(f"this move is no flag that can be put on a command: {words}", BY_HAND)


def applied(argv: Sequence[str], change: Change) -> tuple[str, ...]:
    """`argv` with the change made; a flag that stands there with another value has the new one.

    Raises UsageError when there is nothing to take away, or nothing to change.
    """
    found = list(argv)
    for drop in change.drops:
        name, _, value = drop.partition("=")
        found = _without(found, name, value or None)
    if change.drops and len(found) == len(argv):
        hint = "it is off already, or set elsewhere: in a file or in the environment"
        raise UsageError(f"the command has no {' nor '.join(change.drops)}", hint)
    for name, *values in change.adds:
        found = [*_without(found, name, "" if values else None), name, *values]
    if tuple(found) == tuple(argv) and not change.env:
        raise UsageError(f"the command has {' '.join(map(' '.join, change.adds))} already", "there is nothing to try")
    return tuple(found)


def _without(argv: Sequence[str], name: str, value: str | None) -> list[str]:
    """Without flag `name`: as a switch (`value` None), with this value, or with any (`""`)."""
    found: list[str] = []
    words = iter(range(len(argv)))
    for place in words:
        flag, equals, own = argv[place].partition("=")
        follows = argv[place + 1] if place + 1 < len(argv) else None
        if flag.replace("_", "-") != name.replace("_", "-"):
            found.append(argv[place])
        elif equals:
            if value and own != value:
                found.append(argv[place])
        elif value == "" and follows is not None and not follows.startswith("--"):
            next(words)
        elif value:
            if follows != value:
                found.append(argv[place])
            else:
                next(words)
    return found


def experiment_of(
    move_id: str,
    ways: Sequence[Change],
    argv: Sequence[str],
    endpoint: str,
    *,
    unit: str | None = None,
    user: bool = False,
    original: Original | None = None,
) -> Experiment:
    """The command as it is, and with the move made, each way a variant. With `unit` they override that service."""
    variants = {BASE: Variant() if unit is not None else Variant(argv=tuple(argv))}
    for way in ways:
        choice = [*way.env.values()] if way.env else [word for add in way.adds[-1:] for word in add[1:]]
        name = move_id if len(ways) == 1 else f"{move_id}-{'-'.join(choice)}"
        changed = applied(argv, way)
        if unit is None:
            variants[name] = Variant(argv=changed, env=way.env)
        else:
            override = () if changed == tuple(argv) else ("ExecStart=", f"ExecStart={' '.join(map(_quoted, changed))}")
            variants[name] = Variant(override=override, env=way.env)
    return Experiment(endpoint=endpoint, variants=variants, unit=unit, user=user, original=original)


def _quoted(word: str) -> str:
    """For a unit file: `%` and `$` mean something there, also inside quotes (systemd.service, Command lines)."""
    plain = word.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%").replace("$", "$$")
    return f'"{plain}"' if re.search(r"[\s\"'\\;]", word) or not word else plain
