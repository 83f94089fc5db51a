"""The snapshot: golden bytes, valid markdown, nothing secret, a word for all that is missing."""

import os
import re
import time
from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from markdown_it import MarkdownIt
from markdown_it.token import Token

from decodetop.bench.reading import BenchReading
from decodetop.core.sample import Failure
from decodetop.core.state import State
from decodetop.report import file_name, markdown
from decodetop.report.data import SCHEMA
from decodetop.server.reading import ServerReading
from support import states
from support.hostile import HOSTILE, everywhere, hostile, planted

GOLDEN = Path(__file__).parents[1] / "golden" / "report"
PARSER = MarkdownIt("commonmark").enable(["table", "strikethrough"])

SECTIONS = [
    "In short",
    "GPUs",
    "Host",
    "Inference server",
    "Findings",
    "Decode step",
    "Benchmarks",
    "Checklist",
    "What is next",
]


def body(text: str) -> str:
    """The markdown between the front matter and the data."""
    front, rest = text.removeprefix("---\n").split("\n---\n", 1)
    assert front.startswith("schema: 2\n")
    return rest.rpartition("\n<!-- decodetop:data")[0]


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


def test_hostile_words_stay_words() -> None:
    text = markdown(hostile())
    assert headings(text) == SECTIONS
    kinds = {token.type for token in flat(PARSER.parse(body(text)))}
    assert not kinds & {"html_block", "html_inline", "link_open", "hr"}
    assert all(char.isprintable() or char == "\n" for char in text)
    rows = [line for line in body(text).splitlines() if line.startswith("|")]
    delimiters = [row for row in rows if set(row) <= set("|-: ")]
    assert sum(token.type == "tr_open" for token in PARSER.parse(body(text))) == len(rows) - len(delimiters)


def test_front_matter_is_yaml_of_json_scalars_and_ends_where_it_ends() -> None:
    for state in (states.box(), states.bare(), states.empty(), hostile()):
        lines = markdown(state).splitlines()
        front = lines[1 : lines.index("---", 1)]
        pairs = [line.strip().split(": ", 1) for line in front if line != "sha256:"]
        values = {name: msgspec.json.decode(value) for name, value in pairs}
        assert values["schema"] == SCHEMA and values["decodetop"] and values["made"].endswith("Z") and values["data"]


def test_the_same_state_gives_the_same_bytes_wherever_it_is_written(monkeypatch: pytest.MonkeyPatch) -> None:
    here = markdown(states.box())
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    time.tzset()
    try:
        assert markdown(states.box()) == here
    finally:
        monkeypatch.undo()
        time.tzset()


def flat(tokens: list[Token]) -> list[Token]:
    return [inner for token in tokens for inner in (token, *(token.children or []))]


MARKUP = st.text(alphabet="ab0 .#*_-`~|<>[]()!&;:$@/\\\n\t\x1b\u202e\u2028\u00e9{}'\"=+", min_size=1, max_size=30)


@given(st.one_of(MARKUP, st.text(alphabet=st.characters(codec="utf-8"), min_size=1, max_size=40)))
@settings(max_examples=60, deadline=None)
def test_no_word_breaks_the_document(word: str) -> None:
    text = markdown(hostile(word))
    assert headings(text) == SECTIONS
    tokens = flat(PARSER.parse(body(text)))
    assert not {token.type for token in tokens} & {"html_block", "html_inline", "link_open", "image", "hr", "em_open"}
    assert all(re.search(r"[@#$]|GH-|://|www", token.content) for token in tokens if token.type == "code_inline")


WORDS = [
    HOSTILE, "|", "`", "``` ```", "<b>x</b>", "-->", "# a", "- [ ] x", "\u202eabc", "\x1b]0;x\x07", "1. x",
    "[a](http://e)", "![i](http://e/x.png)", "&amp; &#35;", "\u2028x", "a\\", "~~~", "    code", "\t\tx", "***",
    "=====", "caf\udce9", "\x00", "@u #1 GH-2 $a$ http://e.x/ www.e.x",
]  # fmt: skip


@pytest.mark.parametrize("word", WORDS, ids=ascii)
def test_no_field_of_any_reading_breaks_the_document(word: str) -> None:
    """Alone, and behind what stands there: log kinds and reasons' names are words from outside too, in a tape."""
    for change in (lambda _: word, lambda text: f"{text} {word}"):
        text = markdown(planted(change))
        assert headings(text) == headings(markdown(everywhere()))
        tokens = flat(PARSER.parse(body(text)))
        assert not {one.type for one in tokens} & {"html_block", "html_inline", "link_open", "image", "hr", "em_open"}
        assert all(char.isprintable() or char == "\n" for char in text)
        shown = " ".join(one.content for one in tokens if one.type == "text")
        assert not re.search(r"@u|#1\b|GH-2|https?://e|www\.e", shown)


def test_names_that_are_no_text_are_written_as_far_as_they_go() -> None:
    text = markdown(hostile("caf\udce9 \ud800"))
    assert "caf?" in text and text.encode("utf-8")


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


def test_a_simulated_server_seen_from_a_real_box_is_said() -> None:
    state = states.box()
    reading = state.last("server", ServerReading)
    assert reading is not None
    servers = tuple(msgspec.structs.replace(one, version="0.5.15+simulated") for one in reading.servers)
    lane = msgspec.structs.replace(state.lanes["server"], last=msgspec.structs.replace(reading, servers=servers))
    text = markdown(msgspec.structs.replace(state, lanes={**state.lanes, "server": lane}))
    assert "simulated: true\n" in text and "**SIMULATED**: the server is" in text
    assert "simulated: false\n" in markdown(state)


def test_runs_of_a_simulated_server_are_named_when_no_server_is_seen() -> None:
    state = states.box()
    reading = state.last("bench", BenchReading)
    assert reading is not None and reading.runs
    first, *others = reading.runs
    environment = msgspec.structs.replace(first.environment, simulated=True)
    runs = (msgspec.structs.replace(first, environment=environment), *others)
    lane = msgspec.structs.replace(state.lanes["bench"], last=msgspec.structs.replace(reading, runs=runs))
    text = markdown(msgspec.structs.replace(state, lanes={**state.lanes, "bench": lane}))
    assert "simulated: true\n" in text
    assert f"simulated server answered in {first.id}." in text
