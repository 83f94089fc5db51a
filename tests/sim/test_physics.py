"""The physics against the recorded boxes: every constant must bring its recording back."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from decodetop.sim import model
from decodetop.sim.model import Activity, Load

RECORDED_STEPS = [
    # tp, graphs, streams, context, ms: loads.json, profile_log.json and the gen throughput of server.log
    (1, True, 1, 480, 5.112),
    (1, True, 8, 4319, 5.570),
    (1, True, 32, 30_177, 6.559),
    (1, False, 1, 480, 19.35),
    (1, False, 32, 25_000, 19.68),
    (2, True, 1, 480, 3.425),
    (2, True, 32, 24_000, 4.513),
    (2, False, 1, 480, 36.3),
    (2, False, 32, 24_000, 39.16),
]


@pytest.mark.parametrize(("tp", "graphs", "streams", "context", "ms"), RECORDED_STEPS)
def test_a_decode_step_takes_as_long_as_recorded(tp: int, graphs: bool, streams: int, context: int, ms: float) -> None:
    assert model.pace(tp, graphs=graphs).decode_ms(streams, context) == pytest.approx(ms, rel=0.05)


@pytest.mark.parametrize(("tp", "graphs", "profiled_ms"), [(1, True, 5.296), (1, False, 63.70), (2, True, 5.243)])
def test_a_profiled_step_is_inflated_as_recorded(tp: int, graphs: bool, profiled_ms: float) -> None:
    pace = model.pace(tp, graphs=graphs)
    assert pace.decode_ms(1, 1036, profiling=True) == pytest.approx(profiled_ms, rel=0.02)


@given(streams=st.integers(1, 256), context=st.integers(0, 500_000), tp=st.sampled_from([1, 2]), graphs=st.booleans())
def test_no_step_beats_the_memory(streams: int, context: int, tp: int, graphs: bool) -> None:
    read_bytes = (model.WEIGHT_BYTES + context * model.KV_BYTES_PER_TOKEN) / tp
    floor_ms = read_bytes / model.DRAM_BYTES_S * 1e3
    assert model.pace(tp, graphs=graphs).decode_ms(streams, context) >= floor_ms


def test_ttft_of_a_cached_prompt_and_prefill_rate() -> None:
    graphed = model.pace(1, graphs=True)
    assert graphed.first_token_ms(1) == pytest.approx(17.94, rel=0.01)
    rate = 8192 / (graphed.first_token_ms(8193) - graphed.first_token_ms(1)) * 1000
    assert rate == pytest.approx(58_930, rel=0.01)


@pytest.mark.parametrize(
    ("dram", "tensor", "watts"),
    [(0.6175, 0.02, 474.3), (0.1662, 0.006, 216.1), (0.888, 0.0, 644.0), (0.161, 0.935, 690.0), (0.0115, 0.0, 127.0)],
)
def test_power_follows_memory_and_tensor_cores(dram: float, tensor: float, watts: float) -> None:
    seen = Activity(busy=1.0, dram=dram, tensor=tensor)
    assert model.power_w(seen, clocked=True) == pytest.approx(watts, rel=0.06)


def test_activity_is_the_difference_of_two_loads() -> None:
    before = Load(t_ns=0)
    after = Load(
        t_ns=1_000_000_000,
        kernel_busy_ns=1_000_000_000,
        read_bytes=0.6175 * model.DRAM_BYTES_S,
        flop=0.02 * model.BF16_FLOP_S,
        nvlink_bytes=2.0**28,
    )
    seen = model.activity(before, after)
    assert (seen.busy, seen.nvlink_bytes_s) == (1.0, 2.0**28)
    assert seen.dram == pytest.approx(0.6175)
    assert seen.tensor == pytest.approx(0.02)
    assert model.activity(after, after) == model.IDLE


def test_one_decode_stream_reads_61_percent_of_the_bandwidth() -> None:
    step_s = model.pace(1, graphs=True).decode_ms(1, 480) / 1e3
    assert model.WEIGHT_BYTES / step_s / model.DRAM_BYTES_S == pytest.approx(0.6175, abs=0.01)


@given(st.floats(20, 90), st.floats(77, 700), st.floats(0, 100))
def test_temperature_moves_towards_its_target_and_never_past_it(before: float, power: float, seconds: float) -> None:
    target = model.settle_c(0.0, power, 1e9)
    after = model.settle_c(before, power, seconds)
    assert min(before, target) - 1e-9 <= after <= max(before, target) + 1e-9


@given(st.integers(0, 2**32), st.integers(0, 100), st.integers(0, 2**40))
def test_noise_is_repeatable_and_bounded(seed: int, stream: int, tick: int) -> None:
    value = model.noise(seed, stream, tick)
    assert value == model.noise(seed, stream, tick)
    assert -1.0 <= value <= 1.0
    assert model.noise(seed, stream, tick + 1) != value


def test_steps_jitter_about_their_pace() -> None:
    seen = sorted(model.jitter(0, step) for step in range(5000))
    assert seen[2500] == pytest.approx(1.0, abs=0.002)
    assert seen[4950] == pytest.approx(5.985 / 5.177, abs=0.05)
    assert sum(seen) / 5000 == pytest.approx(1.0, abs=0.005)


def test_the_cast_costs_what_it_was_recorded_to_cost() -> None:
    """cast_full: 6,842.8 us of copies in 8 layers of a pool of 495,000 tokens with 576 values."""
    as_many_values = round(495_000 * 576 / model.KV_VALUES_PER_LAYER)
    full = model.cast_ms("full", 1, as_many_values, 1000)
    assert full / model.LAYERS * 8 == pytest.approx(6.8428, rel=0.01)
    assert model.cast_ms("full", 1, as_many_values, 8000) == full
    assert model.cast_ms("active", 1, as_many_values, 1000) < 0.02 * full
    assert model.cast_ms("none", 1, as_many_values, 1000) == 0.0


@pytest.mark.parametrize(("tp", "tokens", "recorded"), [(1, 597_532, 106_663_837_696), (2, 1_297_846, 107_505_254_400)])
def test_gpu_memory_is_what_the_recorded_server_held(tp: int, tokens: int, recorded: int) -> None:
    assert model.memory_bytes("none", tp, tokens) == pytest.approx(recorded, rel=0.02)


@pytest.mark.parametrize(("streams", "context", "mib_s"), [(1, 480, 256.0), (32, 24_000, 5219.0)])
def test_nvlink_traffic_is_near_the_recorded(streams: int, context: int, mib_s: float) -> None:
    step_s = model.pace(2, graphs=True).decode_ms(streams, context) / 1e3
    assert streams * model.NVLINK_BYTES_PER_TOKEN / step_s / 2**20 == pytest.approx(mib_s, rel=0.15)
