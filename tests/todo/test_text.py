"""The checklist in words."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from decodetop.core.clock import SECOND_NS
from decodetop.todo import text
from decodetop.todo.reading import (
    Attempt,
    Evidence,
    FollowedPlan,
    FollowedTodo,
    FollowReading,
    StatusChange,
    Todo,
    TodoReading,
)

WALL_NS = 1_796_000_000 * SECOND_NS
READING = TodoReading(
    path="/inv/todo.json",
    title="why 51 tok/s?",
    todos=(
        Todo(
            id="t1",
            content="Profile decode",
            status="in_progress",
            priority="high",
            notes="first\nsecond",
            hypothesis="casts",
            attempts=(Attempt(change="trtllm_mla", outcome="failed", reason="page_size == 64", wall_ns=WALL_NS),),
            evidence=(Evidence(kind="run", ref="#4", summary="51.7 tok/s"),),
            status_history=(
                StatusChange(status="pending", wall_ns=WALL_NS),
                StatusChange(status="in_progress", wall_ns=WALL_NS + 60 * SECOND_NS),
            ),
        ),
        Todo(id="t12", content="Read trace", status="completed", parent="t1", depth=1),
        Todo(id="t3", content="", status="on hold", blocked_by=("t1",), conflicts=("content: other",)),
        Todo(id="t4", content="FP8 backend", status="cancelled", priority="low", reason="qk_nope_head_dim"),
    ),
)


def test_plain_lines() -> None:
    assert text.lines(READING) == [
        "why 51 tok/s?",
        "  #1 ▶ t1   Profile decode  high",
        "            hypothesis: casts",
        "            first",
        "            second",
        "            tried trtllm_mla: failed: page_size == 64 (2026-11-30 00:53Z)",
        "            run #4: 51.7 tok/s",
        "            pending 2026-11-30 00:53Z, in progress 2026-11-30 00:54Z",
        "  #2 ✓ t12    Read trace",
        "  #3 ? t3   – [on hold]",
        "            blocked by t1",
        "            an outside edit wanted content: other",
        "  #4 ✗ t4   FP8 backend  low",
        "            reason: qk_nope_head_dim",
        "1 open, 1 in progress, 2 closed",
    ]
    assert len(text.lines(READING, details=False)) == 6
    assert text.lines(TodoReading(path="x")) == [
        "nothing to do yet: decodetop todo add TEXT, or decodetop todo import FILE"
    ]


def test_markdown_section() -> None:
    assert text.markdown(READING) == [
        "## Checklist",
        "",
        "- [ ] Profile decode (high, in progress)",
        "  - hypothesis: casts",
        "  - first",
        "  - second",
        "  - tried trtllm_mla: failed: page_size == 64 (2026-11-30 00:53Z)",
        "  - run #4: 51.7 tok/s",
        "  - pending 2026-11-30 00:53Z, in progress 2026-11-30 00:54Z",
        "  - [x] Read trace",
        "- [ ] – (on hold)",
        "  - blocked by t1",
        "  - an outside edit wanted content: other",
        "- [x] ~~FP8 backend~~ (low, cancelled)",
        "  - reason: qk_nope_head_dim",
        "",
        "1 open, 1 in progress, 2 closed.",
    ]
    assert text.markdown(TodoReading(path="x", problem="broken | file", unsaved="disk full")) == [
        "## Checklist",
        "",
        "> broken \\| file",
        "",
        "> not saved: disk full",
        "",
        "Empty.",
    ]


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.one_of(st.text(max_size=30), st.text("#>+-=*_1.) `~|<&;[]\\ab\n", max_size=12)), min_size=1, max_size=3)
)
def test_no_words_break_the_report_or_the_terminal(contents: list[str]) -> None:
    todos = tuple(Todo(id=f"t{n}", content=content, notes=content or None) for n, content in enumerate(contents))
    reading = TodoReading(path="x", todos=todos)
    for line in text.lines(reading):
        assert line.isprintable()
    section = text.markdown(reading)
    tokens = MarkdownIt("gfm-like", {"linkify": False}).parse("\n".join(section))
    notes = [line for content in contents for line in content.split("\n") if text.plain(line)]
    assert {token.type for token in tokens} <= {
        *("heading_open", "heading_close", "inline", "paragraph_open", "paragraph_close"),
        *("bullet_list_open", "bullet_list_close", "list_item_open", "list_item_close"),
    }, "nothing in the words begins a quote, a rule, a list or a heading of its own"
    assert sum(token.type == "heading_open" for token in tokens) == 1
    assert sum(token.type == "list_item_open" for token in tokens) == len(contents) + len(notes)
    shown = [
        "".join(child.content for child in token.children or ())
        for token in tokens
        if token.type == "inline" and all(child.type in ("text", "text_special") for child in token.children or ())
    ]
    for words in [text.plain(content) for content in contents]:
        assert f"[ ] {words}" in shown or not words, "nothing in the words is read as markup"
    for words in map(text.plain, notes):
        assert words in shown or not words


def test_agents_plans() -> None:
    todos = (
        FollowedTodo(content="a", status="in_progress"),
        FollowedTodo(content="b", status="odd", gone=True),
    )
    plan = FollowedPlan(agent="Codex", session="s1", path="/x", todos=todos, problem="half written")
    reading = FollowReading(plans=(plan,), searched=("~/.codex",), reasons={"~/.claude": "denied"})
    assert text.follow_lines(reading) == [
        "Codex s1  /x",
        "  half written",
        "  ▶ a",
        "  ? b [odd]  (gone)",
        "~/.claude: denied",
    ]
    assert text.follow_lines(FollowReading(searched=("~/.codex",))) == ["no agent's plan found in ~/.codex"]
