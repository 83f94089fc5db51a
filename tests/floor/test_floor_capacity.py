"""What one GPU must hold against what it has: the arithmetic by hand, its words, what it does to a verdict."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from decodetop.core.words import known
from decodetop.floor import capacity, text
from decodetop.floor.floor import compute
from decodetop.floor.hardware import from_nvml, load, named
from decodetop.floor.measured import measure
from decodetop.floor.model import open_model
from decodetop.floor.reading import Capacity, FloorReport, Plan
from decodetop.floor.verdict import judged
from decodetop.gpu.reading import Gpu, GpuReading
from support.judged import config_of

SPECS = load()
GIB = 1 << 30


def report_of(model: str, gpu: str, *, sweep: bool = False, **plan: object) -> FloorReport:
    return compute(config_of(model), Plan(**plan), named(gpu, SPECS), sweep=sweep)  # type: ignore[arg-type]


def words(report: FloorReport) -> str:
    return text.capacity_words(held(report), report.plan)


def held(report: FloorReport) -> Capacity:
    assert report.capacity is not None
    return report.capacity


def test_a_70b_in_16_bit_does_not_fit_one_h100() -> None:
    """70.55 G weights of 2 bytes, the embedding table too, are 131.4 GiB; the card has 80."""
    report = report_of("llama-3.1-70b", "H100 SXM", context=8192)
    found = held(report)
    assert found.weights == 2 * 70553706496
    assert found.kv == 80 * 2 * 8 * 128 * 2 * 8192
    assert (found.memory, found.fits, found.sequences) == (80 * GIB, False, 0)
    said = words(report)
    assert said == (
        "does not fit: one GPU must hold 131.4 GiB of weights + 2.5 of KV = 133.9 GiB, and has 80; "
        "its weights alone are too many: more GPUs (--tp), fewer bytes a weight, or offloading"
    )
    assert said in report.assumptions and said in text.lines(report, 400)[3]


def test_what_fits_says_how_many_sequences_do() -> None:
    """4 GPUs: 32.85 GiB of weights each, 80 MiB of KV a sequence of 1,024 tokens: (80 - 32.85) / 0.078 = 603."""
    report = report_of("llama-3.1-70b", "H100 SXM", tp=4, batch=8)
    found = held(report)
    assert found.weights == pytest.approx(2 * 70553706496 / 4)
    assert found.kv == 8 * 80 * 2 * 2 * 128 * 2 * 1024
    assert found.fits is True and found.sequences == int((80 * GIB - found.weights) / (found.kv / 8))
    assert words(report) == (
        "one GPU holds at least 32.9 GiB of weights + 0.62 of KV = 33.5 of its 80 GiB; at most 603 sequences of 1,024 "
        "tokens fit"
    )


def test_weights_fit_and_the_kv_does_not() -> None:
    report = report_of("llama-3.1-8b", "RTX 4090", batch=128, context=8192)
    found = held(report)
    assert found.fits is False and found.sequences == 9
    assert words(report) == (
        "does not fit: one GPU must hold 15.0 GiB of weights + 128.0 of KV = 143.0 GiB, and has 24; "
        "at most 9 sequences of 8,192 tokens fit"
    )


def test_weights_that_leave_no_room_for_a_sequence() -> None:
    report = report_of("deepseek-v3", "A100 80GB", tp=8, batch=64, context=32_768)
    assert (held(report).fits, held(report).sequences) == (False, 0)
    assert words(report).endswith("has 80; not one sequence of 32,768 tokens fits beside the weights")


def test_windows_and_states_are_held_once() -> None:
    """A window keeps its own tokens only; a state is read and written, and held once."""
    oss = held(report_of("gpt-oss-120b", "H200", context=10_000))
    assert oss.kv == 2 * 8 * 64 * 2 * (18 * 10_000 + 18 * 128)
    hybrid = report_of("qwen3-next-80b-a3b", "H200", batch=4)
    assert held(hybrid).state == pytest.approx(hybrid.bytes.state / 2)
    chunked = held(report_of("llama-4-scout", "H200", context=10_000))
    assert chunked.kv == 2 * 8 * 128 * 2 * (12 * 10_000 + 36 * 8192), "the chunk before has been held"


def test_sparse_attention_holds_every_latent_and_reads_some() -> None:
    sparse = report_of("deepseek-v3.2", "H200", tp=8, context=100_000)
    assert held(sparse).kv == 61 * 100_000 * (576 * 2 + 132)
    assert held(sparse).kv > sparse.bytes.kv


def test_experts_are_held_whole_and_draft_layers_when_they_draft() -> None:
    """A step reads 8 of 256 experts and holds them all."""
    model = config_of("deepseek-v3")
    everything = sum(one.bytes * one.count for one in model.weights if not one.draft)
    drafting = held(report_of("deepseek-v3", "H200", tp=8, draft_steps=1, verify_tokens=2))
    assert drafting.weights == pytest.approx(sum(one.bytes * one.count for one in model.weights) / 8)
    assert drafting.kv == 62 * 1024 * 576 * 2
    one, spread = (held(report_of("deepseek-v3", "H200", tp=8, ep=ep)) for ep in (1, 8))
    assert one.weights == spread.weights == pytest.approx(everything / 8)
    assert one.fits is True
    apart = held(report_of("deepseek-v3", "H200", tp=8, dp_attention=8, batch=8))
    assert apart.weights > one.weights, "attention is whole on every GPU"
    assert apart.sequences is not None and apart.sequences % 8 == 0


def test_pipeline_stages_share_what_is_held() -> None:
    one, four = (held(report_of("llama-3.1-70b", "H200", pp=pp)) for pp in (1, 4))
    assert (four.weights, four.kv) == (one.weights / 4, one.kv / 4)


def test_a_card_whose_memory_is_not_known_says_so() -> None:
    report = report_of("llama-3.1-8b", "Strix Halo")
    assert (held(report).memory, held(report).fits, held(report).sequences) == (None, None, None)
    assert words(report).endswith("; the GPU's memory is not known")


def test_a_card_of_two_sizes_takes_the_larger_and_says_so() -> None:
    report = report_of("qwen3-0.6b", "RTX 4060 Ti")
    assert held(report).memory == 16 * GIB
    assert any("sold with 8 and with 16 GiB" in line for line in report.assumptions)


def test_every_card_has_a_memory_or_the_host_s() -> None:
    assert [spec.name for spec in SPECS if spec.memory_gib is None] == ["Strix Halo 8060S"]
    assert all(spec.memory_source for spec in SPECS if spec.memory_gib is not None)


def test_nvml_knows_the_real_memory() -> None:
    def gpu(index: int, total: int | None, mig: bool | None = None) -> Gpu:
        return Gpu(index=index, name="NVIDIA H200", state="ok", memory_total_bytes=total, mig_enabled=mig)

    least = from_nvml(GpuReading(gpus=(gpu(0, 150_754_820_096), gpu(1, 140 * GIB))), SPECS)
    assert least.hardware.memory_bytes == 140 * GIB, "the smallest of them"
    assert from_nvml(GpuReading(gpus=(gpu(0, None),)), SPECS).hardware.memory_bytes == 141 * GIB
    assert from_nvml(GpuReading(gpus=(gpu(0, 141 * GIB, True),)), SPECS).hardware.memory_bytes is None, "of the whole"


def test_a_step_measured_where_it_can_not_fit_is_an_input_error() -> None:
    plan = Plan(context=1024)
    report = compute(config_of("llama-3.1-70b"), plan, named("H100 SXM", SPECS), sweep=False)
    verdict = judged(report, measure(plan, token_ms=60.0)).verdict
    assert verdict is not None and verdict.id == "not_enough_evidence"
    assert "does not fit the GPU's memory, so an input is wrong or weights are offloaded" in verdict.sentence
    assert words(report) in verdict.because


def test_batches_that_do_not_fit_are_marked() -> None:
    report = report_of("llama-3.1-8b", "RTX 4090", context=8192, sweep=True)
    assert [one.batch for one in report.batches if one.fits is False] == [16, 32, 64, 128, 256]
    lines = [line for line in text.batch_lines(report) if "no room" in line]
    assert len(lines) == 5 and "  no room" not in text.batch_lines(report)[1]


def test_the_bytes_of_the_report_are_data() -> None:
    data = msgspec.to_builtins(report_of("llama-3.1-8b", "H200"))
    assert set(data["capacity"]) == {"weights", "kv", "state", "total", "memory", "fits", "sequences"}
    assert known(data["hardware"]["memory_bytes"])


def test_a_batch_beyond_every_float_has_no_room(tmp_path: Path) -> None:
    found = capacity.of(open_model(Path(__file__).parent / "configs" / "qwen3-8b.json"), Plan(batch=10**9), "bf16", 1.0)
    assert (found.fits, found.sequences) == (False, 0)
