"""Top line, findings line and footer at any width."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from decodetop.core.clock import SECOND_NS
from decodetop.core.sample import Failure
from decodetop.core.source import RecordReading, ReplayReading
from decodetop.findings.reading import Finding
from decodetop.floor.reading import Verdict
from decodetop.server.reading import SIMULATED, Server, ServerReading
from decodetop_tui.cells import text_of, width_of
from decodetop_tui.headline import Situation, findings_line, footer_line, server_name, toast_line, top_line
from support import floors, states


def top(width: int = 120, state: object = None, **situation: object) -> str:
    shown = states.box() if state is None else state
    return text_of([top_line(shown, Situation(**situation), width)])[0]  # type: ignore[arg-type]


FINDING = Finding(id="x", severity="suspect", title="host-bound", evidence="GPU busy 26 %", source="host", since_ns=0)


@given(st.integers(0, 250), st.booleans(), st.booleans())
def test_the_top_line_fills_the_width_and_never_more(width: int, simulated: bool, frozen: bool) -> None:
    line = top_line(states.box(2, simulated=simulated), Situation(frozen=frozen), width)
    assert width_of(line) == width or (width < 12 and width_of(line) <= 12)


@given(st.integers(0, 250), st.lists(st.sampled_from(["info", "suspect", "invalid"]), max_size=3))
def test_the_findings_line_fits(width: int, severities: list[str]) -> None:
    found = [
        Finding(id=s, severity=s, title="t" * 40, evidence="e" * 90, source="gpu", since_ns=0)  # type: ignore[arg-type]
        for s in severities
    ]
    assert width_of(findings_line(states.box(2), found, width)) <= max(width, 62)


def test_at_120_everything_stands_in_the_top_line() -> None:
    line = top()
    for word in ("decodetop", "gpu-box-7", "SGLang", "0.5.15", ":30001", "dense-8b bf16", "TP1 on gpu 0", "02:01:00"):
        assert word in line
    assert line.rstrip().endswith("1 Hz  ?help")


def test_what_matters_most_stays_when_it_is_narrow() -> None:
    line = top(40, states.box(simulated=True), frozen=True)
    assert line.startswith("decodetop") and "SIMULATED" in line and "FROZEN" in line
    assert "0.5.15" not in line


def test_a_simulated_server_on_a_real_box_is_said_too() -> None:
    assert "SIMULATED" not in top()
    server = replace(states.servers().servers[0], version=f"0.5.15{SIMULATED}")
    shown = states.put(states.box(), {"server": ServerReading(servers=(server,), current=server.endpoint)}, 60)
    assert "SIMULATED" in top(40, shown)


def test_recording_replay_readonly_and_rate_are_said() -> None:
    recorded = states.put(states.box(), {"record": RecordReading(path="/t", samples=3, since_ns=0)}, 60)
    assert "REC 1 m" in top(state=recorded)
    assert "REC" not in top(state=states.put(recorded, {"record": RecordReading(path=None)}, 61))
    replay = ReplayReading(position_s=75, duration_s=3725, speed=2, ended=False)
    line = top(state=states.put(states.box(), {"replay": replay}, 60), frozen=True)
    assert "REPLAY 01:15/1:02:05 x2" in line and "Hz" not in line
    assert "readonly" in top(readonly=True)
    assert "2 Hz" in top(period_s=0.5) and "every 2 s" in top(period_s=2)


def test_of_several_servers_the_one_meant_is_counted() -> None:
    reading = states.servers(count=2)
    for at, server in enumerate(reading.servers, 1):
        shown = states.put(states.box(), {"server": replace(reading, current=server.endpoint)}, 60)
        assert f"server {at} of 2" in top(160, shown)
    assert " of 1" not in top(160)


def test_a_number_of_the_verdict_or_finding_is_never_cut() -> None:
    found = replace(FINDING, evidence="waits 12,345 ms")
    for width in range(30, 60):
        line = text_of([findings_line(states.box(), [found], width)])[0]
        assert "12,345" in line or not any(char.isdigit() for char in line.partition("…")[0])


def test_a_server_that_is_not_up_says_so_and_no_server_too() -> None:
    reading = states.servers()
    down = Server(endpoint=states.ENDPOINT, engine="sglang", status="hung")
    state = states.put(states.box(), {"server": type(reading)(servers=(down,), current=states.ENDPOINT)}, 60)
    assert "hung" in top(state=state)
    assert "no server found" in top(state=states.bare())


def test_addresses_are_short_here_and_whole_elsewhere() -> None:
    assert server_name(Server(endpoint="http://127.0.0.1:30000")) == ":30000"
    assert server_name(Server(endpoint="http://node4:8000")) == "node4:8000"


def test_the_worst_finding_is_shown_with_its_number_count_and_time() -> None:
    worse = Finding(
        id="y", severity="invalid", title="GPU lost", evidence="gpu 1", source="gpu", since_ns=30 * SECOND_NS
    )
    line = text_of([findings_line(states.box(), [FINDING, worse], 100)])[0]
    assert line.startswith("▲ GPU lost: gpu 1") and line.endswith("since 02:00  2 findings")


def test_no_findings_is_not_the_same_as_not_having_looked() -> None:
    assert text_of([findings_line(states.box(), [], 80)]) == ["no findings"]
    assert text_of([findings_line(states.empty(), [], 80)]) == ["looking around ..."]


def test_a_dead_engine_outranks_every_finding() -> None:
    state = states.fail(
        states.box(), "engine", Failure(kind="broken", message="the engine stopped: KeyError", hint="see")
    )
    assert text_of([findings_line(state, [FINDING], 80)]) == ["✗ the engine stopped: KeyError  see"]


def test_the_footer_shows_as_many_keys_as_fit_and_none_by_half() -> None:
    hints = [("b", "bench"), ("Enter", "open"), (":", "commands")]
    assert text_of([footer_line(hints, 80)]) == [" b bench   Enter open   : commands"]
    assert text_of([footer_line(hints, 24)]) == [" b bench   Enter open"]
    assert text_of([footer_line(hints, 3)]) == [" "]


def test_a_toast_is_never_markup_and_is_cut_to_the_width() -> None:
    (text,) = text_of([toast_line("error", "[red]no[/foo] [", "hint", 80)])
    assert text == " ✗ [red]no[/foo] [  hint"
    assert width_of(toast_line("info", "x" * 99, "", 20)) == 20
    (text,) = text_of([toast_line("info", "benchmark done: and then some more", "hint", 30, "M")])
    assert text == " ✓ benchmark done: and … M all"


def test_a_source_that_fails_is_said_where_there_is_no_finding() -> None:
    state = states.fail(states.box(), "server", Failure(kind="lost", message="connection refused"))
    assert text_of([findings_line(state, [], 80)]) == ["▲ server lost: connection refused"]
    assert text_of([findings_line(state, [FINDING], 80)])[0].startswith("▲ host-bound")
    absent = states.fail(states.box(), "gpu", Failure(kind="absent", message="no driver"))
    assert text_of([findings_line(absent, [], 80)]) == ["no findings"]


def test_the_number_outlives_the_time_when_it_is_narrow() -> None:
    line = text_of([findings_line(states.box(), [FINDING], 45)])[0]
    assert line.startswith("▲ host-bound: GPU busy 26 %") and line.endswith("1 finding") and "since" not in line


def test_a_verdict_too_long_for_the_line_gives_up_words_before_figures() -> None:
    """At 80 columns the measured step still stands in it."""
    sentence = (
        "Memory-bound, near what this stack reaches: practice allows 4.68 ms, measured 5.02 ms; what is left is the "
        "efficiency of the matrix kernels 0.97 ms."
    )
    seen = floors.reading()
    assert seen.report is not None
    verdict = Verdict(id="memory_bound_near_limit", confidence="high", sentence=sentence)
    state = states.put(states.box(), {"floor": replace(seen, report=replace(seen.report, verdict=verdict))}, 60)
    (wide,) = text_of([findings_line(state, [], 160)])
    assert wide == f"◆ {sentence}"
    (narrow,) = text_of([findings_line(state, [], 80)])
    assert narrow == "◆ memory-bound, near the limit: practice allows 4.68 ms, measured 5.02 ms; what…"
