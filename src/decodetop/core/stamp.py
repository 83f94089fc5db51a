"""Times as files hold them: ISO 8601, UTC, milliseconds. Pure."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any


def stamp_of(wall_ns: int) -> str:
    """Epoch ns as the file holds it: ISO 8601, UTC, ms (a JavaScript tool would round an integer of ns)."""
    seconds, rest_ns = divmod(wall_ns, 1_000_000_000)
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%S}.{rest_ns // 1_000_000:03d}Z"


def wall_ns_of(stamp: Any) -> int | None:
    """Epoch ns of an ISO 8601 stamp (UTC when it names no zone); None for anything else."""
    if not isinstance(stamp, str):
        return None
    try:
        when = datetime.fromisoformat(stamp)
    except ValueError:
        return None
    when = when if when.tzinfo else when.replace(tzinfo=UTC)
    since = when - datetime(1970, 1, 1, tzinfo=UTC)
    return (since.days * 86_400 + since.seconds) * 1_000_000_000 + since.microseconds * 1_000
