"""An engine as far as a capture asks of it: models, streams, and a profiler that copies recorded traces."""

from __future__ import annotations

import asyncio
import json
import shutil
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from support.token_server import NOT_FOUND, Seen, Step, TokenServer, completions, reply

CAPTURES = Path(__file__).parents[1] / "captures"
SGLANG_TRACES = tuple(sorted((CAPTURES / "sglang_tp2_graph" / "prof_c1").glob("*.trace.json.gz")))
VLLM_TRACES = tuple(sorted((CAPTURES / "vllm_tp1_graph" / "prof").glob("*.trace.json.gz")))
"""A rank's, and that of the front end, which no GPU work is in."""
METRICS = b"vllm:num_requests_running 0\n"


class ProfiledEngine:
    """`async with ProfiledEngine("vllm", folder) as engine`. `folder` = where its traces go if nobody says.

    `answers[path]` replaces what is answered there; `writes` is called when it is time to write the traces.
    """

    def __init__(self, engine: str, folder: Path, traces: Sequence[Path] | None = None) -> None:
        self.engine = engine
        self.version = "0.24.0"
        self.folder = folder
        self.traces = tuple(traces if traces is not None else SGLANG_TRACES if engine == "sglang" else VLLM_TRACES)
        self.answers: dict[str, Callable[[Seen], Iterable[Step]]] = {}
        self.writes: Callable[[Path], None] = self.write
        self.profiling = False
        self.started, self.stopped = asyncio.Event(), asyncio.Event()
        self.server = TokenServer(self._script)

    async def __aenter__(self) -> ProfiledEngine:
        await self.server.__aenter__()
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.server.__aexit__(*error)

    @property
    def url(self) -> str:
        return self.server.url

    def posts(self, path: str) -> list[Seen]:
        return [seen for seen in self.server.posts if seen.path == path]

    @property
    def controls(self) -> list[str]:
        """The posts to its profiler, in order."""
        return [seen.path for seen in self.server.posts if seen.path.endswith("_profile")]

    def write(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        for trace in self.traces:
            shutil.copyfile(trace, folder / trace.name)

    def _script(self, seen: Seen) -> Iterable[Step]:
        if seen.path == "/start_profile":
            self.started.set()
        elif seen.path == "/stop_profile":
            self.stopped.set()
        if seen.path in self.answers:
            return self.answers[seen.path](seen)
        if seen.path == "/v1/models":
            card = {"id": "tiny", "object": "model", "owned_by": self.engine, "root": "tiny", "max_model_len": 4096}
            return [reply("200 OK", json.dumps({"object": "list", "data": [card]}).encode())]
        if seen.path == "/version" and self.engine == "vllm":
            return [reply("200 OK", json.dumps({"version": self.version}).encode())]
        if seen.path == "/metrics":
            return [reply("200 OK", METRICS, "text/plain; version=0.0.4")]
        if seen.path == "/start_profile":
            return self._start(seen.body or {})
        if seen.path == "/stop_profile":
            return self._stop()
        if seen.path == "/v1/completions":
            return completions(seen, itl_s=0.002)
        return [NOT_FOUND]

    def _start(self, body: dict[str, Any]) -> Iterable[Step]:
        if self.engine == "sglang":
            self.writes(Path(body.get("output_dir") or self.folder))
            return [reply("200 OK", b"Start profiling.\n", "text/plain")]
        self.profiling = True
        return [reply("200 OK", b"")]

    def _stop(self) -> Iterable[Step]:
        if self.engine == "sglang":
            return [reply("500 Internal Server Error", b"Internal Server Error", "text/plain")]
        if self.profiling:
            self.profiling = False
            self.writes(self.folder)
        return [reply("200 OK", b"")]
