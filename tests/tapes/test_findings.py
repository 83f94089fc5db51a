"""The rules over recorded sessions: which finding is raised when, and gone when. Reviewed; `DECODETOP_GOLDEN=1` writes.

The two sessions as they were, and one of them with a fault put into its readings: the rest stays what a real box said.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pytest

from decodetop.core.clock import SECOND_NS
from decodetop.core.sample import Reading, Sample
from decodetop.core.state import State, fold
from decodetop.core.tape import Tape
from decodetop.findings import NOTHING, evaluate, evaluated
from decodetop.findings.rules import RULES
from decodetop.flows.catalog import codec
from decodetop.gpu.reading import GpuProcess, GpuReading, Xid
from decodetop.host.reading import HostReading
from decodetop.server.reading import Counters, ServerReading

HERE = Path(__file__).parent
GOLDEN = HERE.parents[0] / "golden" / "findings"
WATCHED = ("gpu", "host", "server")
change = msgspec.structs.replace


class Fault(NamedTuple):
    """Readings of `source` between two times are changed."""

    source: str
    begin_s: float
    end_s: float
    put: Callable[[Any, float], Reading]


def gpu(begin_s: float, end_s: float, **fields: Any) -> Fault:
    """GPU 0 with these fields."""

    def put(reading: GpuReading, t_s: float) -> Reading:
        first, *others = reading.gpus
        return change(reading, gpus=(change(first, **fields), *others))

    return Fault("gpu", begin_s, end_s, put)


def server(begin_s: float, end_s: float, **fields: Any) -> Fault:
    """The current server with these fields; a function is given the time."""

    def put(reading: ServerReading, t_s: float) -> Reading:
        values = {name: value(t_s) if callable(value) else value for name, value in fields.items()}
        return change(
            reading,
            servers=tuple(change(one, **values) if one.endpoint == reading.current else one for one in reading.servers),
        )

    return Fault("server", begin_s, end_s, put)


def host(begin_s: float, end_s: float, **fields: Any) -> Fault:
    return Fault("host", begin_s, end_s, lambda reading, t_s: change(reading, **fields))


def scheduler_at(node: int) -> Fault:
    def put(reading: HostReading, t_s: float) -> Reading:
        moved = tuple(change(one, numa_node=node) for one in reading.processes)
        return change(reading, cpu_numa_nodes=2, processes=moved)

    return Fault("host", 0, 99, put)


def full_disk(reading: HostReading, t_s: float) -> Reading:
    return change(reading, disks=tuple(change(one, free_bytes=200 << 20) for one in reading.disks))


LOADED = {"utilization_percent": 100.0}
FAULTS: dict[str, tuple[Fault, ...]] = {
    "as it was": (),
    "heat": (gpu(20, 30, event_reasons=0x40, temperature_c=91.0),),
    "power brake": (gpu(20, 30, event_reasons=0x80),),
    "HW slowdown": (gpu(10, 30, **LOADED, event_reasons=0x8, sm_clock_mhz=600),),
    "HW slowdown for a moment": (gpu(8, 30, **LOADED), gpu(12, 14, event_reasons=0x8)),
    "power cap": (gpu(10, 30, **LOADED, event_reasons=0x4, sm_clock_mhz=1515),),
    "power cap for a moment": (gpu(8, 30, **LOADED), gpu(12, 13, event_reasons=0x4, sm_clock_mhz=1965)),
    "locked clock": (gpu(10, 30, **LOADED, event_reasons=0, sm_clock_mhz=1410),),
    "link down under load": (gpu(8, 40, **LOADED), gpu(20, 30, pcie_gen=1)),
    "link down for good": (
        gpu(0, 8, **LOADED, pcie_fastest=(5, 16)),
        gpu(8, 99, **LOADED, pcie_fastest=(5, 16), pcie_gen=4),
    ),
    "link down while idle": (gpu(27, 40, utilization_percent=0.0, pcie_gen=1, event_reasons=1),),
    "narrow for good": (gpu(0, 99, pcie_width=8, **LOADED),),
    "memory full": (gpu(20, 30, memory_free_bytes=1 << 30),),
    "another process": (gpu(20, 30, processes=(GpuProcess(pid=1008), GpuProcess(pid=4711))),),
    "GPU lost": (gpu(20, 99, state="lost", state_message="the GPU is lost"),),
    "ECC": (gpu(20, 99, ecc_uncorrected=2),),
    "Xid": (gpu(20, 99, xids=(Xid(code=79, t_ns=20 * SECOND_NS),)),),
    "link of NVLink down": (gpu(20, 99, nvlink_links_active=17),),
    "KV full": (server(20, 30, kv_usage=0.97),),
    "retracted": (server(20, 30, retracted=2),),
    "preempted": (server(0, 99, counters=lambda t_s: Counters(preemptions=0.0 if t_s < 20 else 3.0)),),
    "graphs off": (server(20, 30, running=1, cuda_graph=False),),
    "batch outside": (server(20, 30, running=40),),
    "eager passes": (
        server(
            0,
            99,
            running=1,
            counters=lambda t_s: Counters(eager_decode_passes=10 * max(0.0, t_s - 20), graph_decode_passes=90 * t_s),
        ),
    ),
    "hung": (server(20, 30, status="hung", status_message="no answer within 2 s to /metrics"),),
    "launch-bound": (gpu(10, 30, utilization_percent=28.0), server(10, 30, generated_tok_s=51.0)),
    "far socket": (gpu(0, 99, numa_node=0), scheduler_at(1)),
    "cores busy": (host(20, 30, cpu_percent=99.0),),
    "disk full": (Fault("host", 20, 30, full_disk),),
}


def samples(tape: Path, faults: tuple[Fault, ...]) -> Iterator[Sample]:
    with Tape(tape, codec()) as opened:
        for sample in opened.samples():
            reading, t_s = sample.reading, sample.t_ns / SECOND_NS
            for fault in faults:
                if reading is not None and sample.source == fault.source and fault.begin_s <= t_s < fault.end_s:
                    reading = fault.put(reading, t_s)
            yield change(sample, reading=reading)


def course(tape: Path, faults: tuple[Fault, ...] = ()) -> list[str]:
    """`20.4 s + thermal:0  hardware thermal slowdown at 91 °C`, and `-` when it is gone."""
    with Tape(tape, codec()) as opened:
        state = State(header=opened.header)
    before, stood, lines = NOTHING, dict[str, str](), []
    for sample in samples(tape, faults):
        state = fold(state, sample)
        if sample.source not in WATCHED:
            continue
        found = evaluate(state, before)
        before = evaluated(state, found)
        now = {one.id: one.evidence for one in found}
        t_s = sample.t_ns / SECOND_NS
        lines += [f"{t_s:6.1f} s + {name}  {now[name]}" for name in now if name not in stood]
        lines += [f"{t_s:6.1f} s - {name}" for name in stood if name not in now]
        stood = now
    return lines


def text_of(tape: Path, faults: dict[str, tuple[Fault, ...]]) -> str:
    return "\n".join("\n".join([f"== {name}", *course(tape, one)]) for name, one in faults.items()) + "\n"


@pytest.mark.parametrize(
    ("name", "faults"), [("h200_sglang", FAULTS), ("h200_diagnose", {"as it was": ()})], ids=["sglang", "diagnose"]
)
def test_raised_and_gone_as_reviewed(name: str, faults: dict[str, tuple[Fault, ...]]) -> None:
    path, text = GOLDEN / f"{name}.txt", text_of(HERE / f"{name}.tape", faults)
    if os.environ.get("DECODETOP_GOLDEN"):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, "utf-8")
    assert path.read_text("utf-8") == text


def test_every_rule_is_seen_on_a_tape_and_every_finding_has_a_number() -> None:
    lines = (GOLDEN / "h200_sglang.txt").read_text("utf-8").splitlines()
    raised = [line.split(" + ", 1)[1].split("  ", 1) for line in lines if " + " in line]
    assert {name.partition(":")[0] for name, _ in raised} == {rule.id for rule in RULES}
    assert all(any(letter.isdigit() for letter in evidence) for _, evidence in raised)


def test_the_documentation_names_every_rule_with_its_severity() -> None:
    rows = [line.split("|") for line in (HERE.parents[1] / "docs" / "findings.md").read_text("utf-8").splitlines()]
    told = [(row[1].strip().strip("`"), row[2].strip()) for row in rows if len(row) > 3 and "`" in row[1]]
    assert told == [(rule.id, rule.severity) for rule in RULES]
