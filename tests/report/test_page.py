"""The page: one file, no script, nothing fetched, all text text; and what the bug templates ask for."""

from __future__ import annotations

from collections.abc import Callable
from html.parser import HTMLParser

import pytest

from decodetop.core.state import State
from decodetop.report import report
from decodetop.report.environment import environment
from decodetop.report.page import page
from support import states
from support.hostile import HOSTILE, hostile, planted

VOID = {"meta", "hr", "br"}
OURS = {
    "html", "head", "meta", "title", "style", "body", "h1", "h2", "h3", "p", "ul", "ol", "li", "table", "thead",
    "tbody", "tr", "th", "td", "pre", "code", "strong", "em", "s", "blockquote", "br",
}  # fmt: skip


class Seen(HTMLParser):
    """Tags in order, that they close, and what they refer to."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.open: list[str] = []
        self.refers: list[str] = []
        self.handlers: list[str] = []
        self.words: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.refers += [name for name, _ in attrs if name in ("src", "href", "action", "srcset", "data")]
        self.handlers += [name for name, _ in attrs if name.startswith("on")]
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.words.append(data)


def seen(text: str) -> Seen:
    parser = Seen()
    parser.feed(text)
    parser.close()
    return parser


@pytest.mark.parametrize("name", ["box", "hostile", "planted", "bare"])
def test_one_page_of_known_tags_that_fetches_and_runs_nothing(name: str) -> None:
    states_of: dict[str, Callable[[], State]] = {
        "box": states.box, "hostile": hostile, "planted": lambda: planted(lambda _: HOSTILE), "bare": states.bare,
    }  # fmt: skip
    state = states_of[name]()
    text = page(report(state))
    found = seen(text)
    assert found.open == [] and set(found.tags) <= OURS and found.refers == [] and found.handlers == []
    assert "default-src 'none'" in text and "@media print" in text and "url(" not in text
    titles = [word for word in found.words if word.strip() in ("In short", "What is next", "Decode step")]
    assert titles == ["In short", "Decode step", "What is next"]


def test_boxes_of_the_checklist_are_drawn() -> None:
    text = page(report(states.box()))
    assert '<li class="task">☑ <s>trtllm_mla backend</s> (medium, cancelled)' in text
    assert '<li class="task">☐ Profile SGLang decode' in text and "[x]" not in text


def test_tables_have_as_many_rows_as_the_markdown() -> None:
    found = report(states.box())
    rows = [line for line in found.body.splitlines() if line.startswith("|") and not set(line) <= set("|-: ")]
    assert seen(page(found)).tags.count("tr") == len(rows) > 20


def test_sglang_gets_what_its_template_asks_for() -> None:
    text = environment(states.box(), "sglang")
    assert text.startswith("### Reproduction\n\n```sh\npython -m sglang.launch_server --disable-cuda-graph")
    for line in (
        "GPU 0,1: NVIDIA H200",
        "CUDA Driver Version: 570.86.15",
        "sglang: 0.5.15",
        "PyTorch: not known to decodetop",
        "NVIDIA Topology: not known to decodetop",
        "| CUDA graphs | OFF |",
        "TPOT            19.3     19.3     21.2     25.1         8",
    ):
        assert line in text, line


def test_vllm_gets_its_own_and_its_own_server() -> None:
    text = environment(states.box(server_count=2), "vllm")
    assert "vLLM Version: 0.14.0" in text and "== CUDA / GPU Info ==" in text and "sglang" not in text
    assert "Model: moe-30b" in text and "The command line is not known" in text
    assert "No benchmark of this server" in text


@pytest.mark.parametrize("engine", ["sglang", "vllm"])
def test_a_box_where_nothing_is_seen_says_so_field_by_field(engine: str) -> None:
    text = environment(states.bare(), engine)
    assert "server is seen here" in text and "GPU: none seen (no NVIDIA driver here)" in text
    assert text.count("not known to decodetop") > 10 and "None" not in text
