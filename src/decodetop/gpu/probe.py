"""Reads the GPUs through NVML: one long session on one thread, and no GPU that hides another."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress

import msgspec

from decodetop.core.clock import SECOND_NS, Clock, Late, within
from decodetop.errors import ProbeError
from decodetop.gpu.codes import SESSION, NvmlError, state_of, words
from decodetop.gpu.device import Device
from decodetop.gpu.library import Library
from decodetop.gpu.machine import Machine
from decodetop.gpu.nvml import Nvml
from decodetop.gpu.processes import ProcessNames
from decodetop.gpu.reading import Gpu, GpuReading, Xid
from decodetop.gpu.rounds import Rounds
from decodetop.gpu.rows import Bad, Rows
from decodetop.gpu.session import Box, Session
from decodetop.gpu.since import Since
from decodetop.gpu.traffic import Traffic

CALL_DEADLINE_S = 2.0
"""Of one call. All figures of a GPU take about 4 ms on an H200; nvidia-smi beside us can hold the driver for 0.5 s."""

OPEN_DEADLINE_S = 5.0
_REOPEN_S = (10.0, 20.0, 40.0, 60.0)
_XIDS_KEPT = 8

_Job = Device | Session
_Outcome = Gpu | Box


class GpuProbe:
    """core.engine.Probe. `quiet()` True (a benchmark runs) = after the first reading only the cheap counters.

    A GPU that hangs, is lost or forbidden is a state of its row. `read` raises ProbeError only when there is no
    session: no library, driver or GPU (absent), or an nvmlInit that hangs (stalled).
    """

    source = "gpu"
    period_s = 1.0
    deadline_s = 10.0

    def __init__(
        self,
        clock: Clock,
        library: Library | None = None,
        *,
        machine: Machine | None = None,
        names: ProcessNames | None = None,
        quiet: Callable[[], bool] = lambda: False,
    ) -> None:
        self._clock = clock
        self._library = library
        self._machine = machine or Machine()
        self._names = names or ProcessNames()
        self._quiet = quiet
        self._rounds: Rounds[_Job, _Outcome] = Rounds(clock, "decodetop-nvml", CALL_DEADLINE_S, _asked_ns)
        self._session: Session | None = None
        self._opening: asyncio.Future[Session] | None = None
        self._rows = Rows()
        self._since = Since()
        self._box: Box | None = None
        self._traffic: Traffic | None = None
        self._xids: dict[str, tuple[Xid, ...]] = {}
        self._reopens = 0
        self._reopen_ns: int | None = None

    async def read(self) -> GpuReading:
        session = await self._ready()
        began_ns = self._clock.now_ns()
        calls = session.nvml.calls
        jobs: dict[_Job, Callable[[], _Outcome]] = {device: device.read for device in session.devices}
        outcomes = await self._rounds.run({**jobs, session: session.box})
        over = next((one for one in outcomes.values() if isinstance(one, NvmlError) and one.code in SESSION), None)
        if over is not None:
            self._reopen_ns = self._clock.now_ns()
            raise self._machine.why_not(over)
        box = outcomes.get(session)
        if isinstance(box, Box):
            self._box = box
        gpus = self._gpus(session, outcomes)
        if self._traffic is not None and not self._quiet():
            self._traffic.begin(session.devices)
        self._plan_reopen(session, gpus)
        return GpuReading(
            gpus=gpus,
            driver_version=session.versions.driver,
            nvml_version=session.versions.nvml,
            cuda_version=session.versions.cuda,
            calls=session.nvml.calls - calls,
            took_ms=(self._clock.now_ns() - began_ns) / 1e6,
            links=self._box.links if self._box else (),
            reasons=session.versions.reasons,
        )

    async def close(self) -> None:
        """Ends the session unless a call of it still hangs; never waits long."""
        session, self._session = self._session, None
        if self._traffic is not None and self._traffic.running is not None:
            with suppress(Late):
                await within(self._clock, CALL_DEADLINE_S, self._traffic.running)
        if session is not None and not self._rounds.busy:
            # a driver that hangs does not hold up the exit
            with suppress(Late):
                await within(self._clock, CALL_DEADLINE_S, self._rounds.call(session.close))
        self._rounds.close()

    async def _ready(self) -> Session:
        if self._session is not None and self._reopen_ns is not None and self._clock.now_ns() >= self._reopen_ns:
            await self._drop()
        if self._session is None:
            if self._opening is None:
                self._opening = self._rounds.call(self._open)
            opening = self._opening
            try:
                self._session = await within(self._clock, OPEN_DEADLINE_S, opening)
                self._traffic = Traffic(self._session.nvml, self._clock, self._rounds.call)
            except Late as late:
                message = f"nvmlInit has not returned for {OPEN_DEADLINE_S:g} s"
                hint = "the driver hangs, or wakes its GPUs (persistence mode off); dmesg says more"
                raise ProbeError("stalled", message, hint) from late
            finally:
                if opening.done():
                    self._opening = None
        return self._session

    def _open(self) -> Session:
        if self._library is None:
            self._library = Nvml()
        return Session(self._library, self._clock, self._machine, self._names, self._quiet)

    async def _drop(self) -> None:
        """Every handle goes with the session. A call that hangs keeps it: shutting down under it could crash."""
        session = self._session
        if session is None or self._rounds.busy:
            return
        await self._rounds.call(session.close)
        self._session = self._reopen_ns = self._box = None

    def _gpus(self, session: Session, outcomes: dict[_Job, _Outcome | NvmlError]) -> tuple[Gpu, ...]:
        now_ns = self._clock.now_ns()
        names = _names(session.devices)
        seen = [
            (device.index, name, self._row(device, name, outcomes.get(device)))
            for device, name in zip(session.devices, names, strict=True)
        ]
        gpus = self._rows.merge(seen, now_ns)
        box = outcomes.get(session)
        for index, code in box.xids if isinstance(box, Box) else ():
            whose = names[index] or f"#{index}"
            self._xids[whose] = (*self._xids.get(whose, ()), Xid(code=code, t_ns=now_ns))[-_XIDS_KEPT:]
        return tuple(self._with_xids(gpu) for gpu in gpus) if self._xids else gpus

    def _with_xids(self, gpu: Gpu) -> Gpu:
        xids = self._xids.get(gpu.uuid or "") or self._xids.get(f"#{gpu.index}")
        return msgspec.structs.replace(gpu, xids=xids) if xids else gpu

    def _row(self, device: Device, name: str | None, outcome: _Outcome | NvmlError | None) -> Gpu | Bad:
        now_ns = self._clock.now_ns()
        if isinstance(outcome, Gpu):
            gpu = self._since.add(outcome, name, now_ns)
            return gpu if self._traffic is None else self._traffic.add(device, gpu)
        if isinstance(outcome, NvmlError):
            return Bad(state_of(outcome.code), words(outcome.code), now_ns)
        return Bad("stalled", f"no answer when asked for {device.asking}", self._rounds.stuck.get(device, now_ns))

    def _plan_reopen(self, session: Session, gpus: tuple[Gpu, ...]) -> None:
        """A lost GPU comes back, and a new one appears, only with a new session; tried less and less often."""
        changed = self._box is not None and self._box.count != len(session.devices)
        lost = any(gpu.state == "lost" for gpu in gpus)
        if changed:
            self._reopen_ns = self._clock.now_ns()
        elif not lost:
            self._reopens, self._reopen_ns = 0, None
        elif self._reopen_ns is None:
            wait_s = _REOPEN_S[min(self._reopens, len(_REOPEN_S) - 1)]
            self._reopens += 1
            self._reopen_ns = self._clock.now_ns() + int(wait_s * SECOND_NS)


def _names(devices: Sequence[Device]) -> list[str | None]:
    """The UUID of each where it has one that no other has: only then it tells who is who from session to session."""
    uuids = Counter(device.uuid for device in devices)
    return [device.uuid if device.uuid and uuids[device.uuid] == 1 else None for device in devices]


def _asked_ns(job: _Job) -> int:
    return job.asked_ns if isinstance(job, Device) else 0
