"""A storm of servers recorded live and played again: names that want to be markup or terminal codes, figures that can't
be, answers that are none. The tape gives back what was seen, and every pane draws it on the smallest screen.
"""

from __future__ import annotations

import json
import random
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import msgspec
import pytest

from decodetop.cli import main
from decodetop.core.state import State, fold, fold_all
from decodetop.core.tape import Tape
from decodetop.flows.catalog import codec
from decodetop.report.document import markdown
from decodetop.server.reading import ServerReading
from decodetop_tui.cells import width_of
from decodetop_tui.paint import View
from decodetop_tui.panes import bench, floor, gpu, host, server, steps, todo
from support.engine_replay import NOT_FOUND, Reply, in_thread, recorded
from support.face import desk
from support.hostile import HOSTILE

ODD = ("NaN", "-1", "+Inf", "1e308", "-1e308", "1e-320", "9" * 300, "0", "7", "")
NAMES = (HOSTILE, "語" * 400, "\x1b]0;owned\x07", "[/red]" * 50, "a" * 100_000, "", "\u202e" * 30)
JUNK = (
    Reply(500, b"\x00\xff" * 500),
    Reply(200, b"<html>" * 1000, "text/html"),
    Reply(200, b"[" * 100_000),
    Reply(200, b'{"data":[{"id":' + b"9" * 5000 + b"}]}"),
    Reply(200, b"x", encoding="gzip, gzip"),
    Reply(302, location="file:///etc/passwd"),
    Reply(raw=b"SSH-2.0-OpenSSH\r\n"),
    Reply(cut=True, body=b"y" * 100),
    NOT_FOUND,
)


KINDS = (("sglang_tp1_graph", 0.0), ("vllm_tp1_graph", 0.1), ("vllm_tp1_graph", 0.6))


class Storm(dict[str, Reply]):
    """Answers of a recorded engine, other ones each time they are asked for."""

    def __init__(self, folder: str, seed: int, junk: float) -> None:
        super().__init__(recorded(folder, "loaded"))
        self._chance = random.Random(seed)
        self._junk = junk

    def get(self, path: str, default: Any = None) -> Any:
        reply, chance = super().get(path, default), self._chance
        if chance.random() < self._junk:
            return chance.choice(JUNK)
        if reply is None or path not in self:
            return reply
        spoilt = self._figures(reply.body) if path == "/metrics" else self._names(reply.body)
        return Reply(reply.code, spoilt, reply.content_type)

    def _figures(self, body: bytes) -> bytes:
        lines = body.decode().splitlines()
        return "\n".join(
            f"{line.rpartition(' ')[0]} {self._chance.choice(ODD)}" if self._chance.random() < 0.3 else line
            for line in lines
        ).encode()

    def _names(self, body: bytes) -> bytes:
        def spoil(value: Any) -> Any:
            if isinstance(value, dict):
                return {key: spoil(one) for key, one in value.items()}
            if isinstance(value, list):
                return [spoil(one) for one in value]
            if self._chance.random() < 0.7:
                return value
            return self._chance.choice((*NAMES, -1, 2**70, 1e300, None, [], {"a": "b"}, True))

        try:
            parsed = json.loads(body)
        except ValueError:
            return body
        spoilt = spoil(parsed)
        if isinstance(spoilt, dict) and isinstance(parsed, dict) and "data" in parsed:
            spoilt["data"] = parsed["data"]  # or it would not be known again
            parsed["data"][0]["id"] = self._chance.choice(NAMES)
        return json.dumps(spoilt).encode()


@pytest.fixture(scope="module")
def tape(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("storm") / "storm.tape"
    with ExitStack() as servers:
        argv = ["record", "-o", str(path), "--duration-s", "6", "--investigation", str(path.parent / "inv")]
        for seed, (folder, junk) in enumerate(KINDS):
            argv += ["--endpoint", servers.enter_context(in_thread(Storm(folder, seed, junk))).endpoint]
        assert main(argv) == 0
    return path


def states(tape: Path) -> list[State]:
    """After each sample."""
    played = Tape(tape, codec())
    try:
        assert not played.truncated
        samples = list(played.samples())
        assert len(samples) == len(played.index) and not played.codec.unknown
        state = fold_all(played.header, [])
        found = []
        for sample in samples:
            state = fold(state, sample)
            found.append(state)
        return found
    finally:
        played.close()


def test_the_tape_has_the_storm_and_no_line_of_it_is_lost(tape: Path) -> None:
    seen = [state.last("server", ServerReading) for state in states(tape)]
    last = next(one for one in reversed(seen) if one is not None)
    assert len(last.servers) == 3
    statuses = {one.status for reading in seen if reading is not None for one in reading.servers}
    assert "up" in statuses and len(statuses) > 1
    lost = [one for one in _figures(msgspec.to_builtins(last)) if not -1e19 < one < 1e19]
    assert lost == []


def _figures(value: Any) -> list[float]:
    if isinstance(value, dict):
        return [found for one in value.values() for found in _figures(one)]
    if isinstance(value, (list, tuple)):
        return [found for one in value for found in _figures(one)]
    return [value] if isinstance(value, (int, float)) else []


PANES = (gpu, server, todo, bench, steps, host, floor)


def test_every_pane_draws_every_moment_of_it(tape: Path) -> None:
    for state in states(tape)[::7]:
        for module in PANES:
            for mode in range(len(module.MODES)):
                picture = module.draw(state, View(width=80, height=22, focused=True, zoomed=True, mode=mode))
                for line in picture.lines:
                    assert width_of(line) <= 80
                    assert all(span.text.isprintable() for span in line)


async def test_the_screen_stands_it(tape: Path) -> None:
    seen = states(tape)
    async with desk(seen[0], size=(80, 24)) as one:
        for state in seen[:: max(1, len(seen) // 12)]:
            await one.show(state)
            for key in "123456":
                await one.press(key)
                assert all(line.isprintable() for line in one.screen())


def test_its_report_is_text(tape: Path) -> None:
    text = markdown(states(tape)[-1])
    assert "\x1b" not in text and "\u202e" not in text and len(text) < 1_000_000
