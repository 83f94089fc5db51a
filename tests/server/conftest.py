"""A probe on a clock that moves when told, asking servers that play recordings."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from decodetop.server.probe import ServerProbe
from support.clock import ManualClock


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
async def make_probe(clock: ManualClock) -> AsyncIterator[Callable[..., ServerProbe]]:
    """Makes probes that don't look at this box unless told; they are closed at the end."""
    made: list[ServerProbe] = []

    def make(*endpoints: str, **options: Any) -> ServerProbe:
        made.append(ServerProbe(clock, endpoints=endpoints, **{"discover": False, **options}))
        return made[-1]

    yield make
    for probe in made:
        await probe.close()
