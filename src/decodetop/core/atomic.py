"""Writing a file so that a kill, a crash or a full disk leaves the old one or the new one, never a part."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import stat
from collections.abc import Callable, Iterator
from pathlib import Path

from decodetop.core.regular import is_file, is_folder, present
from decodetop.errors import DataError

_NO_LOCKS = (errno.ENOLCK, errno.ENOTSUP, errno.ENOSYS, errno.EINVAL)
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_DENIED = (errno.EACCES, errno.EPERM, errno.EROFS)


def real_path(path: Path) -> Path:
    """The file a symbolic link leads to, so that writing does not replace the link. Raises DataError for a circle."""
    try:
        return path.resolve()
    except (OSError, RuntimeError) as error:
        raise DataError(f"can't follow {path}: {error}", "the symbolic link leads nowhere") from error


def make_folder(folder: Path) -> None:
    """With its parents, if it isn't there. Raises DataError."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise write_error(folder, error) from error


@contextlib.contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold the lock of `path` (a real path) against other decodetop processes; waits for it.

    A file system without locks is used without one. Raises DataError if the folder can't be written.
    """
    make_folder(path.parent)
    try:
        lock = os.open(path.with_name(f".{path.name}.lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    except OSError as error:
        raise write_error(path, error) from error
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
        except OSError as error:
            if error.errno not in _NO_LOCKS:
                raise write_error(path, error) from error
        yield
    finally:
        os.close(lock)


def replace(path: Path, data: bytes, still: Callable[[], bool] = lambda: True, *, durable: bool = True) -> bool:
    """Put `data` in the place of `path` (a real path), with its mode and owner; if `durable`, it survives a crash of
    the machine once this returns.

    `still` is asked last, when `data` is safely on the disk: False = leave the file as it is, and say False.
    Raises DataError with the old file intact.
    """
    if present(path) and not is_file(path) and not is_folder(path):
        # a rename would put a file in the place of a device or a pipe
        raise DataError(f"can't write {path}: it is a device or a pipe", "name a file; for a pipe use stdout")
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        try:
            _write(temporary, data, path, durable)
            if not still():
                return False
            temporary.replace(path)
        finally:
            with contextlib.suppress(FileNotFoundError):
                temporary.unlink()
        if durable:
            sync_folder(path.parent)
    except OSError as error:
        raise write_error(path, error) from error
    return True


def sweep(path: Path) -> None:
    """Under the lock: remove what killed writers of `path` left behind."""
    for left in path.parent.glob(f".{path.name}.*.tmp"):
        with contextlib.suppress(OSError):
            left.unlink()


def sync_folder(folder: Path) -> None:
    """Make a rename in `folder` durable where that can be done: the file itself is synced, and in its place already."""
    with contextlib.suppress(OSError):  # some network file systems can't, and a folder may be closed to readers
        handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def write_error(path: Path, error: OSError) -> DataError:
    """What stopped a write, in words, and what to do."""
    reason = error.strerror or str(error)
    if error.errno in _FULL:
        hint = "free some space there, or use another folder with --investigation DIR"
    elif error.errno in _DENIED:
        hint = "make the folder writable, or use another one with --investigation DIR"
    else:
        hint = "use another folder with --investigation DIR"
    return DataError(f"can't write {path}: {reason}", hint)


def _write(temporary: Path, data: bytes, like: Path, durable: bool) -> None:
    with contextlib.suppress(FileNotFoundError):
        temporary.unlink()
    handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
    try:
        rest = memoryview(data)
        while rest:
            rest = rest[os.write(handle, rest) :]
        with contextlib.suppress(FileNotFoundError):
            old = like.stat()
            os.fchmod(handle, stat.S_IMODE(old.st_mode))
            with contextlib.suppress(PermissionError):
                os.fchown(handle, old.st_uid, old.st_gid)
        if durable:
            os.fsync(handle)
    finally:
        os.close(handle)
