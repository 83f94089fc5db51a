"""Every command has words of its own: a class name on the screen says nothing to an operator."""

from __future__ import annotations

from collections.abc import Iterator

from decodetop.core.sample import Command
from decodetop.flows import catalog, live


def commands(of: type[Command] = Command) -> Iterator[type[Command]]:
    for one in of.__subclasses__():
        yield one
        yield from commands(one)


def test_every_command_says_what_it_does() -> None:
    assert catalog and live  # they load every instrument
    ours = [one for one in commands() if one.__module__.startswith("decodetop.")]
    assert len(ours) > 15
    assert [one.__name__ for one in ours if not one.title or one.title != one.title.strip()] == []
