"""Cuts a trace into decode steps: by the engine's own labels, or without labels by what repeats.

A GPU event belongs to the label during or after which it was launched (equal correlation), never to the label whose CPU
window it runs in: with graphs and overlap scheduling 0..5 % of events run inside their own label's window.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Literal

import msgspec

from decodetop.errors import UsageError
from decodetop.steps.rows import Note

Stage = Literal["decode", "verify", "prefill", "mixed", "idle", "draft", "other"]
DECODE_LIKE = ("decode", "verify")


class Label(msgspec.Struct, frozen=True):
    """A step's annotation on the CPU; the batch size counts requests."""

    text: str
    stage: Stage
    batch_size: int | None
    start: int
    end: int
    track: int


class Grammar(msgspec.Struct, frozen=True):
    """How one engine names its steps, in which versions."""

    engine: Literal["sglang", "vllm", "unknown"]
    pattern: re.Pattern[str]
    read: Callable[[re.Match[str]], tuple[Stage, int | None]]


_SGLANG_STAGES: dict[str, Stage] = {
    "DECODE": "decode",
    "VERIFY": "verify",
    "TARGET_VERIFY": "verify",
    "EXTEND": "prefill",
    "SPLIT_PREFILL": "prefill",
    "DLLM_EXTEND": "prefill",
    "PREBUILT": "prefill",
    "MIXED": "mixed",
    "IDLE": "idle",
}


def _sglang(match: re.Match[str]) -> tuple[Stage, int | None]:
    mode, rest = match.groups()
    size = re.search(r"\braw_bs=(\d+)", rest) or re.search(r"\bbs=(\d+)", rest)
    stage = "draft" if mode.startswith("DRAFT") else _SGLANG_STAGES.get(mode, "other")
    return stage, int(size[1]) if size else None


def _requests(match: re.Match[str]) -> tuple[Stage, int | None]:
    context, generation = int(match["context"]), int(match["generation"])
    if context:
        return "mixed" if generation else "prefill", context + generation
    return ("decode", generation) if generation else ("idle", 0)


def _atom(match: re.Match[str]) -> tuple[Stage, int | None]:
    return "decode" if match[1] == "decode" else "prefill", int(match[2])


def _plain(match: re.Match[str]) -> tuple[Stage, int | None]:
    size = match.groupdict().get("bs")
    return "decode", int(size) if size and size.isdecimal() else None


GRAMMARS = (
    # SGLang >= 0.5.11 (model_runner.py, later profile_utils.build_step_span_name); suffixes came later
    Grammar("sglang", re.compile(r"^step\[([A-Z_0-9]+)((?: [^\]]*)?)\]"), _sglang),
    # vLLM >= 0.15, also its detailed form (gpu_worker.py)
    Grammar(
        "vllm",
        re.compile(r"^execute_(?:\d+_)?context_(?P<context>\d+)\([^)]*\)_generation_(?P<generation>\d+)\([^)]*\)"),
        _requests,
    ),
    # vLLM 0.12
    Grammar("vllm", re.compile(r"^execute_new_(?P<context>\d+)_cached_(?P<generation>\d+)"), _requests),
    # ATOM
    Grammar("unknown", re.compile(r"^(decode|prefill)\[bs=(\d+)"), _atom),
    # TensorRT-LLM (py_executor.py)
    Grammar(
        "unknown",
        re.compile(
            r"^\[Executor\] _forward_step \d+: (?P<context>\d+) ctx reqs,(?: \d+ ctx tokens,)? (?P<generation>\d+) gen"
        ),
        _requests,
    ),
    # loops people write, and torch.profiler's own schedule
    Grammar("unknown", re.compile(r"^decode_step_\d+$"), _plain),
    Grammar("unknown", re.compile(r"^ProfilerStep#\d+$"), _plain),
)

CAPTURE = re.compile(r"^capture_\d+_[A-Z]+|^capture_model|graph_capture")
"""A trace of graph capture, not of serving."""


class Labels(msgspec.Struct, frozen=True):
    """The labels in order of start; `capturing` = the trace is of graph capture at start-up."""

    found: tuple[Label, ...]
    engine: Literal["sglang", "vllm", "unknown"]
    speculative: bool
    capturing: bool


def user_grammar(expression: str) -> Grammar:
    """Labels named by the user; a group `(?P<bs>\\d+)` gives the batch size. Raises UsageError."""
    try:
        return Grammar("unknown", re.compile(expression), _plain)
    except re.error as error:
        raise UsageError(f"--step-label {expression!r} is no regular expression: {error}") from error


def may_label(name: str, own: Grammar | None) -> bool:
    """Whether an annotation of that name matters to `labels_of`."""
    grammars = (own,) if own else GRAMMARS
    return any(grammar.pattern.search(name) for grammar in grammars) or CAPTURE.search(name) is not None


def labels_of(
    notes: Sequence[Note], main_track: int | None, own: Grammar | None = None, *, on_gpu: bool = False
) -> Labels:
    """The labels of the first grammar that matches any note: CPU spans, or Kineto's copies on the main stream."""
    capturing = any(CAPTURE.search(note.name) for note in notes)
    mine = [note for note in notes if note.on_gpu == on_gpu and (not on_gpu or note.track == main_track)]
    for grammar in (own,) if own else GRAMMARS:
        found = sorted(set(_matching(mine, grammar)), key=lambda label: (label.start, label.end, label.text))
        if found:
            speculative = any(label.stage in ("verify", "draft") for label in found)
            return Labels(tuple(_whole_steps(found)), grammar.engine, speculative, capturing)
    return Labels((), "unknown", False, capturing)


def _matching(notes: Iterable[Note], grammar: Grammar) -> Iterable[Label]:
    known: dict[str, tuple[Stage, int | None] | None] = {}
    for note in notes:
        if note.name not in known:
            match = grammar.pattern.search(note.name)
            known[note.name] = grammar.read(match) if match else None
        read = known[note.name]
        if read is not None:
            yield Label(note.name, read[0], read[1], note.start, note.end, note.track)


def _whole_steps(labels: list[Label]) -> list[Label]:
    """Drafting and verifying are one step: cut at the verify labels only.

    Up to SGLang 0.5.22 the draft model's own forwards are labelled DECODE; beside verify labels they are drafts.
    """
    stages = Counter(label.stage for label in labels)
    drafts = {"draft", "decode"} if stages["verify"] else {"draft"}
    kept = [label for label in labels if label.stage not in drafts]
    return kept if any(label.stage in DECODE_LIKE for label in kept) else labels
