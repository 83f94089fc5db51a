"""When tokens are due, on a clock that moves only when the server sleeps: every instant is known to the ns."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from decodetop.sim import model
from decodetop.sim.asks import Ask
from decodetop.sim.batch import PREFILL_CHUNK, Batch, Pass, Pool
from decodetop.sim.chunks import Answer, token_ids
from decodetop.sim.exact import Exact, Schedule
from decodetop.sim.metrics import Metrics
from decodetop.sim.serving import Emitter, Faults, Request
from decodetop.sim.visitors import Visitors


class Time:
    """A clock and its alarm in one."""

    def __init__(self) -> None:
        self.at_ns = 1_000_000_000
        self.pending: tuple[int, Callable[[], None]] | None = None

    def now_ns(self) -> int:
        return self.at_ns

    def wall_ns(self) -> int:
        return self.at_ns

    async def sleep_until(self, t_ns: int) -> None:
        raise AssertionError("nothing here sleeps")

    def set(self, due_ns: int, callback: Callable[[], None]) -> None:
        self.pending = (due_ns, callback)

    def run(self, until_ns: int | None = None) -> None:
        while self.pending is not None and (until_ns is None or self.pending[0] <= until_ns):
            due_ns, callback = self.pending
            self.pending = None
            self.at_ns = max(self.at_ns, due_ns)
            callback()
        if until_ns is not None:
            self.at_ns = max(self.at_ns, until_ns)


class Reader:
    """A client: what it got, and whether it was told of the end."""

    def __init__(self, time: Time) -> None:
        self.time = time
        self.data = b""
        self.status: int | None = None
        self.was_cut = False

    def send(self, data: bytes) -> int:
        self.data += data
        return self.time.now_ns()

    def finish(self, status: int, body: bytes | None) -> None:
        self.status = status
        self.data += body or b""

    def cut(self) -> None:
        self.was_cut = True


class Enough(Exception):
    pass


class Passes:
    profiling = False

    def __init__(self) -> None:
        self.seen: list[Pass] = []

    def passed(self, one: Pass) -> None:
        self.seen.append(one)


def request(time: Time, prompt: int = 10, tokens: int = 5, *, stream: bool = True) -> Request:
    ask = Ask(
        api="completions",
        model="m",
        prompt=tuple(range(prompt)),
        max_tokens=tokens,
        stream=stream,
        include_usage=True,
        continuous_usage=True,
    )
    return Request(ask, Answer(ask, "r", 0, token_ids(0, 1)), Reader(time), time.now_ns())


def gauge(metrics: Metrics, now_ns: int, name: str) -> float:
    lines = metrics.render(now_ns).decode().splitlines()
    return float(next(line for line in lines if line.startswith(f"sglang:{name}{{")).split()[-1])


def batch(time: Time, faults: Faults | None = None, **pool: int) -> tuple[Batch, Passes]:
    passes = Passes()
    limits = {"kv_tokens": 597_532, "max_running": 64, "graph_max_batch": 32, **pool}
    made = Batch(time, time, Emitter(faults or Faults(), ()), Pool(**limits), 1, (passes,))
    return made, passes


def ms(ns: int) -> float:
    return ns / 1e6


def test_one_stream_is_prefilled_and_then_decodes_at_the_pace_of_the_physics() -> None:
    time = Time()
    serving, passes = batch(time)
    one = request(time, prompt=100, tokens=50)
    serving.submit(one)
    time.run()
    pace = model.pace(1, graphs=True)
    assert ms(one.sent_ns[0] - one.received_ns) == pytest.approx(pace.first_token_ms(100), abs=1e-3)
    for step, (before, after) in enumerate(pairwise(one.sent_ns), 1):
        expected = pace.decode_ms(1, 100 + step) * model.jitter(0, step)
        assert ms(after - before) == pytest.approx(expected, abs=1e-3)
    assert [bool(one.new_tokens) for one in passes.seen] == [True] + [False] * 49
    assert (one.end, one.emitted, serving.running) == ("finished", 50, [])


def test_a_newcomer_waits_for_the_step_then_stalls_the_others_by_its_prefill() -> None:
    time = Time()
    serving, passes = batch(time)
    first = request(time, tokens=40)
    serving.submit(first)
    time.run(time.at_ns + 60_000_000)
    second = request(time, prompt=2000, tokens=5)
    serving.submit(second)
    time.run()
    prefill = next(one for one in passes.seen if one.new_tokens == 2000)
    assert prefill.start_ns in first.sent_ns  # begins when the step under way ends
    assert second.sent_ns[0] == prefill.end_ns
    gap_ns = max(after - before for before, after in pairwise(first.sent_ns))
    assert gap_ns > prefill.end_ns - prefill.start_ns
    together = set(first.sent_ns) & set(second.sent_ns[1:])
    assert len(together) == 4


def test_a_long_prompt_takes_several_passes() -> None:
    time = Time()
    serving, passes = batch(time)
    serving.submit(request(time, prompt=20_000, tokens=1))
    time.run()
    assert [one.new_tokens for one in passes.seen] == [PREFILL_CHUNK, PREFILL_CHUNK, 20_000 - 2 * PREFILL_CHUNK]


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.tuples(st.integers(1, 3000), st.integers(1, 30), st.integers(0, 200)), min_size=1, max_size=12),
    st.integers(1, 8),
)
def test_every_request_gets_its_tokens_and_the_limits_hold(asked: list[tuple[int, int, int]], most: int) -> None:
    time = Time()
    serving, passes = batch(time, max_running=most, kv_tokens=9000)
    made = []
    for prompt, tokens, pause_ms in asked:
        time.run(time.at_ns + pause_ms * 1_000_000)
        made.append(request(time, prompt=prompt, tokens=tokens))
        serving.submit(made[-1])
    time.run()
    for (_, tokens, _), one in zip(asked, made, strict=True):
        assert (one.end, one.emitted, len(one.sent_ns)) == ("finished", tokens, tokens)
        assert all(before < after for before, after in pairwise(one.sent_ns))
    decodes = [one for one in passes.seen if not one.new_tokens]
    assert all(one.streams <= most and one.context_tokens <= 9000 for one in decodes)
    assert all(before.end_ns <= after.start_ns for before, after in pairwise(passes.seen))
    assert sum(one.streams for one in decodes) == sum(tokens - 1 for _, tokens, _ in asked)
    assert (serving.running, list(serving.waiting), serving.kv_tokens) == ([], [], 0)


def test_gauges_are_renewed_every_40_steps_and_stand_still_when_idle() -> None:
    time = Time()
    metrics = Metrics("m", 1, 597_532, 16_384)
    limits = Pool(kv_tokens=597_532, max_running=4, graph_max_batch=32)
    serving = Batch(time, time, Emitter(Faults(), (metrics,)), limits, 1, (metrics,))
    metrics.serving = serving
    assert gauge(metrics, time.at_ns, "num_running_reqs") == 0
    one = request(time, prompt=100, tokens=60)
    serving.submit(one)
    time.run()
    assert serving.running == []
    assert gauge(metrics, time.at_ns, "num_running_reqs") == 1  # of the 40th step
    assert gauge(metrics, time.at_ns, "num_used_tokens") == 100 + 41
    throughput = gauge(metrics, time.at_ns, "gen_throughput")
    assert throughput == pytest.approx(1000 / model.pace(1, graphs=True).decode_ms(1, 140), rel=0.1)
    later_ns = time.at_ns + 31_000_000_000
    assert gauge(metrics, later_ns, "num_running_reqs") == 0
    assert gauge(metrics, later_ns, "gen_throughput") == throughput


def test_a_server_that_was_late_does_not_hurry_afterwards() -> None:
    time = Time()
    serving, _ = batch(time)
    one = request(time, tokens=30)
    serving.submit(one)
    time.run(time.at_ns + 50_000_000)
    time.at_ns += 300_000_000  # the machine stood still
    time.run()
    gaps = [ms(after - before) for before, after in pairwise(one.sent_ns)]
    assert max(gaps) > 290
    after_stall = gaps[gaps.index(max(gaps)) + 1 :]
    assert min(after_stall) > 4.9


def test_casting_the_whole_pool_costs_each_step_the_same_and_casting_what_is_used_next_to_nothing() -> None:
    def step_ms(kv_cast: model.KvCast) -> float:
        time = Time()
        limits = Pool(kv_tokens=68_000, max_running=4, graph_max_batch=32, kv_cast=kv_cast)
        serving = Batch(time, time, Emitter(Faults(), ()), limits, 2, ())
        one = request(time, tokens=200)
        serving.submit(one)
        time.run()
        return ms(one.sent_ns[-1] - one.sent_ns[0]) / 199

    none, active, full = step_ms("none"), step_ms("active"), step_ms("full")
    assert full - none == pytest.approx(model.cast_ms("full", 2, 68_000, 0), rel=0.02)
    assert (full - none) / full == pytest.approx(0.69, abs=0.01)
    assert active - none < 0.1


def test_leaving_frees_the_place_in_the_batch() -> None:
    time = Time()
    serving, _ = batch(time, max_running=1)
    first, second = request(time, tokens=1000), request(time, tokens=3)
    serving.submit(first)
    serving.submit(second)
    time.run(time.at_ns + 100_000_000)
    serving.withdraw(first)
    time.run()
    assert (first.end, second.end) == ("left", "finished")


@pytest.mark.parametrize(
    ("faults", "end", "emitted"),
    [
        (Faults(error_after=3), "error", 3),
        (Faults(cut_after=2), "cut", 2),
        (Faults(stall_after=4), "stalled", 4),
        (Faults(error_after=99), "finished", 6),
    ],
)
def test_a_fault_ends_the_request_where_it_should(faults: Faults, end: str, emitted: int) -> None:
    time = Time()
    serving, _ = batch(time, faults)
    one = request(time, tokens=6)
    serving.submit(one)
    time.run()
    reader = one.outlet
    assert isinstance(reader, Reader)
    assert (one.end, one.emitted) == (end, emitted)
    assert reader.was_cut == (end == "cut")
    assert (b'"error"' in reader.data) == (end == "error")
    assert (b"[DONE]" in reader.data) == (end in ("error", "finished"))


def test_an_unstreamed_request_is_answered_once_at_its_end() -> None:
    time = Time()
    serving, _ = batch(time)
    one = request(time, tokens=4, stream=False)
    serving.submit(one)
    time.run()
    reader = one.outlet
    assert isinstance(reader, Reader)
    assert (reader.status, reader.data.count(b"completion_tokens"), len(one.sent_ns)) == (200, 1, 4)


@settings(max_examples=60, deadline=None)
@given(
    arrivals_ms=st.lists(st.integers(0, 500), min_size=1, max_size=20),
    tokens=st.integers(1, 12),
    ttft_ms=st.integers(1, 200),
    itl_ms=st.integers(1, 50),
    chunk=st.integers(1, 5),
)
def test_exact_serves_by_the_clock(arrivals_ms: list[int], tokens: int, ttft_ms: int, itl_ms: int, chunk: int) -> None:
    time = Time()
    schedule = Schedule(ttft_ms=ttft_ms, itl_ms=itl_ms, tokens=chunk)
    serving = Exact(time, time, Emitter(Faults(), ()), schedule)
    start_ns = time.at_ns
    made = []
    for arrival_ms in sorted(arrivals_ms):
        time.run(start_ns + arrival_ms * 1_000_000)
        made.append(request(time, tokens=tokens))
        serving.submit(made[-1])
    time.run()
    for one in made:
        first_ns = one.received_ns + ttft_ms * 1_000_000
        chunks = -(-tokens // chunk)
        assert one.sent_ns == [first_ns + at * itl_ms * 1_000_000 for at in range(chunks)]
        assert one.emitted == sum(one.chunk_tokens) == tokens
    assert serving.running == []


def test_batched_exact_serves_all_at_common_instants() -> None:
    time = Time()
    serving = Exact(time, time, Emitter(Faults(), ()), Schedule(ttft_ms=5, itl_ms=20, batched=True))
    made = []
    for _ in range(5):
        made.append(request(time))
        serving.submit(made[-1])
        time.at_ns += 3_000_000
    time.run()
    assert all(ns % 20_000_000 == 0 for one in made for ns in one.sent_ns)
    assert all(0 <= one.sent_ns[0] - one.received_ns - 5_000_000 < 20_000_000 for one in made)


def test_jitter_moves_chunks_but_not_the_plan() -> None:
    time = Time()
    serving = Exact(time, time, Emitter(Faults(), ()), Schedule(ttft_ms=50, itl_ms=20, jitter_ms=5), seed=3)
    one = request(time, tokens=200)
    serving.submit(one)
    time.run()
    planned = [one.received_ns + 50_000_000 + at * 20_000_000 for at in range(200)]
    moved = [ms(sent - plan) for sent, plan in zip(one.sent_ns, planned, strict=True)]
    assert max(map(abs, moved)) <= 5
    assert len(set(moved)) > 190


async def test_visitors_come_leave_for_others_and_come_back(monkeypatch: pytest.MonkeyPatch) -> None:
    time = Time()
    serving, _ = batch(time)
    visitors = Visitors(2, time, serving, "m")
    outside = 0

    async def pause(seconds: float) -> None:
        nonlocal outside
        time.run(time.at_ns + int(seconds * 1e9))
        looks.append(len(serving.running) + len(serving.waiting))
        outside = 1 if 40 < len(looks) < 60 else 0
        if len(looks) == 140:
            raise Enough

    looks: list[int] = []
    monkeypatch.setattr("asyncio.sleep", pause)
    with pytest.raises(Enough):
        await visitors.run(lambda: outside)
    assert max(looks[:40]) >= 1
    assert set(looks[42:60]) == {0}
    assert max(looks[60:80]) == 0  # still quiet for a while
    assert max(looks[90:]) >= 1
