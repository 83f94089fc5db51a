"""Whatever stands in the text, it is shown as text."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from decodetop.core.outside import escape, plain

PARSER = MarkdownIt("commonmark").enable(["table", "strikethrough"])


@pytest.mark.parametrize("frame", ["{}", "- {}", "# {}", "> {}"])
@given(st.text(max_size=40) | st.text(alphabet="#-+=*_`~[]()<>|&\\ 12.)x\n\t!", max_size=20))
@settings(max_examples=200, deadline=None)
def test_escaped_text_reads_as_itself(frame: str, text: str) -> None:
    if not plain(text):
        return
    tokens = PARSER.parse(frame.format(escape(text)))
    inlines = [token for token in tokens if token.type == "inline"]
    assert len(inlines) == 1, [token.type for token in tokens]
    assert {child.type for child in inlines[0].children or []} <= {"text"}
    assert "".join(child.content for child in inlines[0].children or []) == plain(text)


@given(st.text(max_size=40))
def test_a_cell_stays_one_cell(text: str) -> None:
    tokens = PARSER.parse(f"| a | b |\n|---|---|\n| {escape(text)} | end |\n")
    assert [token.type for token in tokens].count("td_open") == 2


def test_nothing_moves_the_cursor() -> None:
    assert plain("a\x1b[2Jb\r\nc\u202ed\x00\u2028e") == "a [2Jb c d e"
