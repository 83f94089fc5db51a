"""What load generators make of every framing and fault of a stream: ours, and the peers whose interpreters are given.

    python benchmarks/fault_matrix.py
    python benchmarks/fault_matrix.py --aiperf VENV/bin/python --guidellm ... --inference-perf ... --markdown
    python benchmarks/fault_matrix.py --only "CRLF framing"

The rows are those of tests/support/fault_matrix.py. A client is right when it takes for a success what is one (with the
tokens the server counted, where it says them) and for a failure what is none. A peer is started once an API and sends
one request a row, one after the other; what it recorded of each is read from its own report. Rows of the chat API are
left out for inference-perf, whose synthetic prompts are for completions only. A peer that is not given is skipped, with
a word.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import tempfile
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from client_peers import PEERS, Outcome, PeerFailed, Task, outcomes_of

from decodetop.bench.http import Inbox
from decodetop.bench.load import Load, target
from decodetop.bench.reading import Plan
from decodetop.bench.request import Dialect
from decodetop.bench.workload import Workload
from support.fault_matrix import ROWS, TOKENS, Row
from support.token_server import MODELS, NOT_FOUND, Seen, Step, TokenServer

REQUESTS = 4
"""Of ours, a row; a peer sends one."""
PATIENCE_S, PEERS_PATIENCE_S = 0.5, 3.0
"""How long ours, and a peer, is told to wait for a stalled answer."""


def main() -> int:
    args = _parser().parse_args()
    pythons = {name: getattr(args, name.replace("-", "_")) for name in PEERS}
    given = {name: python for name, python in pythons.items() if python is not None}
    rows = {name: row for name, row in ROWS.items() if not args.only or name in args.only}
    found: dict[str, dict[str, str]] = {name: {"expected": expected(row)} for name, row in rows.items()}
    for name, row in rows.items():
        found[name]["ours"] = judged(row, asyncio.run(ours(row)))
    for peer, python in given.items():
        for name, words in _peer(peer, python, rows).items():
            found[name][peer] = words
    for line in (markdown if args.markdown else columns)(found, ("expected", "ours", *given)):
        print(line)
    for name in PEERS:
        if name not in given:
            print(f"{name}: skipped, not given (--{name} VENV/bin/python)")
    if args.json is not None:
        args.json.write_text(json.dumps(found, indent=2) + "\n")
    return 1 if any(said["ours"].startswith("WRONG") for said in found.values()) else 0


def columns(found: dict[str, dict[str, str]], clients: Sequence[str]) -> Iterator[str]:
    table = [("case", *clients), *((name, *(said[client] for client in clients)) for name, said in found.items())]
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    for cells in table:
        yield "  ".join(f"{cell:<{width}}" for cell, width in zip(cells, widths, strict=True)).rstrip()


def markdown(found: dict[str, dict[str, str]], clients: Sequence[str]) -> Iterator[str]:
    yield f"| case | {' | '.join(clients)} |"
    yield "|---" * (1 + len(clients)) + "|"
    for name, said in found.items():
        yield f"| {name} | {' | '.join(said[client] for client in clients)} |"


def expected(row: Row) -> str:
    if row.fault is not None:
        return f"{row.fault}"
    return f"success, {row.counted} tokens" if row.counted is not None else "success"


def judged(row: Row, outcome: Outcome) -> str:
    """`right`, or what was made of it. An answer that ended early and is counted as it came is no wrong figure."""
    counted = None if outcome.tokens is None else f"{outcome.tokens:g} tokens"
    if not outcome.ok:
        return "right" if row.fault is not None else "WRONG: failed"
    if row.fault == "short_output" and outcome.tokens == row.counted:
        return f"ok, {counted}"
    if row.fault is not None:
        return "WRONG: ok" if counted is None else f"WRONG: ok, {counted}"
    if row.counted is None or outcome.tokens == row.counted:
        return "right"
    return "right, no count" if counted is None else f"WRONG: {counted}"


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
    assert len({(record.fault, record.output_tokens) for record in load.records}) == 1, load.records
    one = load.records[0]
    return Outcome(one.fault is None, one.output_tokens, one.message)


def _peer(name: str, python: Path, rows: Mapping[str, Row]) -> dict[str, str]:
    """Row -> what this peer made of it."""
    found = {}
    for api in ("completions", "chat"):
        asked = {row_name: row for row_name, row in rows.items() if row.api == api}
        if api not in PEERS[name].apis:
            found |= dict.fromkeys(asked, "not its API")
        elif asked:
            found |= _heard(name, python, api, asked)
    return found


def _heard(name: str, python: Path, api: str, rows: Mapping[str, Row]) -> dict[str, str]:
    with tempfile.TemporaryDirectory() as folder, serving([row.steps for row in rows.values()]) as server:
        task = Task(python, server.url, 1, len(rows), TOKENS, Path(folder), PEERS_PATIENCE_S)
        try:
            outcomes = outcomes_of(name, task, api)
            sent = len(server.posts)
            if not len(outcomes) == sent == len(rows):
                raise PeerFailed(f"{sent} requests and {len(outcomes)} records for {len(rows)} rows")
        except PeerFailed as error:
            print(f"{name}, {api}: {error}", file=sys.stderr)
            return dict.fromkeys(rows, "did not run")
    return {row_name: judged(row, outcome) for (row_name, row), outcome in zip(rows.items(), outcomes, strict=True)}


@contextmanager
def serving(answers: Sequence[Sequence[Step]]) -> Iterator[TokenServer]:
    """A server that answers one request after the other with these, on a loop of its own: the client is a process."""
    ready, over = threading.Event(), threading.Event()
    server: TokenServer
    left = iter(answers)

    def script(seen: Seen) -> Iterable[Step]:
        return [MODELS] if seen.method == "GET" else next(left, [NOT_FOUND])

    async def serve() -> None:
        nonlocal server
        async with TokenServer(script) as server:
            ready.set()
            while not over.is_set():
                await asyncio.sleep(0.05)

    thread = threading.Thread(target=lambda: asyncio.run(serve()), daemon=True)
    thread.start()
    ready.wait()
    try:
        yield server
    finally:
        over.set()
        thread.join()


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, metavar="FILE")
    parser.add_argument("--markdown", action="store_true", help="the table for a document")
    parser.add_argument("--only", action="append", metavar="CASE", help="this row (repeatable)")
    for name in PEERS:
        parser.add_argument(f"--{name}", type=Path, metavar="PYTHON", help=f"of a venv that has {name}")
    return parser


if __name__ == "__main__":
    sys.exit(main())
