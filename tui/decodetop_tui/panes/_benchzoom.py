"""The selected run in full: every metric with its quantiles, gates, errors, what it ran on, and the baseline beside."""

from __future__ import annotations

from decodetop.bench import text
from decodetop.bench.reading import BenchReading, Metrics, Run
from decodetop.core import words
from decodetop_tui.paint import Span, View
from decodetop_tui.panes._benchlines import baseline, comparable, worth
from decodetop_tui.panes._cells import wrap
from decodetop_tui.panes._page import INDENT, Page
from decodetop_tui.panes._table import Column, Pair, Table, grid, pair

_METRICS = (
    Column("name", "ms", 6, 99, "<"),
    Column("mean", "mean", 9, 90),
    Column("p50", "p50", 9, 80),
    Column("p90", "p90", 9, 70),
    Column("p99", "p99", 9, 80),
    Column("n", "n", 7, 50),
    Column("base", "baseline mean", 13, 60),
    Column("delta", "change", 7, 60),
)
_SEVERITY = {"info": "dim", "suspect": "warn", "invalid": "bad"}


def details(page: Page, reading: BenchReading, view: View, room: int | None = None) -> None:
    """The run under the cursor, else the newest; of its blocks those that stand whole in `room` lines (None = all)."""
    run = next((run for run in reading.runs if view.cursor == f"run:{run.id}"), None)
    run = run or (reading.runs[0] if reading.runs else None)
    if run is None:
        return
    base = baseline(reading)
    for block in _blocks(run, base, view):
        if room is not None:
            room -= len(block.lines) + 1
            if room < 0:
                break
        page.blank()
        page.extend(block.lines)


def _blocks(run: Run, base: Run | None, view: View) -> tuple[Page, ...]:
    figures, latencies, gates, ran_on = Page(view), Page(view), Page(view), Page(view)
    _figures(figures, run)
    _metrics(latencies, run, base)
    if base is not None and base is not run:
        latencies.add(INDENT, Span(_against(run, base), "dim"))
    _gates(gates, run)
    _environment(ran_on, run)
    return figures, latencies, gates, ran_on


def _figures(page: Page, run: Run) -> None:
    state = Span(text.state(run), worth(run).style)
    page.heading(f"run {text.name(run)}", Span("  "), state, Span(f"  {text.plan_line(run.plan)}", "dim"))
    page.extend(grid(_summary(run), page.width))
    if run.metrics.accept_per_position:
        page.add(INDENT, Span(text.accept_words(run.metrics)))


def _summary(run: Run) -> list[Pair]:
    metrics, client = run.metrics, run.client
    failed = run.requests.failed
    return [
        pair("output", words.rate(metrics.output_tok_s), "tok/s", 8, "loud"),
        pair("requests", words.number(metrics.request_s, 2), "per s", 8),
        pair("accept length", words.number(metrics.accept_length, 2), "tokens", 8),
        pair("under way", words.number(metrics.concurrency, 1), "requests", 8),
        pair("requests ok", f"{run.requests.ok}", "", 8),
        pair("failed", f"{failed}", "", 8, "bad" if failed else ""),
        pair("streams", f"{run.plan.streams}", "", 8),
        pair("tokens out", words.number(run.tokens.output), f"from {run.tokens.source}", 8),
        pair("tokens in", words.number(run.tokens.prompt), f"{words.number(run.tokens.cached)} cached", 8),
        pair("energy", words.significant(text.energy_per_token_j(run)), "J/token", 8),
        pair("took", words.duration(run.duration_s), "", 8),
        pair("loop lag", words.significant(client.loop_lag_ms_p99), "ms p99", 8),
        pair("client CPU", words.number(client.cpu_percent, 1), "%", 8),
        pair("send delay", words.significant(client.send_delay_ms_p99), "ms p99", 8),
    ]


def _metrics(page: Page, run: Run, base: Run | None) -> None:
    table = Table(_METRICS if base is not None and base is not run else _METRICS[:-2], page.width, headed=True)
    page.add(*table.header())
    for name in ("ttft", "itl", "icl", "tpot", "e2e"):
        spread = getattr(run.metrics, f"{name}_ms")
        cells: dict[str, Span | str] = {"name": name.upper()}
        if spread is None:
            cells["mean"] = words.UNKNOWN
        else:
            for figure in ("mean", "p50", "p90", "p99"):
                cells[figure] = f"{getattr(spread, figure):,.2f}"
            cells["n"] = str(spread.n)
        if base is not None:
            cells |= _beside(base.metrics, name, None if spread is None else spread.mean)
        page.add(*table.row(cells))


def _beside(base: Metrics, name: str, mean: float | None) -> dict[str, Span | str]:
    before = getattr(base, f"{name}_ms")
    if before is None:
        return {"base": words.UNKNOWN}
    return {"base": f"{before.mean:,.2f}", "delta": words.delta_percent(before.mean, mean)}


def _against(run: Run, base: Run) -> str:
    if not comparable(run, base):
        return f"#{base.id} had another load: the figures beside are not a comparison"
    return text.against(run, base)


def _gates(page: Page, run: Run) -> None:
    if not run.gates:
        page.add(INDENT, Span("no gate spoke", "dim"))
    for gate in run.gates:
        page.add(
            INDENT,
            Span(f"{gate.severity:<8}", _SEVERITY[gate.severity]),
            Span(f"{gate.name}: ", "dim"),
            Span(gate.detail),
        )
    for fault in run.requests.errors:
        page.add(
            INDENT, Span(f"{'error':<8}", "bad"), Span(f"{fault.count}x {fault.kind}: ", "dim"), Span(fault.example)
        )


def _environment(page: Page, run: Run) -> None:
    where = run.environment
    parts = [where.engine or "", where.engine_version or "", where.model or "", f"TP{where.tp}" if where.tp else ""]
    on = Span("  " + " ".join(part for part in [*parts, *where.gpu_names] if part))
    page.heading("ran on", on, Span(f"  {run.plan.endpoint}", "dim"))
    page.extend([[INDENT, Span(text.gpu_line(gpu))] for gpu in where.gpus])
    flags = " ".join(f"{name}={value}" for name, value in sorted(where.flags.items()))
    for line in wrap(flags, max(page.width - 4, 1), 6):
        page.add(INDENT, Span(line, "dim"))
