"""`python -m decodetop.sim.server`: an SGLang-like server on loopback whose every token time is known.

Prints one JSON line with its address once it listens; ends on SIGTERM, SIGINT, or when its parent is gone.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import sys
import uuid
from collections.abc import Callable, Sequence

import msgspec
import uvloop

from decodetop.errors import DataError
from decodetop.sim import asks, info, model
from decodetop.sim.alarm import Alarm, MonotonicClock
from decodetop.sim.asks import Api, Refused
from decodetop.sim.batch import Batch, Pool
from decodetop.sim.chunks import Answer, token_ids
from decodetop.sim.exact import SPIN_NS, Exact, Schedule
from decodetop.sim.http import JSON, TEXT, Connection, Incoming
from decodetop.sim.metrics import CONTENT_TYPE, Metrics
from decodetop.sim.options import Options, parse_options
from decodetop.sim.prefix import PrefixCache
from decodetop.sim.profile import Profiler
from decodetop.sim.serving import Emitter, Observer, Request
from decodetop.sim.truth import TruthLog
from decodetop.sim.visitors import Visitors

PARENT_CHECK_S = 0.5
HEALTH_S = 1.0
"""SGLang's /health generates a token and answers a second later."""
GENERATE: dict[str, Api] = {"/v1/completions": "completions", "/v1/chat/completions": "chat", "/generate": "generate"}
OPEN = ("/health", "/ready", "/metrics", "/sim/")
"""Answered without a key, as SGLang does; `/sim/` is the simulation's own."""


class Server:
    """The application behind the connections."""

    def __init__(self, options: Options, loop: asyncio.AbstractEventLoop) -> None:
        self.setup = options.setup
        self.outside: dict[Connection, Request] = {}
        self._options = options
        self._loop = loop
        self._clock = clock = MonotonicClock()
        self._prefix = PrefixCache()
        self._requests = 0
        setup, faults = options.setup, options.faults
        self.metrics = Metrics(setup.served_name, setup.tp, setup.kv_capacity, setup.context_length)
        epoch_ns = clock.wall_ns() - clock.now_ns()
        self.profiler = Profiler(setup.tp, os.getpid(), epoch_ns, clock.wall_ns, options.profile_dir)
        observers: list[Observer] = [self.metrics]
        if options.truth is not None:
            observers.append(TruthLog(options.truth))
        emitter = Emitter(faults, tuple(observers))
        exact = options.exact
        self.alarm = alarm = Alarm(clock, loop, SPIN_NS if exact else 0)
        pool = Pool(
            kv_tokens=setup.kv_capacity,
            max_running=setup.max_running,
            graph_max_batch=setup.graph_max_batch if setup.graphs else 0,
            kv_cast=setup.kv_cast,
            speed=options.speed / faults.slow,
            seed=options.seed,
        )
        self.serving: Batch | Exact = (
            Exact(clock, alarm, emitter, slowed(exact, faults.slow), options.seed)
            if exact
            else Batch(clock, alarm, emitter, pool, setup.tp, (self.metrics, self.profiler))
        )
        self.metrics.serving = self.serving
        self.visitors = Visitors(options.visitors, clock, self.serving, setup.served_name, options.seed)
        self._routes = self._table()

    def connection(self) -> Connection:
        return Connection(self, self._clock)

    def handle(self, connection: Connection, incoming: Incoming) -> None:
        self.metrics.requests[incoming.path, incoming.method] += 1
        key = self.setup.api_key
        if key is not None and not incoming.path.startswith(OPEN):
            given = incoming.headers.get(b"authorization", b"")
            if given != b"Bearer " + key.encode():
                self._answer(connection, incoming, 401, b'{"error":"Unauthorized"}')
                return
        try:
            self._dispatch(connection, incoming)
        except Refused as refused:
            self._answer(connection, incoming, refused.status, refused.body)

    def gone(self, connection: Connection) -> None:
        request = self.outside.pop(connection, None)
        if request is not None and request.end is None:
            self.serving.withdraw(request)

    def _dispatch(self, connection: Connection, incoming: Incoming) -> None:
        api = GENERATE.get(incoming.path)
        if api is not None and incoming.method == "POST":
            self._generate(connection, incoming, api)
            return
        if incoming.path in ("/health", "/health_generate"):
            self._loop.call_later(HEALTH_S, self._answer, connection, incoming, 200, b"", TEXT)
            return
        route = self._routes.get(incoming.path)
        if route is None:
            self._answer(connection, incoming, 404, b'{"detail":"Not Found"}')
            return
        status, body, kind = route(incoming)
        self._answer(connection, incoming, status, body, kind)

    def _answer(self, connection: Connection, incoming: Incoming, status: int, body: bytes, kind: bytes = JSON) -> None:
        self.metrics.responses[incoming.path, incoming.method, status] += 1
        connection.respond(status, body, kind)

    def _generate(self, connection: Connection, incoming: Incoming, api: Api) -> None:
        self.visitors.give_way()
        if self._options.faults.http500:
            raise Refused("simulated fault: http500", 500, "InternalServerError")
        ask = asks.parse(api, incoming.body, self.setup.served_name, self.setup.context_length)
        self._requests += 1
        ids = token_ids(self._options.seed, self._requests % 64)
        created = self._clock.wall_ns() // 1_000_000_000
        answer = Answer(ask, uuid.uuid4().hex, created, ids, self._prefix.admit(ask.prompt))
        request = Request(ask, answer, connection, incoming.received_ns)
        self.outside[connection] = request
        self.metrics.responses[incoming.path, incoming.method, 200] += 1
        self.serving.submit(request)

    def count_outside(self) -> int:
        return sum(request.end is None for request in self.outside.values())

    def _table(self) -> dict[str, Callable[[Incoming], tuple[int, bytes, bytes]]]:
        def json(make: Callable[[], object]) -> Callable[[Incoming], tuple[int, bytes, bytes]]:
            return lambda incoming: (200, msgspec.json.encode(make()), JSON)

        started = self._clock.wall_ns() // 1_000_000_000
        about = json(lambda: info.server_info(self.setup, self.metrics.gen_throughput))
        return {
            "/v1/models": json(lambda: info.models(self.setup, started)),
            "/model_info": json(lambda: info.model_info(self.setup)),
            "/get_model_info": json(lambda: info.model_info(self.setup)),
            "/server_info": about,
            "/get_server_info": about,
            "/get_load": json(self._get_load),
            "/sim/load": json(self._sim_load),
            "/metrics": lambda incoming: (200, self.metrics.render(self._clock.now_ns()), CONTENT_TYPE),
            "/ping": lambda incoming: (200, b"", TEXT),
            "/v1/loads": lambda incoming: (500, b"Internal Server Error", TEXT),
            "/flush_cache": self._flush,
            # as on SGLang a GET does it too: a monitor that probes carelessly is seen here
            "/start_profile": lambda incoming: (200, self.profiler.start(incoming.body), TEXT),
            "/stop_profile": lambda incoming: (200, self.profiler.stop(), TEXT),
        }

    def _get_load(self) -> list[dict[str, object]]:
        serving = self.serving
        return [
            {
                "dp_rank": 0,
                "num_reqs": len(serving.running) + len(serving.waiting),
                "num_waiting_reqs": len(serving.waiting),
                "num_tokens": serving.kv_tokens,
                "num_pending_tokens": 0,
                "ts_tic": self._clock.now_ns() / 1e9,
            }
        ]

    def _sim_load(self) -> object:
        serving = self.serving
        return msgspec.structs.replace(
            serving.load,
            t_ns=self._clock.now_ns(),
            running=len(serving.running),
            memory_bytes=model.memory_bytes(self.setup.kv_cast, self.setup.tp, self.setup.kv_capacity),
            pid=os.getpid(),
        )

    def _flush(self, incoming: Incoming) -> tuple[int, bytes, bytes]:
        if self.serving.running or self.serving.waiting:
            return 400, b"Failed to flush cache: requests are running.\n", TEXT
        self._prefix.flush()
        return 200, b"Cache flushed.\n", TEXT


