"""The parser's process: `python -m decodetop.steps.child`. A job as JSON on stdin; NDJSON on stdout, result last.

Parsing takes all of a core and holds the interpreter's lock, so it never shares a process with a screen or a load.
"""

from __future__ import annotations

import gc
import os
import signal
import sys
from pathlib import Path

import msgspec

from decodetop.core.clock import SECOND_NS, SystemClock
from decodetop.core.decode import decode
from decodetop.errors import DecodetopError
from decodetop.steps import kinds
from decodetop.steps.analyse import analyse
from decodetop.steps.trace import Progress
from decodetop.steps.wire import Job, Said

SAY_EVERY_NS = SECOND_NS // 4


def main() -> int:
    """Read one job, say how it goes. 0 with a report, 1 with an error."""
    signal.signal(signal.SIGTERM, lambda *_: os._exit(143))
    gc.freeze()
    job = decode(sys.stdin.buffer.read(), Job)
    try:
        table = kinds.load(Path(job.kinds)) if job.kinds else None
        report = analyse(
            job.paths,
            itl_ms=job.itl_ms,
            accept_length=job.accept_length,
            step_label=job.step_label,
            kind_table=table,
            progress=_Teller(job.paths).tell,
        )
    except DecodetopError as error:
        _say(Said(error=error.message, hint=error.hint))
        return 1
    except Exception as error:  # noqa: BLE001  the process's edge: the parent gets a word instead of a traceback
        _say(Said(error=f"reading the trace failed: {type(error).__name__}: {error}"[:500], hint="report this fault"))
        return 1
    _say(Said(report=report))
    return 0


class _Teller:
    """Says a few times a second how far the reading is."""

    def __init__(self, paths: tuple[str, ...]) -> None:
        self._places = {path: number for number, path in enumerate(paths)}
        self._clock = SystemClock()
        self._next_ns = 0

    def tell(self, path: Path, seen: Progress) -> None:
        now_ns = self._clock.now_ns()
        if now_ns < self._next_ns:
            return
        self._next_ns = now_ns + SAY_EVERY_NS
        _say(
            Said(
                file=self._places.get(str(path)),
                done_bytes=seen.done_bytes,
                total_bytes=seen.total_bytes,
                json_bytes=seen.json_bytes,
            )
        )


def _say(said: Said) -> None:
    sys.stdout.buffer.write(msgspec.json.encode(said) + b"\n")
    sys.stdout.buffer.flush()


if __name__ == "__main__":
    sys.exit(main())
