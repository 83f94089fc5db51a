"""`decodetop tui`: its options, and what is logged."""

from __future__ import annotations

import argparse
import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

from decodetop.cli import tui
from decodetop.cli.common import add_common, settings_of
from decodetop.config import Settings
from decodetop.core.clock import SystemClock
from decodetop.core.engine import Engine
from decodetop.core.pipe import PipeSource
from decodetop.core.sample import Failure, Header, Sample
from decodetop.core.source import Source
from decodetop.core.tape import Codec
from decodetop.errors import UsageError


@pytest.fixture(autouse=True)
def log_as_before() -> Iterator[None]:
    logger = logging.getLogger("decodetop")
    handlers, level = list(logger.handlers), logger.level
    yield
    for handler in logger.handlers:
        if handler not in handlers:
            handler.close()
    logger.handlers[:] = handlers
    logger.setLevel(level)


def parsed(*words: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    add_common(parser)
    tui.configure(parser)
    return parser.parse_args(words)


def test_what_is_typed_wins_over_the_defaults(tmp_path: Path) -> None:
    config = tmp_path / "config.toml"
    config.write_text("rate_s = 5\nquiet = true\n")
    settings = settings_of(parsed("--config", str(config), "--rate", "0.5", "--mouse"))
    assert (settings.rate_s, settings.quiet, settings.mouse) == (0.5, True, True)
    assert settings.origin["rate_s"] == "command line" and settings.origin["quiet"] == str(config)


def test_from_draws_the_samples_of_a_command(monkeypatch: pytest.MonkeyPatch) -> None:
    shown: list[Source] = []
    monkeypatch.setattr(tui, "show", lambda source, settings: shown.append(source) or 7)
    args = parsed("--from", "ssh box decodetop stream")
    assert tui.run(args, settings_of(args)) == 7
    (source,) = shown
    assert isinstance(source, PipeSource) and source.header.host == "ssh"


def test_a_log_that_cannot_be_written_is_said_before_the_screen_opens(tmp_path: Path) -> None:
    args = parsed("--log", str(tmp_path / "none" / "x.log"))
    with pytest.raises(UsageError, match="--log"):
        tui.run(args, settings_of(args))


def test_failures_of_sources_stand_in_the_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    heard = []
    monkeypatch.setattr("decodetop_tui.app.run", lambda feed, settings, **_: heard.append(feed) or 0)
    path = tmp_path / "x.log"
    args = parsed("--log", str(path), "--from", "true")
    assert tui.run(args, settings_of(args)) == 0
    failure = Failure(kind="lost", message="connection refused")
    heard[0].put(Sample(source="server", t_ns=0, seq=0, failure=failure))
    assert "WARNING decodetop.feed: server: lost: connection refused" in path.read_text()


def test_the_screen_is_told_when_the_samples_are_another_box_s(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    told: list[bool] = []
    monkeypatch.setattr("decodetop_tui.app.run", lambda feed, settings, piped, **_: told.append(piped) or 0)
    settings = Settings(investigation=tmp_path)
    tui.show(PipeSource("ssh box decodetop stream", Codec({})), settings)
    tui.show(Engine(Header(version="0", host="box", started_wall_ns=0), SystemClock()), settings)
    assert told == [True, False]
