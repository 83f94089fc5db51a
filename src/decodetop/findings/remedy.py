"""What to do about a finding: the words of an item, and what is thought to be the case. Data, by rule."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple


class Remedy(NamedTuple):
    """`content` begins the item, `hypothesis` says what a test of it would confirm."""

    content: str
    hypothesis: str


REMEDIES: Mapping[str, Remedy] = {
    "gpu-gone": Remedy(
        "Bring the GPU back: dmesg for its Xid, then a reset or a reboot", "the GPU or its link failed, not the engine"
    ),
    "server-state": Remedy(
        "Find out why the server does not answer: its log from the first traceback on",
        "it ended or hangs; the first error in its log says why",
    ),
    "thermal": Remedy(
        "Find out why the GPU runs hot: fans, airflow, neighbours, power limit",
        "heat lowers the clocks; a lower power limit costs less than the thermal slowdown",
    ),
    "power-brake": Remedy(
        "Ask the machine's owner about its power supply", "the board's power brake input is pulled by the chassis"
    ),
    "hw-slowdown": Remedy(
        "Find out why the card slows itself: nvidia-smi -q -d PERFORMANCE, its power cables and slot",
        "the card's own protection holds its clocks, for heat or for power",
    ),
    "hardware": Remedy(
        "Take the card out of service until it is checked", "errors of the card or its links slow or break the work"
    ),
    "pcie-slower": Remedy(
        "Find out why the PCIe link fell back under load: reseat, riser, dmesg for AER errors",
        "the link was retrained to a lower speed after errors",
    ),
    "clock-low": Remedy(
        "Look for locked clocks: nvidia-smi -q -d CLOCK, and take a lock away with nvidia-smi -rgc",
        "the clocks were locked below what the card can do",
    ),
    "foreign-process": Remedy(
        "Move the other process off this GPU, then measure again", "it takes time and bandwidth from the decode step"
    ),
    "graphs": Remedy(
        "Capture graphs for the batches that run (SGLang --cuda-graph-max-bs-decode, vLLM cudagraph_capture_sizes)",
        "outside the captured sizes every kernel is launched by the CPU, and the GPU waits for it",
    ),
    "kv-full": Remedy(
        "Make room for KV: memory fraction, KV dtype, fewer or shorter requests",
        "a full KV cache holds back the batch or throws work away",
    ),
    "thrown-away": Remedy(
        "Stop requests from being put off: fewer at once, more KV, SGLang --schedule-conservativeness up",
        "what is put off is computed again, and the running ones wait meanwhile",
    ),
    "scheduler-bound": Remedy(
        "Shorten the scheduler's part of a step: graphs on, overlap schedule, a faster or pinned core",
        "the GPUs wait for one CPU core between steps",
    ),
    "far-socket": Remedy(
        "Pin the server to the socket of its GPUs (numactl --cpunodebind, --membind) and measure again",
        "each launch and host copy crosses the link between the sockets",
    ),
    "cores-busy": Remedy(
        "Find what else uses the CPU, and give the server cores of its own", "the server waits for a core"
    ),
    "disk": Remedy(
        "Make room on this disk before the next trace or log", "a full disk ends captures, recordings and logs"
    ),
    "memory-full": Remedy(
        "Lower the memory fraction a little, or find what else holds memory on this GPU",
        "the next larger batch or graph capture will not fit",
    ),
    "power-cap": Remedy(
        "See whether the cap costs decode anything: compare runs at two power limits",
        "decode is bound by memory; the SM clock under the cap does not matter",
    ),
}
"""Of every rule: a test compares with `rules.RULES`."""
