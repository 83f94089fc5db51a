"""What GPUs and server said over a run, from their readings."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import pytest

from decodetop.bench.reading import GpuSpan, ServerSpan
from decodetop.bench.spans import gpu_spans, server_span
from decodetop.bench.text import gpu_line, server_line
from decodetop.core.clock import SECOND_NS
from decodetop.gpu.reading import Gpu, GpuProcess, GpuReading
from decodetop.server.reading import Counters, Server, ServerProcess


def reading(*gpus: Gpu) -> GpuReading:
    return GpuReading(gpus=gpus)


def spans(readings: Sequence[GpuReading], server: Server | None = None) -> tuple[GpuSpan, ...]:
    """Readings a second apart."""
    return gpu_spans([(n * SECOND_NS, one) for n, one in enumerate(readings)], server)


def gpu(index: int = 0, **fields: Any) -> Gpu:
    return Gpu(index=index, **fields)


def server(**fields: Any) -> Server:
    return Server(endpoint="http://x", **fields)


def test_means_and_edges() -> None:
    clocks = [1980, 1980, 1900, 1800, 1700, 1600, 1500, 1500]
    readings = [
        reading(gpu(sm_clock_mhz=clock, power_w=600.0, temperature_c=50.0 + n, energy_j=1000.0 + 600 * n))
        for n, clock in enumerate(clocks)
    ]
    (span,) = spans(readings, None)
    assert (span.n, span.sm_clock_mhz_mean, span.sm_clock_mhz_min) == (8, sum(clocks[1:]) / 7, 1500)
    assert (span.sm_clock_mhz_start, span.sm_clock_mhz_end) == (1980, 1500)
    assert (span.power_w_mean, span.energy_j, span.temperature_c_max) == (600.0, 4200.0, 57.0)
    assert span.dram_bandwidth_percent_mean is None and span.pcie_gen_min is None


def test_drift_of_temperature_and_traffic_over_pcie() -> None:
    readings = [
        reading(gpu(temperature_c=40.0 + n, pcie_tx_bytes_s=2e9, pcie_rx_bytes_s=1e9 * n, pcie_gen=4)) for n in range(8)
    ]
    (span,) = spans(readings)
    assert (span.temperature_c_start, span.temperature_c_end) == (40.5, 46.5)
    assert (span.pcie_tx_bytes_s_mean, span.pcie_rx_bytes_s_mean) == (2e9, 4e9)
    line = gpu_line(span)
    assert "40 to 46 °C" in line or "41 to 47 °C" in line
    assert "PCIe gen 4 2.00 GB/s out, 4.00 in" in line


def test_idle_samples_do_not_count_for_the_fall_of_the_clock() -> None:
    idle = [reading(gpu(sm_clock_mhz=345, utilization_percent=0.0))]
    busy = [reading(gpu(sm_clock_mhz=1980, utilization_percent=90.0)) for _ in range(3)]
    (span,) = spans(idle + busy + idle, None)
    assert (span.sm_clock_mhz_start, span.sm_clock_mhz_end, span.sm_clock_mhz_min) == (1980, 1980, 345)
    (one,) = spans(busy[:1], None)
    assert one.sm_clock_mhz_start is None  # one sample is no course


def test_means_are_over_time_and_leave_out_what_was_before_the_run() -> None:
    """On an H200 a run of five seconds read 44 % by plain mean of eight samples where 62 % was moved."""
    seen = [(0, 0.0), (1, 62.0), (2, 62.0), (5, 62.0), (5.1, 20.0)]
    readings = [(int(t * SECOND_NS), reading(gpu(dram_bandwidth_percent=percent))) for t, percent in seen]
    (span,) = gpu_spans(readings, None)
    assert span.dram_bandwidth_percent_mean == pytest.approx((5 * 62 + 0.1 * 20) / 5.1)
    (alone,) = gpu_spans(readings[1:2], None)
    assert alone.dram_bandwidth_percent_mean == 62


def test_reasons_gather_and_lost_samples_are_left_out() -> None:
    readings = [
        reading(gpu(event_reasons=0x4, pcie_gen=1)),
        reading(gpu(event_reasons=0x20, pcie_gen=5)),
        reading(gpu(state="lost", event_reasons=0x80, pcie_gen=0)),
    ]
    (span,) = spans(readings, None)
    assert (span.event_reasons, span.n, span.pcie_gen_min) == (0x24, 2, 1)


def test_only_the_servers_gpus_and_none_for_a_server_elsewhere() -> None:
    readings = [reading(gpu(0), gpu(1), gpu(2))]
    assert [span.index for span in spans(readings, None)] == [0, 1, 2]
    assert [span.index for span in spans(readings, server(gpu_indices=(2,)))] == [2]
    assert spans(readings, server(local=False)) == ()


def test_foreign_processes() -> None:
    def of(*pids: int) -> tuple[int, ...]:
        processes = tuple(GpuProcess(pid=pid) for pid in pids)
        ours = server(root_pid=10, processes=(ServerProcess(pid=11, role="scheduler", title="x"),))
        return spans([reading(gpu(processes=processes))], ours)[0].foreign_pids

    assert of(11, 99) == (99,)
    assert of(10, 11) == ()
    assert of(500, 501) == ()  # pids of another namespace: nothing can be said


@pytest.mark.parametrize(("engine", "itl_ms"), [("vllm", 1.25), ("sglang", 5.0)])
def test_a_gap_of_several_drafted_tokens_is_shared_by_them_where_the_engine_counts_steps(
    engine: str, itl_ms: float
) -> None:
    before = Counters(generated_tokens=0.0, ttft_count=0.0, itl_sum_s=0.0, itl_count=0.0, spec_drafts=0.0)
    after = Counters(generated_tokens=1024.0, ttft_count=8.0, itl_sum_s=1.27, itl_count=254.0, spec_drafts=254.0)
    span = server_span(server(counters=before, engine=engine), server(counters=after, engine=engine))
    assert span is not None and span.itl_mean_ms == pytest.approx(itl_ms)


def test_server_counters() -> None:
    before = Counters(
        generated_tokens=100.0, requests=3.0, ttft_sum_s=1.0, ttft_count=3.0, itl_sum_s=2.0, itl_count=97.0
    )
    after = Counters(
        generated_tokens=356.0,
        requests=5.0,
        ttft_sum_s=1.5,
        ttft_count=5.0,
        itl_sum_s=3.27,
        itl_count=351.0,
        spec_drafts=50.0,
        spec_accepted_tokens=150.0,
    )
    span = server_span(server(counters=before), server(counters=after))
    assert span is not None
    assert (span.generated_tokens, span.requests, span.ttft_mean_ms) == (256.0, 2.0, 250.0)
    assert span.itl_mean_ms == pytest.approx(5.0)
    assert span.accept_length == 4.0  # three accepted a draft and the step's own; no sample before = 0
    assert span.cached_tokens is None


def test_accepted_at_each_position_of_a_draft() -> None:
    before = Counters(spec_drafts=10.0, spec_accepted_tokens=12.0, spec_accepted_per_position=(8.0, 4.0))
    after = Counters(spec_drafts=110.0, spec_accepted_tokens=142.0, spec_accepted_per_position=(88.0, 44.0, 10.0))
    span = server_span(server(counters=before), server(counters=after))
    assert span is not None and span.accept_per_position == (0.8, 0.4, 0.1)
    assert span.accept_length == pytest.approx(1 + sum(span.accept_per_position))
    idle = server_span(server(counters=after), server(counters=after))
    assert idle is not None and idle.accept_per_position == ()


def test_an_exact_count_of_what_ended_is_preferred_to_one_seen_by_polling() -> None:
    before = Counters(generated_tokens=0.0, finished_tokens=50.0)
    span = server_span(server(counters=before), server(counters=Counters(generated_tokens=3.0, finished_tokens=114.0)))
    assert span is not None and span.generated_tokens == 64.0


def test_no_counts_without_counters_or_over_a_restart() -> None:
    counted = server(counters=Counters(generated_tokens=5.0))
    assert server_span(None, counted) is None
    assert server_span(server(), counted) is None
    restarted = server_span(
        server(counters=Counters(), started_wall_ns=1), server(counters=Counters(), started_wall_ns=2)
    )
    assert restarted == ServerSpan(unknown="the server started anew during the run")
    assert "not known: the server started anew" in server_line(restarted)


def test_a_process_that_is_found_during_the_run_is_no_restart() -> None:
    """Its start was unknown before, or told by its metrics: a run right after a start said that it was started anew."""
    before, after = Counters(generated_tokens=5.0), Counters(generated_tokens=69.0)
    for started_wall_ns in (None, 3):
        span = server_span(
            server(counters=before, started_wall_ns=started_wall_ns),
            server(counters=after, root_pid=7, started_wall_ns=2),
        )
        assert span is not None and span.generated_tokens == 64.0
    assert server_span(server(counters=before, root_pid=7), server(counters=after, root_pid=8)) == ServerSpan(
        unknown="the server started anew during the run"
    )


@pytest.mark.parametrize("field", ["generated_tokens", "requests", "ttft_sum_s", "spec_accepted_tokens"])
def test_a_counter_that_fell_makes_none_of_them_known(field: str) -> None:
    """Only the tokens were looked at: fallen ones were shown as -2 requests, as a length of -3."""
    before = Counters(
        generated_tokens=100.0, requests=3.0, ttft_sum_s=1.0, ttft_count=3.0, spec_drafts=1.0, spec_accepted_tokens=9.0
    )
    grown = Counters(
        generated_tokens=164.0, requests=5.0, ttft_sum_s=2.0, ttft_count=5.0, spec_drafts=2.0, spec_accepted_tokens=9.5
    )
    after = msgspec.structs.replace(grown, **{field: 0.5})
    span = server_span(server(counters=before), server(counters=after))
    assert span is not None and span == ServerSpan(unknown=span.unknown) and f"{field} fell" in span.unknown
