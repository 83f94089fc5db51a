"""Numbers as people read them: fixed places so that digits don't jump, `–` for unknown. Pure.

NaN and infinity are no numbers to read: they are unknown too.
"""

from __future__ import annotations

import math
from datetime import UTC, datetime
from typing import TypeGuard

UNKNOWN = "–"
TOO_LONG = 1e15


def known(value: float | None) -> TypeGuard[float]:
    """Whether there is a finite number to show."""
    return value is not None and math.isfinite(value)


def _written(value: float, form: str) -> str:
    """In `form`, unless it has more digits than can be read: cut, 1e308 would look like a number one believes."""
    return f"{value:{form}}" if abs(value) < TOO_LONG else f"{value:.1e}"


def number(value: float | None, places: int = 0) -> str:
    """12,345 or 12.3; `–` when unknown."""
    return _written(value, f",.{places}f") if known(value) else UNKNOWN


def number_plain(value: float | None) -> str:
    """A whole number without separators, as clocks and watts are written."""
    return _written(value, ".0f") if known(value) else UNKNOWN


def now_of_max(now: float | None, maximum: float | None) -> str:
    """1755/1980; `–/1980` when only the maximum is known."""
    return f"{number_plain(now)}/{number_plain(maximum)}"


def percent(value: float | None, places: int = 0) -> str:
    """`value` is 0..100; a space before the sign."""
    # + 0.0: a little less than nothing is nothing, not "-0"
    return f"{_written(round(value, places) + 0.0, f'.{places}f')} %" if known(value) else UNKNOWN


def gib(value: float | None, places: int = 1) -> str:
    """Bytes as GiB without the unit."""
    return _written(value / 2**30, f".{places}f") if known(value) else UNKNOWN


def bytes_per_s(value: float | None) -> str:
    """Bytes a second in GB/s or MB/s (powers of ten, as links are rated)."""
    if not known(value):
        return UNKNOWN
    return f"{_written(value / 1e9, '.1f')} GB/s" if value >= 1e9 else f"{_written(value / 1e6, '.0f')} MB/s"


def duration(seconds: float | None) -> str:
    """45 s, 12 m, 3 h 05, 2 d 04 h."""
    if not known(seconds) or abs(seconds) >= TOO_LONG:
        return UNKNOWN
    whole = int(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} m"
    if whole < 86400:
        return f"{whole // 3600} h {whole % 3600 // 60:02d}"
    return f"{whole // 86400} d {whole % 86400 // 3600:02d} h"


def remaining(seconds: float | None) -> str:
    """Like `duration`, in seconds up to 99: a countdown should move."""
    return f"{seconds:.0f} s" if known(seconds) and 0 <= seconds < 99.5 else duration(seconds)


def clock_time(wall_ns: int | None) -> str:
    """Epoch ns as 14:03:27 of the local day."""
    if wall_ns is None:
        return UNKNOWN
    try:
        return f"{datetime.fromtimestamp(wall_ns / 1e9):%H:%M:%S}"
    except (ValueError, OverflowError, OSError):  # a file's time stamp may be nonsense
        return UNKNOWN


def utc_time(wall_ns: int | None) -> str:
    """Epoch ns as 2026-11-30 14:03Z: for what is read in another place or on another day."""
    if wall_ns is None:
        return UNKNOWN
    try:
        return f"{datetime.fromtimestamp(wall_ns // 1_000_000_000, UTC):%Y-%m-%d %H:%MZ}"
    except (ValueError, OverflowError, OSError):
        return UNKNOWN


def significant(value: float | None, digits: int = 3) -> str:
    """About `digits` significant digits without an exponent: 196, 19.3, 5.11."""
    if not known(value):
        return UNKNOWN
    size = abs(value)
    # a value just below a power of ten is rounded up to it and needs a place less
    places = next((digits - n for n in range(1, digits) if size < 10**n - 0.5 / 10 ** (digits - n)), 0)
    return _written(value, f",.{places}f")


def rate(value: float | None) -> str:
    """Tokens a second and the like: 51.7, 195.7, 4,879; at most seven characters up to 999,999."""
    return number(value, 1 if known(value) and abs(value) < 999.95 else 0)


def compact(value: float | None) -> str:
    """A count in at most six characters: 842, 9,999, 441 k, 1.30 M."""
    if not known(value):
        return UNKNOWN
    if abs(value) < 10_000:
        return f"{value:,.0f}"
    if abs(value) < 999_500:
        return f"{value / 1e3:.0f} k"
    return f"{value / 1e6:.2f} M" if abs(value) < 1e9 else f"{_written(value / 1e9, '.2f')} G"


def delta_percent(before: float | None, after: float | None) -> str:
    """+29 %, -22 %: how `after` differs from `before`."""
    if not known(before) or not known(after) or before == 0:
        return UNKNOWN
    delta = 100 * (after / before - 1)
    return f"{_written(delta, '+.0f')} %" if known(delta) else UNKNOWN
