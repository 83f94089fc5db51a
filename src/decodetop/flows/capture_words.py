"""Why a profile brought no trace that can be read, and what to do about it. One line each."""

from __future__ import annotations

import os
from pathlib import Path

from decodetop.errors import TraceError
from decodetop.flows.capture_load import Unprofiled
from decodetop.flows.capture_place import Place
from decodetop.server.reading import Server


def by_hand(unprofiled: Unprofiled) -> str:
    known = f" --itl-ms {unprofiled.itl_ms:.4g}" if unprofiled.itl_ms is not None else ""
    return f"copy them here and open them: o, or decodetop steps FILE..{known}"


def unseen(server: Server, place: Place, unprofiled: Unprofiled) -> TraceError:
    default = {"vllm": "the torch_profiler_dir it was started with"}
    where = place.named or default.get(server.engine, "SGLANG_TORCH_PROFILER_DIR, or /tmp where that is not set")
    message = (
        f"{server.endpoint} was profiled; its traces can't be read from here ({place.why}). There they are in {where}"
    )
    return TraceError(message, by_hand(unprofiled))


def no_files(server: Server, place: Place, waited_s: float, unprofiled: Unprofiled) -> TraceError:
    message = f"{server.endpoint} was profiled, but no trace came to {place.named} within {waited_s:.0f} s"
    hint = f"in a container that folder is its own: {by_hand(unprofiled)}; else the server's log says why"
    return TraceError(message, hint)


def nothing(server: Server, place: Place) -> TraceError:
    return TraceError(
        f"{server.endpoint} was profiled, but no trace came to {place.named}", "the server's log says why"
    )


def growing(path: Path, waited_s: float) -> TraceError:
    message = f"the trace {path} still grows after {waited_s / 60:.0f} min"
    return TraceError(message, "its end is not waited for; when it is whole: decodetop steps FILE")


def unfinished(path: Path) -> TraceError:
    if not os.access(path, os.R_OK):
        return TraceError(f"can't read the trace {path}: permission denied", "run decodetop as the server's user")
    message = f"the trace {path} was never finished"
    return TraceError(message, f"no room on the server's disk? decodetop steps {path} reads what there is")
