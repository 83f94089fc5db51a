"""One server, watched: identified, its facts learnt and looked at again and again. A hung one holds up itself only."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import TypeVar

import msgspec

from decodetop.core.clock import SECOND_NS, Clock, Late, within
from decodetop.core.thread import CallThread
from decodetop.server.client import NoAnswer, SafeClient
from decodetop.server.compose import NOT_ASKED, explained, failed, logged, placed, with_facts, with_look
from decodetop.server.discover import Found
from decodetop.server.engines import sglang, sglang_settings, vllm
from decodetop.server.engines.adapter import Adapter, Facts, Look, look_by_log, unlearnt
from decodetop.server.engines.identify import NeedsKey, adapter_of, identify
from decodetop.server.followed import FollowedLog
from decodetop.server.generate import generation
from decodetop.server.journal import Unit, unit_state
from decodetop.server.log import start_up
from decodetop.server.logfile import FILE_S
from decodetop.server.modelfile import completed, declared
from decodetop.server.rates import History, Tally
from decodetop.server.reading import Engine, Generation, Server

T = TypeVar("T")

FACTS_S = 60.0
"""How often what changes with a restart only is asked again."""
INCOMPLETE_S = 10.0
LOGGED: Mapping[Engine, str] = {"sglang": sglang.NO_METRICS, "vllm": vllm.NO_STATS}
"""Engines whose log has decode lines, and why it may be needed."""
UNLEARNT = unlearnt(NOT_ASKED)
BEHIND_KEY = unlearnt("told to those with a key only")
BY_COMMAND_LINE: dict[Engine, Callable[[Mapping[str, str]], Facts]] = {
    "sglang": sglang_settings.asked,
    "vllm": vllm.facts_of,
}
"""What is known of a server that wants a key, when its process can be seen."""
UNIT_S = 10.0
"""How often systemd is asked for the state of a server's unit."""
KEY_S = 10.0
"""How often a server that wants a key is asked whether it still does."""


