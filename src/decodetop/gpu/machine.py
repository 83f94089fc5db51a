"""What the kernel says about GPUs without NVML: why there is none, which driver is loaded, where a GPU sits."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from decodetop.core.outside import whole_number
from decodetop.errors import ProbeError
from decodetop.gpu.codes import DRIVER_NOT_LOADED, LIBRARY_NOT_FOUND, VERSION_MISMATCH, NvmlError

_VENDORS = {0x10DE: "NVIDIA", 0x1002: "AMD", 0x8086: "Intel"}
_GENERATIONS = {2.5: 1, 5.0: 2, 8.0: 3, 16.0: 4, 32.0: 5, 64.0: 6, 128.0: 7}
"""GT/s a lane to PCIe generation."""
_ELSEWHERE = "steps, bench and server work without it"


class Machine:
    """`root` is / but in tests."""

    def __init__(self, root: Path = Path("/")) -> None:
        self._root = root

    def module_version(self) -> str | None:
        """Version of the loaded NVIDIA kernel module."""
        found = re.search(r"Module\s+(?:for\s+\S+\s+)?(\d+\.\d+[.\d]*)", self._text("proc/driver/nvidia/version"))
        return found.group(1) if found else None

    def library(self) -> tuple[str | None, bool]:
        """Version of the libnvidia-ml this process has loaded, and whether the file was replaced since."""
        for line in self._text("proc/self/maps").splitlines():
            found = re.search(r"libnvidia-ml\.so\.(\d+\.\d+[.\d]*)", line)
            if found:
                return found.group(1), line.endswith("(deleted)")
        return None, False

    def vendors(self) -> set[str]:
        """Whose display and accelerator cards are on the PCI bus."""
        found = set()
        for device in self._listed("sys/bus/pci/devices"):
            kind = self._number(device / "class")
            if kind is not None and (kind >> 16) in (0x03, 0x12):
                found.add(_VENDORS.get(self._number(device / "vendor") or 0, "another vendor"))
        return found

    def numa_node(self, pci_bus_id: str) -> int | None:
        """The NUMA node a GPU hangs on; None where the kernel doesn't say."""
        return whole_number(self._text(f"sys/bus/pci/devices/{_sysfs_id(pci_bus_id)}/numa_node"))

    def slot(self, pci_bus_id: str) -> tuple[int | None, int | None]:
        """(PCIe generation, lanes) that the port above the GPU can do; None where the kernel doesn't say. In a virtual
        machine the port is the host's invention and often says nothing or 2.5 GT/s x1."""
        device = self._root / "sys/bus/pci/devices" / _sysfs_id(pci_bus_id)
        try:
            port = device.resolve(strict=True).parent
        except (OSError, ValueError):
            return None, None
        gt_s = re.match(r"(\d+(?:\.\d+)?)", self._text(port / "max_link_speed"))
        lanes = whole_number(self._text(port / "max_link_width"))
        gen = _GENERATIONS.get(float(gt_s.group(1))) if gt_s else None
        return gen, lanes if lanes is not None and 0 < lanes <= 32 else None

    def memory_bytes(self) -> tuple[int, int] | None:
        """(total, available) of the host: a unified-memory GPU has no other."""
        kib = dict(re.findall(r"^(MemTotal|MemAvailable):\s+(\d+) kB", self._text("proc/meminfo"), re.MULTILINE))
        if len(kib) < 2:
            return None
        return int(kib["MemTotal"]) * 1024, int(kib["MemAvailable"]) * 1024

    def why_not(self, error: NvmlError) -> ProbeError:
        """What to tell somebody whose NVML does not start."""
        if error.code == LIBRARY_NOT_FOUND:
            return self._no_library()
        if error.code == DRIVER_NOT_LOADED:
            hint = "load it with `modprobe nvidia`; nvidia-smi and dmesg say more" if "NVIDIA" in self.vendors() else ""
            return ProbeError("absent", "the NVIDIA driver is not loaded", hint or f"no GPU here? {_ELSEWHERE}")
        if error.code == VERSION_MISMATCH:
            return self._mismatch()
        hint = "in a container this often means that it lost its devices: restart it; see nvidia-smi and dmesg"
        return ProbeError(error.kind, f"NVML does not start: {error.message}", hint)

    def no_gpus(self, driver_version: str | None) -> ProbeError:
        """The driver is up and counts none."""
        message = f"the NVIDIA driver {driver_version or ''} sees no GPU".replace("  ", " ")
        return ProbeError("absent", message, "in a container: was it started with --gpus? else see dmesg")

    def _no_library(self) -> ProbeError:
        vendors = self.vendors()
        if "NVIDIA" in vendors:
            message = "an NVIDIA card is here but its driver's library (libnvidia-ml.so.1) is not"
            return ProbeError("absent", message, "install the driver; in a container start it with --gpus all")
        if "AMD" in vendors:
            message = "no NVIDIA GPU: this box has AMD cards, which decodetop does not read yet"
            return ProbeError("absent", message, _ELSEWHERE)
        return ProbeError("absent", "no NVIDIA GPU or driver on this machine", _ELSEWHERE)

    def _mismatch(self) -> ProbeError:
        library, replaced = self.library()
        message = (
            f"the NVIDIA library is {library or 'of another version'}, "
            f"the loaded kernel module {self.module_version() or 'of another'}"
        )
        act = "restart decodetop" if replaced else "reboot, or reload the module when the GPUs are free"
        return ProbeError("absent", message, f"jobs that run now are unaffected; {act}")

    def _text(self, path: str | Path) -> str:
        try:
            return (self._root / path).read_text("utf-8", "replace")
        except (OSError, ValueError):
            return ""

    def _number(self, path: Path) -> int | None:
        try:
            return int(self._text(path).strip(), 0)
        except ValueError:
            return None

    def _listed(self, path: str) -> Iterator[Path]:
        try:
            yield from (self._root / path).iterdir()
        except OSError:
            return


def _sysfs_id(pci_bus_id: str) -> str:
    """NVML writes the domain with 8 digits in capitals, the kernel with 4 in small letters."""
    domain, _, rest = pci_bus_id.lower().partition(":")
    return f"{domain[-4:]}:{rest}"
