"""Files that somebody named, opened for reading: a pipe or a device under that name must not hold us up.

All errors are OSErrors whose `strerror` says what is wrong in words.
"""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path
from typing import BinaryIO

from decodetop.errors import UsageError

TEXT_MAX_BYTES = 16 << 20
"""Settings, themes, presets, tables: a larger file is none of them."""


def open_regular(path: Path) -> BinaryIO:
    """For reading. The null device reads as an empty file, anything else that is no file is refused unopened."""
    _refuse(path, path.stat())
    # what is a file now may be a pipe when it is opened: then this returns at once, and the second look refuses it
    handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    try:
        _refuse(path, os.fstat(handle))
        return os.fdopen(handle, "rb")
    except BaseException:
        os.close(handle)
        raise


def read_regular(path: Path, max_bytes: int = TEXT_MAX_BYTES) -> bytes:
    """All of a file that holds at most `max_bytes`."""
    with open_regular(path) as file:
        data = file.read(max_bytes + 1)
    if len(data) > max_bytes:
        raise OSError(errno.EFBIG, f"it is larger than {size_words(max_bytes)}", str(path))
    return data


def read_text(path: Path, max_bytes: int = TEXT_MAX_BYTES) -> str:
    """As `read_regular`; also raises UnicodeDecodeError. A byte order mark is left out."""
    return read_regular(path, max_bytes).decode("utf-8-sig")


def why(error: OSError | UnicodeDecodeError) -> str:
    """Why a file can't be read, in words."""
    return error.strerror or str(error) if isinstance(error, OSError) else f"it is not UTF-8 text (byte {error.start})"


def size_words(max_bytes: int) -> str:
    """`64 MiB`."""
    return f"{max_bytes >> 30} GiB" if max_bytes >= 1 << 30 else f"{max_bytes >> 20} MiB"


def named_path(text: str | Path, what: str) -> Path:
    """The path that `what` (an option, a setting) names, `~` expanded. Raises UsageError for one that can't be."""
    try:
        if not str(text).strip():
            raise UsageError(f"{what} is empty", "give a path, or leave it out")
        if "\0" in str(text):
            raise UsageError(f"{what} holds a null byte", "give a path")
        return Path(text).expanduser()
    except RuntimeError as error:
        user = str(text).partition("/")[0]
        raise UsageError(f"{what}: {user} is nobody's home on this box", f"write ./{user} for a file") from error


def present(path: Path) -> bool:
    """Whether it is there, as far as that can be told: in a folder that may not be entered nothing is."""
    try:
        return path.exists()
    except OSError:
        return False


def is_folder(path: Path) -> bool:
    """As `present`."""
    try:
        return path.is_dir()
    except OSError:
        return False


def is_file(path: Path) -> bool:
    """As `present`."""
    try:
        return path.is_file()
    except OSError:
        return False


def is_root(path: Path) -> bool:
    """Whether it is the folder above all others, by whatever name."""
    whole = Path(os.path.normpath(path.absolute()))
    return whole == whole.parent


def home() -> Path | None:
    """The home folder; None for an account that has none."""
    try:
        return Path.home()
    except RuntimeError:
        return None


def _refuse(path: Path, found: os.stat_result) -> None:
    if stat.S_ISREG(found.st_mode) or (
        stat.S_ISCHR(found.st_mode) and found.st_rdev == Path(os.devnull).stat().st_rdev
    ):
        return
    kinds = ((stat.S_ISDIR, "a folder"), (stat.S_ISFIFO, "a pipe"), (stat.S_ISSOCK, "a socket"))
    what = next((words for is_kind, words in kinds if is_kind(found.st_mode)), "a device")
    number = errno.EISDIR if what == "a folder" else errno.EINVAL
    raise OSError(number, f"it is {what}, not a file", str(path))
