"""A disk that refuses one call of a write, a later one each time."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from decodetop.errors import DecodetopError

CALLS = ("open", "write", "fsync", "fchmod", "replace", "mkdir")


def at_each_call(
    monkeypatch: pytest.MonkeyPatch, number: int, write: Callable[[], Any]
) -> Iterator[DecodetopError | None]:
    """What `write` came to when its first, second, ... call of the disk was refused with the errno `number`, for ever
    from then on; ends with the write that needed no more calls.
    """
    for good in range(100):
        left = good
        refused = False

        def refusing(real: Callable[..., Any]) -> Callable[..., Any]:
            def call(*args: Any, **more: Any) -> Any:
                nonlocal left, refused
                if left <= 0:
                    refused = True
                    raise OSError(
                        number, os.strerror(number), args[0] if isinstance(args[0], (str, os.PathLike)) else None
                    )
                left -= 1
                return real(*args, **more)

            return call

        error: DecodetopError | None = None
        with monkeypatch.context() as patched:
            for name in CALLS:
                patched.setattr(os, name, refusing(getattr(os, name)))
            try:
                write()
            except DecodetopError as caught:
                error = caught
        yield error
        if not refused:
            return
    raise AssertionError("the write never ends")
