"""Each rule fires on its number, keeps quiet without it, and says since when."""

import re
from collections.abc import Sequence
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from decodetop.core.clock import SECOND_NS
from decodetop.core.sample import Failure, Reading, Sample
from decodetop.core.state import State, fold_all
from decodetop.findings import NOTHING, evaluate, evaluated
from decodetop.findings.owners import gpus_of
from decodetop.findings.remedy import REMEDIES
from decodetop.findings.rules import RULES
from decodetop.findings.seen import STEADY_SAMPLES
from decodetop.gpu.reading import Gpu, GpuProcess, GpuReading
from decodetop.host.reading import Disk, HostProcess, HostReading
from decodetop.server.reading import Counters, Server, ServerProcess, ServerReading
from support.probes import HEADER

GPU = Gpu(
    index=0,
    utilization_percent=99,
    sm_clock_mhz=1980,
    sm_clock_max_mhz=1980,
    pcie_gen=5,
    pcie_width=16,
    memory_free_bytes=40 << 30,
    memory_total_bytes=140 << 30,
    event_reasons=0,
    power_w=470,
    power_limit_w=700,
    temperature_c=44,
    processes=(GpuProcess(pid=7),),
)
SERVER = Server(
    endpoint="http://127.0.0.1:30000",
    status="up",
    running=1,
    cuda_graph=True,
    cuda_graph_max_batch=32,
    kv_usage=0.1,
    processes=(ServerProcess(pid=7, role="scheduler", title="sglang::scheduler"),),
)
HOST = HostReading(cpu_count=32, cpu_percent=7)


def state_of(
    gpus: Sequence[dict[str, Any]] = (), server: dict[str, Any] | None = None, host: HostReading = HOST
) -> State:
    """One gpu sample a second (the changes to GPU of each), and what the others say."""
    chosen = msgspec.structs.replace(SERVER, **(server or {}))
    seen: list[tuple[str, int, Reading]] = [
        ("server", 0, ServerReading(servers=(chosen,), current=chosen.endpoint)),
        ("host", 0, host),
    ]
    for t, change in enumerate(gpus or [{}]):
        seen.append(("gpu", t, GpuReading(gpus=(msgspec.structs.replace(GPU, **change),))))
    samples = [Sample(source=source, t_ns=t * SECOND_NS, seq=n, reading=one) for n, (source, t, one) in enumerate(seen)]
    return fold_all(HEADER, samples)


def ids(state: State) -> list[str]:
    return [finding.id for finding in evaluate(state)]


def test_a_healthy_box_has_none() -> None:
    assert ids(state_of([{}] * 10)) == []
    assert evaluate(State(header=HEADER)) == ()


@pytest.mark.parametrize(
    ("change", "expected", "word"),
    [
        ({"event_reasons": 0x40, "temperature_c": 91}, "thermal:0", "91 °C"),
        ({"event_reasons": 0x20}, "thermal:0", "software thermal"),
        ({"event_reasons": 0x20, "temperature_c": None}, "thermal:0", "SM 1980 of 1980 MHz"),
        ({"state": "stalled"}, "gpu-gone:0", "1 of 1 GPUs"),
        ({"event_reasons": 0x80}, "power-brake:0", "470 W"),
        ({"event_reasons": 0x4, "sm_clock_mhz": 1515}, "power-cap:0", "1515 of 1980 MHz"),
        ({"memory_free_bytes": 1 << 30}, "memory-full:0", "1.0 GiB free"),
        ({"ecc_uncorrected": 3}, "hardware:0:ecc", "3 uncorrected"),
        ({"row_remap_pending": True}, "hardware:0:row-remap", "reset the GPU"),
        ({"recovery_action": "a reset (action 1)"}, "hardware:0:recovery", "asks for: a reset (action 1)"),
        ({"page_retirement_pending": True, "pages_retired": 3}, "hardware:0:page-retirement", "3 retired so far"),
        ({"nvlink_links": 18, "nvlink_links_active": 17}, "hardware:0:nvlink", "17 of 18"),
        ({"state": "lost", "state_message": "GPU is lost"}, "gpu-gone:0", "GPU is lost"),
        ({"processes": (GpuProcess(pid=7), GpuProcess(pid=99))}, "foreign-process:0", "pid 99"),
    ],
)
def test_gpu_rules(change: dict[str, Any], expected: str, word: str) -> None:
    (finding,) = evaluate(state_of([change] * STEADY_SAMPLES))
    assert finding.id == expected
    assert word in finding.evidence and re.search(r"\d", finding.evidence), "no finding without its number"


