"""What the colours say: one loud number a row, trouble in words, old figures dim."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from decodetop.bench.reading import BenchReading, Gate
from decodetop.core.clock import SECOND_NS
from decodetop.core.sample import Failure
from decodetop.core.state import State
from decodetop.gpu.reading import GpuReading
from decodetop.log.reading import Entry, LogReading
from decodetop.server.reading import ServerReading
from decodetop.steps.reading import KINDS, StepsReading
from decodetop.todo.reading import Evidence, Todo, TodoReading
from decodetop_tui.paint import Line, Picture, View
from decodetop_tui.pane import PaneModule
from decodetop_tui.panes import bench, gpu, host, server, steps, todo
from decodetop_tui.theme import ROLES
from support import floors, states

PANES: dict[str, PaneModule] = {
    "gpu": gpu,
    "server": server,
    "todo": todo,
    "bench": bench,
    "steps": steps,
    "host": host,
}
VIEWS = (View(80, 3), View(120, 12), View(200, 12), View(120, 40, focused=True, zoomed=True))


def text(line: Line) -> str:
    return "".join(span.text for span in line)


def whole(picture: Picture) -> str:
    return "\n".join(map(text, picture.lines))


@pytest.mark.parametrize("name", PANES)
@pytest.mark.parametrize("view", VIEWS)
def test_one_loud_number_a_row(name: str, view: View) -> None:
    for state in (states.box(60), states.box(5, gpu_count=8, busy_bench=True, server_count=2), states.bare()):
        for line in PANES[name].draw(state, view).lines:
            loud = [span.text for span in line if span.style == "loud" and any(char.isdigit() for char in span.text)]
            assert len(loud) <= 1, text(line)


@pytest.mark.parametrize("name", PANES)
def test_every_style_is_a_role_of_the_theme(name: str) -> None:
    known = {"", *ROLES, *(f"kind.{kind}" for kind in KINDS)}
    for state in (states.box(60, busy_bench=True), states.bare()):
        for view in VIEWS:
            picture = PANES[name].draw(state, view)
            assert {span.style for line in picture.lines for span in line} | {picture.note_style} <= known


@pytest.mark.parametrize("name", ("gpu", "server", "host"))
def test_old_figures_are_dim_and_their_age_is_told(name: str) -> None:
    state = states.fail(states.box(30), name, Failure(kind="stalled", message="no answer within 2 s"), 31)
    picture = PANES[name].draw(replace(state, now_ns=75 * SECOND_NS), View(120, 12))
    assert picture.note == "stalled, last reading 45 s old"
    assert picture.note_style == "bad"
    assert text(picture.lines[0]).strip() == "stalled: no answer within 2 s"
    assert {span.style for line in picture.lines[1:] for span in line} <= {"dim"}


@pytest.mark.parametrize("name", ("gpu", "server", "host"))
def test_silence_of_a_steady_source_is_stale(name: str) -> None:
    quiet = replace(states.box(30), now_ns=60 * SECOND_NS)
    assert PANES[name].draw(quiet, View(120, 12)).note == "stale: 30 s old"


@pytest.mark.parametrize("name", ("todo", "bench", "steps"))
def test_silence_of_the_others_is_normal(name: str) -> None:
    quiet = replace(states.box(30), now_ns=9000 * SECOND_NS)
    assert "stale" not in PANES[name].draw(quiet, View(120, 12)).note


@pytest.mark.parametrize(
    ("name", "at"),
    [(name, at) for name, module in PANES.items() for at in range(1, len(module.MODES))],
)
def test_a_view_that_the_title_names_is_the_one_shown(name: str, at: int) -> None:
    """Where a pane has the rows, unzoomed too: `v` says the view's name, and must not say it for nothing."""
    state = states.box(60)
    (capture,) = states.steps().captures
    speculating = replace(capture, report=replace(capture.report, accept_length=2.5))
    state = states.put(state, {"steps": StepsReading(captures=(speculating,))}, 60)
    first, other = (PANES[name].draw(state, View(120, 12, focused=True, mode=mode)) for mode in (0, at))
    assert whole(first) != whole(other)


def test_a_command_that_goes_on_below_the_pane_says_so() -> None:
    """A flag left out without a word reads as a flag that was not given."""
    one = states.servers().servers[0]
    started = replace(one, command=("python", *(f"--flag-{at}" for at in range(40))))
    state = states.put(states.box(60), {"server": ServerReading(servers=(started,), current=one.endpoint)}, 60)
    for height in range(6, 30):
        said = whole(server.draw(state, View(60, height)))
        if "python" in said:
            assert "--flag-39" in said or "…" in said, height


