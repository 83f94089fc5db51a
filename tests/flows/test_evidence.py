"""What was measured while an item is in progress belongs to it, with what changed since the baseline."""

from __future__ import annotations

import contextlib
import json
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest

from decodetop.bench.compare import of_pairs
from decodetop.bench.reading import BenchReading, Environment, Gate, Progress, Run
from decodetop.core.engine import Engine
from decodetop.core.sample import Command
from decodetop.errors import DataError
from decodetop.flows import evidence
from decodetop.flows.delta import run_summary
from decodetop.flows.evidence import EvidenceService, Linker, made_of_comparison
from decodetop.steps.reading import StepsReading
from decodetop.todo.model import add
from decodetop.todo.reading import AddTodo, EditTodo, Evidence, TodoReading
from decodetop.todo.service import TodoService
from decodetop.todo.store import TodoStore
from support import states
from support.clock import ManualClock, settle
from support.disk import Inline, Watched
from support.probes import HEADER, Sink
from support.running import running

PROGRESS = Progress(preset="single", endpoint="http://x", phase="measuring")


class Box:
    def __init__(self, folder: Path) -> None:
        todo = TodoService(folder, Watched(), Inline)
        self.engine = Engine(HEADER, ManualClock(), services=[todo, EvidenceService()])

    async def do(self, *commands: Command) -> None:
        for command in commands:
            self.engine.submit(command)
            await settle()

    async def bench(self, *runs: Run, baseline: int | None = None, progress: Progress | None = None) -> None:
        self.engine.emit("bench", BenchReading(runs=runs, baseline_id=baseline, progress=progress))
        await settle()

    def evidence(self, id: str) -> tuple[Evidence, ...]:
        reading = self.engine.state.last("todo", TodoReading)
        assert reading is not None
        return next(todo for todo in reading.todos if todo.id == id).evidence


@contextlib.asynccontextmanager
async def box(folder: Path) -> AsyncIterator[Box]:
    found = Box(folder)
    async with running(found.engine, Sink()):
        await settle()
        yield found


def run(id: int, tok_s: float, tpot_ms: float, **environment: object) -> Run:
    made = states.run(id, tok_s, tpot_ms)
    return msgspec.structs.replace(made, environment=msgspec.structs.replace(made.environment, **environment))


BASE = run(1, 10.5, 95.6, flags={"kv": "full"})
FIXED = run(2, 13.5, 74.1, flags={"kv": "active"})
WORDS = (
    "TPOT 95.6 -> 74.1 ms (-22 %), tok/s 10.5 -> 13.5 (+29 %), "
    "verdict faster as it looks (unpaired, one run each: no interval), against #1"
)


async def test_a_run_is_linked_to_the_item_in_progress_with_before_and_after(tmp_path: Path) -> None:
    async with box(tmp_path) as b:
        await b.do(AddTodo(content="fix the cast", status="in_progress"), AddTodo(content="other"))
        await b.bench(BASE, baseline=1)
        await b.bench(BASE, baseline=1, progress=PROGRESS)
        await b.bench(FIXED, BASE, baseline=1, progress=PROGRESS)
        await b.bench(FIXED, BASE, baseline=1)
        (one,) = b.evidence("t1")
        assert (one.kind, one.ref, one.summary) == ("run", "2", WORDS)
        assert b.evidence("t2") == ()
    saved = json.loads((tmp_path / "todo.json").read_bytes())["todos"][0]["evidence"]
    assert [entry["summary"] for entry in saved] == [WORDS]


async def test_what_was_stored_before_and_an_old_baseline_that_comes_into_sight_are_no_news(tmp_path: Path) -> None:
    async with box(tmp_path) as b:
        await b.do(AddTodo(content="a", status="in_progress"))
        await b.bench(FIXED)
        await b.bench(FIXED, BASE, baseline=1)
        assert b.evidence("t1") == ()