@pytest.mark.parametrize(
    ("change", "expected", "word"),
    [
        ({"cuda_graph": False}, "graphs:off", "1 running"),
        ({"running": 40}, "graphs:outside", "batch 40 > 32 captured"),
        ({"kv_usage": 0.97}, "kv-full", "97 %"),
        ({"status": "hung", "status_message": "no answer for 5 s"}, "server-state", "no answer for 5 s"),
        ({"status": "down", "status_message": "connection refused"}, "server-state", ":30000: connection refused"),
    ],
)
def test_server_rules(change: dict[str, Any], expected: str, word: str) -> None:
    (finding,) = evaluate(state_of(server=change))
    assert finding.id == expected
    assert word in finding.evidence and re.search(r"\d", finding.evidence), "no finding without its number"


def test_every_rule_says_what_to_do() -> None:
    assert {rule.id for rule in RULES} == set(REMEDIES)
    (finding,) = evaluate(state_of([{"event_reasons": 0x40}]))
    assert finding.item.startswith("GPU 0 is slowed by heat: find out why") and finding.hypothesis


def test_requests_put_off_are_counted() -> None:
    def at(t: int, preemptions: float, retracted: int | None = None) -> Sample:
        counters = Counters(preemptions=preemptions)
        server = msgspec.structs.replace(SERVER, counters=counters, retracted=retracted)
        reading = ServerReading(servers=(server,), current=server.endpoint)
        return Sample(source="server", t_ns=t * SECOND_NS, seq=t, reading=reading)

    assert ids(fold_all(HEADER, [at(0, 5), at(1, 5), at(2, 5)])) == []
    (finding,) = evaluate(fold_all(HEADER, [at(0, 5), at(1, 5), at(2, 8), at(3, 9)]))
    assert (finding.id, finding.since_ns) == ("thrown-away:preempted", 2 * SECOND_NS)
    assert finding.evidence.startswith("4 since 3 readings ago")
    assert ids(fold_all(HEADER, [at(0, 5), at(1, 1)])) == [], "it began anew"
    assert ids(fold_all(HEADER, [at(0, 0, 3)])) == ["thrown-away:retracted"]


@pytest.mark.parametrize(
    ("node", "seconds", "sockets", "expected"),
    [(1, 5, 2, ["far-socket:7"]), (0, 5, 2, []), (1, 4, 2, []), (1, 5, 1, []), (None, 5, 2, [])],
    ids=["far", "near", "only for a moment", "one socket", "unknown"],
)
def test_a_scheduler_on_the_far_socket(node: int | None, seconds: int, sockets: int, expected: list[str]) -> None:
    process = HostProcess(
        pid=7, root_pid=1, role="scheduler", title="sglang::scheduler", cpu_percent=40, numa_node=node
    )
    host = HostReading(cpu_count=64, cpu_numa_nodes=sockets, processes=(process,))
    server = ServerReading(servers=(SERVER,), current=SERVER.endpoint)
    gpu = GpuReading(gpus=(msgspec.structs.replace(GPU, numa_node=0),))
    samples = [Sample(source="server", t_ns=0, seq=0, reading=server), Sample(source="gpu", t_ns=0, seq=1, reading=gpu)]
    samples += [Sample(source="host", t_ns=t * SECOND_NS, seq=2 + t, reading=host) for t in range(seconds)]
    assert ids(fold_all(HEADER, samples)) == expected


@given(st.lists(st.sampled_from([{}, {"event_reasons": 0x40}, {"event_reasons": 0x80}]), min_size=1, max_size=12))
def test_looking_again_and_again_finds_what_one_look_finds(changes: list[dict[str, Any]]) -> None:
    before = NOTHING
    for end in range(1, len(changes) + 1):
        state = state_of(changes[:end])
        found = evaluate(state, before)
        assert found == evaluate(state)
        if end % 3:  # not every reading is looked at
            before = evaluated(state, found)


