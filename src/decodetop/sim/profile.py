"""`/start_profile` and `/stop_profile`: collects the passes of the batch and writes them as traces."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from decodetop.core.decode import NotDecoded, decode
from decodetop.sim import trace
from decodetop.sim.asks import Refused
from decodetop.sim.batch import Pass

MAX_PASSES = 400
"""Without `num_steps` a forgotten profile ends here."""


class Profiler:
    """A watcher of passes. As recorded, the pass in which a profile starts leaves no label: n asked give n - 1."""

    def __init__(self, tp: int, pid: int, epoch_ns: int, wall_ns: Callable[[], int], folder: Path | None) -> None:
        """`epoch_ns` turns CLOCK_MONOTONIC into epoch ns; `folder` = where traces go when the request does not say."""
        self.started = 0
        self._tp = tp
        self._pid = pid
        self._epoch_ns = epoch_ns
        self._wall_ns = wall_ns
        self._folder = folder or Path(tempfile.gettempdir())
        self._passes: list[Pass] | None = None
        self._wanted = MAX_PASSES
        self._target = self._folder
        self._profile_id = ""
        self._cpu = True

    @property
    def profiling(self) -> bool:
        return self._passes is not None

    def start(self, body: bytes) -> bytes:
        """Raises Refused when one is under way, or for a body that is no object."""
        fields = self._fields(body)
        if self._passes is not None:
            raise Refused("Profiling is already in progress. Call /stop_profile first.", 500, "InternalServerError")
        steps = fields.get("num_steps")
        if steps is not None and (not isinstance(steps, int) or steps < 1):
            raise Refused("num_steps must be positive")
        self._wanted = min(steps or MAX_PASSES, MAX_PASSES)
        self._target = Path(str(fields.get("output_dir") or self._folder))
        prefix = f"{fields['profile_prefix']}-" if fields.get("profile_prefix") else ""
        stamp = str(fields.get("profile_id") or f"{self._wall_ns() / 1e9:.7f}")
        self._profile_id = prefix + stamp
        self._cpu = "CPU" in (fields.get("activities") or ["CPU", "GPU"])
        self._passes = []
        self.started += 1
        return b"Start profiling.\n"

    def stop(self) -> bytes:
        """Raises Refused when none is under way, OSError when the traces can't be written."""
        if self._passes is None:
            raise Refused("Profiling is not in progress. Call /start_profile first.", 500, "InternalServerError")
        self._write()
        return b"Stop profiling. This will take some time.\n"

    def passed(self, one: Pass) -> None:
        if self._passes is None:
            return
        self._passes.append(one)
        if len(self._passes) >= self._wanted:
            self._write()

    def _write(self) -> None:
        passes, self._passes = self._passes or [], None
        if len(passes) < 2:
            return
        trace.write(
            trace.Capture(
                passes=tuple(passes[1:]),
                tp=self._tp,
                pid=self._pid,
                epoch_ns=self._epoch_ns,
                profile_id=self._profile_id,
                cpu=self._cpu,
            ),
            self._target,
        )

    def _fields(self, body: bytes) -> dict[str, Any]:
        try:
            fields = decode(body) if body.strip() else {}
        except NotDecoded as error:
            raise Refused(f"body is not JSON: {error}") from error
        if not isinstance(fields, dict):
            raise Refused("body is not an object")
        return fields