@pytest.mark.parametrize(("start_other", "owner"), [(False, "t1"), (True, "t2")])
async def test_a_run_whose_item_was_closed_meanwhile(tmp_path: Path, start_other: bool, owner: str) -> None:
    async with box(tmp_path) as b:
        await b.do(AddTodo(content="a", status="in_progress"), AddTodo(content="b"))
        await b.bench()
        await b.bench(progress=PROGRESS)
        await b.do(EditTodo(id="t1", status="completed"))
        if start_other:
            await b.do(EditTodo(id="t2", status="in_progress"))
        await b.bench(BASE, progress=PROGRESS)
        assert [len(b.evidence(id)) for id in ("t1", "t2")] == [int(id == owner) for id in ("t1", "t2")]


async def test_of_several_in_progress_the_one_started_last_gets_it(tmp_path: Path) -> None:
    async with box(tmp_path) as b:
        await b.do(AddTodo(content="a"), AddTodo(content="b", status="in_progress"))
        await b.engine.clock.advance(1)  # type: ignore[attr-defined]
        await b.do(EditTodo(id="t1", status="in_progress"))
        await b.bench()
        await b.bench(BASE)
        assert [len(b.evidence(id)) for id in ("t1", "t2")] == [1, 0]


async def test_with_nothing_in_progress_nothing_is_linked(tmp_path: Path) -> None:
    async with box(tmp_path) as b:
        await b.do(AddTodo(content="a"))
        await b.bench()
        await b.bench(BASE)
        assert b.evidence("t1") == ()


async def test_a_capture_is_linked_with_its_largest_parts_and_those_of_the_one_before(tmp_path: Path) -> None:
    (first,) = states.steps().captures
    later = msgspec.structs.replace(first, id="c2", made_wall_ns=(first.made_wall_ns or 0) + 1)
    words = "63.7 ms a step profiled, 19.3 ms real: idle 92 %, gemm 7 %, attention 1 %"
    async with box(tmp_path) as b:
        await b.do(AddTodo(content="a", status="in_progress"))
        for captures in ((), (first,), (later, first)):
            b.engine.emit("steps", StepsReading(captures=captures))
            await settle()
        assert [(one.kind, one.ref) for one in b.evidence("t1")] == [("capture", "c1"), ("capture", "c2")]
        assert b.evidence("t1")[0].summary == words
        assert b.evidence("t1")[1].summary == f"{words}; the one before: 63.7 ms: idle 92 %, gemm 7 %, attention 1 %"


def of(run: Run, **fields: object) -> Run:
    return msgspec.structs.replace(run, **fields)


def asked(run: Run, **plan: object) -> Run:
    return of(run, plan=msgspec.structs.replace(run.plan, **plan))


def metrics(run: Run, **fields: object) -> Run:
    return of(run, metrics=msgspec.structs.replace(run.metrics, **fields))


FIGURES = "TPOT 74.1 ms, 13.5 tok/s, 1 stream, ok"


@pytest.mark.parametrize(
    ("after", "runs", "words"),
    [
        (FIXED, (), FIGURES),
        (FIXED, (BASE,), WORDS),
        (asked(FIXED, streams=8), (BASE,), "8 streams, ok; not comparable with baseline #1: streams 1 -> 8"),
        (of(FIXED, environment=Environment(decodetop="0", model="other")), (BASE,), "another model than baseline #1"),
        (of(FIXED, partial=True), (BASE,), "no verdict: #2 was stopped"),
        (
            of(FIXED, valid=False, gates=(Gate(name="x", severity="invalid", detail="cut"),)),
            (BASE,),
            "no verdict: #2 is invalid",
        ),
        (
            of(FIXED, gates=(Gate(name="x", severity="suspect", detail="too short"),)),
            (BASE,),
            "one run each: no interval), against #1; #2 is suspect",
        ),
        (metrics(FIXED, tpot_ms=None), (metrics(BASE, tpot_ms=None),), "ICL 95.6 -> 74.1 ms (-22 %), tok/s 10.5"),
        (metrics(FIXED, output_tok_s=None), (BASE,), "TPOT 95.6 -> 74.1 ms (-22 %), no verdict: tokens unknown"),
        (run(2, 10.55, 95.2, flags={"kv": "active"}), (BASE,), "verdict no difference seen (unpaired, one run each"),
        (run(2, 8.0, 125.0), (BASE,), "verdict slower as it looks"),
    ],
)
def test_what_a_run_says_beside_its_baseline(after: Run, runs: tuple[Run, ...], words: str) -> None:
    assert words in run_summary(after, (after, *runs), 1)


