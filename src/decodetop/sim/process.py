"""Starts the simulated server as a child process and stops it: for `demo` and for tests."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType

import msgspec

from decodetop.core.decode import NotDecoded, decode
from decodetop.errors import DataError
from decodetop.sim.model import KvCast

STOP_S = 3.0


class _Line(msgspec.Struct):
    endpoint: str
    port: int
    pid: int


class SimServer:
    """A running simulated server; a context manager. `endpoint` is `http://127.0.0.1:PORT`."""

    def __init__(self, process: subprocess.Popen[bytes], endpoint: str, port: int, command: tuple[str, ...]) -> None:
        self.process = process
        self.command = command
        self.endpoint = endpoint
        self.port = port

    def stop(self) -> None:
        """SIGTERM, then SIGKILL; safe to call again."""
        if self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(STOP_S)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
        for pipe in (self.process.stdout, self.process.stderr):
            if pipe is not None:
                pipe.close()

    def __enter__(self) -> SimServer:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.stop()


def start_server(
    *,
    tp: int = 1,
    graphs: bool = True,
    speed: float = 1.0,
    exact: str | None = None,
    faults: Sequence[str] = (),
    truth: Path | None = None,
    profile_dir: Path | None = None,
    api_key: str | None = None,
    visitors: int = 0,
    seed: int = 0,
    served_name: str | None = None,
    kv_cast: KvCast = "none",
    kv_tokens: int | None = None,
    more: Sequence[str] = (),
) -> SimServer:
    """Returns once it listens. `exact` and `faults` as on its command line; `more` = further options.

    It ends with this process whatever happens. Raises DataError when it does not start.
    """
    command = [sys.executable, "-m", "decodetop.sim.server", "--parent", str(os.getpid()), "--tp", str(tp)]
    command += ["--graphs" if graphs else "--no-graphs", "--speed", str(speed), "--seed", str(seed)]
    command += [
        "--kv-cast",
        kv_cast,
        "--visitors",
        str(visitors),
        *(word for fault in faults for word in ("--fault", fault)),
    ]
    optional = {
        "--exact": exact,
        "--truth": truth,
        "--profile-dir": profile_dir,
        "--api-key": api_key,
        "--served-name": served_name,
        "--kv-tokens": kv_tokens,
    }
    command += [word for name, value in optional.items() if value is not None for word in (name, str(value))]
    command += more
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout is not None and process.stderr is not None
    first = process.stdout.readline()
    try:
        line = decode(first, _Line)
    except NotDecoded as error:
        process.kill()
        said = process.stderr.read().decode(errors="replace").strip().splitlines()
        SimServer(process, "", 0, ()).stop()
        message = f"the simulated server did not start: {said[-1] if said else 'it said nothing'}"
        raise DataError(message, "run python -m decodetop.sim.server to see why") from error
    return SimServer(process, line.endpoint, line.port, tuple(command))
