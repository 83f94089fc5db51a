"""One capture of one server: measure without the profiler, hold the load, profile, and wait for whole files."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from typing import TypeVar

import msgspec

from decodetop.bench.launch import Launch
from decodetop.core.clock import SECOND_NS
from decodetop.core.engine import Context
from decodetop.core.thread import CallThread
from decodetop.errors import RequestError
from decodetop.flows.bench import new_seed
from decodetop.flows.bench_window import fresh, server_at
from decodetop.flows.capture_client import ProfileClient, Unreachable
from decodetop.flows.capture_files import Folder, Found, cleared, taken, tidied
from decodetop.flows.capture_guard import Guard, Outcome
from decodetop.flows.capture_load import Held, Unprofiled, measured, plan_of, watched
from decodetop.flows.capture_place import Box, Place, ThisBox, place_for
from decodetop.flows.capture_profile import Refused, start, stop
from decodetop.flows.capture_words import growing, no_files, nothing, unfinished, unseen
from decodetop.server.reading import Server
from decodetop.steps.reading import CapturePhase, CaptureSteps, Capturing, LeftProfiling
from decodetop.steps.taking import others_running

T = TypeVar("T")

LOOK_S = 0.25
SERVER_S = 2.0
"""How often the server is looked at while its files are waited for."""
DOWNS = 2
"""Looks in a row that find nobody listening, before it is taken for dead."""
SETTLED_S = 2.0
"""Without a change, where it is not known how many files there will be."""
STEP_GUESS_S = 0.05
"""A step of unknown length, for waiting only."""
STRETCH = 2.0
"""How much slower a profiled step may be in the mean (1.02 to 3.3 were measured)."""
WINDOW_MIN_S, WINDOW_MAX_S = 0.15, 10.0
"""Of a profile that we have to end."""


class Patience(msgspec.Struct, frozen=True, kw_only=True):
    """How long is waited. `files_s` counts from the last change in the folder; `stop_s` is for vLLM's answer to
    /stop_profile, which comes when the trace is written: "about 10 minutes" for 100 requests, its documentation says.
    `whole_s`: from the first file to the last byte, however the folder changes.
    """

    files_s: float = 60.0
    whole_s: float = 900.0
    stop_s: float = 900.0
    lull_s: float = 5.0


class Tools(msgspec.Struct, frozen=True, kw_only=True):
    """What a capture works with."""

    thread: CallThread
    launch: Launch
    key: str | None
    box: Box = ThisBox()
    patience: Patience = Patience()


class Taken(msgspec.Struct, frozen=True, kw_only=True):
    """The whole trace files, and what was measured beside them. `warnings` are for the operator."""

    files: tuple[Path, ...]
    unprofiled: Unprofiled
    warnings: tuple[str, ...] = ()


class Shot:
    """`take` it once. `told` gets the progress; `left` is set when the watchdog has to end the profile."""

    def __init__(
        self,
        context: Context,
        server: Server,
        ask: CaptureSteps,
        folder: Path,
        tools: Tools,
        told: Callable[[Capturing], None],
    ) -> None:
        """`folder`: absolute, under the investigation, for this capture only."""
        self.left: Callable[[], Outcome | None] | None = None
        self._context = context
        self._clock = context.clock
        self._server = server
        self._ask = ask
        self._folder = folder
        self._tools = tools
        self._told = told
        self._client = ProfileClient(server.endpoint, context.clock, tools.key)
        self._others = others_running(server)
        self._streams = ask.load or (0 if self._others else 1)
        self._progress = Capturing(endpoint=server.endpoint, phase="preparing", since_ns=0, steps=ask.steps)
        self._held: Held | None = None
        self._looked: Folder | None = None
        self._tokens: float | None = None
        self._still = False
        self._down = 0

    async def take(self) -> Taken:
        """Raises RequestError, DataError, UsageError. Cancelled or not: no profile is left unattended."""
        place = await self._call(partial(place_for, self._server, self._folder, self._tools.box))
        guard = self._guard()
        watching = asyncio.ensure_future(self._watch_server())
        try:
            self._say("measuring")
            await self._call(guard.ready)
            async with AsyncExitStack() as load:
                unprofiled = await self._measure()
                if self._streams:
                    await self._hold(load)
                folder = await self._profile(place, guard, unprofiled, load)
            found = await self._until_whole(folder)
            return await self._result(found, place, unprofiled)
        finally:
            watching.cancel()
            if self._looked is not None:
                self._looked.leave()
            if guard.armed:
                self.left = guard.let_go()
            else:
                await self._call(guard.disarm)
                if place.own and place.seen is not None:
                    await self._call(partial(tidied, place.seen))

    # the load

    async def _measure(self) -> Unprofiled:
        """Under our own streams, or under those of others alone where the server's counters can say it."""
        if not self._streams:
            seen = await watched(self._context, self._server.endpoint)
            if seen.itl_ms is not None:
                return self._known(seen)
            self._streams = 1
            self._others = 0 if seen.tokens == 0 else self._others
            self._say("measuring")
        plan = plan_of(self._server, self._streams, new_seed(), held=False)
        return self._known(await measured(self._tools.launch, plan, self._tools.key, self._context))

    def _known(self, seen: Unprofiled) -> Unprofiled:
        self._progress = msgspec.structs.replace(self._progress, itl_ms=seen.itl_ms)
        return seen

    async def _hold(self, load: AsyncExitStack) -> None:
        self._say("loading")
        plan = plan_of(self._server, self._streams, new_seed(), held=True)
        self._held = await load.enter_async_context(Held(self._tools.launch, plan, self._tools.key, self._context))
        await self._held.decoding()

    # the profile

    async def _profile(self, place: Place, guard: Guard, unprofiled: Unprofiled, load: AsyncExitStack) -> Folder:
        """Returns when no more load is needed. The guard is disarmed as soon as the profiler is known to be off."""
        step_s = STEP_GUESS_S
        if unprofiled.itl_ms is not None:
            step_s = unprofiled.itl_ms / 1e3 * (unprofiled.accept_length or 1.0)
        profiled_s = self._ask.steps * step_s * STRETCH
        folder = self._looked = Folder(place.seen if place.seen is not None else self._folder)
        await self._call(folder.begin)
        self._say("profiling")
        await self._call(guard.arm)
        try:
            await start(self._client, self._server, self._ask.steps, place.named)
        except (Refused, Unreachable):
            await self._call(guard.disarm)
            raise
        if self._server.engine == "sglang" and place.seen is not None:
            patience_s = self._tools.patience.files_s + profiled_s
            if not await self._written(folder, patience_s, load):
                await stop(self._client, "sglang", self._tools.patience.stop_s)
                await self._call(guard.disarm)
                if not await self._written(folder, SETTLED_S, None):
                    raise no_files(self._server, place, patience_s, unprofiled)
        else:
            await self._sleep(min(max(profiled_s, WINDOW_MIN_S), WINDOW_MAX_S))
            self._say("waiting")
            await stop(self._client, self._server.engine, self._tools.patience.stop_s)
        await self._call(guard.disarm)
        if place.seen is None:
            raise unseen(self._server, place, unprofiled)
        return folder

    async def _written(self, folder: Folder, patience_s: float, load: AsyncExitStack | None) -> bool:
        """Whether a file comes. SGLang ends its profile after the steps asked for: that it writes shows that it did."""
        found = await self._wait(folder, lambda seen, still_s: bool(seen.stamps), patience_s, load)
        return bool(found.stamps)

    # the files

    async def _until_whole(self, folder: Folder) -> Found:
        """All ranks, each with its end; or what there is when nothing changes any more."""
        wanted = ranks_of(self._server)
        self._progress = msgspec.structs.replace(self._progress, ranks_wanted=wanted)
        self._say("waiting")

        def done(seen: Found, still_s: float) -> bool:
            if seen.unfinished or not seen.whole:
                return False
            return still_s >= SETTLED_S if wanted is None else len(seen.whole) >= wanted

        return await self._wait(folder, done, self._tools.patience.files_s)

    async def _wait(
        self,
        folder: Folder,
        done: Callable[[Found, float], bool],
        patience_s: float,
        load: AsyncExitStack | None = None,
    ) -> Found:
        """Look until `done(found, seconds without a change)`, or until nothing changed for `patience_s`.

        With `load`, streams are started when nobody else's are left: without steps a profile never ends.
        """
        found, changed_ns = Found(), self._clock.now_ns()
        began_ns = changed_ns
        lull_ns = changed_ns + int(self._tools.patience.lull_s * SECOND_NS)
        while True:
            seen = await self._call(folder.look)
            if seen != found:
                found, changed_ns = seen, self._clock.now_ns()
                self._progress = msgspec.structs.replace(self._progress, ranks_written=len(found.whole))
                self._told(self._progress)
            still_s = self._since_s(changed_ns)
            if done(found, still_s) or still_s >= patience_s:
                return found
            if seen.unfinished and self._since_s(began_ns) >= self._tools.patience.whole_s:
                raise growing(seen.unfinished[0], self._tools.patience.whole_s)
            self._check()
            if load is not None and self._clock.now_ns() >= lull_ns and self._idle():
                self._streams = self._streams or 1
                await self._hold(load)
                self._say("profiling")
            await self._sleep(LOOK_S)

    async def _result(self, found: Found, place: Place, unprofiled: Unprofiled) -> Taken:
        wanted, warnings = ranks_of(self._server), []
        if not found.whole:
            raise unfinished(found.unfinished[0]) if found.unfinished else nothing(self._server, place)
        if found.unfinished:
            warnings.append(f"left out, unfinished: {', '.join(path.name for path in found.unfinished)}")
        if wanted is not None and len(found.whole) < wanted:
            warnings.append(f"traces of {len(found.whole)} of {wanted} ranks came")
        if unprofiled.itl_ms is None:
            warnings.append(
                "the ITL without the profiler is not known: the server does not say how many tokens it sent"
            )
        files = found.whole
        away = place.seen is not None and place.seen.is_relative_to("/proc")
        if place.seen != self._folder and (place.own or away):
            files = await self._call(partial(taken, found.whole, self._folder))
            if place.own and place.seen is not None:
                await self._call(partial(cleared, place.seen))
        return Taken(files=files, unprofiled=unprofiled, warnings=tuple(warnings))

    # the server

    async def _watch_server(self) -> None:
        """Has it read again and again, for what `_check` and `_idle` ask."""
        while True:
            await self._sleep(SERVER_S)
            await fresh(self._context, "server")
            now = server_at(self._context, self._server.endpoint)
            self._down = self._down + 1 if now is None or now.status == "down" else 0
            tokens = None if now is None or now.counters is None else now.counters.generated_tokens
            self._still = tokens is not None and tokens == self._tokens
            self._tokens = tokens

    def _check(self) -> None:
        """Raises RequestError when the server died."""
        if self._down >= DOWNS:
            message = f"{self._server.endpoint} went down while it was profiled"
            raise RequestError(message, "its log says why; writing a trace needs memory and room in /tmp")
        if self._held is not None:
            self._held.check()

    def _idle(self) -> bool:
        """No token since the look before, or no request."""
        now = server_at(self._context, self._server.endpoint)
        return self._still or (now is not None and now.running == 0)

    # small things

    def _guard(self) -> Guard:
        left = LeftProfiling(
            endpoint=self._server.endpoint,
            engine=self._server.engine,
            host=self._context.state.header.host,
            since_wall_ns=self._clock.wall_ns(),
        )
        return Guard(self._folder.parent.parent, left, self._tools.key)

    def _say(self, phase: CapturePhase) -> None:
        self._progress = msgspec.structs.replace(
            self._progress, phase=phase, since_ns=self._clock.now_ns(), streams=self._streams, others=self._others
        )
        self._told(self._progress)

    async def _call(self, work: Callable[[], T]) -> T:
        return await self._tools.thread.call(work)

    def _since_s(self, t_ns: int) -> float:
        return (self._clock.now_ns() - t_ns) / SECOND_NS

    async def _sleep(self, seconds: float) -> None:
        await self._clock.sleep_until(self._clock.now_ns() + int(seconds * SECOND_NS))


def ranks_of(server: Server) -> int | None:
    """How many processes write a trace: tensor x pipeline parallel, times the data-parallel replicas."""
    if server.tp is None:
        return None
    flags = {flag.name: flag.resolved or flag.requested for flag in server.flags}
    # SGLang's data-parallel attention lives inside the tensor-parallel ranks
    inside = server.engine == "sglang" and str(flags.get("enable_dp_attention")).lower() == "true"
    return server.tp * (server.pp or 1) * (1 if inside else server.dp or 1)
