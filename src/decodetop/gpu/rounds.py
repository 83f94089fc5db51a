"""Jobs one after the other on one thread; behind a job that does not return, the others go on on spare threads."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Mapping
from typing import Generic, TypeVar

from decodetop.core.clock import SECOND_NS, Clock, Late, within
from decodetop.core.thread import CallThread
from decodetop.gpu.codes import NvmlError

K = TypeVar("K")
T = TypeVar("T")
R = TypeVar("R")


class _Batch(Generic[K, T]):
    """Shared by the thread that works and the loop that waits."""

    def __init__(self, jobs: Mapping[K, Callable[[], T]], clock: Clock, began_ns: Callable[[K], int]) -> None:
        self.results: dict[K, T | NvmlError] = {}
        self._jobs = dict(jobs)
        self._clock = clock
        self._began_ns = began_ns
        self._lock = threading.Lock()
        self._abandoned = False
        self._at: K | None = None
        self._since_ns = clock.now_ns()

    def run(self) -> None:
        for key, job in self._jobs.items():
            with self._lock:
                if self._abandoned:
                    return
                self._at, self._since_ns = key, self._clock.now_ns()
            try:
                outcome: T | NvmlError = job()
            except NvmlError as error:
                outcome = error
            with self._lock:
                if self._abandoned:
                    return
                self.results[key] = outcome
                self._at = None

    def give_up(self, deadline_ns: int) -> tuple[K | None, int]:
        """(the job whose present call took longer than `deadline_ns`, since when), and no job begins after; or (None,
        ns left)."""
        with self._lock:
            since_ns = self._since_ns if self._at is None else max(self._since_ns, self._began_ns(self._at))
            left_ns = deadline_ns - (self._clock.now_ns() - since_ns)
            if left_ns > 0 or self._at is None:
                return None, max(left_ns, SECOND_NS // 100)
            self._abandoned = True
            return self._at, since_ns

    def rest(self, stuck: K) -> dict[K, Callable[[], T]]:
        return {key: job for key, job in self._jobs.items() if key not in self.results and key != stuck}


class Rounds(Generic[K, T]):
    """`stuck[key]` = since when (session ns) that job has not returned; it is not begun again before it does."""

    def __init__(self, clock: Clock, name: str, deadline_s: float, began_ns: Callable[[K], int] = lambda _: 0) -> None:
        """`began_ns`: when that job's present call began, for one that makes many; else it is as old as its job."""
        self.stuck: dict[K, int] = {}
        self._began_ns = began_ns
        self._clock = clock
        self._name = name
        self._deadline_ns = int(deadline_s * SECOND_NS)
        self._threads: list[CallThread] = []
        self._taken: set[CallThread] = set()

    async def run(self, jobs: Mapping[K, Callable[[], T]]) -> dict[K, T | NvmlError]:
        """What each job gave, or the NvmlError it raised; stuck ones are left out. Other errors are raised."""
        results = await self._drive({key: job for key, job in jobs.items() if key not in self.stuck})
        self._trim()
        return results

    def call(self, function: Callable[[], R]) -> asyncio.Future[R]:
        """One function on a free thread, however long it takes."""
        thread = self._free()
        self._taken.add(thread)
        task = asyncio.ensure_future(thread.call(function))
        task.add_done_callback(lambda _: self._taken.discard(thread))
        return task

    @property
    def busy(self) -> bool:
        return any(thread.busy for thread in self._threads)

    def close(self) -> None:
        """Let the threads end; stuck ones are daemons and stay behind."""
        for thread in self._threads:
            thread.close()
        self._threads.clear()

    async def _drive(self, jobs: Mapping[K, Callable[[], T]]) -> dict[K, T | NvmlError]:
        batch = _Batch(jobs, self._clock, self._began_ns)
        task = self.call(batch.run)
        wait_ns = self._deadline_ns
        while True:
            try:
                await within(self._clock, wait_ns / SECOND_NS, task)
            except Late:
                key, since_or_left_ns = batch.give_up(self._deadline_ns)
                if key is None:
                    wait_ns = since_or_left_ns
                    continue
                self._mark(key, since_or_left_ns, task)
                others = (self._drive({other: job}) for other, job in batch.rest(key).items())
                for result in await asyncio.gather(*others):
                    batch.results.update(result)
            return batch.results

    def _mark(self, key: K, since_ns: int, task: asyncio.Future[None]) -> None:
        self.stuck[key] = since_ns

        def returned(done: asyncio.Future[None]) -> None:
            self.stuck.pop(key, None)
            if not done.cancelled():
                done.exception()  # what it found is too old to matter; the next round asks again

        task.add_done_callback(returned)

    def _free(self) -> CallThread:
        for thread in self._threads:
            if not thread.busy and thread not in self._taken:
                return thread
        self._threads.append(CallThread(f"{self._name}-{len(self._threads)}"))
        return self._threads[-1]

    def _trim(self) -> None:
        """One free thread is enough once the stuck ones are back."""
        for thread in [thread for thread in self._threads if not thread.busy][1:]:
            thread.close()
            self._threads.remove(thread)
