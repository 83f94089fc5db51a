"""What a snapshot carries beside its words: front matter, and its data in a comment; and how they are read back.

The comment is one of HTML, so that it is seen neither on GitHub nor in a browser; nothing in it can end it.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import NamedTuple

import msgspec

from decodetop.core.decode import NotDecoded, decode
from decodetop.core.encode import encode
from decodetop.core.outside import harmless_json, plain, unlinked_json
from decodetop.core.regular import read_regular, why
from decodetop.errors import DataError
from decodetop.report.data import SCHEMA, Snapshot
from decodetop.report.hashes import digest
from decodetop.server.reading import ENGINE_NAMES

BEGIN = "<!-- decodetop:data"
END = "-->"
_WHY = "read by `decodetop report --diff`; leave it as it is"
_FRONT_SCHEMA = re.compile(r"\A---\nschema: (\d+)\n")
_FRONT_DATA = re.compile(r'\A---\n(?:(?!---\n).*\n)*?  data: "([0-9a-f]+)"\n---\n')
MOST_BYTES = 64 << 20


class _Outer(msgspec.Struct):
    """What `report --json` prints."""

    data: msgspec.Raw


class _Schema(msgspec.Struct):
    schema: int


def front(snapshot: Snapshot) -> list[str]:
    """YAML whose every value is a number, a truth or a JSON string."""
    current = next(iter(snapshot.servers), None)
    engine = None
    if current is not None:
        engine = f"{ENGINE_NAMES.get(current.engine, current.engine)} {current.version or ''}".strip()
    lines = ["---", f"schema: {snapshot.schema}"]
    fields = {
        "decodetop": snapshot.decodetop,
        "made": snapshot.made,
        "host": snapshot.host,
        "question": snapshot.question,
        "engine": engine,
        "driver": snapshot.box.driver,
        "cuda": snapshot.box.cuda,
    }
    lines += [f"{name}: {_quoted(value)}" for name, value in fields.items() if value]
    lines += [f"{name}: {str(getattr(snapshot, name)).lower()}" for name in ("simulated", "anonymous")]
    lines.append("sha256:")
    lines += [f"  {name}: {_quoted(hash)}" for name, hash in snapshot.hashes.items()]
    return [*lines, f"  data: {_quoted(digest(_rows(snapshot)))}", "---"]


def data(snapshot: Snapshot) -> list[str]:
    """The comment."""
    return [f"{BEGIN} ({_WHY})", _rows(snapshot), END]


def _rows(snapshot: Snapshot) -> str:
    """JSON, a line for each of its fields."""
    whole = decode(encode(snapshot))
    rows = [f"{_quoted(name)}:{_inert(encode(value).decode())}" for name, value in whole.items()]
    return "{" + ",\n".join(rows) + "}"


class Read(NamedTuple):
    """A snapshot from a file. `edited` = the data is not what it was when it was written (markdown tells)."""

    snapshot: Snapshot
    edited: bool


def read(path: Path) -> Read:
    """The data of a snapshot as markdown, HTML or JSON. Raises DataError that says why not."""
    try:
        text = read_regular(path, MOST_BYTES).decode("utf-8", "replace")
    except OSError as error:
        hint = "give two snapshots that `decodetop report` wrote"
        raise DataError(f"can't read {path}: {why(error)}", hint) from error
    packed = _packed(text, path)
    try:
        schema = decode(packed, _Schema).schema
        if schema > SCHEMA:
            raise DataError(
                f"{path} has schema {schema}; this decodetop reads up to {SCHEMA}",
                "it was written by a newer one: upgrade",
            )
        written = _FRONT_DATA.match(text)
        edited = written is not None and written[1] != digest(packed.decode())
        return Read(decode(packed, Snapshot), edited)
    except NotDecoded as error:
        raise DataError(f"{path}: its data is damaged: {error}", "write it again from its tape") from error


def _packed(text: str, path: Path) -> bytes:
    """The JSON of the data, wherever it stands. The last comment is ours: what comes before is words from outside."""
    if text.lstrip().startswith("{"):
        try:
            return bytes(decode(text, _Outer).data)
        except NotDecoded as error:
            hint = "give what report --json printed"
            raise DataError(f"{path} holds no snapshot: {error}", hint) from error
    begin = text.rfind(BEGIN)
    line_end = text.find("\n", begin)
    end = text.find(f"\n{END}", line_end)
    if begin >= 0 and line_end >= 0 and end >= 0:
        return text[line_end:end].strip().encode()
    old = _FRONT_SCHEMA.match(text)
    if old is not None and int(old[1]) < 2:
        raise DataError(
            f"{path} has schema {old[1]}, which holds words only and no data to compare",
            "write it again from its tape: decodetop report --tape TAPE -o FILE",
        )
    lost = "its data was cut off" if old is not None or begin >= 0 else "it is no snapshot of decodetop"
    raise DataError(f"{path}: {lost}", "give two files that `decodetop report` wrote")


def _quoted(text: str) -> str:
    return unlinked_json(json.dumps(plain(text), ensure_ascii=False))


def _inert(text: str) -> str:
    """The same JSON without the letters that markup is made of."""
    for letter, code in (("<", "\\u003c"), (">", "\\u003e"), ("&", "\\u0026")):
        text = text.replace(letter, code)
    return harmless_json(text)
