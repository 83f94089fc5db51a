"""The floor in words: for the plain output, the pane and the report. Pure."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence

from decodetop.core.outside import escape, fenced, plain
from decodetop.core.words import known, number, percent, significant
from decodetop.floor.gap import PARTS
from decodetop.floor.offers import effort_words, standing, todo_of_move
from decodetop.floor.reading import BatchPoint, Capacity, FloorReading, FloorReport, Move, Plan, Verdict

__all__ = [
    "PART_WORDS", "VERDICTS", "batch_lines", "capacity_words", "effort_words", "explain", "gap_words", "headline",
    "lines", "markdown", "move_line", "params_words", "plan_words", "standing", "todo_of_move", "verdict_lines",
    "wrapped",
]  # fmt: skip

VERDICTS = {
    "hardware_bound": "hardware-bound",
    "memory_bound_near_limit": "memory-bound, near the limit",
    "host_bound": "host-bound",
    "communication_bound": "communication-bound",
    "copy_bound": "copy/cast-bound",
    "attention_bound": "attention-bound",
    "compute_bound": "compute-bound",
    "clock_limited": "clock-limited",
    "not_enough_evidence": "not enough evidence",
}
BAR_CELLS = 30
"""Cells of the longest step in the plot over batches."""
GIB = 1 << 30

PART_WORDS = {
    "weights": "weights at full bandwidth",
    "kv": "KV cache",
    "state": "recurrent state",
    "draft": "draft forwards",
    "efficiency": "bandwidth that kernels don't reach",
    "compute": "arithmetic beyond the bytes",
    "allreduce": "all-reduces",
    "per_layer": "fixed cost of the layers",
}


def gap_words(part: str) -> str:
    """A part of the gap in words."""
    return PARTS.get(part, plain(part))


def headline(report: FloorReport) -> str:
    """Qwen3 on 2 x H200: bound 1.57 ms, practice 3.22 ms, measured 3.42 ms a step."""
    plan = report.plan
    gpus = plan.tp * plan.pp
    where = f"{gpus} x {report.hardware.name}" if gpus > 1 else report.hardware.name
    measured = f"measured {significant(report.t_meas_ms)} ms a step" if known(report.t_meas_ms) else "step not measured"
    return plain(
        f"{report.model.family} on {where}: bound {significant(report.t_phys_ms)} ms, practice "
        f"{significant(report.t_prac_ms)} ms, {measured}"
    )


def plan_words(report: FloorReport) -> str:
    """TP 2, batch 1 x 1,024 tokens, KV bf16, drafts 3 (accept length not known)."""
    plan = report.plan
    words = [f"TP {plan.tp}"]
    words += [f"{name} {value}" for name, value in (("PP", plan.pp), ("EP", plan.ep)) if value > 1]
    if plan.dp_attention > 1:
        words.append(f"DP attention {plan.dp_attention}")
    words.append(f"batch {plan.batch} x {plan.context:,} tokens")
    words.append(f"KV {report.model.kv_dtype}")
    if plan.draft_steps or plan.verify_tokens > 1:
        accepted = significant(plan.accept_length) if plan.accept_length is not None else "not known"
        words.append(f"drafts {plan.draft_steps or plan.verify_tokens - 1} (accept length {accepted})")
    return plain(", ".join(words))


def capacity_words(held: Capacity, plan: Plan) -> str:
    """The arithmetic in one line: what does not fit, or how much more would."""
    terms = [f"{_gib(held.weights)} GiB of weights"]
    terms += [f"{_gib(value)} of {what}" for what, value in (("KV", held.kv), ("state", held.state)) if value]
    summed = f"{' + '.join(terms)} = {_gib(held.total)}"
    if held.memory is None:
        return f"one GPU holds at least {summed} GiB; the GPU's memory is not known"
    memory = f"{held.memory / GIB:.4g}"
    if not held.fits:
        return f"does not fit: one GPU must hold {summed} GiB, and has {memory}{_instead(held, plan)}"
    return f"one GPU holds at least {summed} of its {memory} GiB{_instead(held, plan)}"


def _gib(value: float) -> str:
    return number(value / GIB, 1 if value >= 0.95 * GIB else 2)


def _instead(held: Capacity, plan: Plan) -> str:
    if held.memory is not None and held.weights > held.memory:
        return "; its weights alone are too many: more GPUs (--tp), fewer bytes a weight, or offloading"
    if held.sequences is None:
        return ""
    if held.sequences == 0:
        return f"; not one sequence of {plan.context:,} tokens fits beside the weights"
    one = "sequence" if held.sequences == 1 else "sequences"
    return f"; at most {held.sequences:,} {one} of {plan.context:,} tokens fit"


def params_words(report: FloorReport) -> str:
    """8.19 B parameters, 7.57 B read a token; unquantised; from config.json."""
    params = report.params
    active = f", {params.active / 1e9:.2f} B active" if params.active != params.total else ""
    quantised = report.model.quantization or "not quantised"
    return plain(f"{params.total / 1e9:.2f} B parameters{active}; {quantised}; bytes from {report.model.source}")


def lines(report: FloorReport, width: int = 100) -> list[str]:
    """The plain output; longer lines go on indented."""
    out = [headline(report), f"  {params_words(report)}", f"  {plan_words(report)}"]
    out += [*([f"  {plain(capacity_words(report.capacity, report.plan))}"] if report.capacity is not None else []), ""]
    out += _part_table(report)
    if report.gap_ms is not None:
        out += ["", *_gap_table(report)]
    if report.verdict is not None:
        out += ["", *verdict_lines(report.verdict)]
    out += _move_lines(report)
    return wrapped(out, width)


def wrapped(found: Sequence[str], width: int) -> list[str]:
    """Lines of at most `width` (at least 40), the rest of a longer one indented below it."""
    out: list[str] = []
    for line in found:
        indent = " " * (len(line) - len(line.lstrip()) + 4)
        out += textwrap.wrap(line, max(width, 40), subsequent_indent=indent, drop_whitespace=True) or [""]
    return out


def _part_table(report: FloorReport) -> list[str]:
    total = report.t_prac_ms
    out = [f"  {'ms':>8} {'%':>4}  what one step takes in practice"]
    for name, words in PART_WORDS.items():
        ms = getattr(report.parts_ms, name)
        if ms > 0:
            held = getattr(report.bytes, name, None)
            size = f"  {held / 1e9:.2f} GB a GPU" if held is not None else ""
            out.append(f"  {ms:>8.2f} {100 * ms / total:>4.0f}  {words}{size}")
    out.append(f"  {total:>8.2f}  100  practice; the hard bound is {significant(report.t_phys_ms)} ms ({report.bound})")
    if report.tok_s_at_floor is not None:
        out.append(f"  at the bound {number(report.tok_s_at_floor, 1)} tok/s, all sequences together")
    elif report.plan.draft_steps or report.plan.verify_tokens > 1:
        out.append("  tok/s at the bound: needs the accept length, which was not measured")
    if report.break_even_accept_length is not None:
        out.append(f"  drafting pays above an accept length of {report.break_even_accept_length:.2f}, by bytes")
    return out


def _gap_table(report: FloorReport) -> list[str]:
    gap = report.gap_ms or {}
    total = sum(gap.values())
    out = [f"  {'ms':>8} {'%':>4}  from the bound to the measured step"]
    for name, ms in sorted(gap.items(), key=lambda item: -item[1]):
        if abs(ms) >= 0.005:
            share = f"{100 * ms / total:>4.0f}" if total else "    "
            out.append(f"  {ms:>8.2f} {share}  {gap_words(name)}")
    return [*out, f"  {total:>8.2f}  100  all: {significant(report.t_meas_ms)} - {significant(report.t_phys_ms)} ms"]


def confidence_words(verdict: Verdict) -> str:
    """`high confidence`; nothing where nothing is claimed."""
    return "" if verdict.id == "not_enough_evidence" else f"{verdict.confidence} confidence"


def verdict_lines(verdict: Verdict) -> list[str]:
    """The sentence, what speaks for it, what was ruled out, what would settle it."""
    sure = confidence_words(verdict)
    out = [plain(verdict.sentence), *([f"  {sure}"] if sure else [])]
    out += [f"  + {plain(one)}" for one in verdict.because]
    out += [f"  - not {plain(one.what)}: {plain(one.because)}" for one in verdict.ruled_out]
    return out + [f"  ? {plain(one)}" for one in verdict.capture]


def move_line(move: Move) -> str:
    return plain(f"{move.title}: {move.set}  ({move.gain_words}; {effort_words(move)})")


def _move_lines(report: FloorReport) -> list[str]:
    out: list[str] = []
    if report.moves:
        out += ["", "next moves, the best for their effort first (bench experiment --move [ID] tries one)"]
    elif report.moves_left_out:
        out += ["", "no move is left to offer"]
    for at, move in enumerate(report.moves, 1):
        out.append(f"  {at}. {move_line(move)}  [{plain(move.id)}]")
        out += [f"     trade: {plain(move.trade)}"] if move.trade else []
        out += [f"     silently inactive: {plain(one)}" for one in move.inactive]
        out += [f"     may fail at start: {plain(one)}" for one in move.failures]
    if report.moves_left_out:
        out.append("  left out: " + "; ".join(plain(f"{one.what} ({one.because})") for one in report.moves_left_out))
    return out


def explain(report: FloorReport, width: int = 100) -> list[str]:
    """Every line of the arithmetic with its figures, then every assumption."""
    low, hardware = report.bytes_low, report.hardware
    cache = f" - {hardware.l2_bytes / 1e9:.3f} GB that may stay in the cache" if hardware.l2_bytes else ""
    out = [
        "bytes one GPU must read a step, at least:",
        f"  weights {low.weights / 1e9:.3f} + KV {low.kv / 1e9:.3f} + state {low.state / 1e9:.3f} + draft "
        f"{low.draft / 1e9:.3f} = {low.total / 1e9:.3f} GB{cache}",
        f"  over {hardware.bandwidth_gb_s:,.0f} GB/s = {significant(report.t_memory_ms)} ms",
        f"arithmetic: {report.flops / 1e12:.3f} TFLOP a GPU = {significant(report.t_compute_ms)} ms at the dense peak",
        f"t_phys = the larger = {significant(report.t_phys_ms)} ms ({report.bound})",
        "t_prac = expected bytes over the bandwidth that kernels reach + all-reduces + fixed cost:",
        *(f"  {words}: {getattr(report.parts_ms, name):.3f} ms" for name, words in PART_WORDS.items()),
        f"  = {report.t_prac_ms:.3f} ms; weights are {percent(100 * report.weights_share_of_bytes, 1)} of the bytes",
    ]
    if report.t_meas_ms is not None:
        out.append(f"t_meas = {significant(report.t_meas_ms)} ms")
    if report.experts is not None:
        hit = report.experts
        out.append(f"experts of a layer: {hit.low:g} at least, {hit.expected:.1f} expected, {hit.high:g} at most")
    out += ["assumed:", *(f"  {plain(one)}" for one in report.assumptions)]
    return [*wrapped(out, width), *batch_lines(report, max(0, min(BAR_CELLS, width - 49)))]


def batch_lines(report: FloorReport, bars: int = 0) -> list[str]:
    """The knee: what more sequences cost, each step also as a bar of at most `bars` cells on one scale."""
    if not report.batches:
        return []
    key = "  step: █ bound, ░ practice" if bars else ""
    out = [f"by batch:  {'seqs':>5} {'bound ms':>9} {'practice ms':>11} {'tok/s':>8}{key}"]
    longest = max(point.t_prac_ms for point in report.batches)
    for point in report.batches:
        tok_s = number(point.tok_s, 0) if point.tok_s is not None else "–"
        bound = "" if point.bound == "memory" else "  compute"
        bound += "  no room" if point.fits is False else ""
        bar = f"  {_bar(point, longest, bars)}" if bars else ""
        figures = f"{point.batch:>5} {point.t_phys_ms:>9.2f} {point.t_prac_ms:>11.2f} {tok_s:>8}"
        out.append(f"           {figures}{bar}{bound}")
    return out


def _bar(point: BatchPoint, longest_ms: float, cells: int) -> str:
    if longest_ms <= 0 or not all(map(known, (longest_ms, point.t_phys_ms, point.t_prac_ms))):
        return ""
    hard, whole = (round(cells * ms / longest_ms) for ms in (point.t_phys_ms, point.t_prac_ms))
    return "█" * hard + "░" * (whole - hard)


def markdown(reading: FloorReading) -> list[str]:
    """The report's section."""
    out = ["## Can this hardware do better?", ""]
    report = reading.report
    if report is None:
        why = escape(reading.problem or "nothing was computed yet")
        hint = f" ({escape(reading.hint)})" if reading.hint else ""
        return [*out, f"No floor: {why}{hint}."]
    out += [f"{escape(headline(report))}.", "", f"- {escape(params_words(report))}", f"- {escape(plan_words(report))}"]
    out += [f"- {escape(capacity_words(report.capacity, report.plan))}"] if report.capacity is not None else []
    out += ["", "| part of practice | ms | GB a GPU |", "|---|--:|--:|"]
    for name, words in PART_WORDS.items():
        ms, held = getattr(report.parts_ms, name), getattr(report.bytes, name, None)
        if ms > 0:
            out.append(f"| {words} | {ms:.2f} | {f'{held / 1e9:.2f}' if held is not None else ''} |")
    out.append(f"| **practice** | {report.t_prac_ms:.2f} | |")
    if report.gap_ms is not None:
        out += ["", "| from bound to measured | ms |", "|---|--:|"]
        ranked = sorted(report.gap_ms.items(), key=lambda item: -item[1])
        out += [f"| {escape(gap_words(name))} | {ms:.2f} |" for name, ms in ranked if abs(ms) >= 0.005]
    if report.verdict is not None:
        sure = confidence_words(report.verdict)
        out += ["", f"**{VERDICTS[report.verdict.id]}**{f' ({sure})' if sure else ''}: "]
        out[-1] += escape(report.verdict.sentence)
        out += ["", *(f"- {escape(one)}" for one in report.verdict.because)]
        out += [f"- not {escape(one.what)}: {escape(one.because)}" for one in report.verdict.ruled_out]
        out += [f"- to do: {escape(one)}" for one in report.verdict.capture]
    if report.moves:
        out += ["", "Next moves:", "", *(f"{at}. {escape(move_line(move))}" for at, move in enumerate(report.moves, 1))]
    if report.batches:
        out += ["", *fenced(batch_lines(report, BAR_CELLS))]
    return [*out, "", "Assumed:", "", *(f"- {escape(one)}" for one in report.assumptions)]
