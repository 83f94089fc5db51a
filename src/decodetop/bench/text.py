"""Runs in words: for the pane, the plain output and the report. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from decodetop.bench.definitions import DEFINITIONS
from decodetop.bench.reading import BenchReading, Gate, GpuSpan, Metrics, Plan, Progress, Quantiles, Run, ServerSpan
from decodetop.core.outside import escape, plain
from decodetop.core.words import UNKNOWN, delta_percent, duration, number, percent, rate, significant

Worth = Literal["ok", "suspect", "invalid"]


def worth(run: Run) -> Worth:
    """What the run's gates leave of it."""
    severities = {gate.severity for gate in run.gates}
    if not run.valid or "invalid" in severities:
        return "invalid"
    return "suspect" if "suspect" in severities else "ok"


def name(run: Run) -> str:
    """#4, or `run` when it was not stored."""
    return "run" if run.id is None else f"#{run.id}"


def streams(count: int) -> str:
    return f"{count} stream{'' if count == 1 else 's'}"


def ms(value: float | None) -> str:
    """Milliseconds without the unit, three digits."""
    return significant(value)


def mean_ms(value: Quantiles | None) -> str:
    return UNKNOWN if value is None else ms(value.mean)


def one_line(run: Run) -> str:
    """#4 single 1 stream  51.7 tok/s  TTFT 55.3  TPOT 19.3 ms  ok."""
    metrics = run.metrics
    figures = f"{rate(metrics.output_tok_s)} tok/s  TTFT {mean_ms(metrics.ttft_ms)}  {per_token(run)} ms"
    return f"{name(run)} {run.plan.preset} {streams(run.plan.streams)}  {figures}  {state(run)}"


def per_token(run: Run) -> str:
    """TPOT where the tokens are known, else the chunk gap by its own name."""
    metrics = run.metrics
    if metrics.tpot_ms is None and metrics.icl_ms is not None:
        return f"ICL {mean_ms(metrics.icl_ms)}"
    return f"TPOT {mean_ms(metrics.tpot_ms)}"


def state(run: Run) -> str:
    """ok, suspect, invalid; stopped ones say so."""
    return f"{worth(run)}, stopped" if run.partial else worth(run)


def against(run: Run, base: Run) -> str:
    """One run beside another: figures, and that two single runs prove nothing."""
    before, after = base.metrics.output_tok_s, run.metrics.output_tok_s
    if before is None or after is None:
        return f"{name(run)} vs {name(base)}: tokens unknown, nothing to compare"
    change = delta_percent(before, after)
    return f"{name(run)} vs {name(base)}: {change} tok/s, one run each: no interval"


def beside(a: Run, b: Run) -> list[str]:
    """Two runs, figure by figure, what they ran on that was not the same, and what one run each can say."""
    from decodetop.bench.compare import differences  # it needs these words

    out = [f"{'':<14}{name(a):>10}{name(b):>10}  change"]
    for title, before, after in _figures(a, b):
        change = delta_percent(before, after) if before is not None and after is not None else ""
        out.append(f"{title:<14}{significant(before):>10}{significant(after):>10}  {change}".rstrip())
    out.append(f"{'state':<14}{state(a):>10}{state(b):>10}")
    unlike = differences(a, b)
    out += ["", *(f"differs: {one}" for one in unlike)] if unlike else ["", "same load, engine, flags and GPUs"]
    return [*out, "", f"{against(b, a)}; pairs of runs can tell: `decodetop bench compare`"]


def _figures(a: Run, b: Run) -> list[tuple[str, float | None, float | None]]:
    rows: list[tuple[str, float | None, float | None]] = [
        ("output tok/s", a.metrics.output_tok_s, b.metrics.output_tok_s)
    ]
    for title, field in METRIC_FIELDS:
        one, other = getattr(a.metrics, field), getattr(b.metrics, field)
        rows.append((f"{title} ms", one and one.mean, other and other.mean))
        if title == "ICL":
            rows.append(("ICL p99 ms", one and one.p99, other and other.p99))
    return [*rows, ("accept length", a.metrics.accept_length, b.metrics.accept_length)]


