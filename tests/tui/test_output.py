"""What leaves the screen: report, clipboard, picture."""

from __future__ import annotations

import base64
from pathlib import Path

import pytest

from decodetop.errors import DataError
from decodetop.report import markdown
from decodetop_tui.acts.output import save
from decodetop_tui.terminal import Terminal, few_colours, sparing
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


async def test_copy_sends_the_report_and_says_where_the_file_is(tmp_path: Path) -> None:
    async with desk(investigation=tmp_path) as d:
        await d.press("y")
        (path,) = (tmp_path / "reports").iterdir()
        assert d.face.clipboard == path.read_text("utf-8")
        assert "OSC 52" in d.footer and "also in" in d.footer


async def test_the_picture_is_an_svg_of_the_screen(tmp_path: Path) -> None:
    async with desk(investigation=tmp_path) as d:
        await d.press("P")
        (path,) = (tmp_path / "reports").iterdir()
        text = path.read_text("utf-8")
        assert path.suffix == ".svg" and text.startswith("<svg") and "gpu-box-7" in text


async def test_a_place_that_cannot_be_written_is_an_error_on_screen(tmp_path: Path) -> None:
    (tmp_path / "reports").write_text("in the way")
    async with desk(investigation=tmp_path) as d:
        await d.press("w")
        assert d.footer.startswith(" ✗ can't write") and "--investigation" in d.footer


def test_a_failed_write_leaves_the_old_file_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "report.md"
    save(path, "old")
    with pytest.raises(UnicodeEncodeError):
        save(path, "new \ud800")
    assert path.read_text() == "old" and list(tmp_path.iterdir()) == [path]
    (tmp_path / "folder").mkdir()
    with pytest.raises(DataError, match="can't write"):
        save(tmp_path / "folder", "new")


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
