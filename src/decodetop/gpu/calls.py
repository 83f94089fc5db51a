"""How nvidia-ml-py is called: found, asked under a count, its errors turned into one type. Blocks."""

from __future__ import annotations

import importlib
import threading
import warnings
from collections.abc import Callable
from types import ModuleType
from typing import Any, TypeVar

from decodetop.errors import ProbeError
from decodetop.gpu.codes import (
    FUNCTION_NOT_FOUND,
    GONE,
    INVALID_ARGUMENT,
    NOT_SUPPORTED,
    OTHER_FORM,
    SESSION,
    UNKNOWN,
    NvmlError,
)
from decodetop.gpu.library import Handle

T = TypeVar("T")

_OTHER_CALL = OTHER_FORM | {NOT_SUPPORTED, INVALID_ARGUMENT}


def load() -> ModuleType:
    """The module `pynvml` if it is nvidia-ml-py; other distributions install their own under that name.

    Raises ProbeError. Warnings of its import are dropped: they would land on the screen.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            module = importlib.import_module("pynvml")
        except ImportError as error:
            raise ProbeError("broken", f"can't import pynvml: {error}", "pip install nvidia-ml-py") from error
    wanted = ("_nvmlGetFunctionPointer", "nvmlMemory_v2", "nvmlDeviceGetComputeRunningProcesses_v3", "nvmlGpmSampleGet")
    if not all(hasattr(module, name) for name in wanted):
        raise ProbeError(
            "broken",
            f"the module pynvml in {module.__file__} is not (a recent) nvidia-ml-py",
            "pip uninstall pynvml nvidia-ml-py3, then pip install --force-reinstall nvidia-ml-py",
        )
    return module


class Calls:
    """One call each, from any thread."""

    def __init__(self, module: ModuleType | None = None) -> None:
        self._module: Any = load() if module is None else module
        self._absent: set[str] = set()
        self._lock = threading.Lock()
        self._calls = 0

    @property
    def calls(self) -> int:
        return self._calls

    def _unless_refused(self, ask: Callable[[Handle], T], one: Handle) -> T | None:
        """None where `one` does not answer; raises NvmlError when it, or the session, is over."""
        try:
            return ask(one)
        except NvmlError as error:
            if error.code in GONE or error.code in SESSION:
                raise
            return None

    def _ask_either(self, new: tuple[Any, ...], old: tuple[Any, ...]) -> Any:
        """The newer call, or the older where the driver has no such call or answers only the older form."""
        if new[0] in self._absent:
            return self._ask(*old)
        try:
            return self._ask(*new)
        except NvmlError as error:
            if error.code not in _OTHER_CALL:
                raise
        answer = self._ask(*old)
        self._absent.add(new[0])
        return answer

    def _ask(self, name: str, *arguments: Any) -> Any:
        """One call. pynvml's errors can be neither hashed nor compared, so only their number goes on.

        A symbol the driver lacks raises FunctionNotFound or, for the unversioned process lists, an unrelated class.
        """
        function = getattr(self._module, name, None)
        if function is None:
            raise NvmlError(FUNCTION_NOT_FOUND, name)
        with self._lock:
            self._calls += 1
        try:
            return function(*arguments)
        except self._module.NVMLError as error:
            code = int(error.value) or UNKNOWN
        except self._module.NVMLLibraryMismatchError:
            code = FUNCTION_NOT_FOUND
        except UnicodeDecodeError:
            code = UNKNOWN
        raise NvmlError(code, name)
