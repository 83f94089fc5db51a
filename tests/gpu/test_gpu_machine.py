"""Why there is no GPU, from the kernel's files; and whose processes hold one."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from decodetop.gpu.codes import NvmlError
from decodetop.gpu.machine import Machine
from decodetop.gpu.processes import ProcessNames
from decodetop.gpu.reading import GpuProcess

OPEN = "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.159.04  Release Build  (root@build)  Tue May 5\n"
CLOSED = "NVRM version: NVIDIA UNIX x86_64 Kernel Module  470.256.02  Thu May  2 14:37:44 UTC 2024\nGCC version: 12\n"


def card(root: Path, vendor: str, kind: str = "0x030200", at: str = "0000:00:06.0") -> None:
    device = root / "sys/bus/pci/devices" / at
    device.mkdir(parents=True)
    (device / "vendor").write_text(f"{vendor}\n")
    (device / "class").write_text(f"{kind}\n")


def put(root: Path, path: str, text: str) -> None:
    (root / path).parent.mkdir(parents=True, exist_ok=True)
    (root / path).write_text(text)


@pytest.mark.parametrize(("text", "version"), [(OPEN, "580.159.04"), (CLOSED, "470.256.02"), ("nonsense", None)])
def test_the_loaded_modules_version(tmp_path: Path, text: str, version: str | None) -> None:
    put(tmp_path, "proc/driver/nvidia/version", text)
    assert Machine(tmp_path).module_version() == version
    assert Machine(tmp_path / "none").module_version() is None


def test_no_library_says_what_cards_are_here(tmp_path: Path) -> None:
    missing = NvmlError(12, "nvmlInit")
    nothing = Machine(tmp_path / "a").why_not(missing)
    assert nothing.kind == "absent" and "no NVIDIA GPU" in nothing.message
    card(tmp_path / "b", "0x1002")
    amd = Machine(tmp_path / "b").why_not(missing)
    assert "AMD" in amd.message and "bench" in amd.hint
    card(tmp_path / "c", "0x10de")
    nvidia = Machine(tmp_path / "c").why_not(missing)
    assert "NVIDIA card is here" in nvidia.message and "driver" in nvidia.hint
    card(tmp_path / "d", "0x10de", kind="0x040300")
    assert "no NVIDIA GPU" in Machine(tmp_path / "d").why_not(missing).message, "its sound device is no GPU"


def test_a_version_mismatch_names_both_sides_and_calms(tmp_path: Path) -> None:
    put(tmp_path, "proc/driver/nvidia/version", OPEN)
    put(tmp_path, "proc/self/maps", "7f00-7f01 r-xp 0 08:01 7 /usr/lib/libnvidia-ml.so.590.48.01\n")
    error = Machine(tmp_path).why_not(NvmlError(18, "nvmlInit"))
    assert error.kind == "absent"
    assert "590.48.01" in error.message and "580.159.04" in error.message
    assert "unaffected" in error.hint and "reboot" in error.hint
    put(tmp_path, "proc/self/maps", "7f00-7f01 r-xp 0 08:01 7 /usr/lib/libnvidia-ml.so.590.48.01 (deleted)\n")
    assert "restart decodetop" in Machine(tmp_path).why_not(NvmlError(18, "nvmlInit")).hint


def process(proc: Path, pid: int, cmdline: bytes, comm: str = "python3", maps: str = "") -> None:
    folder = proc / str(pid)
    folder.mkdir(parents=True)
    (folder / "cmdline").write_bytes(cmdline)
    (folder / "comm").write_text(f"{comm}\n")
    (folder / "maps").write_text(maps)


def namespace(proc: Path, inode: int) -> None:
    (proc / "self/ns").mkdir(parents=True)
    (proc / "self/ns/pid").symlink_to(f"pid:[{inode}]")


@pytest.mark.parametrize(
    ("cmdline", "name"),
    [
        (b"sglang::scheduler_TP0\0\0\0\0", "sglang::scheduler_TP0"),
        (
            b"/usr/bin/python3\0-m\0vllm.entrypoints.api_server\0--api-key\0sk-1\0",
            "python3 -m vllm.entrypoints.api_server",
        ),
        (b"/opt/llama-server --api-key sk-1", "llama-server"),
        (b"python3\0-m\0--api-key=sk-1\0", "python3"),
        (b"", "python3"),
        (b"evil\x1b[2J\0", "evil?[2J"),
    ],
)
def test_names_hold_no_options(tmp_path: Path, cmdline: bytes, name: str) -> None:
    namespace(tmp_path, 4026531836)
    process(tmp_path, 41, cmdline)
    assert ProcessNames(tmp_path).named([(41, 7)]) == (GpuProcess(pid=41, name=name, memory_bytes=7),)


@pytest.mark.parametrize(
    "title", [b"a" * 2_000_000, b"/" + b"a" * 2_000_000 + b"\0x", b"a::b" * 500_000, b"\xff" * 5000]
)
def test_a_title_of_megabytes_is_cut(tmp_path: Path, title: bytes) -> None:
    namespace(tmp_path, 4026531836)
    (tmp_path / "41").mkdir()
    (tmp_path / "41" / "cmdline").write_bytes(title)
    (process,) = ProcessNames(tmp_path).named([(41, 7)])
    assert process.name is not None and len(process.name) == 200 and process.name.endswith("…")


def test_a_vanished_process_has_no_name(tmp_path: Path) -> None:
    namespace(tmp_path, 4026531836)
    assert ProcessNames(tmp_path).named([(41, None)]) == (GpuProcess(pid=41),)


def test_in_a_container_a_number_is_believed_only_if_cuda_is_mapped_there(tmp_path: Path) -> None:
    namespace(tmp_path, 4026532999)
    process(tmp_path, 41, b"sshd\0")
    process(tmp_path, 42, b"sglang::scheduler\0", maps="7f0 r-xp 0 /usr/lib/libcuda.so.580.1\n")
    assert [one.name for one in ProcessNames(tmp_path).named([(41, 1), (42, 1), (43, 1)])] == [
        None,
        "sglang::scheduler",
        None,
    ]


def test_gone_is_said_of_named_processes_only(tmp_path: Path) -> None:
    process(tmp_path, 41, b"x\0")
    names = ProcessNames(tmp_path)
    assert not names.gone((GpuProcess(pid=41, name="x"), GpuProcess(pid=99)))
    assert names.gone((GpuProcess(pid=98, name="y"),))


def test_this_process_is_found_in_the_real_proc() -> None:
    (mine,) = ProcessNames().named([(os.getpid(), None)])
    assert mine.name is None or "py" in mine.name


@pytest.mark.parametrize(
    ("speed", "width", "slot"),
    [
        ("32.0 GT/s PCIe", "16", (5, 16)),
        ("Unknown", "0", (None, None)),
        ("1.2.3 GT/s", "\u00b2", (None, None)),
        (".", "255", (None, None)),
    ],
)
def test_a_port_may_say_anything(tmp_path: Path, speed: str, width: str, slot: tuple[int | None, int | None]) -> None:
    card = tmp_path / "sys/devices/port/0000:01:00.0"
    card.mkdir(parents=True)
    (card / "numa_node").write_text("-1\n")
    (card.parent / "max_link_speed").write_text(speed)
    (card.parent / "max_link_width").write_text(width)
    listed = tmp_path / "sys/bus/pci/devices"
    listed.mkdir(parents=True)
    (listed / "0000:01:00.0").symlink_to(card)
    machine = Machine(tmp_path)
    assert machine.slot("00000000:01:00.0") == slot and machine.numa_node("00000000:01:00.0") is None
    assert machine.slot("a\0b") == (None, None) and machine.numa_node("a\0b") is None
