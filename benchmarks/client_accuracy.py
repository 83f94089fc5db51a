"""How true a benchmark client's figures are: against a server that logs when it really sent each token.

    python benchmarks/client_accuracy.py --streams 1 8 32 64 128 256 --json accuracy.json
    python benchmarks/client_accuracy.py --realtime        # on a busy machine, as root; peers get niceness -15
    python benchmarks/client_accuracy.py --aiperf VENV/bin/python --guidellm ... --inference-perf ...

It needs no installation and no network: from a checkout, with httptools, uvloop, msgspec, psutil, isal and httpx in a
folder SITE, `PYTHONPATH=src:tui:SITE python benchmarks/client_accuracy.py`.

The server (decodetop.sim, `--exact`: TTFT 100 ms, ITL 20 ms from the arrival of each request) runs on one core, the
client on another, no sibling of it; both stamp with CLOCK_MONOTONIC. Closed loop, 3 requests a stream (24 at least),
32 tokens each; all streams start together, so that they emit in the same instant, as a batched decode step does. Truth
is what the server sent, never what it planned: TTFT = its first send minus the client's write of the request, ITL =
between its sends. `ideal` tok/s = streams x 32 / (100 + 31 x 20 ms). Clients: ours (decodetop's load process), one
shared httpx.AsyncClient, and the peers of client_peers.py whose interpreters are given (what they report is compared;
their sends are taken as its arrivals). A busy machine spoils all of it: `load` is the load average at the start, and 2
free cores are the least.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from client_peers import PEERS, PeerFailed, Said, Task, run_peer

from decodetop.bench.launch import run_load
from decodetop.bench.measure import figures
from decodetop.bench.reading import Plan
from decodetop.bench.stats import quantile
from decodetop.bench.wire import Ready, Tick
from decodetop.sim.process import start_server
from decodetop.sim.truth import TruthLine, read_truth

TTFT_MS, ITL_MS, TOKENS, ROUNDS = 100.0, 20.0, 32, 3
REQUESTS_MIN = 24
"""A p99 of three requests would be one hiccup."""
SIBLINGS = "/sys/devices/system/cpu/cpu{}/topology/thread_siblings_list"
NS_PER_MS = 1e6


@dataclass(frozen=True)
class Seen:
    """One request as a client saw it; ns of CLOCK_MONOTONIC. `due_ns` None = the client doesn't say."""

    id: str
    write_ns: int
    chunks_ns: list[int]
    due_ns: int | None = None


@dataclass(frozen=True)
class Row:
    """One client at one number of streams. Figures in ms unless named otherwise; `true` = the server's."""

    client: str
    streams: int
    requests: int
    tok_s_share: float
    ttft_off_p50: float
    ttft_off_p99: float
    itl_p99: float
    itl_p99_true: float
    token_delay_p50: float | None
    token_delay_p99: float | None
    send_delay_p99: float | None
    cpu_percent: float | None


def main() -> int:
    args = _parser().parse_args()
    if args.httpx is not None:
        print(json.dumps(asyncio.run(_httpx_client(args.httpx, args.streams[0]))))
        return 0
    try:
        client_core, server_core = args.cores or two_cores(sorted(os.sched_getaffinity(0)))
        os.sched_setaffinity(0, {server_core})  # refuses a core that is not ours
        os.sched_setaffinity(0, {client_core})
    except (OSError, ValueError) as error:
        print(f"two cores are the least, one for the server, one for the client: {error}", file=sys.stderr)
        return 1
    if args.realtime:
        os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(10))  # the children inherit it
    facts = {
        "realtime": args.realtime,
        "client_core": client_core,
        "server_core": server_core,
        "cores": os.cpu_count(),
        "cpu": processor(),
        "load": os.getloadavg()[0],
        "python": platform.python_version(),
    }
    print(", ".join(f"{name} {value}" for name, value in facts.items()))
    peers = {name: getattr(args, name.replace("-", "_")) for name in PEERS}
    clients = [*args.clients, *(name for name, python in peers.items() if python is not None)]
    rows = []
    print(HEAD)
    for streams in args.streams:
        for client in clients:
            try:
                row = measure(client, streams, server_core, peers.get(client))
            except PeerFailed as error:
                print(f"{client:<15}{streams:>8}  did not run: {error}")
                continue
            rows.append(row)
            print(line(row), flush=True)
    for name, python in peers.items():
        if python is None:
            print(f"{name}: not given (--{name} VENV/bin/python)")
    verdicts = [word for row in rows if row.client == "ours" for word in judge(row)]
    print("\n".join(verdicts) or "all within the bounds")
    if args.json is not None:
        found = {"facts": facts, "rows": [asdict(row) for row in rows], "misses": verdicts}
        args.json.write_text(json.dumps(found, indent=2) + "\n")
    return 1 if verdicts else 0


