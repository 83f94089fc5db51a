"""A snapshot as one HTML page: made from its markdown, prints well, fetches nothing, runs nothing."""

from __future__ import annotations

from html import escape

from decodetop.core.outside import plain
from decodetop.report import block
from decodetop.report.document import Report

_STYLE = """
:root { color-scheme: light dark; }
body { font: 15px/1.5 system-ui, sans-serif; max-width: 72rem; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.6rem; } h2 { font-size: 1.25rem; margin-top: 2rem; border-bottom: 1px solid #8886; }
h3 { font-size: 1.05rem; }
table { border-collapse: collapse; display: block; overflow-x: auto; font-variant-numeric: tabular-nums; }
th, td { border: 1px solid #8886; padding: .15rem .5rem; vertical-align: top; overflow-wrap: anywhere; }
pre { overflow-x: auto; padding: .6rem; background: #8881; font: 13px/1.35 ui-monospace, monospace; }
blockquote { margin-left: 0; padding-left: .8rem; border-left: 3px solid #c60; }
li.task { list-style: none; margin-left: -1.3rem; }
@page { margin: 14mm; }
@media print {
  body { max-width: none; margin: 0; padding: 0; font-size: 9.5pt; color: #000; }
  table { display: table; width: 100%; } pre { white-space: pre-wrap; font-size: 7.5pt; }
  h1, h2, h3 { break-after: avoid; } tr, pre, li { break-inside: avoid; }
}
"""
_BOXES = {"<li>[ ] ": '<li class="task">☐ ', "<li>[x] ": '<li class="task">☑ '}


def page(report: Report) -> str:
    """The whole page; `decodetop report --diff` reads its data as well. Text from outside is escaped twice over:
    markdown keeps it text, and no HTML in it is taken for such.
    """
    from markdown_it import MarkdownIt

    parser = MarkdownIt("commonmark", {"html": False}).enable(["table", "strikethrough"])
    body = parser.render(report.body)
    for words, box in _BOXES.items():
        body = body.replace(words, box)
    head = [
        "<!doctype html>",
        '<html lang="en">',
        "<head>",
        '<meta charset="utf-8">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">",
        f'<meta name="generator" content="decodetop {escape(report.data.decodetop)}">',
        f"<title>{escape(plain(report.title))}</title>",
        f"<style>{_STYLE}</style>",
        "</head>",
        "<body>",
    ]
    return "\n".join([*head, body.rstrip("\n"), *block.data(report.data), "</body>", "</html>"]) + "\n"
