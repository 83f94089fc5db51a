"""Runs in words."""

from __future__ import annotations

import csv
import io

import msgspec
from markdown_it import MarkdownIt

from decodetop.bench import text
from decodetop.bench.export import csv_table
from decodetop.bench.reading import BenchReading, Gate, GpuSpan, RequestFault, Requests, ServerSpan
from support import states

RUN = states.run(4, 51.7, 19.3)


def test_one_line() -> None:
    assert text.one_line(RUN) == "#4 single 1 stream  51.7 tok/s  TTFT 55.0  TPOT 19.3 ms  ok"
    unknown = msgspec.structs.replace(RUN.metrics, tpot_ms=None, output_tok_s=None)
    words = text.one_line(msgspec.structs.replace(RUN, id=None, metrics=unknown))
    assert words == "run single 1 stream  – tok/s  TTFT 55.0  ICL 19.3 ms  ok"


def test_worth() -> None:
    def of(*severities: str, valid: bool = True) -> str:
        gates = tuple(Gate(name="x", severity=severity, detail="y") for severity in severities)  # type: ignore[arg-type]
        return text.worth(msgspec.structs.replace(RUN, gates=gates, valid=valid))

    assert [of(), of("info"), of("info", "suspect"), of("suspect", "invalid"), of(valid=False)] == [
        "ok",
        "ok",
        "suspect",
        "invalid",
        "invalid",
    ]


def test_two_runs_prove_nothing() -> None:
    base = states.run(3, 195.7, 5.1)
    assert text.against(RUN, base) == "#4 vs #3: -74 % tok/s, one run each: no interval"


def test_progress() -> None:
    words = text.progress_line(states.progress())
    assert words == "1 stream  measuring 2/8 requests  51.7 tok/s  TTFT 55.0 ms  ICL 19.3 ms  ETA 32 s"


def test_energy_per_token_needs_every_gpu() -> None:
    def of(*energies: float | None) -> float | None:
        gpus = tuple(GpuSpan(index=n, n=3, energy_j=energy) for n, energy in enumerate(energies))
        return text.energy_per_token_j(
            msgspec.structs.replace(RUN, environment=msgspec.structs.replace(RUN.environment, gpus=gpus))
        )

    assert of(1024.0, 1024.0) == 1.0
    assert of(1024.0, None) is None
    assert of() is None


def test_table_columns_stand_under_their_heads() -> None:
    head, first, second = text.table([RUN, states.run(3, 1195.7, 5.1)], baseline_id=3)
    assert head.index("TTFT") + 4 == first.index("55.0") + 4 == second.index("55.0") + 4
    assert second.endswith("ok, baseline") and "1,196" in second


def test_lines_of_an_empty_store_say_what_to_do() -> None:
    assert text.lines(BenchReading()) == ["no runs yet: `decodetop bench run single --endpoint URL`"]
    assert text.lines(BenchReading(problem="x is broken"))[0] == "runs are not stored: x is broken"


def test_markdown_shows_text_from_outside_as_it_is() -> None:
    nasty = "a | b `c` <img src=x> *d* [e](f)\n# g"
    fault = RequestFault(kind="http", count=2, example=nasty)
    broken = msgspec.structs.replace(
        RUN,
        requests=Requests(ok=6, failed=2, errors=(fault,)),
        plan=msgspec.structs.replace(RUN.plan, preset="my|preset"),
    )
    lines = text.markdown(BenchReading(runs=(broken, states.run(3, 195.7, 5.1)), baseline_id=3))
    assert lines[0] == "## Benchmarks"
    html = MarkdownIt("commonmark").enable("table").render("\n".join(lines))
    assert "<img" not in html and "<em>" not in html and "<a " not in html and "<code>" not in html
    assert html.count("<h1>") == 0 and "a | b `c` &lt;img src=x&gt; *d* [e](f) # g" in html
    assert "<td>my|preset</td>" in html
    assert html.count("<table>") == 2


def test_csv_has_a_row_a_run_and_empty_cells_for_the_unknown() -> None:
    unknown = msgspec.structs.replace(RUN, metrics=msgspec.structs.replace(RUN.metrics, itl_ms=None))
    rows = list(csv.DictReader(io.StringIO(csv_table([RUN, unknown]))))
    assert [row["id"] for row in rows] == ["4", "4"]
    assert rows[0]["output_tok_s"] == "51.7" and rows[0]["tpot_ms_mean"] == "19.3"
    assert (rows[1]["itl_ms_p99"], rows[1]["goodput_request_s"]) == ("", "")
    assert (rows[0]["asked_output_tokens"], rows[0]["output_tokens"]) == ("256", "2048")


def test_the_servers_own_counts_stand_beside_ours() -> None:
    span = ServerSpan(generated_tokens=2048.0, requests=8.0, ttft_mean_ms=51.2, itl_mean_ms=19.31)
    gpus = (GpuSpan(index=0, n=9, energy_j=4096.0, sm_clock_mhz_mean=1980.0, power_w_mean=480.0),)
    box = msgspec.structs.replace(RUN.environment, server=span, gpus=gpus)
    lines = text.run_lines(msgspec.structs.replace(RUN, environment=box))
    assert "its counts  2,048 tokens, 8 requests, TTFT 51.2 ms, ITL 19.3 ms" in lines
    assert "energy      2.00 J per output token on the GPUs" in lines
    assert "GPU 0: SM 1,980 MHz, 480 W, – °C, 9 samples" in lines


def test_gpus_that_did_the_same_share_a_line() -> None:
    spans = [GpuSpan(index=at, n=5, sm_clock_mhz_mean=1980.0, power_w_mean=watts) for at, watts in enumerate((1, 2, 1))]
    lines = text.gpu_lines(spans)
    assert [line.partition(":")[0] for line in lines] == ["GPU 0,2", "GPU 1"]
    assert lines[1] == text.gpu_line(spans[1])


def test_gates_of_the_report_stand_in_a_table_with_their_run() -> None:
    gate = Gate(name="clock | drop", severity="suspect", detail="SM clock fell")
    run = msgspec.structs.replace(states.run(4, 51.7, 19.3), gates=(gate,))
    assert text.markdown_gates([run])[-1] == "| #4 | suspect | clock \\| drop | SM clock fell |"
    assert "no self-check" in text.markdown_gates([states.run(4, 51.7, 19.3)])[-1]
