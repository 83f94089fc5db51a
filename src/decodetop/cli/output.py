"""Where `-o` writes: a file, under the usual name in a folder, or a device such as /dev/stdout."""

from __future__ import annotations

from pathlib import Path

from decodetop.cli.common import complain
from decodetop.core.atomic import real_path, replace
from decodetop.errors import DataError

HINT = "name a file in a folder that can be written, or leave -o out"


def output_path(output: Path | None, usual: str) -> Path | None:
    """The file to write; None = standard output."""
    return output / usual if output is not None and output.is_dir() else output


def write_output(path: Path | None, text: str) -> None:
    """Whole or not at all, and said. Raises DataError."""
    if path is None:
        return
    data = text.encode("utf-8")
    try:
        if path.is_relative_to("/dev"):
            with path.open("wb") as stream:  # /dev/stdout and the like, whatever it is now
                stream.write(data)
        else:
            replace(real_path(path), data)
    except DataError as error:
        raise DataError(error.message, HINT) from error
    except OSError as error:
        raise DataError(f"can't write {path}: {error.strerror}", HINT) from error
    complain(f"wrote {path}")
