"""Which files of a profiler's folder are the ranks of one capture. Blocking."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from decodetop.errors import TraceError

NOT_A_RANK = (".async_llm.", "graph_capture", "-memory", "-EXTEND.")
"""vLLM's front end (no GPU work), traces of graph captures, memory snapshots, prefills where SGLang profiles by stage.
Its `merged-` repeats the ranks."""
TOGETHER_S = 120.0
"""The ranks of a capture write their files within so long; older ones are of an earlier capture."""

_STAMP = re.compile(r"\d{9,}(?:\.\d+)?")
"""SGLang's names begin with a time in s, vLLM's hold one in ns; both are of the epoch."""
_EPOCH_S_MAX = 1e11


def is_rank(name: str) -> bool:
    """Whether a file of this name is a rank's trace. Engines write `.tmp` files first and rename them."""
    traced = name.endswith((".trace.json.gz", ".trace.json"))
    return traced and not name.startswith(("merged-", ".")) and not any(word in name for word in NOT_A_RANK)


def ranks_in(paths: Sequence[str]) -> list[str]:
    """`paths` with each folder replaced by the traces of its newest capture. Raises TraceError where it holds none."""
    found: list[str] = []
    for path in paths:
        found += [str(rank) for rank in newest(Path(path))] if Path(path).is_dir() else [path]
    return found


def newest(folder: Path) -> tuple[Path, ...]:
    """The newest trace of each rank that belongs to the newest capture, by name. Raises TraceError."""
    try:
        traces = [path for path in folder.iterdir() if is_rank(path.name) and path.is_file()]
        made_s = {path: _made_s(path) for path in traces}
    except OSError as error:
        raise TraceError(f"can't read {folder}: {error.strerror or error}") from error
    if not traces:
        raise TraceError(f"no profiler traces in {folder}", "they end in .trace.json or .trace.json.gz")
    last_s = max(made_s.values())
    ranks: dict[str, Path] = {}
    for path in sorted(traces, key=lambda path: (made_s[path], path.name)):
        if last_s - made_s[path] <= TOGETHER_S:
            ranks[_STAMP.sub("", path.name)] = path
    return tuple(sorted(ranks.values()))


def _made_s(path: Path) -> float:
    """Seconds of the epoch by the name, else by the file's date. Raises OSError."""
    stamp = _STAMP.search(path.name)
    if stamp is None:
        return path.stat().st_mtime
    made = float(stamp.group())
    while made > _EPOCH_S_MAX:
        made /= 1000
    return made
