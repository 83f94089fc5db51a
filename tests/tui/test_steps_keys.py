"""Keys of the step pane: open a trace, choose and compare captures, drill into kernels."""

from __future__ import annotations

from pathlib import Path

from msgspec.structs import replace

from decodetop.steps.reading import (
    CancelParsing,
    CompareCaptures,
    OpenTrace,
    Parsing,
    ShowCapture,
    StepsReading,
)
from decodetop_tui.screens.files import PickTrace
from decodetop_tui.screens.modal import Entry
from decodetop_tui.screens.told import Told
from support import states
from support.face import desk


async def test_stop_cancels_a_trace_being_read_without_asking() -> None:
    parsing = StepsReading(parsing=Parsing(files=("a.json",), done_bytes=1, total_bytes=9))
    async with desk(states.put(states.box(), {"steps": parsing}, 60)) as d:
        await d.press("s")
        assert d.sent == [CancelParsing()]


async def test_captures_are_chosen_and_compared() -> None:
    first = states.steps().captures[0]
    older = replace(first, id="older", made_wall_ns=0)
    reading = replace(states.steps(), captures=(first, older))
    async with desk(states.put(states.box(), {"steps": reading}, 60)) as d:
        await d.press("5", "c")
        assert d.sent == [] and "mark two captures" in d.footer
        await d.press("enter", "G", "enter")
        assert d.sent == [ShowCapture(id="older")]
        await d.press("m", "c")
        assert d.sent[1:] == [CompareCaptures(pair=("older", first.id))]
        await d.press("k", "m", "c")
        assert d.sent[2:] == [CompareCaptures(pair=("older", first.id))]


async def test_a_comparison_is_ended_by_the_same_key() -> None:
    first = states.steps().captures[0]
    older = replace(first, id="older", made_wall_ns=0)
    pair = ("older", first.id)
    reading = replace(states.steps(), captures=(first, older), compared=pair)
    async with desk(states.put(states.box(), {"steps": reading}, 60)) as d:
        await d.press("5", "enter")
        assert any("before us" in line for line in d.screen())
        await d.press("c")
        assert d.sent == [CompareCaptures(pair=None)]


async def test_enter_drills_from_a_kind_to_its_kernels_and_to_a_whole_name() -> None:
    async with desk(states.box()) as d:
        await d.press("5", "enter")
        d.face.pane.cursor = "kind:0:attention"
        await d.press("enter")
        assert d.face.pane.filter == "kind:attention" and "kernel:0:1" in d.face.pane.rows
        assert all(not row.startswith("kernel") or row == "kernel:0:1" for row in d.face.pane.rows)
        await d.press("escape")
        d.face.pane.cursor = "kernel:0:1"
        await d.press("enter")
        assert isinstance(d.face.screen, Told)


async def test_open_a_trace_by_the_picker(tmp_path: Path) -> None:
    for rank in (0, 1):
        (tmp_path / f"1796023716.3312356-TP-{rank}.trace.json.gz").write_bytes(b"x" * 2_000_000)
    (tmp_path / "notes.txt").touch()
    (tmp_path / "more").mkdir()
    async with desk() as d:
        d.face.trace_folder = str(tmp_path)
        await d.press("o")
        assert isinstance(d.face.screen, PickTrace)
        text = "\n".join(d.screen())
        assert "all 2 ranks" in text and "4.0 MB" in text and "more/" in text and "notes.txt" not in text
        await d.press("enter")
        (command,) = d.sent
        assert isinstance(command, OpenTrace)
        assert [Path(path).name[-18:-14] for path in command.paths] == ["TP-0", "TP-1"]


async def test_names_in_the_picker_keep_both_ends_and_the_size_whatever_is_in_them(tmp_path: Path) -> None:
    for name in ("rtl\u202egnp.json", "a\x1b[31m.json", f"rank{'x' * 200}-TP-7.json"):
        (tmp_path / name).write_bytes(b"x" * 12_345)
    async with desk(size=(80, 24)) as d:
        d.face.trace_folder = str(tmp_path)
        await d.press("o")
        rows = [line for line in d.screen() if " kB" in line]
        assert len(rows) == 3 and all("12 kB │" in row for row in rows)
        assert any("rankxxx" in row and "…" in row and "-TP-7.json" in row for row in rows)


async def test_tab_completes_a_folder_and_a_second_one_enters_it(tmp_path: Path) -> None:
    (tmp_path / "prof").mkdir()
    (tmp_path / "prof" / "a.json").write_bytes(b"x" * 12_345)
    async with desk() as d:
        d.face.trace_folder = str(tmp_path)
        await d.press("o", "p", "tab")
        value = d.face.screen.query_one(Entry).value
        assert value == f"{tmp_path}/prof" and "a.json" not in "\n".join(d.screen()[3:])
        await d.press("tab")
        assert "12 kB" in "\n".join(d.screen())


async def test_enter_in_an_empty_step_pane_opens_the_picker() -> None:
    async with desk(states.bare()) as d:
        await d.press("5", "enter")
        assert isinstance(d.face.screen, PickTrace)
