"""What an operator means by "since": yesterday, 2h, a date. Pure."""

from __future__ import annotations

import re
from datetime import datetime, timedelta

from decodetop.errors import UsageError

_SPAN = re.compile(r"(\d{1,6}(?:\.\d{1,3})?)\s*(s|min|m|h|d|w)")
_UNITS = {"s": "seconds", "m": "minutes", "min": "minutes", "h": "hours", "d": "days", "w": "weeks"}
HINT = "use yesterday, today, 30m, 2h, 3d, 2026-11-30 or 2026-11-30T14:00"


def since_ns(text: str, now_ns: int) -> int:
    """Epoch ns. Days begin at midnight of the local calendar; a time that names no zone is local.

    Raises UsageError.
    """
    word = text.strip().lower()
    try:
        now = datetime.fromtimestamp(now_ns / 1e9)
        midnight = now.replace(hour=0, minute=0, second=0, microsecond=0)
        if word in ("today", "yesterday"):
            return _ns(midnight - timedelta(days=word == "yesterday"))
        span = _SPAN.fullmatch(word)
        if span is not None:
            return now_ns - int(timedelta(**{_UNITS[span[2]]: float(span[1])}).total_seconds() * 1e9)
        return _ns(datetime.fromisoformat(text.strip()))
    except (ValueError, OverflowError, OSError) as error:
        raise UsageError(f"{text!r} is no time since when", HINT) from error


def _ns(when: datetime) -> int:
    return int(when.timestamp()) * 1_000_000_000
