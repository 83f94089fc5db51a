"""What leaves the screen: the report as a file and over OSC 52, a picture, a tape."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from decodetop.config import login_names
from decodetop.core.atomic import make_folder, replace
from decodetop.core.clock import SECOND_NS
from decodetop.core.regular import home
from decodetop.core.source import Record, RecordReading
from decodetop.errors import DataError
from decodetop_tui.picture import svg

if TYPE_CHECKING:
    from decodetop_tui.face import Face


def write_report(face: Face) -> None:
    """Write it and say where."""
    path = _save_report(face)
    if path is not None:
        face.say(f"wrote {shown(path)}")


def copy_report(face: Face) -> None:
    """Write it, then offer it to the terminal's clipboard; only the terminal knows if it took it."""
    path = _save_report(face)
    if path is not None:
        face.copy_to_clipboard(path.read_text("utf-8"))
        face.say(f"report sent to the terminal's clipboard (OSC 52); also in {shown(path)}")


def picture(face: Face) -> None:
    """The screen as SVG beside the reports."""
    path = _path(face, ".svg")
    title = f"decodetop on {face.lookout.state.header.host}"
    if _save(face, path, svg(face.stage.rows(face.cells), face.palette, title)):
        face.say(f"wrote {shown(path)}")


def record(face: Face) -> None:
    seen = face.lookout.live.last("record", RecordReading)
    face.submit(Record(on=seen is None or seen.path is None))


def _save_report(face: Face) -> Path | None:
    # all of the instruments' words: too much to load before the first frame
    from decodetop.report import Privacy, markdown

    path = _path(face, ".md")
    text = markdown(face.lookout.state, Privacy(names=login_names(), home=home()))
    return path if _save(face, path, text) else None


def _path(face: Face, suffix: str) -> Path:
    """`reports/snapshot-20261130T140327Z` of the investigation, named by the time on the screen."""
    stamp = datetime.fromtimestamp(face.lookout.state.wall_ns // SECOND_NS, UTC).strftime("%Y%m%dT%H%M%SZ")
    return face.settings.investigation / "reports" / f"snapshot-{stamp}{suffix}"


def _save(face: Face, path: Path, text: str) -> bool:
    """Whether it is on the disk; else the operator was told why not."""
    try:
        make_folder(path.parent)
        replace(path, text.encode("utf-8"))
    except DataError as error:
        face.say(error.message, "error", error.hint)
        return False
    return True


def shown(path: Path) -> str:
    """The path with ~ for the home folder."""
    own = home()
    return f"~/{path.relative_to(own)}" if own is not None and path.is_relative_to(own) else str(path)
