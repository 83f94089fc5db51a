"""Times as a snapshot writes them: UTC, for two readers may sit in two places."""

from __future__ import annotations

from datetime import UTC, datetime

from decodetop.core.clock import SECOND_NS
from decodetop.core.words import UNKNOWN


def stamp(wall_ns: int) -> str:
    """`2026-11-30T14:03:27Z`."""
    try:
        return datetime.fromtimestamp(wall_ns // SECOND_NS, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    except (ValueError, OverflowError, OSError):  # a file's time stamp may be nonsense
        return UNKNOWN
