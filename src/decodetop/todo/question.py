"""What the investigation asks: `investigation.json`, {"schema": 1, "question": "..."}; unknown fields are kept."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from decodetop.core.atomic import locked, real_path, replace, sweep
from decodetop.core.decode import decode_lax
from decodetop.core.regular import read_text
from decodetop.errors import DataError

FILE_NAME = "investigation.json"
SCHEMA = 1


def read_question(folder: Path) -> str | None:
    """None if it has not been written. Raises DataError if the file can't be read."""
    question = _read(folder / FILE_NAME).get("question")
    return question if isinstance(question, str) and question.strip() else None


def write_question(folder: Path, question: str) -> None:
    """Raises DataError; the old file is intact then."""
    write_fields(folder, question=" ".join(question.split()))


def read_fields(folder: Path) -> dict[str, Any]:
    """All that is written of the investigation. Raises DataError if the file can't be read."""
    return _read(folder / FILE_NAME)


def write_fields(folder: Path, **fields: Any) -> None:
    """Change these, None = take away; the others stay. Raises DataError; the old file is intact then."""
    target = real_path(folder / FILE_NAME)
    with locked(target):
        sweep(target)
        whole = {"schema": SCHEMA, **_read(target), **fields}
        whole = {name: value for name, value in whole.items() if name not in fields or value is not None}
        if whole["schema"] != SCHEMA:
            message = (
                f"{target} has schema {whole['schema']!r}; this decodetop writes schema {SCHEMA} and leaves it alone"
            )
            raise DataError(message, "a newer decodetop wrote it: use that one, or another --investigation DIR")
        replace(target, json.dumps(whole, indent=2, ensure_ascii=False).encode() + b"\n")


def _read(path: Path) -> dict[str, Any]:
    try:
        parsed = decode_lax(read_text(path))
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise DataError(f"can't read {path}: {error.strerror}", "check its permissions") from error
    except ValueError as error:
        raise DataError(f"{path} is not JSON: {error}", 'it should be {"schema": 1, "question": "..."}') from error
    if not isinstance(parsed, dict):
        raise DataError(f"{path} holds no object", 'it should be {"schema": 1, "question": "..."}')
    return parsed
