"""What a rule looks at, and what it says. Pure."""

from __future__ import annotations

from typing import NamedTuple

from decodetop.core.sample import Reading
from decodetop.gpu.reading import GpuReading
from decodetop.host.reading import HostReading
from decodetop.server.reading import Server, ServerReading

STEADY_SAMPLES = 5
"""A clock or link must be low for so many samples in a row: single ones are transitions."""


class Seen(NamedTuple):
    """What was last seen of each source at one moment; `past` = earlier readings of the rule's own source."""

    gpu: GpuReading | None
    host: HostReading | None
    server: Server | None
    past: tuple[Reading, ...] = ()


class Hit(NamedTuple):
    key: str
    title: str
    evidence: str


def server_of(reading: Reading | None) -> Server | None:
    return reading.current_server if isinstance(reading, ServerReading) else None


def server_named(reading: Reading, endpoint: str) -> Server | None:
    servers = reading.servers if isinstance(reading, ServerReading) else ()
    return next((server for server in servers if server.endpoint == endpoint), None)