def test_several_runs_of_both_settings_give_an_interval_and_still_the_weaker_word() -> None:
    before = [run(id, tok_s, 1000 / tok_s, flags={"kv": "full"}) for id, tok_s in ((1, 10.5), (2, 10.6), (3, 10.4))]
    after = [run(id, tok_s, 1000 / tok_s, flags={"kv": "active"}) for id, tok_s in ((4, 13.5), (5, 13.4), (6, 13.6))]
    words = run_summary(after[-1], [*after[::-1], *before[::-1]], 1)
    assert "verdict faster as it looks (unpaired, 3 and 3 runs), against #1" in words


def test_runs_whose_settings_are_not_known_are_not_pooled() -> None:
    stripped = [run(id, tok_s, 10.0) for id, tok_s in ((1, 10.0), (2, 90.0), (3, 10.1))]
    last = run(4, 13.0, 10.0, flags={"kv": "active"})
    assert "one run each" in run_summary(last, [last, *stripped], 1)


def test_interleaved_pairs_give_the_verdict_itself() -> None:
    pairs = [(run(2 * n, 10.0 + n / 100, 100.0), run(2 * n + 1, 13.0 + n / 100, 77.0), "a") for n in range(6)]
    made = made_of_comparison(of_pairs(("full", "active"), pairs, "output_tok_s"))  # type: ignore[arg-type]
    assert made.ref == "0,1,2,3,4,5,6,7,8,9,10,11"
    assert (
        made.summary.startswith("active against full: verdict faster, output_tok_s +29.") and "6 pairs" in made.summary
    )


class TestWithoutAScreen:
    def put(self, folder: Path, status: str) -> None:
        TodoStore(folder).update(lambda document: add(document, AddTodo(content="a", status=status), 0)[0])

    def hear(self, folder: Path) -> Linker:
        linker, engine = Linker(folder, ManualClock()), Engine(HEADER, ManualClock())
        engine.subscribe(linker.hear)
        engine.emit("bench", BenchReading(runs=(BASE,), baseline_id=1))
        engine.emit("bench", BenchReading(runs=(FIXED, BASE), baseline_id=1))
        return linker

    def test_it_is_linked_on_disk_and_said(self, tmp_path: Path) -> None:
        self.put(tmp_path, "in_progress")
        assert self.hear(tmp_path).words == ["run 2 is evidence of t1, which is in progress"]
        (item,) = TodoStore(tmp_path).read().items
        assert item["evidence"][0]["summary"] == WORDS
        self.hear(tmp_path)
        assert len(TodoStore(tmp_path).read().items[0]["evidence"]) == 1, "the same run once more is one link"

    def test_nothing_in_progress_writes_nothing(self, tmp_path: Path) -> None:
        assert self.hear(tmp_path / "none").words == [] and not (tmp_path / "none").exists()
        self.put(tmp_path, "pending")
        before = (tmp_path / "todo.json").read_bytes()
        assert self.hear(tmp_path).words == [] and (tmp_path / "todo.json").read_bytes() == before

    def test_a_list_that_cannot_be_written_is_a_word(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        def refuse(*_: object) -> None:
            raise DataError("can't write todo.json: No space left on device")

        monkeypatch.setattr(evidence, "link", refuse)
        (word,) = self.hear(tmp_path).words
        assert "run 2 not linked to the checklist: can't write todo.json: No space left" in word
