"""The snapshot: golden bytes, valid markdown, nothing secret, a word for all that is missing."""

import os
from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from markdown_it import MarkdownIt
from markdown_it.token import Token

from decodetop.core.sample import Failure
from decodetop.core.state import State
from decodetop.report import file_name, markdown
from decodetop.server.reading import ServerReading
from decodetop.todo.reading import TodoReading
from support import states

GOLDEN = Path(__file__).parent / "golden" / "report"
PARSER = MarkdownIt("commonmark").enable("table")

SECTIONS = ["Findings", "Checklist", "GPUs", "Inference server", "Benchmarks", "Decode step", "Host"]


def body(text: str) -> str:
    """The markdown behind the front matter."""
    front, rest = text.removeprefix("---\n").split("\n---\n", 1)
    assert front.startswith("schema: 1\n")
    return rest


def headings(text: str) -> list[str]:
    tokens = PARSER.parse(body(text))
    return [
        tokens[at + 1].content for at, token in enumerate(tokens) if token.type == "heading_open" and token.tag == "h2"
    ]


@pytest.mark.parametrize(
    ("name", "state"),
    [
        ("box", states.box()),
        ("simulated", states.box(simulated=True)),
        ("bare", states.bare()),
        ("lost", states.fail(states.box(), "gpu", Failure(kind="lost", message="GPU is lost", hint="reboot"))),
    ],
)
def test_golden_bytes(name: str, state: State) -> None:
    path = GOLDEN / f"{name}.md"
    text = markdown(state)
    if os.environ.get("GOLDEN_WRITE"):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, "utf-8")
    assert text == path.read_text("utf-8"), "look at the difference; GOLDEN_WRITE=1 keeps the new one"


@pytest.mark.parametrize("state", [states.box(), states.bare(), states.empty()], ids=["box", "bare", "empty"])
def test_every_section_is_there_in_order(state: State) -> None:
    assert headings(markdown(state)) == SECTIONS


def test_tables_parse_as_tables() -> None:
    text = body(markdown(states.box()))
    rows = [line for line in text.splitlines() if line.startswith("|")]
    inside = [token for token in PARSER.parse(text) if token.type == "tr_open"]
    delimiters = [row for row in rows if set(row) <= set("|-: ")]
    assert len(inside) == len(rows) - len(delimiters) > 10


def test_a_simulated_box_says_so_first() -> None:
    text = markdown(states.box(simulated=True))
    assert "simulated: true" in text
    assert "**SIMULATED**" in body(text).split("## ", 1)[0]


HOSTILE = "a|b\n# c `d` <script> [x](y) **z** \\ ~~~ ```\n---\n"


def test_hostile_words_stay_words() -> None:
    state = states.box()
    todo = state.last("todo", TodoReading)
    server = state.last("server", ServerReading)
    assert todo is not None and server is not None
    items = tuple(msgspec.structs.replace(item, content=HOSTILE, notes=HOSTILE) for item in todo.todos)
    named = tuple(msgspec.structs.replace(one, model=HOSTILE, served_name=HOSTILE) for one in server.servers)
    state = states.put(
        state,
        {
            "todo": msgspec.structs.replace(todo, todos=items, title=HOSTILE),
            "server": msgspec.structs.replace(server, servers=named),
        },
        61,
    )
    text = markdown(state)
    assert headings(text) == SECTIONS
    kinds = {token.type for token in flat(PARSER.parse(body(text)))}
    assert not kinds & {"html_block", "html_inline", "link_open", "hr"}


def flat(tokens: list[Token]) -> list[Token]:
    return [inner for token in tokens for inner in (token, *(token.children or []))]


@given(st.text(alphabet=st.characters(codec="utf-8"), max_size=60))
@settings(max_examples=60, deadline=None)
def test_no_title_breaks_the_headings(title: str) -> None:
    todo = TodoReading(path="/x/todo.json", title=title)
    assert headings(markdown(states.put(states.empty(), {"todo": todo}, 1))) == SECTIONS


def test_keys_that_slipped_into_the_state_are_redacted() -> None:
    state = states.fail(
        states.bare(),
        "server",
        Failure(kind="broken", message="GET http://me:pw1234secret@box/ --api-key sk-abcdefghijk"),
    )
    text = markdown(state)
    assert "pw1234secret" not in text and "sk-abcdefghijk" not in text


def test_the_file_name_sorts_by_time() -> None:
    assert file_name(states.box()).startswith("snapshot-2026") and file_name(states.box()).endswith("Z.md")


def test_the_host_of_a_foreign_tape_steers_nothing() -> None:
    state = states.box()
    header = msgspec.structs.replace(state.header, host="evil\x1b[2J\u202e: {x}\n# <b>")
    text = markdown(msgspec.structs.replace(state, header=header))
    assert all(char.isprintable() or char == "\n" for char in text)
    assert 'host: "evil [2J : {x} # <b>"\n' in text
    assert "<b>" not in body(text).replace("\\<b>", "")
