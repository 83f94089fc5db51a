"""Next moves: by verdict, engine, version and flags; what is left out says why."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any

import msgspec
import pytest

from decodetop.floor import moves
from decodetop.floor.floor import compute
from decodetop.floor.hardware import load, named
from decodetop.floor.measured import measure
from decodetop.floor.model import open_model
from decodetop.floor.reading import FloorReport, Plan, Verdict, VerdictId
from decodetop.floor.verdict import judged
from decodetop.server.reading import Flag, Server

CONFIGS = Path(__file__).parent / "configs"
SPECS = load()


def report_of(
    verdict: VerdictId,
    *,
    model: str = "qwen3-8b",
    gpu: str = "H200",
    gap: dict[str, float] | None = None,
    **plan: object,
) -> FloorReport:
    path = CONFIGS / model
    made = Plan(**plan)  # type: ignore[arg-type]
    opened = open_model(path if path.is_dir() else path.with_name(f"{model}.json"), made.weights_dtype)
    report = judged(compute(opened, made, named(gpu, SPECS), sweep=False), measure(made, step_ms=20.0))
    said = Verdict(id=verdict, confidence="high", sentence="x")
    return msgspec.structs.replace(report, verdict=said, gap_ms=gap if gap is not None else report.gap_ms)


def server(engine: str = "sglang", version: str = "0.5.15", **flags: str) -> Server:
    named_flags = tuple(Flag(name=name, requested=value) for name, value in flags.items())
    command = ("python", "-m", "server")
    return Server(endpoint="http://x", engine=engine, version=version, flags=named_flags, command=command)  # type: ignore[arg-type]


def offered(
    report: FloorReport, of: Server | None, gpu: str = "H200", engine: str | None = None
) -> tuple[dict[str, str], dict[str, str]]:
    """id -> set, and title -> why left out."""
    found = moves.offered(report, named(gpu, SPECS), of, engine)
    return {move.id: move.set for move in found.moves}, {one.what: one.because for one in found.moves_left_out}


def test_the_table_is_sound() -> None:
    table = moves.entries()
    assert len(table) > 30
    keys = [(entry.id, entry.engine, entry.since, entry.until) for entry in table]
    assert len(set(keys)) == len(keys)
    known = set(VerdictId.__args__)
    assert all(set(entry.verdicts) <= known for entry in table)
    assert {verdict for entry in table for verdict in entry.verdicts} == known, "every verdict has a move"
    gains = {"idle", "copies", "allreduce", "per_layer", "attention", "bandwidth_efficiency"}
    assert {entry.gain for entry in table} <= gains | {"weights_half", "weights_4bit", "kv_half", None}


def situations() -> Iterator[tuple[FloorReport, str, Server | None]]:
    """Boxes, models, engines and releases that a move may be meant for, each with a gap to close."""
    gap = {
        "idle": 6.0,
        "copies": 6.0,
        "allreduce": 6.0,
        "per_layer": 6.0,
        "attention": 6.0,
        "bandwidth_efficiency": 6.0,
    }
    plans: list[dict[str, Any]] = [
        {}, {"tp": 8}, {"tp": 8, "batch": 64, "context": 20_000}, {"draft_steps": 3, "verify_tokens": 4},
        {"draft_steps": 3, "verify_tokens": 4, "accept_length": 1.01, "kv_dtype": "fp8"},
        {"tp": 8, "batch": 64, "context": 100_000, "kv_dtype": "fp8"},
        {"weights_dtype": "nvfp4"},
    ]  # fmt: skip
    off = {
        "disable_cuda_graph": "true", "enforce_eager": "true", "disable_overlap_schedule": "true",
        "disable_custom_all_reduce": "true", "cudagraph_mode": "NONE", "cuda_graph_backend_decode": "disabled",
    }  # fmt: skip
    releases = {"sglang": ("0.4.1", "0.5.12", "0.5.23"), "vllm": ("0.8.4", "0.10.2", "0.33.0"), "llamacpp": ("b9000",)}
    models = ("qwen3-8b", "qwen3.5-27b", "qwen3-30b-a3b", "qwen3-32b-fp8", "glm-5-nvfp4", "deepseek-v3", "gpt-oss-120b")
    for model, gpu, plan in product(models, ("H200", "B200"), plans):
        report = report_of("host_bound", model=model, gpu=gpu, gap=gap, **plan)
        for engine, versions in releases.items():
            for version, flags in product(versions, ({}, off)):
                one = msgspec.structs.replace(server(engine, version, **flags), cuda_graph_max_batch=32)
                yield report, gpu, one
        yield report, gpu, None


def test_every_move_is_offered_to_somebody() -> None:
    reached: set[tuple[str, str]] = set()
    for report, gpu, of in situations():
        for verdict in VerdictId.__args__:
            said = msgspec.structs.replace(report, verdict=Verdict(id=verdict, confidence="high", sentence="x"))
            found = moves.offered(said, named(gpu, SPECS), of, None)
            assert len(found.moves) <= moves.MOST
            reached |= {(move.id, move.set) for move in found.moves}
    lost = [
        (entry.id, entry.engine, entry.set)
        for entry in moves.entries()
        if not any(entry.id == name and entry.set in words for name, words in reached)
    ]
    assert lost == []


def test_an_engine_is_not_told_the_flags_of_another() -> None:
    for report, gpu, of in situations():
        if of is None or of.engine != "llamacpp":
            continue
        for verdict in VerdictId.__args__:
            said = msgspec.structs.replace(report, verdict=Verdict(id=verdict, confidence="high", sentence="x"))
            for move in moves.offered(said, named(gpu, SPECS), of, None).moves:
                assert not {"(SGLang)", "(vLLM)", "--tp"} & set(re.split(r"[ ,;]", move.set)), move.set


def test_graphs_that_a_newer_flag_switched_off() -> None:
    report = report_of("host_bound", gap={"idle": 14.4})
    assert "graphs-on" in offered(report, server(version="0.5.20", cuda_graph_backend_decode="disabled"))[0]
    assert "graphs-on" not in offered(report, server(version="0.5.20", cuda_graph_backend_decode="full"))[0]
    assert "graphs-on" in offered(report, server("vllm", "0.24.0", cudagraph_mode="NONE"))[0]


def test_a_release_that_is_not_known_is_told_both_spellings() -> None:
    report = report_of("host_bound", gap={"idle": 10.0}, batch=64)
    one = msgspec.structs.replace(server(version=""), version=None, cuda_graph_max_batch=32)
    found = {move.set for move in moves.offered(report, named("H200", SPECS), one, None).moves}
    assert any("--cuda-graph-max-bs N" in words and words.endswith("(up to 0.5.14)") for words in found), found


def test_patch_releases_belong_to_their_release() -> None:
    report = report_of("attention_bound", gap={"attention": 10.0})
    for version, flag in (("0.12.1", "VLLM_ATTENTION_BACKEND"), ("0.13.0", "--attention-backend")):
        assert offered(report, server("vllm", version))[0]["attention-backend"].startswith(flag)


def test_graphs_that_are_off_are_the_first_move() -> None:
    gap = {"idle": 14.4, "per_layer": 0.4}
    report = report_of("host_bound", gap=gap)
    found = moves.offered(report, named("H200", SPECS), server(disable_cuda_graph="true"), None)
    first = found.moves[0]
    assert (first.id, first.set) == ("graphs-on", "remove --disable-cuda-graph")
    assert first.gain_ms == pytest.approx(0.95 * 14.4)
    assert "68 % of the step" in first.gain_words
    assert first.failures and first.inactive
    ids, left = offered(report, server())
    assert "graphs-on" not in ids
    assert left["turn CUDA graphs on"] == "--disable-cuda-graph is not set"
    ids, _ = offered(report, server("vllm", "0.24.0", enforce_eager="true"))
    assert ids["graphs-on"] == "remove --enforce-eager"


def test_without_a_server_the_trace_s_engine_chooses() -> None:
    ids, _ = offered(report_of("host_bound", gap={"idle": 14.4}), None, engine="vllm")
    assert ids["graphs-on"] == "remove --enforce-eager, if it is set"
    unseen = msgspec.structs.replace(server(), command=())
    assert "if it is set" in offered(report_of("host_bound", gap={"idle": 14.4}), unseen)[0]["graphs-on"]


def test_a_flag_that_is_set_is_left_out() -> None:
    report = report_of("communication_bound", model="qwen3-30b-a3b", tp=2, gap={"allreduce": 6.0, "per_layer": 2.0})
    ids, left = offered(report, server(enable_mscclpp="true"))
    assert "mscclpp" not in ids
    assert left["MSCCL++ all-reduce for small messages"] == "already set"
    assert "mscclpp" in offered(report, server())[0]


def test_an_older_engine_is_offered_the_newer_release() -> None:
    report = report_of("memory_bound_near_limit", gap={"per_layer": 5.0})
    old = moves.offered(report, named("H200", SPECS), server(version="0.5.3"), None)
    move = next(one for one in old.moves if one.id == "fused-qk-norm-rope")
    assert move.title.startswith("newer release (this is 0.5.3, the flag came with 0.5.6)")
    assert move.set == "0.5.6 or later, then --enable-fused-qk-norm-rope"
    assert move.effort == 2
    new = moves.offered(report, named("H200", SPECS), server(version="0.5.15"), None)
    assert next(one for one in new.moves if one.id == "fused-qk-norm-rope").effort == 1


def test_flags_that_are_gone_are_left_out() -> None:
    report = report_of("host_bound", gap={"idle": 10.0}, batch=64)
    for version, flag in (("0.5.12", "--cuda-graph-max-bs N"), ("0.5.20.post1", "--cuda-graph-max-bs-decode N")):
        one = msgspec.structs.replace(server(version=version), cuda_graph_max_batch=32)
        found = moves.offered(report, named("H200", SPECS), one, None)
        assert any(move.set.startswith(flag) for move in found.moves)
    assert "is not above" in offered(report, server())[1]["capture graphs up to the running batch"]


def test_what_the_model_or_card_can_not_do_is_left_out() -> None:
    gap = {"copies": 64.6}
    glm = report_of("copy_bound", model="glm-5-nvfp4", gpu="RTX PRO 6000", tp=8, gap=gap)
    ids, left = offered(glm, server(), "RTX PRO 6000")
    assert {"kv-16-bit", "cast-active-rows", "smaller-pool"} <= set(ids)
    assert left["an attention backend that reads FP8 KV itself"] == "the card is no Hopper"
    assert left["TensorRT-LLM's MLA kernels read FP8 KV themselves"] == "the card is no B200 or its like"
    on_hopper = moves.offered(
        report_of("copy_bound", model="glm-5-nvfp4", tp=8, gap=gap), named("H200", SPECS), None, None
    )
    backend = next(one for one in on_hopper.moves if one.id == "native-kv-kernel")
    assert any("qk_nope_head_dim == 128" in one for one in backend.failures)
    assert any("page_size == 64" in one for one in backend.failures)


def test_quantising_gains_the_bytes_that_fall_away() -> None:
    report = report_of("hardware_bound")
    found = {move.id: move for move in moves.offered(report, named("H200", SPECS), server(), None).moves}
    assert found["weights-fp8"].gain_ms == pytest.approx(report.bytes.weights / 2 / 4.8e9)
    assert found["weights-4-bit"].gain_ms == pytest.approx(report.bytes.weights * (1 - 0.5625 / 2) / 4.8e9, rel=0.02)
    quantised = report_of("hardware_bound", model="gpt-oss-120b", gpu="H100")
    ids, left = offered(quantised, server(), "H100")
    assert "weights-fp8" not in ids and "weights-4-bit" not in ids
    assert left["weights in FP8: half the bytes a step"] == "weights are quantised already"


def test_speculation_is_offered_once() -> None:
    ids, left = offered(report_of("hardware_bound", model="qwen3.5-27b"), server())
    assert "speculate-mtp" in ids
    assert left["speculate with n-grams or a draft model"] == "the model has its own draft layer"
    ids, left = offered(report_of("hardware_bound", model="qwen3.5-27b", draft_steps=3, verify_tokens=4), server())
    assert "speculate-mtp" not in ids
    assert left["draft with the model's own draft layer"] == "the server speculates"
    assert "accept-length" in ids


def test_a_small_gain_is_none() -> None:
    report = report_of("memory_bound_near_limit", gap={"per_layer": 0.01})
    _, left = offered(report, server())
    assert left["q/k norm and rope in one kernel"] == "nothing to win there"


def test_gain_over_effort_ranks() -> None:
    found = moves.offered(report_of("hardware_bound"), named("H200", SPECS), server(), None).moves
    worth = [(move.gain_ms or 0.0) / move.effort for move in found]
    assert worth == sorted(worth, reverse=True)
    assert len(found) <= moves.MOST


def test_no_verdict_no_moves() -> None:
    report = msgspec.structs.replace(report_of("host_bound"), verdict=None)
    assert moves.offered(report, named("H200", SPECS), server(), None) is report


def test_drafting_below_the_break_even_is_said() -> None:
    """122B, three draft steps: by bytes it takes 2.45 tokens a step."""
    plan = {"model": "qwen3.5-122b-a10b", "draft_steps": 3, "verify_tokens": 4}
    assert "draft-less" in offered(report_of("host_bound", accept_length=2.0, **plan), server())[0]
    assert "draft-less" not in offered(report_of("host_bound", accept_length=3.0, **plan), server())[0]


def test_a_newer_release_that_fixes_it_is_offered_to_an_older_one_only() -> None:
    report = report_of("host_bound", gap={"idle": 14.4, "per_layer": 0.4})
    found = moves.offered(report, named("H200", SPECS), server("vllm", "0.10.2"), None)
    (fix,) = [move for move in found.moves if move.id == "async-scheduling-fixed"]
    assert fix.title.startswith("newer release may fix this (this is 0.10.2, fixed in 0.11.1): ")
    assert fix.set.startswith("upgrade vLLM to 0.11.1") and fix.effort == 2
    for version in ("0.11.1", "0.24.0"):
        ids, left = offered(report, server("vllm", version))
        assert "async-scheduling-fixed" not in ids and not any("newer release" in title for title in left)
    unknown = msgspec.structs.replace(server("vllm"), version=None)
    assert "async-scheduling-fixed" not in offered(report, unknown)[0], "it may be there already"
    assert "async-scheduling-fixed" not in offered(report, server("sglang", "0.4.1"))[0]