class Watch:
    """`server` is what is known now; `poll` renews it and never raises for what the server does."""

    def __init__(
        self,
        endpoint: str,
        clock: Clock,
        thread: CallThread,
        *,
        explicit: bool,
        api_key: str | None = None,
        log: Path | None = None,
    ) -> None:
        """`explicit`: named by the operator. The key is sent to such an endpoint only. `log`: named for it."""
        self.endpoint = endpoint
        self.explicit = explicit
        self.found: Found | None = None
        self.gone_ns: int | None = None
        self.asked = False
        self.server = Server(endpoint=endpoint, status_message=NOT_ASKED)
        self._clock = clock
        self._thread = thread
        self._key_withheld = api_key is not None and not explicit
        self._client = SafeClient(endpoint, clock, api_key if explicit else None)
        self._local = True
        self._lock = asyncio.Lock()
        self._adapter: Adapter | None = None
        self._facts = UNLEARNT
        self._facts_due_ns = 0
        self._facts_task: asyncio.Task[None] | None = None
        self._key_due_ns = 0
        self._wants_key: NeedsKey | None = None
        self._history = History()
        self._log = FollowedLog(clock, thread, log)
        self._unit: Unit | None = None
        self._unit_task: asyncio.Task[tuple[str | None, str]] | None = None
        self._unit_due_ns = 0
        self._unit_said: tuple[str | None, str] = None, NOT_ASKED
        self._key = api_key if explicit else None
        self._generation: Generation | None = None

    def place(self, found: Found | None, local: bool) -> None:
        """What the last look at the box said. Another process at this address is another server."""
        was, self.found, self._local = self.found, found, local
        if found is not None:
            self.gone_ns = None
        elif was is not None:
            self.gone_ns = self._clock.now_ns()
        if found is not None and (was is None or was.root_pid != found.root_pid):
            self._facts_due_ns = 0
            if was is not None:
                self._forget()
                self.server = Server(endpoint=self.endpoint, status_message=NOT_ASKED)
                self.asked = False
        if found is not None and (was is None or (was.log, was.root_pid) != (found.log, found.root_pid)):
            self._follow_log(found)

    def _follow_log(self, found: Found) -> None:
        unit = None if found.unit is None else Unit(name=found.unit, of_user=found.unit_of_user)
        if unit != self._unit:
            self._unit, self._unit_due_ns, self._unit_said = unit, 0, (None, NOT_ASKED)
        self._log.follow(found, unit)

    async def poll(self) -> None:
        async with self._lock:
            self._ask_unit()
            await self._log.let_go()
            try:
                await self._poll()
            except NoAnswer as no:
                self._fail(no)
            self.server = explained(self.server)
            self.asked = True

    async def close(self) -> None:
        tasks = {task for task in (self._facts_task, self._unit_task) if task is not None}
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
        await self._log.close()
        await self._client.close()

    async def _poll(self) -> None:
        if self._due_to_meet():
            await self._meet()
        if self._adapter is None:
            assert self._wants_key is not None
            raise self._wants_key
        started_ns = self._clock.now_ns()
        look = await self._looked(self._adapter)
        took_ms = (self._clock.now_ns() - started_ns) / SECOND_NS * 1000
        self._take(look, took_ms)
        if self._wants_key is None and self._clock.now_ns() >= self._facts_due_ns:
            self._learn_later()

    async def _looked(self, adapter: Adapter) -> Look:
        """By its metrics; by its log where there are none. A server that answers and has neither raises NoAnswer."""
        refused: NoAnswer | None = None
        look: Look | None = None
        without = LOGGED.get(adapter.engine)
        try:
            look = await adapter.look(partial(self._client.get, adapter.engine), self._facts)
        except NoAnswer as no:
            if no.status != "up" or without is None:
                raise
            refused, without = no, no.message
        else:
            if without is None or (look.counters is not None and look.running is not None):
                return look
        line = await self._log.line()
        if line is not None or (look is not None and look.counters is None):
            return look_by_log(line, without, self._log.trouble, look)
        if look is None:
            assert refused is not None
            raise refused
        return look

    def _ask_unit(self) -> None:
        """systemd may be slow: what it said last is what is known."""
        if self._unit_task is not None:
            if not self._unit_task.done():
                return
            self._unit_said, self._unit_task = self._unit_task.result(), None
        if self._unit is not None and self._clock.now_ns() >= self._unit_due_ns:
            self._unit_due_ns = self._clock.now_ns() + int(UNIT_S * SECOND_NS)
            self._unit_task = asyncio.ensure_future(unit_state(self._unit, self._clock))

    def _due_to_meet(self) -> bool:
        if self._wants_key is not None:
            return self._clock.now_ns() >= self._key_due_ns
        return self._adapter is None

    async def _meet(self) -> None:
        """Find out who answers; learn its facts before the first look, for they say how to read it."""
        try:
            engine = await identify(self._client.get, self._client.has_key)
        except NeedsKey as wants:
            self._wants_key = self._withheld(wants)
            self._key_due_ns = self._clock.now_ns() + int(KEY_S * SECOND_NS)
            engine = wants.engine if self.found is None else self.found.engine
            if engine in ("sglang", "vllm"):
                # their figures are open although their models are not
                self._adapter = self._adapter or adapter_of(engine)
            return
        self._wants_key = None
        if self._adapter is None or self._adapter.engine != engine:
            self._adapter = adapter_of(engine)
            self._history.clear()
        await self._learn(self._adapter)

    def _withheld(self, wants: NeedsKey) -> NeedsKey:
        if self.explicit or not self._key_withheld:
            return wants
        hint = f"--endpoint {self.endpoint}"
        return NeedsKey(wants.engine, f"keys go to named servers only: {hint}", hint)

    async def _learn(self, adapter: Adapter) -> None:
        flags = None if self.found is None else self.found.flags
        facts = await adapter.facts(partial(self._client.get, adapter.engine), flags)
        if self.found is not None:
            facts = await self._completed(adapter, facts, self.found)
        period_s = FACTS_S if facts.complete else INCOMPLETE_S
        if adapter is self._adapter and (facts.complete or not self._facts.complete):
            self._facts = facts  # half an answer does not replace a whole one
        self._facts_due_ns = self._clock.now_ns() + int(period_s * SECOND_NS)

    async def _completed(self, adapter: Adapter, facts: Facts, found: Found) -> Facts:
        """With what the box's files say: vLLM's start-up log, and the model's own configuration."""
        if adapter.engine == "vllm":
            pids = [process.pid for process in found.processes]
            facts = vllm.started(facts, start_up(await self._log.head(), pids))
            if self._log.trouble is not None:
                facts = vllm.unread(facts, self._log.trouble)
        model = facts.model
        seen = None if model is None else await self._read(lambda: declared(model))
        return facts if seen is None else completed(facts, seen)

    async def _read(self, read: Callable[[], T]) -> T | None:
        """None too when the disk does not answer: the server is not kept waiting for a file."""
        try:
            return await within(self._clock, FILE_S, self._thread.call(read))
        except (Late, OSError):
            return None

    def _learn_later(self) -> None:
        """SGLang's `/server_info` waits for its scheduler and may never come: not in the way of the next look."""
        if self._facts_task is None or self._facts_task.done():
            self._facts_due_ns = self._clock.now_ns() + int(INCOMPLETE_S * SECOND_NS)
            self._facts_task = asyncio.ensure_future(self._relearn())

    async def _relearn(self) -> None:
        try:
            if self._adapter is not None:
                await self._learn(self._adapter)
        except NoAnswer:
            return  # the facts of before stand; the next look says what is wrong

    def _take(self, look: Look, took_ms: float) -> None:
        rates = None
        if look.counters is not None:
            tally = Tally(
                t_ns=self._clock.now_ns(),
                basis=look.basis,
                counters=look.counters,
                ttft=look.ttft,
                itl=look.itl,
                per_event=look.itl_per_event,
            )
            if self._history.push(tally):
                self._facts_due_ns = 0
            rates = self._history.rates()
        server = with_look(self._base(), look, rates, took_ms)
        status, message = ("up", None) if self._wants_key is None else ("needs_key", self._wants_key.message)
        self.server = msgspec.structs.replace(server, status=status, status_message=message)

    def _fail(self, no: NoAnswer) -> None:
        status, message = no.status, self._client.clean(no.message)
        if status == "down":
            self._forget()
            if self.found is not None and not self.found.listening:
                waits = f"process {self.found.root_pid} runs, its port is not open yet"
                status, message = "starting", self.found.reasons.get("endpoint", waits)
            elif self.gone_ns is not None:
                state, _ = self._unit_said
                message = "its process has ended"
                if self._unit is not None and state is not None and state != "active":
                    message += f"; {self._unit.name} is {state}"
        elif status == "up" and self._wants_key is not None:
            status, message = "needs_key", self._wants_key.message
        # one that is down keeps what was known of it, so that one can see what is down
        base = self._base()
        if self._adapter is None and self.server.model is not None:
            base = msgspec.structs.replace(self.server, root_pid=base.root_pid, processes=base.processes)
        self.server = failed(base, status, message)

    def _base(self) -> Server:
        engine: Engine = "unknown" if self._adapter is None else self._adapter.engine
        if self._wants_key is not None and engine == "unknown":
            engine = self._wants_key.engine
        server = placed(self.endpoint, engine, self._local, self.found, self._unit_said)
        server = logged(server, self._log.where, self._log.trouble)
        server = msgspec.structs.replace(server, generation=self._generation)
        telling = () if self._adapter is None else self._adapter.telling
        facts = self._facts if self._wants_key is None else self._asked(engine)
        return with_facts(server, facts, self.found, telling)

    def _asked(self, engine: Engine) -> Facts:
        if self.found is None or engine not in BY_COMMAND_LINE:
            return BEHIND_KEY
        told = BY_COMMAND_LINE[engine](self.found.flags)
        return msgspec.structs.replace(told, reasons=BEHIND_KEY.reasons | told.reasons, complete=False)

    async def generate(self) -> None:
        """Ask for one token; what came of it stands in `server` until another process answers here."""
        self._generation = await generation(self.server, self._key, self._clock)
        self.server = msgspec.structs.replace(self.server, generation=self._generation)

    def _forget(self) -> None:
        """The next to answer here may be another server."""
        self._generation = None
        self._adapter = None
        self._wants_key = None
        self._facts = UNLEARNT
        self._history.clear()