def test_each_kind_of_failure_has_its_word() -> None:
    words = set()
    for kind in ("absent", "denied", "lost", "stalled", "broken"):
        state = states.fail(states.empty(), "gpu", Failure(kind=kind, message="m", hint="do this"))  # type: ignore[arg-type]
        picture = gpu.draw(state, View(80, 5))
        assert "do this" in whole(picture)
        words.add(picture.note)
    assert words == {"not available", "no access", "lost", "stalled", "failed"}


def test_unknown_is_a_dash_and_its_reason_stands_in_the_title_in_focus() -> None:
    reading = states.gpus(1)
    blind = replace(
        reading.gpus[0], dram_bandwidth_percent=None, reasons={"dram_bandwidth_percent": "needs Hopper or later"}
    )
    state = states.put(states.empty(), {"gpu": GpuReading(gpus=(blind,))}, 1)
    focused = gpu.draw(state, View(120, 3, focused=True, cursor="gpu:0"))
    assert "–" in text(focused.lines[1])
    assert focused.note.startswith("– dram: needs Hopper or later")
    loud = [span.text.strip() for span in focused.lines[1] if span.style == "loud"]
    assert loud == ["80 %"]  # utilisation, where there is no better number


def test_gpus_of_other_servers_are_dim() -> None:
    lines = gpu.draw(states.box(5), View(120, 3)).lines
    assert {span.style for span in lines[2] if span.text.strip()} == {"", "dim"} or {
        span.style for span in lines[2]
    } <= {"dim", ""}
    assert "(not this server's)" in text(lines[2])
    assert any(span.style == "loud" for span in lines[1])
    assert not any(span.style == "loud" for span in lines[2])


@pytest.mark.parametrize(
    ("status", "word"),
    [
        ("starting", "starting"),
        ("needs_key", "up, needs a key"),
        ("down", "down"),
        ("hung", "hung"),
        ("not_a_server", "not an inference server"),
    ],
)
def test_a_server_without_figures_says_why(status: str, word: str) -> None:
    one = replace(states.servers().servers[0], status=status, status_message="as seen")
    state = states.box(20)
    for second in range(21, 41):
        state = states.put(state, {"server": ServerReading(servers=(one,), current=one.endpoint)}, second)
    shown = whole(server.draw(state, View(80, 4)))
    assert shown.strip().startswith(f"{word} for 19 s")
    assert "as seen" in shown
    assert "tok/s" not in shown


def test_rows_do_not_depend_on_focus() -> None:
    """Else the cursor would jump when a pane is left and entered again."""
    state = states.box(5, busy_bench=True)
    for name, cursor in (("todo", "t4"), ("bench", "preset:long"), ("gpu", "gpu:1"), ("steps", "rank:0")):
        for height in (1, 2, 4, 9):
            rows = [PANES[name].draw(state, View(80, height, focused=on, cursor=cursor)).rows for on in (True, False)]
            assert rows[0] == rows[1], (name, height)
            assert cursor in rows[0]


def test_what_is_in_progress_is_in_sight_before_the_list_is_touched() -> None:
    items = tuple(replace(states.TODOS[1], id=f"p{n}", content=f"item {n}") for n in range(20))
    running = replace(states.TODOS[0], id="now")
    state: State = states.put(states.empty(), {"todo": states.todos((*items, running))}, 1)
    picture = todo.draw(state, View(60, 4))
    assert "now" in picture.rows[:4]


def test_presets_stand_above_runs_whatever_the_room() -> None:
    for cursor in (None, "preset:single"):
        for view in (View(80, 5, focused=True, cursor=cursor), View(80, 12, focused=True, cursor=cursor, zoomed=True)):
            lines = [text(line) for line in bench.draw(states.box(5), view).lines]
            preset = next(at for at, line in enumerate(lines) if "single" in line and "51.7" not in line)
            assert preset < next(at for at, line in enumerate(lines) if "51.7" in line)


def test_the_course_of_tok_s_over_runs_of_one_load() -> None:
    runs = tuple(states.run(number, 50.0 + number, 19.3) for number in range(6, 0, -1))
    reading = BenchReading(presets=states.PRESETS, runs=runs)
    state = states.put(states.empty(), {"bench": reading}, 1)
    lines = [text(line) for line in bench.draw(state, View(90, 14, focused=True)).lines]
    (course,) = [line for line in lines if "alike" in line]
    assert "▁" in course and "█" in course and "51.0 to 56.0 tok/s over 6 alike" in course
    assert course.index("▁") < course.index("█")
    few = states.put(states.empty(), {"bench": replace(reading, runs=runs[:2])}, 1)
    assert not any("alike" in text(line) for line in bench.draw(few, View(90, 14, focused=True)).lines)


