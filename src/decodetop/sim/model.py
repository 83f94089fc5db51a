"""The physics of the simulated box: pure functions of batch, context, load, time and seed.

The constants reproduce recordings of SGLang 0.5.15 on H200 of 2026-11-30 (a dense model of Qwen3-8B's dimensions, BF16,
tensor parallel over 1 or 2 GPUs, CUDA graphs on or off); each says which figure it comes from.
"""

from __future__ import annotations

from typing import Literal

import msgspec

LAYERS = 36
WEIGHT_BYTES = 15.136e9
"""Read once a step: 36 x (2*4096*4096 + 2*1024*4096 + 3*4096*12288) + 151936*4096 parameters of 2 bytes."""
KV_BYTES_PER_TOKEN = 2 * LAYERS * 8 * 128 * 2
FLOP_PER_TOKEN = WEIGHT_BYTES
"""2 FLOP per parameter, 2 bytes per parameter."""
TILE_TOKENS = 8
"""The GEMM tiles of small batches (`..x8_..`): the tensor cores work as if the batch were a multiple of it."""

DRAM_BYTES_S = 4814.3e9
"""2 x 3201 MHz x 6016 bit / 8."""
BF16_FLOP_S = 989e12
KV_CAPACITY = {1: 597_532, 2: 1_297_846}
"""Tokens the recorded servers' KV pools held, by tensor parallel size."""
NVLINK_BYTES_PER_TOKEN = 0.8e6
"""Received per GPU, two of them: 256 MiB/s with 1 stream, 5,219 with 32. 73 all-reduces of 8 KiB alone are 0.6 MB."""


class Pace(msgspec.Struct, frozen=True, kw_only=True):
    """How fast one configuration runs. Times in ms; a step is never shorter than its GPU work or its host work."""

    tp: int
    step_ms: float
    per_stream_ms: float
    per_context_token_ms: float
    host_ms: float
    host_per_stream_ms: float
    prefill_ms: float
    prefill_per_token_ms: float
    profiled: float

    def decode_ms(self, streams: int, context_tokens: int, *, cast_ms: float = 0.0, profiling: bool = False) -> float:
        """One decode step of `streams` sequences that hold `context_tokens` together, with `cast_ms` of KV casts."""
        factor = self.profiled if profiling else 1.0
        host_ms = self.host_ms + self.host_per_stream_ms * (streams - 1)
        return max(self.gpu_ms(streams, context_tokens) * factor + cast_ms, host_ms * factor)

    def gpu_ms(self, streams: int, context_tokens: int) -> float:
        """The GPU's own work of that step."""
        return self.step_ms + self.per_stream_ms * (streams - 1) + self.per_context_token_ms * context_tokens

    def first_token_ms(self, new_tokens: int) -> float:
        """From the start of a prefill of `new_tokens` to its first tokens."""
        return self.prefill_ms + self.prefill_per_token_ms * new_tokens


KvCast = Literal["none", "active", "full"]
"""An FP8 KV cache before an attention kernel that takes BF16: not needed, cast where used, or the whole pool cast."""
CAST_MS_PER_VALUE = 855.352e-3 / (495_000 * 576)
"""The recorded cast of a pool of 495,000 x 576 values from FP8 to BF16 took 855.352 us a layer."""
CAST_BYTES_PER_VALUE = 3
CAST_LAUNCH_MS = 1.5e-3
KV_VALUES_PER_LAYER = 2 * 8 * 128


def cast_ms(cast: KvCast, tp: int, pool_tokens: int, context_tokens: int) -> float:
    """What casting keys and values costs a step, over all layers: it grows with the pool, or with what is in use."""
    if cast == "none":
        return 0.0
    tokens = pool_tokens if cast == "full" else context_tokens
    return LAYERS * (tokens * KV_VALUES_PER_LAYER / tp * CAST_MS_PER_VALUE + CAST_LAUNCH_MS)


def kv_pool_bytes(tp: int, cast: KvCast, pool_tokens: int) -> float:
    """Bytes of the KV pool on each GPU; with a cast it is FP8."""
    return pool_tokens * KV_BYTES_PER_TOKEN / tp / (1 if cast == "none" else 2)


def memory_bytes(cast: KvCast, tp: int, pool_tokens: int) -> int:
    """Of one GPU: 106.66 GB as recorded with 597,532 tokens on one; an FP8 pool is half as large."""
    pool = kv_pool_bytes(tp, cast, pool_tokens)
    return int(3.42e9 + WEIGHT_BYTES / tp + pool)


_TP1 = Pace(
    tp=1,
    step_ms=5.095,  # with 480 tokens of context 5.112 ms, the unprofiled p50 of one stream
    per_stream_ms=0.0135,  # 32 streams with 30,177 tokens of context: 4,878.6 tok/s = 6.56 ms
    per_context_token_ms=3.5e-5,  # 147,456 bytes at 88 % of the bandwidth
    host_ms=1.3,  # the CPU length of a step's label
    host_per_stream_ms=0.0,
    prefill_ms=17.9,  # TTFT of a prompt that is wholly cached
    prefill_per_token_ms=0.017,  # `input throughput (token/s): 58930`
    profiled=1.036,
)
_TP2 = Pace(
    tp=2,
    step_ms=3.415,  # 3.425 ms
    per_stream_ms=0.022,  # 32 streams: 7,090 tok/s = 4.51 ms
    per_context_token_ms=1.75e-5,
    host_ms=1.3,
    host_per_stream_ms=0.0,
    prefill_ms=21.0,
    prefill_per_token_ms=0.0095,
    profiled=1.53,  # means of the two ranks' periods over the unprofiled step
)
_EAGER = {
    1: {"host_ms": 19.3, "host_per_stream_ms": 0.0125, "prefill_ms": 55.3, "profiled": 3.293},
    2: {"host_ms": 36.3, "host_per_stream_ms": 0.09, "prefill_ms": 126.2, "profiled": 2.5},
}
"""Without graphs the host launches every kernel: 19.35 ms and 36.3 ms a step whatever the batch."""


