"""What leaves the screen: report, clipboard, picture."""

from __future__ import annotations

import base64
from pathlib import Path
from xml.etree import ElementTree

import pytest

from decodetop.report import markdown
from decodetop_tui import picture
from decodetop_tui.cells import raster
from decodetop_tui.paint import Span
from decodetop_tui.shapes import areas, is_shape
from decodetop_tui.terminal import Terminal, few_colours, sparing
from decodetop_tui.theme import SHIPPED, Palette, find
from decodetop_tui.thrift import Thrift
from support import states
from support.face import desk


async def test_the_report_is_written_and_its_place_is_said(tmp_path: Path) -> None:
    async with desk(investigation=tmp_path) as d:
        await d.press("w")
        path = tmp_path / "reports" / "snapshot-20261130T020100Z.md"
        assert path.read_text("utf-8") == markdown(states.box())
        assert " ✓ wrote " in d.footer and d.footer.endswith("/reports/snapshot-20261130T020100Z.md")
        assert [one.name for one in path.parent.iterdir()] == [path.name]


async def test_who_sits_at_the_screen_is_not_in_the_report(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOGNAME", "gpu-box")  # as a word it stands in the host's name
    async with desk(investigation=tmp_path) as d:
        await d.press("w")
        (path,) = (tmp_path / "reports").iterdir()
    text = path.read_text("utf-8")
    assert "gpu-box" not in text and "USER-7" in text


async def test_copy_sends_the_report_and_says_where_the_file_is(tmp_path: Path) -> None:
    async with desk(investigation=tmp_path) as d:
        await d.press("y")
        (path,) = (tmp_path / "reports").iterdir()
        assert d.face.clipboard == path.read_text("utf-8")
        assert "OSC 52" in d.footer and "also in" in d.footer


async def test_the_picture_shows_every_word_at_its_place_and_fetches_nothing(tmp_path: Path) -> None:
    async with desk(investigation=tmp_path, theme="night") as d:
        await d.press("P")
        (path,) = (tmp_path / "reports").iterdir()
        screen = d.screen()
    text = path.read_text("utf-8")
    assert path.suffix == ".svg" and text.count("http") == 1  # the name of the format itself
    drawn = [[" "] * 120 for _ in range(40)]
    for element in ElementTree.fromstring(text).iter("{http://www.w3.org/2000/svg}text"):
        x = round((float(element.attrib["x"]) - picture.MARGIN) / picture.CELL_WIDTH)
        y = int((float(element.attrib["y"]) - picture.MARGIN) / picture.CELL_HEIGHT)
        word = element.text or ""
        assert float(element.attrib["textLength"]) == pytest.approx(len(word) * picture.CELL_WIDTH)
        drawn[y][x : x + len(word)] = word
    letters = ["".join(" " if is_shape(char) else char for char in line).rstrip() for line in screen]
    assert ["".join(row).rstrip() for row in drawn[:-1]] == letters[:-1]
    assert text.count("<path ") > 20


@pytest.mark.parametrize("theme", SHIPPED)
async def test_the_picture_has_the_colours_of_the_theme(tmp_path: Path, theme: str) -> None:
    async with desk(investigation=tmp_path, theme=theme) as d:
        await d.press("P")
        (path,) = (tmp_path / "reports").iterdir()
        text = path.read_text("utf-8")
        gemm = picture.look_of(d.face.palette("kind.gemm"), picture.BACKGROUND)
    assert gemm.ground is not None and f'fill="{gemm.ground}"' in text
    assert f'fill="{gemm.colour}"' in text and 'font-weight="bold"' in text


def test_wide_and_dangerous_characters_are_drawn_as_they_are() -> None:
    text = picture.svg([raster((Span("a<漢&"),), 8)], Palette(find().by_name["night"]), "t")
    (element,) = ElementTree.fromstring(text).iter("{http://www.w3.org/2000/svg}text")
    assert element.text == "a<漢&" and float(element.attrib["textLength"]) == pytest.approx(5 * picture.CELL_WIDTH)


async def test_a_place_that_cannot_be_written_is_an_error_on_screen(tmp_path: Path) -> None:
    (tmp_path / "reports").write_text("in the way")
    async with desk(investigation=tmp_path) as d:
        await d.press("w")
        assert d.footer.startswith(" ✗ can't write")
        await d.press("M")
        assert "--investigation" in "".join(d.screen())


@pytest.mark.parametrize("tmux", [False, True])
def test_the_clipboard_goes_through_tmux_both_ways(monkeypatch: pytest.MonkeyPatch, tmux: bool) -> None:
    sent: list[str] = []
    monkeypatch.setattr("textual.drivers.linux_driver.LinuxDriver.write", lambda self, data: sent.append(data))
    if tmux:
        monkeypatch.setenv("TMUX", "/tmp/tmux-0/default,1,0")
    driver = object.__new__(sparing(Thrift()))
    driver.fileno = -1
    copy = f"\x1b]52;c;{base64.b64encode(b'report').decode()}\a"
    Terminal.write(driver, copy)
    wrapped = "\x1bPtmux;" + copy.replace("\x1b", "\x1b\x1b") + "\x1b\\"
    assert sent == [copy + wrapped if tmux else copy]


def test_which_terminals_have_few_colours() -> None:
    assert few_colours({"TERM": "linux"}) and few_colours({"TERM": "screen"})
    assert not few_colours({"TERM": "screen-256color"})
    assert not few_colours({"TERM": "xterm", "COLORTERM": "truecolor"})


@pytest.mark.parametrize(
    ("char", "count", "wanted"),
    [
        ("─", 3, [(0, 8.5, 30, 1)]),
        ("│", 1, [(4.5, 0, 1, 18)]),
        ("├", 1, [(5, 8.5, 5, 1), (4.5, 0, 1, 18)]),
        ("░", 2, [(0, 0, 20, 18)]),
        ("▄", 1, [(0, 9, 10, 9)]),
        ("▌", 2, [(0, 0, 5, 18), (10, 0, 5, 18)]),
        ("⡀", 1, [(1.6, 14.85, 1.8, 1.8)]),
        ("⠀", 1, []),
    ],
)
def test_shapes_cover_what_the_character_does(char: str, count: int, wanted: list[tuple[float, ...]]) -> None:
    assert is_shape(char)
    assert list(areas(char, 10, 18, count)) == [pytest.approx(area) for area in wanted]
