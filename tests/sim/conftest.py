"""A simulated server, and the log of what it truly did."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from decodetop.sim.process import SimServer, start_server


@pytest.fixture
def truth(tmp_path: Path) -> Path:
    return tmp_path / "truth.ndjson"


@pytest.fixture
def fast(truth: Path) -> Iterator[SimServer]:
    """Ten times as fast as the recorded box."""
    with start_server(speed=10, truth=truth) as server:
        yield server
