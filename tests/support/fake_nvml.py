"""A fake `libnvidia-ml.so.1` in C, scripted by a file: for tests of the whole way down, and for benchmarks.

box = FakeNvml(tmp_path)                        # compiles into tmp_path, or copies what was compiled before
box.script(h100s(8))                            # lines as described in fake_nvml.c; may change while in use
subprocess.run(command, env=box.environment())
box.calls()                                     # {"nvmlDeviceGetClockInfo": 16, ...}
"""

from __future__ import annotations

import os
import shutil
import struct
import subprocess
from collections.abc import Iterable, Mapping
from pathlib import Path

SOURCE = Path(__file__).with_name("fake_nvml.c")
SONAME = "libnvidia-ml.so.1"
GIB = 2**30

_GPUS = 16
_COUNT = struct.Struct(f"56s{_GPUS + 1}Q")


def compiler() -> str | None:
    return shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")


def build(directory: Path, without: Iterable[str] = ()) -> Path:
    """Compile the library into `directory`; functions in `without` are missing from it, as from an older driver."""
    directory.mkdir(parents=True, exist_ok=True)
    library = directory / SONAME
    command = [compiler() or "cc", "-shared", "-fPIC", "-O1", "-pthread", f"-Wl,-soname,{SONAME}", "-o", str(library)]
    command += [f"-D{name}=absent_{name}" for name in without]
    subprocess.run([*command, str(SOURCE)], check=True, capture_output=True)
    return library


class FakeNvml:
    """A directory with the library, its script and its counts."""

    def __init__(self, directory: Path, library: Path | None = None, without: Iterable[str] = ()) -> None:
        """`library` = one that `build` made before."""
        self.directory = directory
        directory.mkdir(parents=True, exist_ok=True)
        if library is None:
            build(directory, without)
        else:
            shutil.copy(library, directory / SONAME)

    def script(self, lines: Iterable[str]) -> None:
        """From the next call on the library says this."""
        fresh = self.directory / "script.new"
        fresh.write_text("".join(f"{line}\n" for line in lines))
        fresh.rename(self.directory / "script")

    def environment(self, base: Mapping[str, str] | None = None) -> dict[str, str]:
        """What a process needs to load it."""
        environ = dict(os.environ if base is None else base)
        environ["LD_LIBRARY_PATH"] = str(self.directory)
        environ["FAKE_NVML_DIR"] = str(self.directory)
        return environ

    def counts(self) -> dict[str, list[int]]:
        """Calls of each function: one number a GPU, and last those that name no GPU."""
        try:
            data = (self.directory / "counts").read_bytes()
        except FileNotFoundError:
            return {}
        records = (_COUNT.unpack_from(data, at) for at in range(0, len(data) - _COUNT.size + 1, _COUNT.size))
        return {name.rstrip(b"\0").decode(): list(calls) for name, *calls in records if name[0]}

    def calls(self) -> dict[str, int]:
        return {name: sum(calls) for name, calls in self.counts().items()}


def h100s(count: int, *, moving: bool = False) -> list[str]:
    """`count` H100s: busy and still, or `moving` once a second like those of the cost measurements."""

    def value(still: float, low: float, high: float) -> str:
        return f"{low:.0f}..{high:.0f}" if moving else f"{still:.0f}"

    lines = ["driver 580.159.04", "nvml 13.580.159.04", "cuda 13000", f"count {count}", "nvlink 1", "topology 50"]
    values = {
        "sm_clock": value(1755, 1500, 1980),
        "mem_clock": "2619",
        "sm_clock_max": "1980",
        "mem_clock_max": "2619",
        "reasons": "4" if not moving else "0",
        "util": value(98, 60, 100),
        "mem_util": value(61, 30, 80),
        "mem_total": str(80 * GIB),
        "mem_reserved": str(480 * 2**20),
        "mem_used": value(60 * GIB, 55 * GIB, 65 * GIB),
        "power": value(612_345, 300_000, 690_000),
        "power_limit": "700000",
        "power_default": "700000",
        "energy": "5000000",
        "energy_rate": "600000",
        "temperature": value(61, 50, 70),
        "slowdown": "89",
        "pcie_gen": "5",
        "pcie_width": "16",
        "pcie_gen_max": "5",
        "pcie_width_max": "16",
        "pcie_gen_device": "5",
        "pcie_kbs": "12000",
        "pstate": "0",
        "persistence": "1",
        "mig": "0",
        "bus_type": "2",
        "architecture": "9",
        "virtualization": "0",
        "bus_width": "5120",
        "gpm_supported": "1",
        "ecc": "0",
        "compute_mode": "0",
        "app_sm_clock": "1980",
        "app_mem_clock": "2619",
        "margin": "28",
    }
    lines += [f"gpu * {key} {text}" for key, text in values.items()]
    fields = {82: 55, 94: 0, 3: 0, 4: 0, 142: 0, 143: 0, 144: 0, 145: 0, 230: 0, 91: 18, 164: 26562, 165: 1, 166: 6}
    fields |= {74: 7_000_000, 76: 0, 77: 0, 79: 0, 269: 0, 270: 0, 271: 0}
    lines += [f"field * {field} {number}" for field, number in fields.items()]
    shares = {2: (91, 50, 95), 3: (42, 20, 60), 5: (33, 10, 50), 10: (62, 30, 80)}
    shares |= {20: (900, 100, 2000), 21: (1500, 100, 3000), 60: (250, 100, 400), 61: (251, 100, 400)}
    lines += [f"gpm * {metric} {value(*still_low_high)}" for metric, still_low_high in shares.items()]
    for gpu in range(count):
        lines += [
            f"text {gpu} name NVIDIA H100 80GB HBM3",
            f"text {gpu} uuid GPU-00000000-0000-0000-0000-{gpu:012d}",
            f"text {gpu} bus 00000000:{0x10 + gpu:02X}:00.0",
        ]
    return lines