def pace(tp: int, *, graphs: bool) -> Pace:
    """Raises KeyError for another `tp` than 1 or 2: nothing else was recorded."""
    graphed = {1: _TP1, 2: _TP2}[tp]
    return graphed if graphs else msgspec.structs.replace(graphed, **_EAGER[tp])


class Load(msgspec.Struct, frozen=True, kw_only=True):
    """What the simulated server has done so far, per GPU; `t_ns` is CLOCK_MONOTONIC. Differences of two make a load."""

    t_ns: int
    tp: int = 1
    decode_busy_ns: int = 0
    kernel_busy_ns: int = 0
    read_bytes: float = 0.0
    flop: float = 0.0
    nvlink_bytes: float = 0.0
    running: int = 0
    memory_bytes: int = 0
    pid: int = 0


class Activity(msgspec.Struct, frozen=True, kw_only=True):
    """Shares (0..1) over an interval. `busy` = any kernel ran."""

    busy: float = 0.0
    dram: float = 0.0
    tensor: float = 0.0
    nvlink_bytes_s: float = 0.0


IDLE = Activity()


def activity(before: Load, after: Load) -> Activity:
    """What a GPU of the server did between two readings of its load."""
    span_ns = after.t_ns - before.t_ns
    if span_ns <= 0:
        return IDLE
    seconds = span_ns / 1e9
    return Activity(
        busy=min(1.0, (after.kernel_busy_ns - before.kernel_busy_ns) / span_ns),
        dram=min(0.93, (after.read_bytes - before.read_bytes) / seconds / DRAM_BYTES_S),
        tensor=min(0.95, (after.flop - before.flop) / seconds / BF16_FLOP_S),
        nvlink_bytes_s=max(0.0, (after.nvlink_bytes - before.nvlink_bytes) / seconds),
    )


SM_IDLE_MHZ = 345
SM_MAX_MHZ = 1980
SM_CAPPED_MHZ = 1605
MEM_MHZ = 3201
POWER_IDLE_W = 77.0
POWER_CLOCKED_W = 127.0
"""At full clock with nothing but a copy engine at work."""
POWER_LIMIT_W = 700.0
REASON_IDLE = 0x1
REASON_SW_POWER_CAP = 0x4
CLOCKED_FOR_S = 4.0
"""How long the clocks stay up after the last work."""


def power_w(seen: Activity, *, clocked: bool) -> float:
    """Fits 77 W idle, 127 host-to-device copy, 216 and 474 decode at 16.6 and 61.8 % dram, 626 copy, 690 matmul."""
    if not clocked:
        return POWER_IDLE_W
    return min(690.0, POWER_CLOCKED_W + 562.0 * seen.dram + 506.0 * seen.tensor)


def sm_clock(seen: Activity, *, clocked: bool) -> tuple[int, int]:
    """SM clock in MHz and NVML's clock-event reasons: long prefills were seen power-capped at 1,605 MHz."""
    if not clocked:
        return SM_IDLE_MHZ, REASON_IDLE
    if seen.tensor > 0.5:
        return SM_CAPPED_MHZ, REASON_SW_POWER_CAP
    return SM_MAX_MHZ, 0


def settle_c(before_c: float, power: float, seconds: float) -> float:
    """GPU temperature `seconds` later: heads for 36 C at 77 W, 52 C at 474 W, 65 C at 690 W with 12 s of inertia.

    The recordings are short: 37 C rose to 43 within 5 s of 474 W and to 55 within 2 s of 609 W.
    """
    target = 33.7 + power * (0.0273 + 2.6e-5 * power)
    return before_c + (target - before_c) * min(1.0, seconds / 12.0)


def noise(seed: int, stream: int, tick: int) -> float:
    """Repeatable -1..1 of three whole numbers (the finaliser of splitmix64)."""
    z = (seed * 0x9E3779B97F4A7C15 + stream * 0xBF58476D1CE4E5B9 + tick * 0x94D049BB133111EB) & 0xFFFFFFFFFFFFFFFF
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & 0xFFFFFFFFFFFFFFFF
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & 0xFFFFFFFFFFFFFFFF
    return ((z ^ (z >> 31)) / 0xFFFFFFFFFFFFFFFF) * 2.0 - 1.0


def jitter(seed: int, step: int) -> float:
    """A step's own length: within 1.2 % of its pace, one in 50 of them 12 % longer (recorded p50 5.18 ms, p99 5.99)."""
    return 1.0 + 0.012 * noise(seed, 0, step) + (0.12 if noise(seed, 1, step) > 0.96 else 0.0)