def test_the_last_run_stays_in_sight_over_a_short_list_of_presets() -> None:
    picture = bench.draw(states.box(5), View(80, 2, focused=True, cursor="preset:single"))
    assert "51.7" in text(picture.lines[0])
    assert picture.header_lines == 1
    assert picture.rows[0] is None


def test_a_mean_since_the_servers_start_is_not_shown_as_live() -> None:
    state = states.box(60)
    reading = state.last("server", ServerReading)
    assert reading is not None
    served = reading.servers[0]
    assert served.itl is not None
    old = replace(reading, servers=(replace(served, itl=replace(served.itl, over_s=None)), *reading.servers[1:]))

    def style(seen: ServerReading) -> str:
        lines = server.draw(states.put(state, {"server": seen}, 61), View(120, 6)).lines
        return next(span.style for line in lines for span in line if "19." in span.text)

    assert style(old) == "dim"
    assert style(reading) != "dim"


def test_an_empty_box_offers_no_key_that_needs_a_server() -> None:
    state = states.bare()
    said = "\n".join(whole(PANES[name].draw(state, View(100, 12, focused=True))) for name in PANES)
    assert "runs it" not in said and "p profiles" not in said
    assert "needs a server" in said and "o opens a trace" in said
    assert len(gpu.draw(state, View(100, 12)).lines) == 2, "what works without a GPU stands in the hint alone"


def test_a_tall_pane_ends_with_the_log() -> None:
    entries = tuple(Entry(wall_ns=states.WALL_NS + at, kind="note", text=f"note {at}") for at in range(40))
    state = states.put(states.box(5), {"log": LogReading(path="/log", entries=entries, total=40)}, 5)
    tall = todo.draw(state, View(100, 30))
    assert "note 39" in whole(tall) and len(tall.lines) <= 30
    assert not any(row and row.startswith("log:") for row in tall.rows)
    assert "note 39" not in whole(todo.draw(state, View(100, 5)))
    assert "note 39" not in whole(todo.draw(state, View(100, 30, filter="e")))


def test_a_tall_pane_shows_the_newest_run_in_whole_blocks() -> None:
    state = states.box(5)
    for height in range(8, 40):
        picture = bench.draw(state, View(100, height))
        assert len(picture.lines) <= max(height, 10)
    assert "TTFT" in whole(bench.draw(state, View(100, 34))) and "loop lag" in whole(bench.draw(state, View(100, 34)))
    assert "loop lag" not in whole(bench.draw(state, View(100, 9)))


def test_a_tall_server_pane_shows_what_moves_the_rate_over_the_same_minutes() -> None:
    state = states.box(60)
    said = whole(server.draw(state, View(100, 30)))
    assert "ITL ms over" in said and "running over" in said and "KV % over" in said
    assert "ITL ms over" not in whole(server.draw(state, View(100, 6)))


def test_a_captures_long_name_gives_way_to_its_figures() -> None:
    found = Evidence(kind="capture", ref="1796066828.9125764-TP-0-18ece943f89ded61", summary="12.9 ms a step")
    one = Todo(id="t", content="profile", status="in_progress", evidence=(found, Evidence(kind="run", ref="4")))
    state = states.put(states.bare(), {"todo": TodoReading(path="/t.json", todos=(one,))}, 1)
    said = whole(todo.draw(state, View(100, 9)))
    assert "capture 12.9 ms a step" in said and "run 4" in said and "1796066828" not in said


@pytest.mark.parametrize("width", [58, 80, 120])
def test_why_a_run_is_suspect_stands_below_it_where_the_row_has_no_room(width: int) -> None:
    detail = "the server generated 1,410 tokens, 386 more than asked for here: others used it"
    gate = Gate(name="foreign_load", severity="suspect", detail=detail)
    run = replace(states.run(9, 161.0, 6.21), gates=(gate,))
    state = states.put(states.bare(), {"bench": BenchReading(presets=states.PRESETS, runs=(run,))}, 60)
    chosen = whole(bench.draw(state, View(width, 12, focused=True, cursor="run:9")))
    assert detail in " ".join(chosen.split())
    assert detail not in whole(bench.draw(state, View(width, 12, focused=True, cursor="preset:single")))


def test_a_floor_that_does_not_fit_beside_the_step_is_left_out_whole() -> None:
    state = floors.judged()
    for width in range(56, 80):
        said = text(steps.draw(state, View(width, 4)).lines[0])
        assert "floor 3.16 ms" in said or "fl" not in said, (width, said)
