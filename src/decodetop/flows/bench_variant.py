"""Starting and stopping the servers of an experiment: commands of its own, or a systemd unit with an override."""

from __future__ import annotations

import asyncio
import os
import signal
import tempfile
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Protocol

from decodetop.bench.experiment import Experiment, Variant
from decodetop.errors import DataError, RequestError
from decodetop.server.redact import redact, redact_text

OVERRIDE = "90-decodetop-experiment.conf"
TAIL_LINES, TAIL_CHARS = 8, 800
SAID_BYTES = 64 << 10
"""Of a command's output, its end."""

STATES = ("inactive", "failed", "activating", "deactivating", "reloading", "maintenance", "unknown")
"""Of a unit that is not active, as `systemctl is-active` says them."""

Call = Callable[[Sequence[str]], Awaitable[tuple[int, str]]]
"""Runs a command to its end: exit code, and what it said."""


class Stage(Protocol):
    """Where variants are put on."""

    async def clear(self) -> None:
        """Stop what stands there before the first start. Raises DecodetopError."""

    async def start(self, variant: Variant, log: Path) -> None:
        """Begin to start it. Raises DecodetopError when that can't be done."""

    async def ended(self) -> str | None:
        """Why the server is not running any more, if it is not."""

    async def stop(self) -> None:
        """It is gone when this returns."""

    async def restore(self) -> str:
        """Put back what was there before, and say so. Raises DecodetopError."""


async def call(argv: Sequence[str]) -> tuple[int, str]:
    """Until the command itself ends. A server that it leaves in the background (`nohup ... &`) holds its output open,
    so that goes to a file and not to a pipe whose end would never come."""
    with tempfile.TemporaryFile() as said:
        try:
            process = await asyncio.create_subprocess_exec(
                *argv,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=said,
                stderr=asyncio.subprocess.STDOUT,
                start_new_session=True,  # Ctrl-C is for decodetop: the way back must not be interrupted
            )
        except OSError as error:
            return 127, error.strerror or str(error)
        code = await process.wait()
        said.seek(0, os.SEEK_END)
        said.seek(max(0, said.tell() - SAID_BYTES))
        return code, said.read(SAID_BYTES).decode("utf-8", "replace").strip()


async def must(run: Call, argv: Sequence[str]) -> None:
    """Raises RequestError when the command fails."""
    code, said = await run(argv)
    if code != 0:
        last = said.splitlines()[-1] if said else f"exit code {code}"
        raise RequestError(
            f"{' '.join(redact(argv))} failed: {redact_text(last)}", "try it by hand; do you have the right to?"
        )


class CommandStage:
    """Each variant is a process group of ours; what stood there before is stopped and started by commands given."""

    def __init__(self, experiment: Experiment, run: Call = call) -> None:
        self._experiment = experiment
        self._run = run
        self._process: asyncio.subprocess.Process | None = None
        self._cleared = False

    async def clear(self) -> None:
        if self._experiment.original is not None:
            self._cleared = True
            await must(self._run, self._experiment.original.stop)

    async def start(self, variant: Variant, log: Path) -> None:
        try:
            with log.open("wb") as sink:
                self._process = await asyncio.create_subprocess_exec(
                    *variant.argv,
                    stdin=asyncio.subprocess.DEVNULL,
                    stdout=sink,
                    stderr=asyncio.subprocess.STDOUT,
                    start_new_session=True,
                    env={**os.environ, **variant.env},
                )
        except OSError as error:
            raise DataError(f"can't run {variant.argv[0]}: {error.strerror}", "check the variant's argv") from error

    async def ended(self) -> str | None:
        code = self._process.returncode if self._process is not None else None
        return None if code is None else f"it ended with exit code {code}"

    async def stop(self) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        for word in (signal.SIGTERM, signal.SIGKILL):
            # the group outlives its leader when workers hang on; they hold the GPU's memory
            try:
                os.killpg(process.pid, word)
            except ProcessLookupError:
                break
            if await _gone(process, self._experiment.stop_s):
                break
        await process.wait()

    async def restore(self) -> str:
        await self.stop()
        if self._experiment.original is None:
            return "nothing is left running; no server was there before"
        if not self._cleared:
            return "the original server was not touched"
        await must(self._run, self._experiment.original.start)
        return f"the original server is started again: {' '.join(redact(self._experiment.original.start))}"


