"""Numbers as people read them: fixed places so that digits don't jump, `–` for unknown. Pure."""

from __future__ import annotations

UNKNOWN = "–"


def number(value: float | None, places: int = 0) -> str:
    """12,345 or 12.3; `–` when unknown."""
    return UNKNOWN if value is None else f"{value:,.{places}f}"


def percent(value: float | None, places: int = 0) -> str:
    """`value` is 0..100; a space before the sign."""
    return UNKNOWN if value is None else f"{value:.{places}f} %"


def gib(value: float | None, places: int = 1) -> str:
    """Bytes as GiB without the unit."""
    return UNKNOWN if value is None else f"{value / 2**30:.{places}f}"


def duration(seconds: float | None) -> str:
    """45 s, 12 m, 3 h 05, 2 d 04 h."""
    if seconds is None:
        return UNKNOWN
    whole = int(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} m"
    if whole < 86400:
        return f"{whole // 3600} h {whole % 3600 // 60:02d}"
    return f"{whole // 86400} d {whole % 86400 // 3600:02d} h"


def significant(value: float | None, digits: int = 3) -> str:
    """About `digits` significant digits without an exponent: 195.7, 19.3, 5.11."""
    if value is None:
        return UNKNOWN
    size = abs(value)
    places = next((digits - n for n in range(1, digits) if size < 10**n), 0)
    return f"{value:,.{places}f}"
