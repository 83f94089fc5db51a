"""What the screen's process and the parser's process say to each other; light, so that only the latter needs numpy."""

from __future__ import annotations

import msgspec

from decodetop.steps.reading import StepsReport


class Job(msgspec.Struct, frozen=True, kw_only=True):
    """What to read; the arguments of `analyse`."""

    paths: tuple[str, ...]
    itl_ms: float | None = None
    accept_length: float | None = None
    step_label: str | None = None
    kinds: str | None = None


class Said(msgspec.Struct, frozen=True, kw_only=True):
    """One line: how far it is (`file` counts from 0), the report, or why there is none."""

    file: int | None = None
    done_bytes: int = 0
    total_bytes: int = 0
    json_bytes: int = 0
    report: StepsReport | None = None
    error: str | None = None
    hint: str = ""
