"""NVML's return codes: which ones end a session, lose a GPU or close a field for good, and their words. Pure.

Numbers as in nvml.h (nvmlReturn_t); grouped after what each means for a reader, not after its name.
"""

from __future__ import annotations

from decodetop.errors import FailureKind, ProbeError
from decodetop.gpu.reading import GpuState

UNINITIALIZED = 1
INVALID_ARGUMENT = 2
NOT_SUPPORTED = 3
NO_PERMISSION = 4
NOT_FOUND = 6
INSUFFICIENT_SIZE = 7
DRIVER_NOT_LOADED = 9
TIMEOUT = 10
LIBRARY_NOT_FOUND = 12
FUNCTION_NOT_FOUND = 13
OPERATING_SYSTEM = 17
VERSION_MISMATCH = 18
NO_DATA = 21
ARGUMENT_VERSION_MISMATCH = 25
DEPRECATED = 26
NOT_READY = 27
GPU_NOT_FOUND = 28
UNKNOWN = 999

SESSION = frozenset({UNINITIALIZED, DRIVER_NOT_LOADED, LIBRARY_NOT_FOUND, VERSION_MISMATCH})
"""The session is over: every handle is void, nvmlInit comes next."""

GONE = frozenset({8, 11, 15, 16})
"""The GPU can't be used until something is done about it."""

OTHER_FORM = frozenset({FUNCTION_NOT_FOUND, ARGUMENT_VERSION_MISMATCH, DEPRECATED})
"""This driver has no such call: an older or newer form of it may answer."""

NEVER = OTHER_FORM | {NOT_SUPPORTED, NO_PERMISSION}
"""A field that answered this is not asked again before the next nvmlInit."""

NOT_YET = frozenset({NOT_FOUND, INSUFFICIENT_SIZE, NO_DATA, NOT_READY})
"""Normal flow: ask again next time."""

_WORDS = {
    1: "NVML is not initialised",
    INVALID_ARGUMENT: "invalid argument",
    NOT_SUPPORTED: "not supported by this GPU",
    NO_PERMISSION: "no permission",
    NOT_FOUND: "no data yet",
    INSUFFICIENT_SIZE: "no data yet",
    8: "external power is not connected",
    DRIVER_NOT_LOADED: "the driver is not loaded",
    TIMEOUT: "timed out",
    11: "interrupt problem",
    LIBRARY_NOT_FOUND: "libnvidia-ml.so.1 not found",
    FUNCTION_NOT_FOUND: "not in this driver",
    14: "the infoROM is corrupted",
    15: "the GPU is lost (fallen off the bus or dead)",
    16: "the GPU needs a reset",
    OPERATING_SYSTEM: "blocked by the operating system (has the container lost the device?)",
    VERSION_MISMATCH: "library and kernel module differ",
    20: "out of memory",
    NO_DATA: "no data yet",
    ARGUMENT_VERSION_MISMATCH: "not in this driver",
    DEPRECATED: "no longer in this driver",
    NOT_READY: "no data yet",
    GPU_NOT_FOUND: "no GPU found",
    UNKNOWN: "the driver says only 'unknown error'",
}


def words(code: int) -> str:
    """What a code means, in a few words; the number itself where we know nothing better."""
    return _WORDS.get(code, f"driver error {code}")


def state_of(code: int) -> GpuState:
    """The state of a GPU whose handle, or whose every call, answers `code`."""
    if code in GONE:
        return "lost"
    if code in (NO_PERMISSION, OPERATING_SYSTEM):
        return "denied"
    return "broken"


def _kind_of(code: int) -> FailureKind:
    if code in SESSION or code == GPU_NOT_FOUND:
        return "absent"
    state = state_of(code)
    return "broken" if state == "ok" else state


class NvmlError(ProbeError):
    """One NVML call that did not answer SUCCESS. Compared by `code` only."""

    def __init__(self, code: int, call: str) -> None:
        super().__init__(_kind_of(code), f"{call}: {words(code)}")
        self.code = code
        self.call = call
