"""PCIe traffic of GPUs without GPM: calls that watch the link for 20 ms each, so they never run inside a round."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

import msgspec

from decodetop.core.clock import SECOND_NS, Clock
from decodetop.gpu.codes import NEVER, NvmlError
from decodetop.gpu.device import Device
from decodetop.gpu.library import Library
from decodetop.gpu.reading import Gpu

_PERIOD_NS = 5 * SECOND_NS
_KB = 1000.0

_Found = dict[Device, tuple[float, float] | NvmlError]


class Traffic:
    """Of one session. `begin` starts a watch beside the rounds, `add` puts what the last one saw into a row."""

    def __init__(
        self, nvml: Library, clock: Clock, call: Callable[[Callable[[], _Found]], asyncio.Future[_Found]]
    ) -> None:
        """`call` runs a function on a spare thread."""
        self.running: asyncio.Future[_Found] | None = None
        self._nvml = nvml
        self._clock = clock
        self._call = call
        self._due_ns = 0
        self._found: _Found = {}
        self._refused: set[Device] = set()

    def begin(self, devices: Sequence[Device]) -> None:
        """Watch the links of those without GPM, unless a watch still runs or it is not yet time."""
        self._harvest()
        asked = [device for device in devices if device.without_gpm and device not in self._refused]
        if self.running is None and asked and self._clock.now_ns() >= self._due_ns:
            self._due_ns = self._clock.now_ns() + _PERIOD_NS
            self.running = self._call(lambda: {device: self._watch(device) for device in asked})

    def add(self, device: Device, gpu: Gpu) -> Gpu:
        """`gpu` with its traffic, if it was watched."""
        self._harvest()
        found = self._found.get(device)
        if found is None or isinstance(found, NvmlError):
            return gpu
        fields = ("pcie_tx_bytes_s", "pcie_rx_bytes_s")
        reasons = {field: why for field, why in gpu.reasons.items() if field not in fields}
        return msgspec.structs.replace(
            gpu, pcie_tx_bytes_s=found[0], pcie_rx_bytes_s=found[1], pcie_traffic="sample", reasons=reasons
        )

    def _watch(self, device: Device) -> tuple[float, float] | NvmlError:
        try:
            tx, rx = (self._nvml.pcie_kb_s(device.handle, counter) for counter in (0, 1))
        except NvmlError as error:
            return error
        return tx * _KB, rx * _KB

    def _harvest(self) -> None:
        if self.running is None or not self.running.done():
            return
        self._found = self.running.result()
        self.running = None
        self._refused |= {
            device for device, seen in self._found.items() if isinstance(seen, NvmlError) and seen.code in NEVER
        }
