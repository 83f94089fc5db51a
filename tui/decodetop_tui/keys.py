"""The one table of actions: keys, help, palette and docs/keys.md are made of it, and what `offers` puts in the footer.

To add a key: write the function in `acts/`, add a row here. Nothing else knows the keys.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from decodetop_tui.acts import (
    bench,
    compare,
    diagnose,
    enter,
    findings,
    floor,
    look,
    notebook,
    output,
    profile,
    replay,
    server,
    sideways,
    steps,
    todo,
)
from decodetop_tui.acts.steps import CAPTURE
from decodetop_tui.keymap import Action, Keymap
from decodetop_tui.layout import NAMES

if TYPE_CHECKING:
    from decodetop_tui.face import Face

PAGE_HELP = "by a screenful"


def _has_modes(face: Face) -> str | None:
    return None if len(face.pane.module.MODES) > 1 else f"{face.pane.module.TITLE} has one view only"


def _can_filter(face: Face) -> str | None:
    filters = face.pane.module.FILTER
    if filters is None:
        return f"{face.pane.module.TITLE} has no rows to narrow"
    return f"narrows the {filters.what}: zoom first" if filters.zoomed and not face.zoomed else None


def _can_mark(face: Face) -> str | None:
    comparable = (face.pane.cursor or "").startswith(("run:", CAPTURE))
    return None if comparable else "works on a run (4), or on a capture (5, zoomed): two are compared"


_PANE_TITLES = dict(zip(NAMES, ("gpu", "server", "investigation", "bench", "decode step", "host"), strict=True))

_MOVE = (
    Action("next-pane", ("tab",), "next pane", "put the focus on the next pane", "move", look.step_pane(1)),
    Action("previous-pane", ("shift+tab",), "previous pane", "or on the one before", "move", look.step_pane(-1)),
    *(
        Action(
            f"pane-{name}",
            (str(at),),
            f"{_PANE_TITLES[name]} pane",
            "focus it; again: zoom",
            "move",
            look.to_pane(name),
        )
        for at, name in enumerate(NAMES, 1)
    ),
    Action("enter", ("enter",), "open", "act on the row in focus: start, open, zoom", "move", enter.enter),
    Action("back", ("escape",), "back", "close what was opened last", "move", look.back),
    Action("down", ("j", "down"), "down", "next row, or scroll a line", "move", look.move(1)),
    Action("up", ("k", "up"), "up", "row before, or scroll a line", "move", look.move(-1)),
    Action("page-down", ("pagedown",), "page down", PAGE_HELP, "move", look.page(1)),
    Action("page-up", ("pageup",), "page up", PAGE_HELP, "move", look.page(-1)),
    Action("first", ("g", "home"), "first line", "to the top, and the first row", "move", look.end(-1)),
    Action("last", ("G", "end"), "last line", "to the end, and the last row", "move", look.end(1)),
)

_LOOK = (
    Action("view", ("v",), "next view", "another view of the pane in focus", "look", look.view, _has_modes),
    Action("filter", ("/",), "filter", "only rows that hold a word, cut or not", "look", look.filter_rows, _can_filter),
    Action("mark", ("m",), "mark row", "mark or unmark a run or capture, to compare", "look", look.mark, _can_mark),
    Action("freeze", ("space",), "freeze", "stop drawing, not measuring; replay: pause", "look", look.freeze),
    Action("refresh", ("r",), "refresh", "read every source now", "look", look.refresh),
    Action("faster", ("+",), "faster", "read more often; replay: play faster", "look", look.rate(1), replay.here),
    Action("slower", ("-",), "slower", "read less often; replay: play slower", "look", look.rate(-1), replay.here),
    Action("theme", ("T",), "next theme", "night, paper, okabe, mono, ansi and your own", "look", look.next_theme),
)


def _on_item(id: str, key: str, title: str, help: str, run: Callable[[Face], None]) -> Action:
    """An edit of the item under the cursor."""
    return Action(id, (key,), title, help, "todo", run, replay.live(todo.on_item))


_CAN_ADD, _CAN_UNDO, _CAN_REDO = (replay.live(when) for when in (todo.has_list, todo.can_undo, todo.can_redo))
_CAN_TAKE = replay.live(findings.has_any)
_ADD = "add an item to the investigation"

_TODO = (
    Action("todo-add", ("a",), "add todo", _ADD, "todo", todo.add, _CAN_ADD),
    _on_item("todo-tick", "x", "tick todo", "completed, or pending again", todo.close("completed", "done")),
    _on_item("todo-start", "i", "start todo", "in progress, or pending; a second asks", todo.start),
    _on_item("todo-cancel", "X", "cancel todo", "cancelled, or pending again", todo.close("cancelled", "given up")),
    _on_item("todo-attempt", "t", "record attempt", "what was tried, its outcome, why", todo.attempt),
    _on_item("todo-edit", "e", "edit todo", "change its words", todo.edit),
    _on_item("todo-more", "E", "edit details", "notes, hypothesis, expected, blocked by", todo.more),
    _on_item("todo-priority", "*", "priority", "high, medium, low and round again", todo.priority),
    _on_item("todo-down", "J", "move todo down", "later in the list", todo.move(1)),
    _on_item("todo-up", "K", "move todo up", "earlier in the list", todo.move(-1)),
    _on_item("todo-nest", ">", "make sub-item", "a part of the item above it", todo.nest),
    _on_item("todo-unnest", "<", "make main item", "no part of another one any more", todo.unnest),
    Action("note", ("n",), "write a note", "a line into the log", "todo", notebook.note, replay.live()),
    Action("log", ("L",), "log", "what happened, newest first; again: the list", "todo", notebook.log_view),
    Action(
        "adopt",
        ("A",),
        "adopt",
        "an agent's item into the list; a gone one back",
        "todo",
        notebook.adopt,
        replay.live(notebook.can_adopt),
    ),
    Action(
        "investigation",
        ("I",),
        "investigations",
        "go on with another one, or begin one",
        "todo",
        notebook.switch,
        notebook.can_switch,
    ),
    Action("finding-add", ("!",), "add finding", "the finding shown becomes an item", "todo", findings.add, _CAN_TAKE),
    Action("findings", ("F",), "findings", "all, with numbers; Enter adds an item", "todo", findings.choose, _CAN_TAKE),
    Action("undo", ("u",), "undo", "take back the last edit made here", "todo", todo.undo, _CAN_UNDO),
    Action("redo", ("U",), "redo", "make it again", "todo", todo.redo, _CAN_REDO),
)

_WORK = (
    Action("bench", ("b",), "bench panel", "focus it on a preset; Enter starts it", "bench", bench.panel, replay.here),
    Action(
        "stop",
        ("s",),
        "stop",
        "diagnosis, benchmark, capture, trace reading",
        "bench",
        bench.stop,
        replay.live(bench.can_stop),
    ),
    Action(
        "baseline",
        ("B",),
        "baseline",
        "compare others with this run",
        "bench",
        bench.baseline,
        replay.live(bench.on_run),
    ),
    Action(
        "compare",
        ("c",),
        "compare",
        "two marked runs, or captures; again: back",
        "look",
        compare.compare,
        compare.can_compare,
    ),
    Action(
        "profile",
        ("p",),
        "profile",
        "the server's decode steps (asks); again: stop",
        "steps",
        profile.profile,
        replay.live(profile.can_profile),
    ),
    Action(
        "diagnose",
        ("d",),
        "diagnose",
        "measure, profile, judge, offer moves (asks)",
        "steps",
        diagnose.diagnose,
        replay.live(diagnose.can_diagnose),
    ),
    Action("floor", ("f",), "floor", "verdict, gap, moves, what-if; again: back", "steps", floor.page),
    Action(
        "what-if-more",
        ("right", "l"),
        "what-if: more",
        "the floor's row: more; 3: to agents' plans",
        "steps",
        sideways.go(1),
        sideways.can_go,
    ),
    Action(
        "what-if-less",
        ("left", "h"),
        "what-if: less",
        "the floor's row: less; 3: back to the list",
        "steps",
        sideways.go(-1),
        sideways.can_go,
    ),
    Action(
        "what-if-reset",
        ("=",),
        "what-if: as it is",
        "the floor as it is again",
        "steps",
        floor.reset,
        replay.live(floor.any_asked),
    ),
    Action(
        "open-trace",
        ("o",),
        "open trace",
        "read a profiler trace, all ranks together",
        "steps",
        steps.open_trace,
        replay.live(),
    ),
    Action(
        "server",
        ("S",),
        "choose server",
        "which one screen, gates and report mean",
        "server",
        server.choose,
        replay.live(server.any_server),
    ),
    Action(
        "try-generation",
        ("C",),
        "check server",
        "does it generate? One token (asks)",
        "server",
        server.try_generation,
        replay.live(server.can_try),
    ),
)

_RECORD = (
    Action("report", ("w",), "write report", "all as markdown, into the investigation", "record", output.write_report),
    Action(
        "copy", ("y",), "copy report", "write it, send it to the terminal's clipboard", "record", output.copy_report
    ),
    Action("picture", ("P",), "picture", "this screen as SVG beside the reports", "record", output.picture),
    Action("record", ("R",), "record", "write a tape of all samples, or stop", "record", output.record, replay.live()),
    Action("seek-back", ("[",), "back 10 s", "in a replay", "record", replay.seek(-10), replay.in_replay),
    Action("seek-on", ("]",), "on 10 s", "in a replay", "record", replay.seek(10), replay.in_replay),
    Action("seek-back-minute", ("{",), "back 1 min", "in a replay", "record", replay.seek(-60), replay.in_replay),
    Action("seek-on-minute", ("}",), "on 1 min", "in a replay", "record", replay.seek(60), replay.in_replay),
)

_PROGRAM = (
    Action("commands", (":", "ctrl+p"), "commands", "every action by name", "program", look.commands),
    Action(
        "message", ("M",), "last message", "the last footer word, whole", "program", look.last_message, look.any_message
    ),
    Action("help", ("?", "f1"), "help", "this list", "program", look.help_screen),
    Action("quit", ("q",), "quit", "asks where something would be lost", "program", look.quit_),
)

ACTIONS: tuple[Action, ...] = (*_MOVE, *_LOOK, *_TODO, *_WORK, *_RECORD, *_PROGRAM)


def markdown(keymap: Keymap) -> list[str]:
    """The table of docs/keys.md."""
    lines = ["| key | action | id | what it does |", "|---|---|---|---|"]
    for action in ACTIONS:
        keys = " ".join(f"`{key}`" for key in keymap.shown(action.id).replace("|", "\\|").split())
        lines.append(f"| {keys} | {action.title} | `{action.id}` | {action.help} |")
    return lines