async def _gone(process: asyncio.subprocess.Process, seconds: float) -> bool:
    """Whether the whole group ended within `seconds`."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + seconds
    while loop.time() < deadline:
        try:
            os.killpg(process.pid, 0)
        except ProcessLookupError:
            return True
        if process.returncode is not None and not _has_members(process.pid):
            return True
        await asyncio.sleep(0.05)
    return False


def _has_members(group: int) -> bool:
    """Whether any living process is of that group."""
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            if int(fields[2]) == group and fields[0] != "Z":
                return True
    return False


class UnitStage:
    """Variants are drop-in files of one systemd service, in the folder that a reboot empties."""

    def __init__(self, experiment: Experiment, run: Call = call, folder: Path | None = None) -> None:
        """`folder`: where systemd looks for run-time drop-ins; by default the system's or the user's."""
        assert experiment.unit is not None
        unit = experiment.unit if "." in experiment.unit else f"{experiment.unit}.service"
        runtime = Path(os.environ.get("XDG_RUNTIME_DIR", f"/run/user/{os.getuid()}"))
        folder = folder or (runtime / "systemd/user" if experiment.user else Path("/run/systemd/system"))
        self._unit = unit
        self._file = folder / f"{unit}.d" / OVERRIDE
        self._run = run
        self._systemctl = ("systemctl", "--user") if experiment.user else ("systemctl",)
        self._was_active: bool | None = None

    async def clear(self) -> None:
        active = await self._active()
        if active:
            self._was_active = True  # from here on it has to be put back
        await self.stop()
        self._was_active = active

    async def start(self, variant: Variant, log: Path) -> None:
        lines = [
            *variant.override,
            *(f"Environment={_quoted(f'{name}={value}')}" for name, value in variant.env.items()),
        ]
        try:
            self._file.parent.mkdir(parents=True, exist_ok=True)
            self._file.touch(0o600)  # an env may hold a key
            self._file.write_text("\n".join(["[Service]", *lines, ""]))
        except OSError as error:
            hint = "run as a user who may, or set user = true for a unit of your own"
            raise DataError(f"can't write {self._file}: {error.strerror}", hint) from error
        await must(self._run, (*self._systemctl, "daemon-reload"))
        await must(self._run, (*self._systemctl, "restart", self._unit))
        log.write_text(f"see journalctl -u {self._unit}\n")

    async def ended(self) -> str | None:
        code, said = await self._run((*self._systemctl, "is-failed", self._unit))
        return f"the unit is {said}" if code == 0 else None

    async def stop(self) -> None:
        await must(self._run, (*self._systemctl, "stop", self._unit))

    async def restore(self) -> str:
        if self._was_active is None:
            return f"{self._unit} was not touched"
        self._file.unlink(missing_ok=True)
        await must(self._run, (*self._systemctl, "daemon-reload"))
        word = "restart" if self._was_active else "stop"
        await must(self._run, (*self._systemctl, word, self._unit))
        return f"{self._unit} is back as it was ({'running' if self._was_active else 'stopped'})"

    async def _active(self) -> bool:
        """Also while it is still starting. Raises RequestError when systemd doesn't say."""
        asked = (*self._systemctl, "is-active", self._unit)
        code, said = await self._run(asked)
        if code != 0 and said not in STATES:
            raise RequestError(f"{' '.join(asked)} failed: {redact_text(said)}", "is systemd there, and this its unit?")
        return code == 0 or said in ("activating", "reloading")


def _quoted(word: str) -> str:
    """For Environment= of a unit file, where `%` means something also inside quotes (systemd.exec, Environment)."""
    return '"' + word.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%") + '"'


def stage_of(experiment: Experiment) -> Stage:
    return UnitStage(experiment) if experiment.unit is not None else CommandStage(experiment)


def tail(log: Path) -> str:
    """The last lines of a server's log, as one line."""
    try:
        lines = log.read_text("utf-8", "replace").splitlines()
    except OSError:
        return ""
    return " | ".join(line.strip() for line in lines[-TAIL_LINES:] if line.strip())[-TAIL_CHARS:]