def progress_line(progress: Progress) -> str:
    """measuring 12/32 requests  51.7 tok/s  TTFT 55.3 ms  ICL 19.3 ms  ETA 40 s."""
    step = f"step {progress.step}/{progress.steps}  " if progress.steps > 1 else ""
    done = f"{progress.phase} {done_of(progress)} requests"
    parts = [f"{step}{streams(progress.streams)}", done]
    if progress.output_tok_s is not None:
        parts.append(f"{rate(progress.output_tok_s)} tok/s")
    if progress.ttft_ms_mean is not None:
        parts.append(f"TTFT {ms(progress.ttft_ms_mean)} ms")
    if progress.icl_ms_mean is not None:
        parts.append(f"ICL {ms(progress.icl_ms_mean)} ms")
    if progress.errors:
        parts.append(f"{progress.errors} failed")
    if progress.eta_s is not None:
        parts.append(f"ETA {duration(progress.eta_s)}")
    return "  ".join(parts)


def done_of(progress: Progress) -> str:
    """`3/12`; `3` where a time ends the run and not a number."""
    return f"{progress.requests_done}" + (f"/{progress.requests_total}" if progress.duration_s is None else "")


def plan_line(plan: Plan) -> str:
    """What was asked of the server."""
    many = f"{plan.requests} requests" if plan.duration_s is None else duration(plan.duration_s)
    sizes = f"{plan.input_tokens:,} in, {plan.output_tokens:,} out, {many}"
    prefix = f", {plan.shared_prefix_tokens:,} shared" if plan.shared_prefix_tokens else ""
    if plan.prompts_file is not None:
        file = plan.prompts_file.rpartition("/")[2]
        sizes = f"prompts of {file}, {plan.output_tokens:,} out, {many}"
    pace = streams(plan.streams) if plan.request_rate_s is None else f"{plan.request_rate_s:g} requests/s at random"
    return f"{plan.preset}: {pace}, {sizes}{prefix}, {plan.api}"


METRIC_FIELDS = (("TTFT", "ttft_ms"), ("ITL", "itl_ms"), ("ICL", "icl_ms"), ("TPOT", "tpot_ms"), ("E2E", "e2e_ms"))
DEFINED = (*METRIC_FIELDS, ("output tok/s", "output_tok_s"), ("accept length", "accept_length"))
"""What a snapshot explains, for it is read without the documentation."""


def quantile_rows(run: Run) -> list[tuple[str, str, str, str, str, str]]:
    """(name, n, mean, p50, p90, p99) in ms for each metric; `–` when unknown."""
    rows = []
    for title, field in METRIC_FIELDS:
        value: Quantiles | None = getattr(run.metrics, field)
        if value is None:
            rows.append((title, "0", *(UNKNOWN,) * 4))
        else:
            rows.append((title, f"{value.n:,}", ms(value.mean), ms(value.p50), ms(value.p90), ms(value.p99)))
    return rows


def gate_line(gate: Gate) -> str:
    return f"{gate.severity}: {gate.detail}"


def gpu_line(span: GpuSpan) -> str:
    """One GPU over the run."""
    clock = f"SM {number(span.sm_clock_mhz_mean)} MHz"
    if span.sm_clock_mhz_min is not None and span.sm_clock_mhz_min != span.sm_clock_mhz_mean:
        clock += f" (min {number(span.sm_clock_mhz_min)})"
    warmth = f"{number(span.temperature_c_max)} °C"
    if span.temperature_c_start is not None and span.temperature_c_end is not None:
        start, end = number(span.temperature_c_start), number(span.temperature_c_end)
        warmth = f"{start} to {end} °C" if start != end else warmth
    parts = [f"GPU {span.index}: {clock}", f"{number(span.power_w_mean)} W", warmth]
    if span.dram_bandwidth_percent_mean is not None:
        parts.append(f"dram {percent(span.dram_bandwidth_percent_mean)}")
    if span.pcie_gen_min is not None:
        parts.append(f"PCIe gen {span.pcie_gen_min}{_traffic(span)}")
    return f"{', '.join(parts)}, {span.n} samples"


def gpu_lines(spans: Sequence[GpuSpan]) -> list[str]:
    """As `gpu_line`; GPUs of which the same is to be said share a line: `GPU 0,1,2: ...`."""
    said: dict[str, list[str]] = {}
    for span in spans:
        _, _, words = gpu_line(span).partition(": ")
        said.setdefault(words, []).append(str(span.index))
    return [f"GPU {','.join(indices)}: {words}" for words, indices in said.items()]


TRAFFIC_MIN = 1e8
"""Bytes/s over PCIe worth a word: a tenth of a GB/s."""


def _traffic(span: GpuSpan) -> str:
    tx, rx = span.pcie_tx_bytes_s_mean, span.pcie_rx_bytes_s_mean
    if tx is None or rx is None or max(tx, rx) < TRAFFIC_MIN:
        return ""
    return f" {significant(tx / 1e9)} GB/s out, {significant(rx / 1e9)} in"