def test_host_rules() -> None:
    disk = Disk(role="traces", path="/tmp", free_bytes=1 << 20, total_bytes=1 << 40)
    assert ids(state_of(host=HostReading(cpu_count=4, disks=(disk,)))) == ["disk:traces"]


SPINNING = HostReading(
    cpu_count=32,
    processes=(HostProcess(pid=7, root_pid=1, role="scheduler", title="sglang::scheduler", cpu_percent=101),),
)


@pytest.mark.parametrize(
    ("gpu", "server", "expected"),
    [
        ({"utilization_percent": 28.0}, {"generated_tok_s": 51.0}, ["scheduler-bound:7"]),
        ({"utilization_percent": 100.0}, {"generated_tok_s": 195.0}, []),
        ({"utilization_percent": 0.0}, {"generated_tok_s": 0.0}, []),
        ({"utilization_percent": None}, {"generated_tok_s": 51.0}, []),
        ({"utilization_percent": 28.0}, {"generated_tok_s": 51.0, "processes": ()}, []),
    ],
    ids=["launch-bound", "gpu busy", "idle: it polls", "gpu unknown", "another server's"],
)
def test_a_whole_core_is_a_finding_only_while_the_gpus_wait(
    gpu: dict[str, Any], server: dict[str, Any], expected: list[str]
) -> None:
    assert ids(state_of([gpu] * 5, server=server, host=SPINNING)) == expected
    assert ids(state_of([gpu] * 4, server=server, host=SPINNING)) == [], "it may be the start of a load"


def test_busy_cores_are_a_finding_after_five_samples() -> None:
    busy = HostReading(cpu_count=4, cpu_percent=99)
    for n, expected in ((4, []), (5, ["cores-busy"])):
        samples = [Sample(source="host", t_ns=t * SECOND_NS, seq=t, reading=busy) for t in range(n)]
        assert ids(fold_all(HEADER, samples)) == expected


def test_graphs_off_matters_only_while_something_runs() -> None:
    assert ids(state_of(server={"cuda_graph": False, "running": 0})) == []


def test_an_idle_link_or_clock_is_no_finding() -> None:
    idle = {"utilization_percent": 0, "pcie_gen": 1, "sm_clock_mhz": 345, "event_reasons": 1}
    assert ids(state_of([{}] * 10 + [idle] * 10)) == []


def test_a_link_that_falls_under_load_is_one_and_says_since_when() -> None:
    slow = {"pcie_gen": 1}
    assert ids(state_of([slow] * 20)) == [], "never seen better: nothing to compare with"
    state = state_of([{}] * 10 + [slow] * 8)
    (finding,) = evaluate(state)
    assert finding.id == "pcie-slower:0"
    assert finding.since_ns == 14 * SECOND_NS, "the fifth sample in a row"
    assert "gen5 x16 was seen before" in finding.evidence


def test_a_link_that_fell_back_stays_a_finding_for_as_long_as_it_is_slow() -> None:
    """It was forgotten after 30 s, when the faster link had left the readings at hand."""
    slow = {"pcie_gen": 4, "pcie_fastest": (5, 16)}
    (finding,) = evaluate(state_of([{"pcie_fastest": (5, 16)}] * 3 + [slow] * 100))
    assert finding.id == "pcie-slower:0"
    assert finding.evidence == "gen4 x16 under load; gen5 x16 was seen before"
    assert finding.since_ns == 7 * SECOND_NS


def test_another_gpu_at_the_same_index_is_no_past_of_this_one() -> None:
    narrow = {"uuid": "GPU-b", "pcie_width": 8}
    assert ids(state_of([{"uuid": "GPU-a"}] * 10 + [narrow] * 10)) == []


def test_a_hardware_slowdown_that_stays_is_one() -> None:
    slow = {"event_reasons": 0x8, "sm_clock_mhz": 600}
    assert ids(state_of([{}] * 5 + [slow] * 4)) == [], "lit for a moment when the P-state changes"
    (finding,) = evaluate(state_of([{}] * 5 + [slow] * 5))
    assert (finding.id, finding.evidence) == ("hw-slowdown:0", "HW slowdown, SM 600 of 1980 MHz")
    assert ids(state_of([slow | {"event_reasons": 0x48}] * 5)) == ["thermal:0"], "its reason is named"