def measure(client: str, streams: int, server_core: int, python: Path | None) -> Row:
    """One client against a fresh server. Raises PeerFailed."""
    with tempfile.TemporaryDirectory() as folder:
        truth = Path(folder) / "truth.ndjson"
        schedule = f"ttft_ms={TTFT_MS},itl_ms={ITL_MS}"
        more = ("--max-running", str(max(256, streams)))
        with start_server(exact=schedule, truth=truth, more=more) as server:
            os.sched_setaffinity(server.process.pid, {server_core})
            if python is not None:
                task = Task(python, server.endpoint, streams, requests_of(streams), TOKENS, Path(folder))
                said = run_peer(client, task)
                return judged_by_report(client, task, said, read_truth(truth))
            if client == "ours":
                seen, cpu = asyncio.run(_ours(server.endpoint, streams))
            else:
                seen, cpu = _httpx(server.endpoint, streams)
        return compare(client, streams, seen, {line.id: line for line in read_truth(truth)}, cpu)


def two_cores(cores: Sequence[int]) -> tuple[int, int]:
    """One for the client, and one for the server that shares no core with it. Raises ValueError with fewer than two.

    Hyperthreads of one core would slow each other; the first core is left alone where there are others, since
    interrupts are often taken there.
    """
    if len(cores) < 2:
        raise ValueError(f"there is {len(cores)}")
    free = list(cores[1:] if len(cores) > 4 else cores)
    client = free[0]
    return client, next((core for core in free[1:] if core not in siblings(client)), free[1])


def siblings(core: int) -> set[int]:
    """The threads of `core`'s own core, as Linux lists them (`0,8` or `0-1`); none where it does not say."""
    try:
        parts = Path(SIBLINGS.format(core)).read_text().strip().split(",")
        ends = [[int(end) for end in part.split("-")] for part in parts]
    except (OSError, ValueError):
        return set()
    return {thread for end in ends for thread in range(end[0], end[-1] + 1)}


def processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.machine()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), platform.machine())


