"""The demo's temporary folder: locked while its demo lives, so that the next one can take away what a kill left."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from decodetop.errors import DataError

PREFIX = "decodetop-demo-"
LOCK = "lock"


@contextlib.contextmanager
def demo_folder() -> Iterator[Path]:
    """A new folder, gone afterwards; abandoned ones go before. Raises DataError where none can be made."""
    _sweep(Path(tempfile.gettempdir()))
    try:
        folder = Path(tempfile.mkdtemp(prefix=PREFIX))
        lock = _locked(folder)
    except OSError as error:
        where = tempfile.gettempdir()
        raise DataError(
            f"no folder for the demo in {where}: {error.strerror}", "set TMPDIR to another place"
        ) from error
    try:
        yield folder
    finally:
        _remove(folder)
        os.close(lock)


def _locked(folder: Path) -> int:
    """The lock has its name only once it is held: a folder with a free lock has no demo."""
    fresh = folder / f"{LOCK}.new"
    lock = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with contextlib.suppress(OSError):  # a file system without locks: then nobody can take it either
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        fresh.rename(folder / LOCK)
    return lock


def _sweep(where: Path) -> None:
    """Take away folders of ours whose demo is gone; what is not surely that stays."""
    for folder in where.glob(f"{PREFIX}*"):
        try:
            if folder.is_symlink() or folder.stat().st_uid != os.getuid():
                continue
            lock = os.open(folder / LOCK, os.O_WRONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        except OSError:
            continue
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            _remove(folder)
        except OSError:
            pass
        finally:
            os.close(lock)


def _remove(folder: Path) -> None:
    """The lock goes last: what is left of a folder somebody still writes into is found again by it."""
    with contextlib.suppress(OSError):
        for entry in folder.iterdir():
            if entry.is_dir() and not entry.is_symlink():
                shutil.rmtree(entry, ignore_errors=True)
            elif entry.name != LOCK:
                entry.unlink(missing_ok=True)
        if {entry.name for entry in folder.iterdir()} <= {LOCK}:
            shutil.rmtree(folder, ignore_errors=True)
