"""The stages of a diagnosis, one after the other: one stream measured, steps profiled, judged, moves as items.

Every stage's end is stored; what was stopped or broke goes on where it stood, as long as the server is the same.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TypeVar

import msgspec

from decodetop.bench.plan import choose, plans_of
from decodetop.bench.reading import Run
from decodetop.core.clock import SECOND_NS
from decodetop.core.engine import Context
from decodetop.diagnosis.reading import OVER, Diagnosis, Stage, StageName, StageStatus, Subject
from decodetop.diagnosis.store import DiagnosisStore
from decodetop.errors import DataError, DecodetopError, RequestError, UsageError
from decodetop.floor import hardware
from decodetop.floor.hardware import Card
from decodetop.floor.reading import FloorReport
from decodetop.flows.bench import new_seed
from decodetop.flows.bench_window import endpoint_for, fresh, server_at
from decodetop.flows.capture_profile import check_engine
from decodetop.flows.diagnose_ask import FAR_HINT, FAR_STEPS, Request, Tools
from decodetop.flows.diagnose_kept import new_diagnosis, stored_captures, stored_run, subject_of, with_stage
from decodetop.flows.diagnose_offer import evidence_of, offer, remember
from decodetop.flows.floor import from_server
from decodetop.flows.judging import batch_of, conclude, explains, measured_words, token_ms
from decodetop.flows.standing import capture_stands
from decodetop.gpu.reading import GpuReading
from decodetop.server.reading import Server, ServerReading
from decodetop.steps.reading import Capture, CaptureSteps, StepsReport
from decodetop.todo.edit import EditMade

T = TypeVar("T")

PRESET = "single"
"""One stream: a step of one sequence is what the floor bounds."""
KEPT_NS = 900 * SECOND_NS
"""A diagnosis that was judged without its capture goes on for so long; later all of it is made again."""


class Course:
    """One diagnosis from its first stage to its last."""

    def __init__(self, tools: Tools, request: Request, context: Context) -> None:
        self._tools = tools
        self._request = request
        self._context = context
        self._folder = tools.folder
        self._now: Diagnosis = new_diagnosis(context.clock.wall_ns(), None)

    async def run(self) -> Diagnosis:
        request = self._request
        server = await self._server()
        # what is wrong with card or model is said before a benchmark is spent on it
        try:
            card: Card | str = self._judged_by(server)
        except UsageError as error:
            if not (request.as_far_as and _is_far(server)):
                raise
            card = f"{error.message}; {FAR_HINT}"
        self._now = await self._begun(None if server is None else subject_of(server))
        run = await self._had_run()
        if run is None and self._request.ask.token_ms is None:
            run = await self._stage("measure", partial(self._measure, server))
        steps, capture = await self._had_steps(server)
        if steps is None and not self._over("steps"):
            steps, capture = await self._stage("steps", partial(self._profile, server))
        report = await self._stage("judge", partial(self._judge, card, run, steps))
        await self._stage("checklist", partial(self._offer, report, run, capture))
        return self._now

    def _judged_by(self, server: Server | None) -> Card:
        """The card it runs on, its model looked for as well. Raises UsageError where one of them is not known."""
        request, state = self._request, self._context.state
        lane = state.lane("gpu")
        problem = lane.failure.message if lane.failure is not None else None
        if server is not None:
            from_server(server, request.ask)
        elif request.ask.model is None:
            raise UsageError("there is no model to judge", "give --model PATH, or start the server on this box")
        if _is_far(server) and request.far_gpu is not None:
            return hardware.named(request.far_gpu, hardware.load())
        return self._tools.card(server, state.last("gpu", GpuReading), problem)

    async def _server(self) -> Server | None:
        """As it is now. Raises UsageError, RequestError when the load or the profile needs one that is not up."""
        request, context = self._request, self._context
        await asyncio.gather(fresh(context, "server"), fresh(context, "gpu"))
        needed = self._measures or self._profiles
        reading = context.state.last("server", ServerReading)
        endpoint = request.endpoint or (reading.current if reading is not None else None)
        if needed:
            endpoint = endpoint_for(context, endpoint, "diagnose")
        server = None if endpoint is None else server_at(context, endpoint)
        if needed and server is None:
            raise UsageError(f"no server {endpoint} is watched", "start with --endpoint URL")
        if needed and server is not None and server.status != "up":
            hint = "is the server running, and is the port right?"
            raise RequestError(f"{endpoint} is {server.status}: {server.status_message}", hint)
        return server

    @property
    def _measures(self) -> bool:
        return self._request.ask.token_ms is None and self._request.run_id is None

    @property
    def _profiles(self) -> bool:
        return self._request.profile and self._request.steps is None

    async def _begun(self, subject: Subject | None) -> Diagnosis:
        """A new one, or what an unfinished one of the same server has."""
        made = new_diagnosis(self._context.clock.wall_ns(), subject)
        if self._request.again or subject is None:
            return made
        last = await self._tools.call(DiagnosisStore(self._folder).newest)
        if last is None or last.finished or last.subject != subject:
            return made
        if last.report is not None and made.made_wall_ns - last.made_wall_ns > KEPT_NS:
            return made
        kept = tuple(
            stage if stage.name in ("measure", "steps") and stage.status in OVER else Stage(name=stage.name)
            for stage in last.stages
        )
        return msgspec.structs.replace(last, stages=kept)

    async def _stage(self, name: StageName, work: Callable[[], Awaitable[T]]) -> T:
        """Do it, with its beginning and its end shown and stored. What it raises is raised."""
        self._put(name, "running")
        self._tools.show(self._now)
        try:
            result = await work()
        except asyncio.CancelledError:
            self._put(name, "stopped")
            raise
        except DecodetopError as error:
            self._put(name, "failed", str(error))
            raise
        finally:
            await self._tools.keep(self._now)
        return result

    def _put(self, name: StageName, status: StageStatus, words: str = "", **fields: object) -> None:
        since = self._context.clock.now_ns() if status == "running" else None
        stage = Stage(name=name, status=status, words=words, since_ns=since)
        self._now = msgspec.structs.replace(with_stage(self._now, stage), **fields)

    def _over(self, name: StageName) -> bool:
        return self._now.stage(name).status in OVER

    # the stages

    async def _had_run(self) -> Run | None:
        """The run that was asked for, or that of the diagnosis that goes on."""
        request = self._request
        if request.ask.token_ms is not None:
            self._put("measure", "skipped", "time per token as given", run_id=None)
            return None
        id = request.run_id if request.run_id is not None else self._now.run_id if self._over("measure") else None
        if id is None:
            return None
        run = await self._tools.call(partial(stored_run, self._folder, id))
        if request.run_id is None and not self._is_load_asked(run):
            self._put("measure", "waiting", run_id=None)
            return None
        if request.run_id is not None:
            self._put("measure", "skipped", measured_words(run), run_id=run.id)
        return run

    def _is_load_asked(self, run: Run) -> bool:
        """Of a diagnosis that goes on: nothing of its load was asked for otherwise now."""
        asked, plan = self._request.load, run.plan
        pairs = ((asked.requests, plan.requests), (asked.input_tokens, plan.input_tokens))
        return all(now in (None, then) for now, then in (*pairs, (asked.output_tokens, plan.output_tokens)))

    async def _measure(self, server: Server | None) -> Run:
        assert server is not None
        asked = self._request.load
        if asked.model is None:
            asked = msgspec.structs.replace(asked, model=server.served_name)
        plans = plans_of(choose(self._tools.presets, PRESET), server.endpoint, new_seed(), asked)
        outcome = await self._tools.bench.measure(plans, self._context)
        if outcome.error is not None:
            raise outcome.error
        if not outcome.runs or outcome.runs[0].partial:
            raise asyncio.CancelledError  # the operator stopped the benchmark: that is meant for all of it
        run = outcome.runs[0]
        if token_ms(run) is None:
            message = f"{server.endpoint}: no time per token could be measured"
            raise RequestError(message, "decodetop bench run says why")
        self._put("measure", "done", measured_words(run), run_id=run.id)
        return run

    async def _had_steps(self, server: Server | None) -> tuple[StepsReport | None, Capture | None]:
        """The breakdown that was given, the newest stored where none is to be made, or that of what goes on."""
        request = self._request
        if request.steps is not None:
            return self._fit(request.steps, request.steps_words), None
        captures = await self._tools.call(partial(stored_captures, self._folder))
        if self._over("steps") and self._now.capture_id is not None:
            kept = next((one for one in captures if one.id == self._now.capture_id), None)
            if kept is not None:
                return kept.report, kept
            self._put("steps", "waiting")
        far = _is_far(server)
        if request.profile and not far:
            return None, None
        newest = next((one for one in captures if server is None or capture_stands(one, server)), None)
        if newest is None:
            where = "of this server as it runs now" if captures else "in this investigation"
            why = f"no capture {where}: judged without one"
            self._put("steps", "skipped", f"{why}; {FAR_STEPS}" if far and request.profile else why)
            return None, None
        words = f"capture {newest.id}, the newest of the investigation"
        steps = self._fit(newest.report, words, newest.id)
        return steps, newest if steps is not None else None

    async def _profile(self, server: Server | None) -> tuple[StepsReport | None, Capture | None]:
        """A capture that fails is told, and the judgement made without one: starting again tries it again."""
        assert server is not None
        try:
            check_engine(server)
        except UsageError as error:
            self._put("steps", "skipped", str(error))
            return None, None
        try:
            ask = CaptureSteps(endpoint=server.endpoint, load=1)
            capture = await self._tools.capture.capture(ask, self._context)
        except DecodetopError as error:
            self._put("steps", "failed", str(error))
            return None, None
        if capture is None:
            raise asyncio.CancelledError  # the operator stopped it: that is meant for all of it
        steps = self._fit(capture.report, f"capture {capture.id}", capture.id)
        return steps, capture if steps is not None else None

    def _fit(self, steps: StepsReport, words: str, capture_id: str | None = None) -> StepsReport | None:
        """Whether it explains the step that was measured."""
        why = explains(steps)
        if why is not None:
            self._put("steps", "skipped", f"{words}: {why}")
            return None
        batch = batch_of(steps)
        if batch not in (None, 1):
            words = f"{words}: {batch} sequences were served, so that is the step judged"
        self._put("steps", "done", words, capture_id=capture_id)
        return steps

    async def _judge(self, card: Card | str, run: Run | None, steps: StepsReport | None) -> FloorReport | None:
        if isinstance(card, str):
            self._put("judge", "skipped", card)
            return None
        await fresh(self._context, "server")
        endpoint = self._now.subject.endpoint if self._now.subject is not None else ""
        server, gpus = server_at(self._context, endpoint), self._context.state.last("gpu", GpuReading)
        ask = self._request.ask
        work = partial(conclude, ask, card, server=server, steps=steps, run=run, gpus=gpus)
        report = await self._tools.call(work)
        assert report.verdict is not None
        self._put("judge", "done", report.verdict.sentence, report=report)
        return report

    async def _tell_notebook(self, edit: EditMade) -> None:
        """The way back: `u` where a screen shows the list, else `decodetop todo undo`."""
        if self._context.state.lane("todo").last is not None:
            self._context.submit(edit)
        else:
            await self._tools.call(partial(remember, self._folder, edit))

    async def _offer(self, report: FloorReport | None, run: Run | None, capture: Capture | None) -> None:
        if report is None:
            self._put("checklist", "skipped", "no verdict, so no moves")
            return
        if not self._request.offer:
            self._put("checklist", "skipped", "the checklist is left alone")
            return
        links = evidence_of(self._now, run, capture)
        work = partial(offer, report, self._folder, self._context.clock.wall_ns(), links)
        try:
            ids, edit = await self._tools.call(work)
        except DataError as error:
            # the verdict is there: a disk that refuses costs the items only, and the next start tries again
            self._put("checklist", "failed", str(error))
            return
        if ids:
            await self._tell_notebook(edit)
        known = tuple(dict.fromkeys((*self._now.todo_ids, *ids)))
        self._put("checklist", "done", f"{len(ids)} items added" if ids else "nothing to add", todo_ids=known)


def _is_far(server: Server | None) -> bool:
    return server is not None and not server.local
