"""One GPU in one NVML session: what is asked when, what is never asked again, and why a figure is missing."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from decodetop.core.clock import SECOND_NS, Clock
from decodetop.gpu.asks import (
    CORE,
    ENERGY,
    IDENTITY,
    MEMORY,
    MIG,
    NO_MEMORY,
    PCIE_FIELDS,
    RARE,
    SLOT_FIELDS,
    SLOW,
    STATIC,
    Ask,
    Unknown,
)
from decodetop.gpu.codes import GONE, NEVER, NOT_SUPPORTED, NOT_YET, OTHER_FORM, SESSION, NvmlError, words
from decodetop.gpu.fields import FieldSet
from decodetop.gpu.gpm import Gpm
from decodetop.gpu.library import Handle, Library
from decodetop.gpu.limited import Limited
from decodetop.gpu.machine import Machine
from decodetop.gpu.processes import ProcessNames
from decodetop.gpu.reading import NOT_ON_PCIE, Gpu, GpuProcess

SLOW_NS = 10 * SECOND_NS
RARE_NS = 60 * SECOND_NS
ENERGY_NS = 5 * SECOND_NS
RETRY_NS = 5 * SECOND_NS
BUDGET_NS = SECOND_NS
"""Of one GPU a round. What a slow driver leaves no time for is asked first in the next round."""
GPM_TURN = 8
"""Rounds it may miss when time is short: its two calls and more would leave none for the other figures."""

_PCI_BUSES = (1, 2)
_UNSAID = "the kernel does not say"
_UNIFIED_NAMES = ("GB10", "Orin", "Xavier", "Thor", "Tegra", "Jetson")
_STATE = ("index", "state", "state_message", "state_since_ns", "reasons")
_SINCE_THE_START = ("run_began_ns", "energy_run_j", "time_limited_run_ns", "pcie_fastest")
_NOT_MEASURED = (*_STATE, *_SINCE_THE_START, "memory_is_unified", "pcie_traffic", "xids")
MEASURED = tuple(field for field in Gpu.__struct_fields__ if field not in _NOT_MEASURED)


class Device:
    """`read` blocks; it runs on one thread at a time. A new session makes new devices: no handle outlives it."""

    def __init__(
        self,
        nvml: Library,
        index: int,
        clock: Clock,
        machine: Machine,
        names: ProcessNames,
        first_gpm: threading.Lock,
        quiet: Callable[[], bool],
        driver: str | None = None,
        budget_ns: int = BUDGET_NS,
    ) -> None:
        """`driver`: its version, which decides what some field ids mean."""
        self.index = index
        self.uuid: str | None = None
        self.handle: Handle | None = None
        self.asking = "its handle"
        self.asked_ns = clock.now_ns()
        self._nvml = nvml
        self._clock = clock
        self._machine = machine
        self._names = names
        self._first_gpm = first_gpm
        self._quiet = quiet
        self._gpm: Gpm | None = None
        self._fields = Ask(FieldSet.FIELDS, FieldSet().read)
        self._limited = Ask(Limited.FIELDS, Limited(driver).read)
        self._processes = Ask(("processes",), self._list)
        self._values: dict[str, Any] = {}
        self._reasons: dict[str, str] = {}
        self._refused: dict[Ask, NvmlError] = {}
        self._later: dict[Ask, tuple[int, NvmlError]] = {}
        self._over: NvmlError | None = None
        self._open_due_ns = 0
        self._slow_due_ns = 0
        self._rare_due_ns = 0
        self._energy_due_ns = 0
        self._listed_ns: int | None = None
        self._listed_at: int | None = None
        self._bus_type: int | None = None
        self._placed: str | None = None
        self._budget_ns = budget_ns
        self._until_ns = 0
        self._put_off: list[Ask] = []
        self._gpm_missed = index % GPM_TURN

    def read(self) -> Gpu:
        """All that is due. Raises NvmlError when the GPU, or the session, can't be used."""
        now_ns = self._clock.now_ns()
        if self._over is not None and (self.handle is not None or now_ns < self._open_due_ns):
            raise self._over  # a void handle is never touched again: that can crash the process
        try:
            return self._read(now_ns)
        except NvmlError as error:
            if self.handle is None or error.code in GONE:
                self._over, self._open_due_ns = error, now_ns + SLOW_NS
            raise

    @property
    def without_gpm(self) -> bool:
        """It answers, and has no GPM."""
        return self._over is None and self._gpm is not None and self._gpm.refused

    def close(self) -> None:
        """Free what the session lent; before its shutdown."""
        if self._gpm is not None:
            self._gpm.close()
        self._gpm = None
        self.handle = None

    def _read(self, now_ns: int) -> Gpu:
        self._until_ns = now_ns + self._budget_ns
        if self.handle is None:
            self._open()
        late, self._put_off = self._put_off, []
        self._ask_all(late, now_ns)
        self._ask_all([ask for ask in CORE if ask not in late] if late else CORE, now_ns)
        self._check_alive()
        if self._quiet() or now_ns >= self._energy_due_ns:
            self._ask_all((ENERGY, self._limited), now_ns)
            self._energy_due_ns = now_ns + ENERGY_NS - SECOND_NS * (self.index % 5 if not self._energy_due_ns else 0)
        first = self._slow_due_ns == 0
        quiet = self._quiet() and not first
        if not quiet and now_ns >= self._slow_due_ns:
            unanswered = [ask for ask in (*IDENTITY, *STATIC) if any(field not in self._values for field in ask.fields)]
            rare = RARE if now_ns >= self._rare_due_ns else ()
            self._rare_due_ns = now_ns + RARE_NS if rare else self._rare_due_ns
            self._ask_all((*unanswered, *SLOW, *rare, self._fields), now_ns)
            self._ask_mig(now_ns)
            # GPUs take turns, so that rounds cost about the same
            self._slow_due_ns = now_ns + (SLOW_NS - SECOND_NS * (self.index % 10) if first else SLOW_NS)
        if self._values.get("pci_bus_id") != self._placed:
            self._place()
        self._read_gpm(now_ns)
        if not quiet:
            self._read_processes(now_ns)
        self._unify()
        return self._gpu()

    def _open(self) -> None:
        self._begin("its handle")
        handle = self._nvml.handle(self.index)
        self.uuid = self._try(lambda: self._nvml.uuid(handle))
        self._bus_type = self._try(lambda: self._nvml.bus_type(handle))
        self.handle = handle
        self._values["uuid"] = self.uuid
        self._ask_all(IDENTITY, self._clock.now_ns())
        self._gpm = Gpm(self._nvml, handle, self._first_gpm, lambda: self._begin("GPM"))
        self._place()

    def _begin(self, what: str) -> None:
        """A call begins: a GPU hangs by the age of its present call, not by that of its round."""
        self.asking, self.asked_ns = what, self._clock.now_ns()

    @property
    def _out_of_time(self) -> bool:
        return self._clock.now_ns() >= self._until_ns

    def _try(self, ask: Callable[[], Any]) -> Any:
        self._begin("what it is")
        try:
            return ask()
        except NvmlError as error:
            self._raise_if_over(error)
            return None

    def _place(self) -> None:
        """What the kernel says of where it sits."""
        bus_id = self._placed = self._values.get("pci_bus_id")
        if bus_id is None and "pci_bus_id" not in self._reasons:
            return  # not asked yet
        node = None if bus_id is None else self._machine.numa_node(bus_id)
        self._keep("numa_node", Unknown(_UNSAID) if node is None else node)
        slot = (None, None) if bus_id is None else self._machine.slot(bus_id)
        for field, most in zip(SLOT_FIELDS, slot, strict=True):
            why = NOT_ON_PCIE if self._off_pcie else _UNSAID
            self._keep(field, Unknown(why) if most is None or self._off_pcie else most)

    @property
    def _off_pcie(self) -> bool:
        return self._bus_type is not None and self._bus_type not in (0, *_PCI_BUSES)

    def _ask_all(self, asks: Iterable[Ask], now_ns: int) -> None:
        off_pcie = self._off_pcie
        for ask in asks:
            if off_pcie and PCIE_FIELDS.issuperset(ask.fields):
                self._keep(ask.fields[0], Unknown(NOT_ON_PCIE))
                continue
            self._ask(ask, now_ns)

    def _ask(self, ask: Ask, now_ns: int) -> None:
        if ask in self._refused or now_ns < self._later.get(ask, (0,))[0]:
            return
        if self._out_of_time:
            if ask not in self._put_off:
                self._put_off.append(ask)
            return
        self._begin(ask.fields[0])
        answers: Sequence[object]
        try:
            answers = ask.read(self._nvml, self.handle)
            self._later.pop(ask, None)
        except NvmlError as error:
            self._raise_if_over(error)
            if error.code in NEVER:
                self._refused[ask] = error
            elif error.code not in NOT_YET:
                self._later[ask] = (now_ns + RETRY_NS, error)
            answers = [error] * len(ask.fields)
        for field, answer in zip(ask.fields, answers, strict=True):
            self._keep(field, answer)

    def _ask_mig(self, now_ns: int) -> None:
        if self._values.get("mig_enabled"):
            self._ask(MIG, now_ns)
        else:
            unknown = "no MIG here" if "mig_enabled" in self._reasons else "not asked yet"
            self._keep("mig_instances", Unknown("MIG is off" if "mig_enabled" in self._values else unknown))

    def _keep(self, field: str, answer: object) -> None:
        if isinstance(answer, NvmlError):
            self._raise_if_over(answer)
            answer = Unknown(self._why(answer.code))
        if isinstance(answer, Unknown):
            self._values.pop(field, None)
            self._reasons[field] = answer.why
        else:
            self._values[field] = answer
            self._reasons.pop(field, None)

    def _why(self, code: int) -> str:
        if code == NOT_SUPPORTED and self._values.get("mig_enabled"):
            return "not measured while MIG is on"
        if code == NOT_SUPPORTED and self._values.get("virtualization") == "vgpu":
            return "not available in a vGPU guest"
        return words(code)

    def _raise_if_over(self, error: NvmlError) -> None:
        if error.code in GONE or error.code in SESSION:
            raise error

    def _check_alive(self) -> None:
        """A GPU of which not one core figure can be had is not ok, whatever each call says for itself."""
        refusals = [self._refused.get(ask) or self._later.get(ask, (0, None))[1] for ask in CORE]
        if all(refusals):
            telling = [one for one in refusals if one and one.code != NOT_SUPPORTED and one.code not in OTHER_FORM]
            if telling:
                raise telling[0]

    def _read_gpm(self, now_ns: int) -> None:
        assert self._gpm is not None
        if self._out_of_time and self._gpm_missed < GPM_TURN:
            self._gpm_missed += 1
            return
        self._gpm_missed = 0
        for field, answer in self._gpm.read(now_ns).items():
            self._keep(field, answer)
        self._values["pcie_traffic"] = "gpm" if "pcie_rx_bytes_s" in self._values else None

    def _read_processes(self, now_ns: int) -> None:
        """Only when memory moved or a process ended: the list costs milliseconds on some drivers."""
        used = self._values.get("memory_used_bytes")
        since_ns = SLOW_NS if self._listed_ns is None else now_ns - self._listed_ns
        moved = self._listed_ns is None or used is None or used != self._listed_at
        ended = since_ns >= SECOND_NS and self._names.gone(self._values.get("processes") or ())
        if ended or (moved and since_ns >= SLOW_NS):
            self._ask(self._processes, now_ns)
            self._listed_ns, self._listed_at = now_ns, used

    def _list(self, nvml: Library, gpu: Handle) -> Sequence[object]:
        """Some R535 drivers fill another struct: a pid of 0 or more memory than there is can't be true."""
        most = self._values.get("memory_total_bytes") or 2**50
        listed = [(pid, memory if memory is None or memory <= most else None) for pid, memory in nvml.processes(gpu)]
        return (self._names.named([one for one in listed if one[0] > 0]),)

    def _unify(self) -> None:
        """A chip without memory of its own: the host's, and what its processes hold; never
        guessed from an error alone."""
        refused = self._refused.get(MEMORY)
        none_own = refused is not None and refused.code == NOT_SUPPORTED
        none_own = none_own or self._reasons.get("memory_total_bytes") == NO_MEMORY.why
        name = str(self._values.get("name"))
        on_package = self._bus_type not in (None, *_PCI_BUSES) or any(chip in name for chip in _UNIFIED_NAMES)
        host = self._machine.memory_bytes() if none_own and on_package else None
        self._values["memory_is_unified"] = host is not None
        if host is None:
            return
        self._keep("memory_total_bytes", host[0])
        self._keep("memory_free_bytes", host[1])
        processes: tuple[GpuProcess, ...] | None = self._values.get("processes")
        held = [None] if processes is None else [one.memory_bytes for one in processes]
        known = [one for one in held if one is not None]
        self._keep("memory_used_bytes", sum(known) if known == held else Unknown("its processes don't tell"))
        self._keep("memory_reserved_bytes", Unknown("unified with the host's memory"))

    def _gpu(self) -> Gpu:
        # recovery_action None with its reason absent is an answer: nothing to recover from
        reasons = {
            field: self._reasons.get(field, "not asked yet")
            for field in MEASURED
            if self._values.get(field) is None and (field != "recovery_action" or field not in self._values)
        }
        return Gpu(index=self.index, **self._values, reasons=reasons)
