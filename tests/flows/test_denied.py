"""An investigation, settings and themes in a folder of another account: each says so in its words, none falls over."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from decodetop.bench.store import RunStore
from decodetop.core.atomic import make_folder, replace
from decodetop.errors import DecodetopError
from decodetop.flows.live import disks
from decodetop.host.probe import _space
from decodetop.log.store import LogStore
from decodetop.todo.follow import follower
from decodetop.todo.investigations import listed
from decodetop.todo.past import Past
from decodetop.todo.question import read_question, write_question
from decodetop.todo.store import TodoStore
from decodetop.todo.watch import watch_folder
from decodetop_tui.theme import find
from decodetop_tui.traces import typed_paths
from support.rights import without_rights


async def watched(folder: Path) -> list[None]:
    return [change async for change in watch_folder(folder, frozenset({"todo.json"}))]


ASKED: dict[str, Callable[[Path], Any]] = {
    "runs": RunStore,
    "checklist": lambda folder: TodoStore(folder).read(),
    "edit": lambda folder: TodoStore(folder).update(lambda document: document),
    "watch": lambda folder: asyncio.run(watched(folder)),
    "question": read_question,
    "ask": lambda folder: write_question(folder, "why?"),
    "undo": lambda folder: Past(folder).change(lambda undo: undo),
    "log": lambda folder: LogStore(folder).read(),
    "file": lambda folder: replace(folder / "x.md", b"x"),
    "folder": make_folder,
    "disks": disks,
    "space": lambda folder: _space("investigation", folder),
    "investigations": lambda folder: listed(folder.parent, folder),
    "plans": lambda folder: follower((), folder, {}).look(0),
    "themes": find,
    "trace": lambda folder: typed_paths(str(folder / "x.json")),
}


@pytest.mark.parametrize("ask", ASKED.values(), ids=ASKED)
def test_a_folder_of_another_account_is_a_word(ask: Callable[[Path], Any]) -> None:
    with tempfile.TemporaryDirectory() as name:  # tmp_path is its owner's alone
        closed = Path(name) / "home"
        (closed / "inv").mkdir(parents=True)
        closed.chmod(0)
        Path(name).chmod(0o755)

        def said() -> str:
            try:
                return f"{ask(closed / 'inv')}"
            except DecodetopError as error:
                return f"{error.message} -> {error.hint}"

        words = without_rights(said)
        closed.chmod(0o755)
    assert not words.startswith(("PermissionError", "OSError")), words
    assert "->" not in words or (name in words and not words.endswith("-> ")), words