def requests_of(streams: int) -> int:
    """The same number for every stream."""
    return streams * max(ROUNDS, -(-REQUESTS_MIN // streams))


class _Quiet:
    """Listens to the load process and says nothing."""

    def tick(self, ticks: Sequence[Tick]) -> None:
        return None

    async def ready(self, ready: Ready) -> None:
        return None


async def _ours(endpoint: str, streams: int) -> tuple[list[Seen], float | None]:
    plan = Plan(
        preset="accuracy",
        endpoint=endpoint,
        streams=streams,
        requests=requests_of(streams),
        warmup_requests=streams,
        input_tokens=64,
        output_tokens=TOKENS,
        seed=int(time.time()),
    )
    result = await run_load(plan, None, _Quiet(), asyncio.Event())
    seen = figures(result)
    assert seen.requests.failed == 0, seen.requests
    found = []
    for record in result.records:
        assert record.id is not None and record.write_ns is not None
        stamps = [record.write_ns + chunk_ns for chunk_ns in record.chunks_ns]
        found.append(Seen(record.id, record.write_ns, stamps, record.due_ns))
    return found, result.cpu_percent


def _httpx(endpoint: str, streams: int) -> tuple[list[Seen], float | None]:
    argv = [sys.executable, __file__, "--httpx", endpoint, "--streams", str(streams)]
    said = json.loads(subprocess.run(argv, check=True, capture_output=True, text=True).stdout)
    return [Seen(**one) for one in said["seen"]], said["cpu_percent"]


async def _httpx_client(endpoint: str, streams: int) -> dict[str, Any]:
    """One shared AsyncClient, as most Python load generators have it."""
    import httpx

    seen: list[dict[str, Any]] = []
    limits = httpx.Limits(max_connections=None, max_keepalive_connections=None)

    async def one(client: httpx.AsyncClient, number: int) -> dict[str, Any]:
        body = {"prompt": [number % 9000 + 1000] * 64, "max_tokens": TOKENS, "temperature": 0, "stream": True}
        body |= {"ignore_eos": True, "model": "m", "stream_options": {"include_usage": True}}
        found: dict[str, Any] = {"id": "", "write_ns": time.perf_counter_ns(), "chunks_ns": []}
        async with client.stream("POST", f"{endpoint}/v1/completions", json=body) as response:
            async for text in response.aiter_lines():
                now_ns = time.perf_counter_ns()
                if text.startswith("data: {"):
                    event = json.loads(text[6:])
                    if event["choices"]:
                        found["id"] = event["id"]
                        found["chunks_ns"].append(now_ns)
        return found

    async def stream(client: httpx.AsyncClient, number: int, rounds: int, into: list[dict[str, Any]]) -> None:
        for turn in range(rounds):
            into.append(await one(client, number + 1000 * turn))

    async with httpx.AsyncClient(timeout=120, limits=limits, trust_env=False) as client:
        await asyncio.gather(*(stream(client, number, 1, []) for number in range(streams)))
        rounds = requests_of(streams) // streams
        began_ns, cpu_ns = time.perf_counter_ns(), time.process_time_ns()
        await asyncio.gather(*(stream(client, number, rounds, seen) for number in range(streams)))
        busy = 100 * (time.process_time_ns() - cpu_ns) / (time.perf_counter_ns() - began_ns)
    return {"seen": seen, "cpu_percent": busy}


def compare(client: str, streams: int, seen: list[Seen], truth: dict[str, TruthLine], cpu: float | None) -> Row:
    """Join on the id that stands in every chunk."""
    ours, theirs, gaps, true_gaps, delays, sends = [], [], [], [], [], []
    for one in seen:
        sent = truth[one.id].sent_ns
        assert len(sent) == len(one.chunks_ns) == TOKENS, (client, len(sent), len(one.chunks_ns))
        ours.append((one.chunks_ns[0] - one.write_ns) / NS_PER_MS)
        theirs.append((sent[0] - one.write_ns) / NS_PER_MS)
        gaps += [(b - a) / NS_PER_MS for a, b in pairwise(one.chunks_ns)]
        true_gaps += [(b - a) / NS_PER_MS for a, b in pairwise(sent)]
        delays += [(here - there) / NS_PER_MS for here, there in zip(one.chunks_ns, sent, strict=True)]
        sends += [(one.write_ns - one.due_ns) / NS_PER_MS] if one.due_ns is not None else []
    window_s = (max(one.chunks_ns[-1] for one in seen) - min(one.write_ns for one in seen)) / 1e9
    return Row(
        client=client,
        streams=streams,
        requests=len(seen),
        tok_s_share=len(seen) / window_s / ideal_request_s(streams),
        ttft_off_p50=q(ours, 0.5) - q(theirs, 0.5),
        ttft_off_p99=q(ours, 0.99) - q(theirs, 0.99),
        itl_p99=q(gaps, 0.99),
        itl_p99_true=q(true_gaps, 0.99),
        token_delay_p50=q(delays, 0.5),
        token_delay_p99=q(delays, 0.99),
        send_delay_p99=q(sends, 0.99) if sends else None,
        cpu_percent=cpu,
    )


def judged_by_report(client: str, task: Task, said: Said, truth: list[TruthLine]) -> Row:
    """What a peer reported beside what was sent to it."""
    whole = [line for line in truth if len(line.sent_ns) == task.tokens]
    theirs = [(line.sent_ns[0] - line.received_ns) / NS_PER_MS for line in whole]
    gaps = [(b - a) / NS_PER_MS for line in whole for a, b in pairwise(line.sent_ns)]
    return Row(
        client=client,
        streams=task.streams,
        requests=task.requests,
        tok_s_share=said.request_s / ideal_request_s(task.streams),
        ttft_off_p50=said.ttft_p50 - q(theirs, 0.5),
        ttft_off_p99=said.ttft_p99 - q(theirs, 0.99),
        itl_p99=said.gap_p99,
        itl_p99_true=q(gaps, 0.99),
        token_delay_p50=None,
        token_delay_p99=None,
        send_delay_p99=None,
        cpu_percent=None,
    )


def ideal_request_s(streams: int) -> float:
    """Of a client that sends the next request in the instant the last one ends."""
    return streams / ((TTFT_MS + (TOKENS - 1) * ITL_MS) / 1e3)


def q(values: list[float], share: float) -> float:
    return quantile(sorted(values), share)


def judge(row: Row) -> list[str]:
    """The bounds this project holds itself to; a line for each one missed."""
    found = []
    least = 0.97 if row.streams <= 128 else 0.93
    if row.tok_s_share < least:
        found.append(
            f"{row.streams} streams: {100 * row.tok_s_share:.1f} % of the ideal tok/s, not {100 * least:.0f} %"
        )
    if row.streams <= 128:
        bound_ms = 3.0 if row.streams <= 64 else 6.0
        for name, off in (("p50", row.ttft_off_p50), ("p99", row.ttft_off_p99)):
            if abs(off) > bound_ms:
                found.append(f"{row.streams} streams: TTFT {name} off by {off:.1f} ms, more than {bound_ms:g}")
        if abs(row.itl_p99 / row.itl_p99_true - 1) > 0.05:
            found.append(f"{row.streams} streams: ITL p99 {row.itl_p99:.2f} ms, true {row.itl_p99_true:.2f} ms")
    return found


HEAD = (
    f"{'client':<15}{'streams':>8}{'tok/s of ideal':>16}{'TTFT off p50':>14}{'p99':>8}{'ITL p99':>10}{'true':>8}"
    f"{'delay p50':>11}{'p99':>8}{'send p99':>10}{'CPU':>7}"
)


def line(row: Row) -> str:
    figures = (row.token_delay_p50, row.token_delay_p99, row.send_delay_p99)
    p50, p99, send = ("–" if figure is None else f"{figure:.2f}" for figure in figures)
    cpu = "–" if row.cpu_percent is None else f"{row.cpu_percent:.0f} %"
    return (
        f"{row.client:<15}{row.streams:>8}{100 * row.tok_s_share:>14.1f} %"
        f"{row.ttft_off_p50:>14.2f}{row.ttft_off_p99:>8.2f}{row.itl_p99:>10.2f}{row.itl_p99_true:>8.2f}"
        f"{p50:>11}{p99:>8}{send:>10}{cpu:>7}"
    )


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--streams", type=int, nargs="+", default=[1, 8, 32, 64, 128, 256])
    parser.add_argument("--clients", nargs="+", choices=("ours", "httpx"), default=["ours", "httpx"])
    parser.add_argument("--json", type=Path, metavar="FILE", help="figures and facts of the machine")
    cores = "of the client (all its processes) and the server; default: two that share nothing"
    parser.add_argument("--cores", type=int, nargs=2, metavar=("CLIENT", "SERVER"), help=cores)
    parser.add_argument("--realtime", action="store_true", help="real-time priority for server and client")
    for name in PEERS:
        parser.add_argument(f"--{name}", type=Path, metavar="PYTHON", help=f"of a venv that has {name}")
    parser.add_argument("--httpx", metavar="URL", help=argparse.SUPPRESS)
    return parser


if __name__ == "__main__":
    sys.exit(main())