def test_a_low_clock_needs_five_samples_and_no_explanation() -> None:
    low = {"sm_clock_mhz": 1200}
    assert ids(state_of([{}] * 5 + [low] * 4)) == []
    assert ids(state_of([{}] * 5 + [low] * 5)) == ["clock-low:0"]
    assert ids(state_of([low | {"event_reasons": 0x4}] * 9)) == ["power-cap:0"]


def test_since_is_the_start_of_the_unbroken_row() -> None:
    hot = {"event_reasons": 0x40}
    (finding,) = evaluate(state_of([hot, {}, {}, hot, hot]))
    assert finding.since_ns == 3 * SECOND_NS


def test_a_failing_lane_keeps_no_finding() -> None:
    state = state_of([{"event_reasons": 0x40}])
    failure = Sample(source="gpu", t_ns=9 * SECOND_NS, seq=99, failure=Failure(kind="lost", message="gone"))
    samples = [
        Sample(source=source, t_ns=lane.last_t_ns or 0, seq=0, reading=lane.last)
        for source, lane in state.lanes.items()
    ]
    assert ids(fold_all(HEADER, [*samples, failure])) == []


def test_a_server_elsewhere_does_not_blame_this_box() -> None:
    hot = {"event_reasons": 0x40}
    assert ids(state_of([hot], server={"local": False})) == []


def test_whose_gpus() -> None:
    other = msgspec.structs.replace(GPU, index=1, uuid="GPU-abc-1", processes=())
    reading = GpuReading(gpus=(GPU, other))
    assert gpus_of(SERVER, reading) == (GPU,)
    stranger = msgspec.structs.replace(SERVER, processes=())
    assert gpus_of(stranger, reading) is None
    assert gpus_of(msgspec.structs.replace(stranger, gpu_indices=(1,)), reading) == (other,)
    assert gpus_of(msgspec.structs.replace(stranger, gpu_uuids=("GPU-abc",)), reading) == (other,)
    assert gpus_of(msgspec.structs.replace(SERVER, local=False), reading) == ()


def test_rule_ids_are_unique() -> None:
    assert len({rule.id for rule in RULES}) == len(RULES)


def test_a_moment_at_the_power_cap_is_how_a_gpu_finds_its_clock() -> None:
    capped = {"event_reasons": 0x4, "sm_clock_mhz": 1965}
    assert ids(state_of([{}, {}, capped, {}, {}, {}, capped])) == []
    assert ids(state_of([{}, *[capped] * STEADY_SAMPLES])) == ["power-cap:0"]


def test_a_low_clock_names_the_application_clock_where_it_is_told() -> None:
    low = {"sm_clock_mhz": 1410, "sm_clock_application_mhz": 1410}
    (finding,) = evaluate(state_of([low] * STEADY_SAMPLES))
    assert finding.evidence == "SM 1410 of 1980 MHz under load, no event reason: application clock 1410 MHz"


def test_eager_decode_passes_are_seen_though_the_batch_would_fit() -> None:
    def at(t: int, eager: float, graph: float, **changes: Any) -> Sample:
        counters = Counters(eager_decode_passes=eager, graph_decode_passes=graph)
        server = msgspec.structs.replace(SERVER, counters=counters, **changes)
        reading = ServerReading(servers=(server,), current=server.endpoint)
        return Sample(source="server", t_ns=t * SECOND_NS, seq=t, reading=reading)

    def found(*samples: Sample) -> list[str]:
        return [finding.evidence for finding in evaluate(fold_all(HEADER, samples)) if finding.id == "graphs:eager"]

    assert found(at(0, 100, 1000), at(1, 140, 1060)) == ["40 of 100 decode passes lately"]
    assert found(at(0, 100, 1000), at(1, 100, 1060)) == [], "those of the warm-up are long gone"
    assert found(at(0, 100, 1000), at(1, 101, 1099)) == [], "one in a hundred is a batch in transition"
    assert found(at(0, 100, 1000), at(1, 3, 10)) == [], "it started anew"
    assert found(at(0, 100, 1000, cuda_graph=False), at(1, 140, 1060, cuda_graph=False)) == [], "off says it already"
