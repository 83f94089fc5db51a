"""The one thing that flows: what a source saw, and when."""

from __future__ import annotations

from typing import ClassVar, Literal

import msgspec

from decodetop.errors import DecodetopError, FailureKind, ProbeError

SCHEMA = 1


class Reading(msgspec.Struct, frozen=True, kw_only=True):
    """What one instrument saw. A missing value is None and its reason stands in a `reasons` map."""


class Command(msgspec.Struct, frozen=True, kw_only=True):
    """What the face asks for. `touches` = it changes the server, its service or the GPU (refused when readonly)."""

    touches: ClassVar[bool] = False
    title: ClassVar[str] = ""
    """What it does, to stand after "can't": start a benchmark."""


class Failure(msgspec.Struct, frozen=True, kw_only=True):
    """Why a source has no new reading. `retry_in_s` is None when it will not be tried again."""

    kind: FailureKind
    message: str
    hint: str = ""
    retry_in_s: float | None = None


class Notice(Reading, frozen=True, kw_only=True):
    """A word to the operator: the outcome of a command, or something long that ended. `ring` = worth a bell."""

    level: Literal["info", "warning", "error"] = "info"
    message: str
    hint: str = ""
    ring: bool = False


class ClockReading(Reading, frozen=True, kw_only=True):
    """Carries now, so that a replay reproduces ages and staleness. `wall_ns` is epoch ns."""

    wall_ns: int


class Sample(msgspec.Struct, frozen=True, kw_only=True):
    """One sample; `t_ns` is ns since the session began, `seq` counts up over all sources."""

    source: str
    t_ns: int
    seq: int
    reading: Reading | None = None
    failure: Failure | None = None


class Header(msgspec.Struct, frozen=True, kw_only=True):
    """The session the samples belong to; first line of a tape and of a stream.

    `begin_ns` is the session time at which the recording began: earlier samples are what was known by then.
    """

    schema: int = SCHEMA
    kind: str = "decodetop-tape"
    version: str
    host: str
    started_wall_ns: int
    simulated: bool = False
    begin_ns: int = 0


def failure_of(error: Exception, retry_in_s: float | None = None) -> Failure:
    """A probe's exception as data; what we did not raise on purpose is `broken`, named by its type."""
    if isinstance(error, ProbeError):
        return Failure(kind=error.kind, message=error.message, hint=error.hint, retry_in_s=retry_in_s)
    if isinstance(error, DecodetopError):
        return Failure(kind="broken", message=error.message, hint=error.hint, retry_in_s=retry_in_s)
    return Failure(
        kind="broken",
        message=f"{type(error).__name__}: {error}"[:300],
        hint="this is a fault of decodetop; run with --log FILE and report it",
        retry_in_s=retry_in_s,
    )
