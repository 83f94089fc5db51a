"""Everything decodetop raises on purpose.

DecodetopError            message, hint, exit code 1
├── UsageError            the command line or a setting is wrong; exit code 2
├── ConfigError           a settings or theme file is wrong; exit code 2
├── DataError             a file the user owns can't be read or written
├── TraceError            a profiler trace can't be read or cut into steps
├── RequestError          a server did not answer as asked
└── ProbeError            an instrument can't read; carries the kind a Failure shows

Every message says what happened and where; the hint says what to do next.
"""

from __future__ import annotations

from typing import Literal

FailureKind = Literal["absent", "denied", "lost", "stalled", "broken"]


class DecodetopError(Exception):
    """`message` is one line and holds no secret; `hint` says what to do next, or is empty."""

    exit_code = 1

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.message} ({self.hint})" if self.hint else self.message


class UsageError(DecodetopError):
    exit_code = 2


class ConfigError(DecodetopError):
    exit_code = 2


class DataError(DecodetopError):
    pass


class TraceError(DecodetopError):
    pass


class RequestError(DecodetopError):
    pass


class ProbeError(DecodetopError):
    """`kind`: absent (not there), denied (no permission), lost (was there), stalled (no answer), broken."""

    def __init__(self, kind: FailureKind, message: str, hint: str = "") -> None:
        super().__init__(message, hint)
        self.kind = kind
