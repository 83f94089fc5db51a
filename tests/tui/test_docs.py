"""The pages on keys and themes are in step with the tables in the code. DECODETOP_GOLDEN=1 writes their parts anew."""

from __future__ import annotations

import os
import re
import tomllib
from pathlib import Path

from decodetop.steps.reading import KINDS
from decodetop_tui.keymap import NAMED_KEYS, build
from decodetop_tui.keys import ACTIONS, markdown
from decodetop_tui.theme import ATTRIBUTES, SHIPPED, fields_markdown

DOCS = Path(__file__).resolve().parents[2] / "docs"


def part(path: Path, name: str, lines: list[str]) -> None:
    """What stands between `<!-- name: ... -->` and `<!-- end of name -->` is `lines`."""
    text = path.read_text("utf-8")
    found = re.search(rf"(<!-- {name}: .*? -->\n)(.*?)(<!-- end of {name} -->)", text, re.DOTALL)
    assert found is not None
    wanted = "".join(f"{line}\n" for line in lines)
    if os.environ.get("DECODETOP_GOLDEN"):
        path.write_text(text[: found.start(2)] + wanted + text[found.end(2) :], "utf-8")
    else:
        assert found[2] == wanted


def test_the_keys_on_the_page_are_the_keys_of_the_table() -> None:
    part(DOCS / "keys.md", "keys", ["", *markdown(build(ACTIONS, {})), ""])


def test_the_named_keys_are_all_named() -> None:
    text = (DOCS / "keys.md").read_text("utf-8")
    for key in NAMED_KEYS:
        assert f"`{key}`" in text or re.fullmatch(r"f\d+|ctrl\+[^abcijmqsz]", key), key


def test_the_example_of_own_keys_is_accepted() -> None:
    example = re.search(r"```toml\n(\[keys\].*?)```", (DOCS / "keys.md").read_text("utf-8"), re.DOTALL)
    assert example is not None
    assert build(ACTIONS, tomllib.loads(example[1])["keys"]).problems == ()


def test_the_fields_of_a_theme_on_the_page_are_those_of_the_code() -> None:
    part(DOCS / "themes.md", "fields", ["", *fields_markdown(), ""])


def test_the_page_names_every_theme_attribute_and_kind() -> None:
    text = (DOCS / "themes.md").read_text("utf-8")
    assert all(f"`{name}`" in text for name in (*SHIPPED, *KINDS))
    assert all(f"[{word}]" in text for word in ATTRIBUTES if word != "not")
