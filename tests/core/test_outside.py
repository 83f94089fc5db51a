"""Whatever stands in the text, it is shown as text."""

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from decodetop.core.outside import escape, plain, unlinked

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


LINKING = "@bob (see #12), GH-7 and a/b#3: costs $5$ a@b.c x{lambda()#3}"


def test_github_links_none_of_it() -> None:
    (line,) = unlinked([escape(LINKING)])
    assert line == "`@bob` (see `#12`), `GH-7` and `a/b#3`: costs `$5$` `a@b.c` `x{lambda()#3}`"


def test_an_address_is_no_link() -> None:
    (line,) = unlinked([escape("at http://10.0.0.1:30000/v1, (HTTPS://e.x/a_b) www.e.x and ftp://e.x/; httpd, wwww")])
    assert line == "at `http://10.0.0.1:30000/v1`, (`HTTPS://e.x/a_b`) `www.e.x` and `ftp://e.x/`; httpd, wwww"


def test_code_and_what_is_no_link_stay() -> None:
    lines = ["```sh", "echo $HOME @bob", "```", "a `#1 $x` b", "C# and # 1 of 10 % at 3 pm @ noon", escape("`@`")]
    assert unlinked(lines) == lines


@given(st.text(alphabet="@#$1aG-H `*_\\<[]~|.(){}/&;", max_size=30))
@settings(max_examples=400, deadline=None)
def test_a_word_made_code_reads_as_itself(text: str) -> None:
    """Outside of code nothing is left that GitHub links, and no word is lost or changed."""
    if not plain(text):
        return
    (inline,) = [token for token in PARSER.parse("\n".join(unlinked(["- " + escape(text)]))) if token.type == "inline"]
    parts = inline.children or []
    assert {part.type for part in parts} <= {"text", "code_inline"}
    assert "".join(part.content for part in parts) == plain(text)
    shown = " ".join(part.content for part in parts if part.type == "text")
    assert not re.search(r"@[A-Za-z0-9]|#\d|\$|\bGH-\d", shown)