def client_line(run: Run) -> str:
    """How the load generator itself did."""
    client = run.client
    late = f"loop lag p99 {ms(client.loop_lag_ms_p99)} ms, send delay p99 {ms(client.send_delay_ms_p99)} ms"
    return f"{late}, CPU {percent(client.cpu_percent)} of a core"


def server_line(span: ServerSpan) -> str:
    """The server's own counters over the run. Its TTFT lacks what lies between client and scheduler."""
    if span.unknown:
        return f"not known: {span.unknown}"
    counts = f"{number(span.generated_tokens)} tokens, {number(span.requests)} requests"
    return f"{counts}, TTFT {ms(span.ttft_mean_ms)} ms, ITL {ms(span.itl_mean_ms)} ms"


def energy_per_token_j(run: Run) -> float | None:
    """Joules per output token over the GPUs of the run; None unless all of them and the tokens are known."""
    energies = [span.energy_j for span in run.environment.gpus if span.energy_j is not None]
    if not energies or len(energies) < len(run.environment.gpus) or not run.tokens.output:
        return None
    return sum(energies) / run.tokens.output


def run_lines(run: Run) -> list[str]:
    """A run as plain text: what was asked, what came, how far to trust it."""
    metrics, environment = run.metrics, run.environment
    found = [f"{name(run)}  {plan_line(run.plan)}  {state(run)}"]
    found.append(f"server      {_server_words(run)}")
    tokens = f"{number(run.tokens.output)} out, {number(run.tokens.prompt)} in, cached {number(run.tokens.cached)}"
    found.append(f"requests    {run.requests.ok} ok, {run.requests.failed} failed;  tokens {tokens}")
    per_s = f"{rate(metrics.output_tok_s)} output tok/s, {significant(metrics.request_s)} requests/s"
    accept = f", {accept_words(metrics)}" if metrics.accept_length is not None else ""
    good = metrics.goodput_request_s
    within = f", {significant(good)} within {_slo_words(run.plan)}" if good is not None else ""
    busy = f", {metrics.concurrency:.1f} requests under way" if metrics.concurrency is not None else ""
    found.append(f"throughput  {per_s}{within}{accept}{busy}")
    found.append(f"{'ms':<10}  {'mean':>8} {'p50':>8} {'p90':>8} {'p99':>8}         n")
    for title, count, *values in quantile_rows(run):
        found.append(f"{title:<10}  {' '.join(f'{value:>8}' for value in values)} {count:>9}")
    if environment.server is not None:
        found.append(f"its counts  {server_line(environment.server)}")
    found += [gpu_line(span) for span in environment.gpus]
    joules = energy_per_token_j(run)
    if joules is not None:
        found.append(f"energy      {significant(joules)} J per output token on the GPUs")
    found.append(f"client      {client_line(run)}")
    found += [f"error       {error.count} x {error.kind}: {plain(error.example)}" for error in run.requests.errors]
    return found + [gate_line(gate) for gate in run.gates]


def accept_words(metrics: Metrics) -> str:
    """accept length 2.31 (accepted by position 81 %, 50 %)."""
    positions = ", ".join(percent(100 * share) for share in metrics.accept_per_position or ())
    return f"accept length {number(metrics.accept_length, 2)}" + (
        f" (accepted by position {positions})" * bool(positions)
    )


def _slo_words(plan: Plan) -> str:
    return ", ".join(f"{metric} {bound:g} ms" for metric, bound in plan.slo_ms.items())


def _server_words(run: Run) -> str:
    environment = run.environment
    engine = " ".join(part for part in (environment.engine, environment.engine_version) if part)
    parallel = f"TP{environment.tp}" if environment.tp is not None else ""
    parts = (engine, environment.model or run.plan.model or "", parallel, run.plan.endpoint)
    return "  ".join(plain(part) for part in parts if part)


_COLUMNS = ("run", "preset", "streams", "in", "tok/s", "TTFT", "TPOT", "ICL p99", "ok/failed", "state")
_RIGHT = frozenset({"streams", "in", "tok/s", "TTFT", "TPOT", "ICL p99"})


def _cells(run: Run, baseline_id: int | None) -> tuple[str, ...]:
    metrics = run.metrics
    base = ", baseline" if run.id is not None and run.id == baseline_id else ""
    return (
        name(run),
        run.plan.preset,
        str(run.plan.streams),
        f"{run.plan.input_tokens:,}",
        rate(metrics.output_tok_s),
        mean_ms(metrics.ttft_ms),
        mean_ms(metrics.tpot_ms),
        UNKNOWN if metrics.icl_ms is None else ms(metrics.icl_ms.p99),
        f"{run.requests.ok}/{run.requests.failed}",
        state(run) + base,
    )


