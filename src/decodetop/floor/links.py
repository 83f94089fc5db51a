"""What one all-reduce of a decode step costs: at 6 to 16 KB it is latency, not bandwidth. Pure."""

from __future__ import annotations

from typing import NamedTuple

from decodetop.floor.reading import Hardware

P2P_US = 10.0
"""A send between pipeline stages (aiconfigurator's constant)."""


class Alpha(NamedTuple):
    """Microseconds by number of GPUs, in a CUDA graph, 8 to 16 KB; `source` says who measured."""

    us: dict[int, float]
    source: str


_TABLE = "aiconfigurator's tables"
ALPHA: dict[str, Alpha] = {
    "pcie5": Alpha({2: 4.5, 4: 13.7, 8: 26.6}, f"{_TABLE}, RTX PRO 6000: custom all-reduce for 2 GPUs, NCCL beyond"),
    "pcie4": Alpha({2: 5.7, 4: 14.0, 8: 27.5}, f"{_TABLE}, L40S: custom all-reduce for 2 GPUs, NCCL beyond"),
    "pcie3": Alpha({2: 8.6, 4: 12.6, 8: 20.6}, "NCCL's own constants for a ring over PCIe"),
    "ampere": Alpha({2: 5.3, 4: 5.5, 8: 6.3}, f"{_TABLE}, A100 with NVLink, custom all-reduce"),
    "hopper": Alpha({2: 4.6, 4: 4.8, 8: 5.1}, f"{_TABLE}, H200 with NVLink, custom all-reduce"),
    "blackwell": Alpha({2: 4.8, 4: 5.2, 8: 5.5}, f"{_TABLE}, B200 with NVLink, lower end"),
    "nvlink": Alpha({2: 7.8, 4: 10.2, 8: 15.0}, "NCCL's own constants for a ring over NVLink"),
}
"""Reference notes on the decode floor, section 2.9. In eager mode add 15 to 40 us each."""


class Cost(NamedTuple):
    us: float
    source: str
    beyond_table: bool


def allreduce(hardware: Hardware, arch: str, pcie_gen: int | None, gpus: int, message_bytes: float) -> Cost:
    """One all-reduce of `message_bytes` over `gpus`; latency of the next larger number in the table plus transfer."""
    if gpus < 2:
        return Cost(0.0, "one GPU: none", False)
    if hardware.link == "nvlink":
        alpha = ALPHA[arch if arch in ALPHA else "nvlink"]
    else:
        alpha = ALPHA[f"pcie{min(5, max(3, pcie_gen or 4))}"]
    size = next((size for size in alpha.us if size >= gpus), max(alpha.us))
    transfer_us = 0.0
    if hardware.link_gb_s:
        transfer_us = 2 * (gpus - 1) / gpus * message_bytes / (hardware.link_gb_s * 1e3)
    return Cost(alpha.us[size] + transfer_us, alpha.source, gpus > max(alpha.us))