def slowed(schedule: Schedule, factor: float) -> Schedule:
    return msgspec.structs.replace(schedule, ttft_ms=schedule.ttft_ms * factor, itl_ms=schedule.itl_ms * factor)


async def serve(options: Options) -> None:
    """Until a signal or the parent's end."""
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    server = Server(options, loop)
    try:
        listener = await loop.create_server(server.connection, options.host, options.setup.port, backlog=1024)
    except OSError as error:
        server.alarm.close()
        message = f"can't listen at {options.host}:{options.setup.port}: {os.strerror(error.errno or 0).lower()}"
        raise DataError(message, "choose another --port, or leave it out for any free one") from error
    port = listener.sockets[0].getsockname()[1]
    server.setup = msgspec.structs.replace(server.setup, port=port)
    line = {"endpoint": f"http://{options.host}:{port}", "port": port, "pid": os.getpid(), "simulated": True}
    sys.stdout.write(msgspec.json.encode(line).decode() + "\n")
    sys.stdout.flush()
    visiting = loop.create_task(server.visitors.run(server.count_outside))
    while not stop.is_set() and os.getppid() == options.parent:
        try:
            await asyncio.wait_for(stop.wait(), PARENT_CHECK_S)
        except TimeoutError:
            continue
    visiting.cancel()
    listener.close()
    server.alarm.close()
    if options.scratch is not None and os.getppid() != options.parent:
        shutil.rmtree(options.scratch, ignore_errors=True)  # its owner was killed and can't


def main(argv: Sequence[str] | None = None) -> int:
    uvloop.run(serve(parse_options(argv)))
    return 0


if __name__ == "__main__":
    try:
        raise SystemExit(main())
    except DataError as error:
        raise SystemExit(f"decodetop: {error}") from None
