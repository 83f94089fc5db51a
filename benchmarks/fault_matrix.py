"""What load generators make of every framing and fault of a stream: ours, and the peers whose interpreters are given.

    python benchmarks/fault_matrix.py
    python benchmarks/fault_matrix.py --aiperf VENV/bin/python --guidellm ... --inference-perf ... --only "CRLF framing"

The rows are those of tests/support/fault_matrix.py. A client is right when it takes for a success what is one (with the
tokens the server counted, where it says them) and for a failure what is none. A peer is started once a row, for 4
requests on one stream; rows of the chat API are left out for inference-perf, whose fault figures are of completions. A
peer that is not given is named as skipped.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from client_peers import PEERS, Outcome, PeerFailed, Task, outcome_of

from decodetop.bench.http import Inbox
from decodetop.bench.load import Load, target
from decodetop.bench.reading import Plan
from decodetop.bench.request import Dialect
from decodetop.bench.workload import Workload
from support.fault_matrix import ROWS, TOKENS, Row
from support.token_server import MODELS, Seen, Step, TokenServer

REQUESTS = 4
PATIENCE_S = 0.5
"""Ours is told to wait so long for a stalled answer; peers have no such option and are given up after theirs."""


def main() -> int:
    args = _parser().parse_args()
    pythons = {name: getattr(args, name.replace("-", "_")) for name in PEERS}
    given = [name for name, python in pythons.items() if python is not None]
    rows = {name: row for name, row in ROWS.items() if not args.only or name in args.only}
    width = max(map(len, rows))
    print(f"{'case':<{width}}  {'expected':<22}{'ours':<22}" + "".join(f"{name:<22}" for name in given))
    found: dict[str, dict[str, str]] = {}
    wrong = 0
    for name, row in rows.items():
        said = {"ours": judged(row, asyncio.run(ours(row)))}
        wrong += said["ours"].startswith("WRONG")
        for peer in given:
            said[peer] = _peer(peer, pythons[peer], row)
        found[name] = {"expected": expected(row), **said}
        cells = "".join(f"{said[client]:<22}" for client in ("ours", *given))
        print(f"{name:<{width}}  {expected(row):<22}{cells}".rstrip(), flush=True)
    for name in set(pythons) - set(given):
        print(f"{name}: skipped, not given (--{name} VENV/bin/python)")
    if args.json is not None:
        args.json.write_text(json.dumps(found, indent=2) + "\n")
    return 1 if wrong else 0


def expected(row: Row) -> str:
    if row.fault is not None:
        return f"{row.fault}"
    return f"success, {row.counted} tokens" if row.counted is not None else "success"


def judged(row: Row, outcome: Outcome) -> str:
    """`right`, or what was made of it."""
    failed = outcome.failed > 0 and outcome.ok == 0
    if row.fault is not None:
        return "right" if failed else f"WRONG: {outcome.ok} ok"
    if failed or outcome.ok == 0:
        return f"WRONG: {outcome.failed} failed"
    if row.counted is not None and outcome.tokens not in (None, row.counted):
        return f"WRONG: {outcome.tokens:g} tokens"
    return "right" if row.counted is None or outcome.tokens is not None else "right, no tokens"


async def ours(row: Row) -> Outcome:
    async with TokenServer(lambda _: row.steps) as server:
        timeout_s = PATIENCE_S if row.fault == "timeout" else 20.0
        fields: dict[str, Any] = {"api": row.api, "timeout_s": timeout_s, "output_tokens": TOKENS, "input_tokens": 4}
        plan = Plan(preset="faults", endpoint=server.url, requests=REQUESTS, **fields)
        dialect = Dialect(token_ids=row.api != "chat")
        inbox = Inbox(asyncio.get_running_loop(), time.perf_counter_ns)
        load = Load(plan, target(server.url, None), inbox, dialect, "m", Workload(plan, dialect))
        await load.open()
        await load.run(iter(range(REQUESTS)))
        load.close()
    failed = sum(record.fault is not None for record in load.records)
    counts = [record.output_tokens for record in load.records if record.output_tokens is not None]
    return Outcome(len(load.records) - failed, failed, sum(counts) / len(counts) if counts else None)


def _peer(name: str, python: Path, row: Row) -> str:
    if row.api not in PEERS[name].apis:
        return "not its API"
    with tempfile.TemporaryDirectory() as folder, serving(row) as url:
        task = Task(python, url, 1, REQUESTS, TOKENS, Path(folder))
        try:
            return judged(row, outcome_of(name, task, row.api))
        except PeerFailed as error:
            return f"did not run: {error}"[:60]


@contextmanager
def serving(row: Row) -> Iterator[str]:
    """A server of this row's answers on a loop of its own, for a client in another process."""
    ready, over = threading.Event(), threading.Event()
    url = ""

    def script(seen: Seen) -> list[Step]:
        return [MODELS] if seen.method == "GET" else list(row.steps)

    async def serve() -> None:
        nonlocal url
        async with TokenServer(script) as server:
            url = server.url
            ready.set()
            while not over.is_set():
                await asyncio.sleep(0.05)

    thread = threading.Thread(target=lambda: asyncio.run(serve()), daemon=True)
    thread.start()
    ready.wait()
    try:
        yield url
    finally:
        over.set()
        thread.join()


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, metavar="FILE")
    parser.add_argument("--only", action="append", metavar="CASE", help="this row (repeatable)")
    for name in PEERS:
        parser.add_argument(f"--{name}", type=Path, metavar="PYTHON", help=f"of a venv that has {name}")
    return parser


if __name__ == "__main__":
    sys.exit(main())
