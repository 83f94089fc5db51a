"""The source `server`: finds the servers, polls all of them at once, and says which one is meant."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from decodetop.core.clock import SECOND_NS, Clock, Late, within
from decodetop.core.engine import Context
from decodetop.core.sample import Command
from decodetop.core.source import Refresh
from decodetop.core.thread import CallThread
from decodetop.errors import RequestError
from decodetop.server.client import host_port
from decodetop.server.discover import Proc, Scan, is_local, scan
from decodetop.server.processes import PORTS
from decodetop.server.reading import ChooseServer, Server, ServerReading, TryGeneration
from decodetop.server.watch import Watch

SCAN_S = 10.0
SCAN_AGAIN_S = 2.0
"""For a while after a server of this box went down, its successor is looked for this often."""
SCAN_WAIT_S = 3.0
FIRST_WAIT_S = 3.0
WAIT_S = 0.8
"""How long a reading waits for the slowest server; a slower one is shown as it was, and goes on by itself."""
GONE_S = 60.0
"""How long a server whose process ended stays listed while another one is up."""
CONNECT_S = 1.0
NOT_A_SERVER_S = 300.0
"""How long a usual port where something else answers is left alone."""


class ServerProbe:
    """`endpoints` are asked in any case, with `api_key`; the box is searched too unless `discover` is off. `log` is
    the file a server without metrics writes to, where its standard output or its unit's journal is not it.

    When no process is seen, the engines' usual ports are tried on loopback (a container shows its port only).
    """

    source = "server"
    period_s = 1.0
    deadline_s = 10.0

    def __init__(
        self,
        clock: Clock,
        *,
        endpoints: Sequence[str] = (),
        api_key: str | None = None,
        discover: bool = True,
        usual_ports: bool = True,
        proc: Proc | None = None,
        log: Path | None = None,
    ) -> None:
        self._clock = clock
        self._key = api_key
        self._log = log
        self._named = tuple(dict.fromkeys(endpoints))
        self._discover = discover
        self._usual_ports = usual_ports
        self._proc = proc or Proc()
        self._thread = CallThread("decodetop-processes")
        self._scan = Scan()
        self._watches = {endpoint: self._watch(endpoint, explicit=True) for endpoint in self._named}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._scan_task: asyncio.Task[None] | None = None
        self._scan_due_ns = 0
        self._not_servers: dict[str, int] = {}
        self._chosen: str | None = None
        self._current: str | None = None

    @property
    def searching(self) -> bool:
        """Whether a look at this box is under way."""
        return self._scan_task is not None and not self._scan_task.done()

    async def read(self) -> ServerReading:
        await self._look_around()
        for endpoint, watch in self._watches.items():
            if endpoint not in self._tasks or self._tasks[endpoint].done():
                self._tasks[endpoint] = asyncio.ensure_future(watch.poll())
        await self._wait()
        await self._drop_gone()
        servers = tuple(watch.server for watch in self._watches.values())
        self._current = self._choose()
        return ServerReading(servers=servers, current=self._current, searched=self._searched())

    def choose(self, endpoint: str) -> None:
        """Make it the current server, until another is chosen. Raises RequestError for one that is not listed."""
        self._listed(endpoint)
        self._chosen = endpoint

    async def generate(self, endpoint: str) -> None:
        """Let it generate one token. Raises RequestError for one that is not listed."""
        self._listed(endpoint)
        await self._watches[endpoint].generate()

    def _listed(self, endpoint: str) -> None:
        if endpoint not in self._watches:
            known = ", ".join(self._watches) or "none"
            raise RequestError(f"no server {endpoint} is watched", f"known: {known}")

    async def snapshot(self, endpoint: str) -> Server:
        """One server as it is now: identity, settings and counters, asked anew. Its `status` says if it answered."""
        if self._discover and not self._scan.processes:
            await self._look_around()
        watch = self._watches.get(endpoint)
        if watch is not None:
            await watch.poll()
            return watch.server
        named = self._placed_at(endpoint) in map(self._placed_at, self._named)
        watch = self._watch(endpoint, explicit=named)
        self._place(watch)
        try:
            await watch.poll()
        finally:
            await watch.close()
        return watch.server

    async def close(self) -> None:
        tasks = [task for task in (*self._tasks.values(), self._scan_task) if task is not None]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
        for watch in self._watches.values():
            await watch.close()
        self._thread.close()

    def _watch(self, endpoint: str, *, explicit: bool) -> Watch:
        log = self._log if self._has_the_log(endpoint) else None
        return Watch(endpoint, self._clock, self._thread, explicit=explicit, api_key=self._key, log=log)

    def _has_the_log(self, endpoint: str) -> bool:
        """The log that was named is the first named server's, else that of the only one there is."""
        return endpoint == self._named[0] if self._named else len(self._scan.found) <= 1

    async def _wait(self) -> None:
        fresh = any(not watch.asked for watch in self._watches.values())
        if self._tasks:
            await self._at_most(FIRST_WAIT_S if fresh else WAIT_S, asyncio.wait(list(self._tasks.values())))
        for task in self._tasks.values():
            if task.done():
                task.result()  # a fault of ours: let the engine say so

    async def _at_most(self, seconds: float, work: Coroutine[Any, Any, object]) -> None:
        try:
            await within(self._clock, seconds, work)
        except Late as late:
            late.task.cancel()

    # --- what is on this box ---

    async def _look_around(self) -> None:
        """Start a scan when one is due. It is waited for where nothing, or only what has ended, is known."""
        if not self._discover:
            return
        now_ns = self._clock.now_ns()
        before = self._scan_task
        pids = [watch.found.root_pid for watch in self._watches.values() if watch.found is not None]
        gone = not all(map(self._proc.lives, pids))
        if not self.searching and (gone or now_ns >= self._scan_due_ns):
            unasked = now_ns - self._scan_due_ns > SCAN_S * SECOND_NS
            self._scan_due_ns = now_ns + int(SCAN_S * SECOND_NS)
            self._scan_task = asyncio.ensure_future(self._search())
            if before is not None:
                before.result()  # a fault of ours: let the engine say so
            if before is None or gone or unasked:
                await self._at_most(SCAN_WAIT_S, _shielded(self._scan_task))
        elif any(self._left_lately(watch, now_ns) for watch in self._watches.values()):
            self._scan_due_ns = min(self._scan_due_ns, now_ns + int(SCAN_AGAIN_S * SECOND_NS))

    def _left_lately(self, watch: Watch, now_ns: int) -> bool:
        left = watch.found is not None or (watch.gone_ns is not None and now_ns - watch.gone_ns < GONE_S * SECOND_NS)
        return left and watch.server.status == "down"

    async def _search(self) -> None:
        self._scan = await self._thread.call(partial(scan, self._proc, self._named))
        for found in self._scan.found:
            if self._at(found.endpoint) is None:
                self._watches[found.endpoint] = self._watch(found.endpoint, explicit=False)
        for watch in self._watches.values():
            self._place(watch)
        if self._usual_ports and not self._scan.found and not self._named:
            await self._try_usual_ports()

    def _place(self, watch: Watch) -> None:
        here = self._placed_at(watch.endpoint)
        found = next((one for one in self._scan.found if self._placed_at(one.endpoint) == here), None)
        watch.place(found, is_local(watch.endpoint, self._scan))

    def _at(self, endpoint: str) -> Watch | None:
        here = self._placed_at(endpoint)
        return next((watch for watch in self._watches.values() if self._placed_at(watch.endpoint) == here), None)

    def _placed_at(self, endpoint: str) -> tuple[str, int]:
        """Host and port; all names of this box are one."""
        host, port = host_port(endpoint)
        return ("" if is_local(endpoint, self._scan) else host), port

    async def _try_usual_ports(self) -> None:
        now_ns = self._clock.now_ns()
        for port in sorted(set(PORTS.values())):
            endpoint = f"http://127.0.0.1:{port}"
            if endpoint in self._watches or self._not_servers.get(endpoint, 0) > now_ns:
                continue
            if not await self._open("127.0.0.1", port):
                continue
            watch = self._watch(endpoint, explicit=False)
            self._place(watch)
            await watch.poll()
            if watch.server.status in ("up", "needs_key", "starting"):
                self._watches[endpoint] = watch
                continue
            if watch.server.status != "down":
                self._not_servers[endpoint] = now_ns + int(NOT_A_SERVER_S * SECOND_NS)
            await watch.close()

    async def _open(self, address: str, port: int) -> bool:
        """Whether somebody listens: a tenth of what it costs to ask over HTTP."""
        try:
            _, writer = await within(self._clock, CONNECT_S, asyncio.open_connection(address, port))
        except Late as late:
            late.task.cancel()
            return False
        except OSError:
            return False
        writer.close()
        return True

    async def _drop_gone(self) -> None:
        now_ns = self._clock.now_ns()
        up = [watch for watch in self._watches.values() if watch.server.status in ("up", "needs_key")]
        for endpoint, watch in list(self._watches.items()):
            gone = watch.gone_ns is not None and now_ns - watch.gone_ns > GONE_S * SECOND_NS
            if gone and up and not watch.explicit and watch not in up and endpoint != self._chosen:
                del self._watches[endpoint]
                task = self._tasks.pop(endpoint, None)
                if task is not None:
                    task.cancel()
                    await asyncio.wait({task})
                await watch.close()

    # --- which one is meant ---

    def _choose(self) -> str | None:
        """The chosen one; else the first named; else the one of before; else the first of this box that is up."""
        if self._chosen in self._watches:
            return self._chosen
        if self._named:
            return self._named[0]
        if self._current in self._watches:
            return self._current
        watches = sorted(self._watches.values(), key=lambda watch: watch.server.status != "up")
        return next((watch.endpoint for watch in watches), None)

    def _searched(self) -> tuple[str, ...]:
        searched = list(self._named)
        if self._discover:
            searched.append(f"{self._scan.processes} processes of this box")
            if self._usual_ports and not self._scan.found and not self._named:
                searched.append("ports " + ", ".join(map(str, sorted(set(PORTS.values())))) + " on loopback")
        return tuple(searched)


async def _shielded(task: asyncio.Task[None]) -> None:
    await asyncio.wait({task})


class ServerControl:
    """Takes the commands that choose the current server and let one generate a token."""

    source = "server"
    commands: tuple[type[Command], ...] = (ChooseServer, TryGeneration)

    def __init__(self, probe: ServerProbe) -> None:
        self._probe = probe

    async def run(self, context: Context) -> None:
        """Nothing to say of its own."""

    async def handle(self, command: Command, context: Context) -> None:
        """Raises RequestError for a server that is not watched."""
        if isinstance(command, ChooseServer):
            self._probe.choose(command.endpoint)
        elif isinstance(command, TryGeneration):
            await self._probe.generate(command.endpoint)
        context.submit(Refresh(source=self.source))