def table(runs: Sequence[Run], baseline_id: int | None = None) -> list[str]:
    """Runs one a line under a heading; times in ms."""
    rows = [_COLUMNS, *(_cells(run, baseline_id) for run in runs)]
    widths = [max(len(row[at]) for row in rows) for at in range(len(_COLUMNS))]
    return [
        "  ".join(
            cell.rjust(width) if column in _RIGHT else cell.ljust(width)
            for cell, width, column in zip(row, widths, _COLUMNS, strict=True)
        ).rstrip()
        for row in rows
    ]


def unreadable(count: int) -> str:
    return f"{count} stored run{'s' * (count != 1)} can't be read"


def lines(reading: BenchReading) -> list[str]:
    """What is running, and the runs of the investigation, newest first."""
    found = []
    if reading.problem is not None:
        found.append(f"runs are not stored: {reading.problem}")
    if reading.unreadable:
        found.append(unreadable(reading.unreadable))
    if reading.progress is not None:
        found.append(f"running {progress_line(reading.progress)}")
    if reading.last_error is not None:
        found.append(f"last attempt failed: {reading.last_error}")
    if not reading.runs:
        return [*found, "no runs yet: `decodetop bench run single --endpoint URL`"]
    return [*found, *table(reading.runs, reading.baseline_id)]


def markdown(reading: BenchReading) -> list[str]:
    """The report's section: the newest run in full, the others as a table."""
    found = ["## Benchmarks", ""]
    if reading.problem is not None:
        found += [f"Runs are not stored: {escape(reading.problem)}.", ""]
    if reading.unreadable:
        found += [f"{unreadable(reading.unreadable).capitalize()}.", ""]
    if not reading.runs:
        return [*found, "No benchmark has been run in this investigation."]
    found += [
        *markdown_table(reading.runs, reading.baseline_id),
        "",
        "TTFT and TPOT are means over requests.",
        *markdown_gates(reading.runs),
        *_newest(reading.runs[0]),
    ]
    base = next((run for run in reading.runs if run.id is not None and run.id == reading.baseline_id), None)
    if base is not None and base is not reading.runs[0]:
        found += ["", f"{escape(against(reading.runs[0], base))}."]
    return [
        *found,
        "",
        "How the figures are defined:",
        "",
        *(f"- {name}: {DEFINITIONS[field]}" for name, field in DEFINED),
    ]


def markdown_table(runs: Sequence[Run], baseline_id: int | None = None) -> list[str]:
    """A row a run."""
    head = "| run | preset | streams | in | output tok/s | TTFT ms | TPOT ms | ICL p99 ms | ok/failed | state |"
    rows = [f"| {' | '.join(escape(cell) for cell in _cells(run, baseline_id))} |" for run in runs]
    return [head, "|---|---|--:|--:|--:|--:|--:|--:|---|---|", *rows]


def markdown_gates(runs: Sequence[Run]) -> list[str]:
    """What the self-checks of the runs said, a row a gate; a word when they said nothing."""
    rows = [
        f"| {escape(name(run))} | {gate.severity} | {escape(gate.name)} | {escape(gate.detail)} |"
        for run in runs
        for gate in run.gates
    ]
    if not rows:
        return ["", "Gates: no self-check of these runs had anything to say."]
    return ["", "| run | severity | gate | what it says |", "|---|---|---|---|", *rows]


def _newest(run: Run) -> list[str]:
    found = ["", f"### Run {escape(name(run))}: {escape(plan_line(run.plan))}", ""]
    found += [f"{escape(_server_words(run))}", ""]
    found += ["| ms | n | mean | p50 | p90 | p99 |", "|---|--:|--:|--:|--:|--:|"]
    found += [f"| {' | '.join(row)} |" for row in quantile_rows(run)]
    facts = [f"output {rate(run.metrics.output_tok_s)} tok/s, {significant(run.metrics.request_s)} requests/s"]
    if run.metrics.accept_length is not None:
        facts.append(accept_words(run.metrics))
    joules = energy_per_token_j(run)
    if joules is not None:
        facts.append(f"{significant(joules)} J per output token on the GPUs")
    if run.environment.server is not None:
        facts.append(f"the server's own counts: {server_line(run.environment.server)}")
    facts.append(f"client: {client_line(run)}")
    facts += gpu_lines(run.environment.gpus)
    facts += [f"{error.count} x {error.kind}: {error.example}" for error in run.requests.errors]
    return [*found, "", *(f"- {escape(fact)}" for fact in facts)]
