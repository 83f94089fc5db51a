"""How fast and in how little memory `decodetop steps` reads big traces, beside what could be had at best and its peers.

    python benchmarks/trace.py                 # 300 MB of both mixes
    python benchmarks/trace.py --megabytes 2000 --only ours bare

Traces are made from the recordings in tests/captures: their events repeated with later times and other correlations,
in the layout and order that Kineto writes (all CPU work first). `gpu` is vLLM without stacks, `stack` SGLang with them.
Every method runs in its own process, in turns, on the same file. MB/s count uncompressed JSON and are wall time, the
ratios are of CPU seconds (all threads), which a busy machine disturbs less; the exit code is 1 where one or our memory
is not as asked (NEEDED, RSS_MAX_MB). `ours` is the whole of `analyse`: reading, cutting into steps, attribution.
HolisticTraceAnalysis takes part where installed, or with `--hta PYTHON` of a virtual environment that has it beside
msgspec and isal. All run in the environment of the parser's process.
"""

from __future__ import annotations

import argparse
import gc
import gzip
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
from isal import igzip

from decodetop.steps.analyse import analyse
from decodetop.steps.chunks import BOUNDARY, Chunks
from decodetop.steps.events import EventDecoder
from decodetop.steps.inflate import BLOCK_BYTES
from decodetop.steps.launch import ENVIRONMENT

CAPTURES = Path(__file__).resolve().parents[1] / "tests" / "captures"
MIXES = {"gpu": "vllm_tp1_graph/prof/rank0*.gz", "stack": "sglang_tp1_graph/prof_c1/*.gz"}
NEEDED = {"bare": 0.8, "json.load": 3.5, "hta": 10.0}
"""Our speed must be at least so many times the other's."""
RSS_MAX_MB = 120
PAUSE_US = 500.0
_TS = re.compile(rb'"ts": (\d+\.\d{3})')
_CORRELATION = re.compile(rb'"correlation": (\d+)|"id": (\d+)')


class Result(msgspec.Struct):
    """One method on one file."""

    seconds: float
    cpu_seconds: float
    rss_mb: float
    note: str = ""


def synthesise(recording: Path, megabytes: int, out: Path) -> int:
    """Write a trace of about that much JSON to `out`, gzip -1; the bytes of JSON."""
    text = gzip.decompress(recording.read_bytes())
    start = text.index(b'"traceEvents": [') + 16
    pieces = BOUNDARY.split(text[start:])
    # what has no category (names of threads, the window's edges) stands once, at the end, as in a real file
    timed = [_template(piece + b"},") for piece in pieces[:-1] if b'"cat"' in piece]
    host = [one for one in timed if not one.on_gpu]
    device = [one for one in timed if one.on_gpu]
    first = min(one.ts for one in timed)
    step_us = max(one.ts for one in timed) - first + PAUSE_US
    correlations = max(one.correlation for one in timed) + 1
    copies = max(1, round(megabytes * 1e6 / sum(len(piece) for piece in pieces)))
    size = 0
    with gzip.open(out, "wb", compresslevel=1) as file:
        size += file.write(text[:start])
        for group in (host, device):
            for copy in range(copies):
                size += file.write(b"".join(one.text(copy * step_us, copy * correlations) for one in group))
        size += file.write(pieces[-1])
    return size


class _Template:
    """An event's text around its time and correlation."""

    def __init__(self, parts: list[bytes], ts: float, correlation: int, on_gpu: bool) -> None:
        self._parts, self.ts, self.correlation, self.on_gpu = parts, ts, correlation, on_gpu

    def text(self, later_us: float, more: int) -> bytes:
        head, middle, tail = self._parts
        number = b"%d" % (self.correlation + more) if tail else b""
        return b"%s%.3f%s%s%s" % (head, self.ts + later_us, middle, number, tail)


def _template(piece: bytes) -> _Template:
    on_gpu = not any(word in piece for word in (b'"cpu_op"', b'"python_function"', b'"cat": "user_annotation"'))
    found = _TS.search(piece)
    if found is None:
        raise SystemExit(f"no time in an event of the recording: {piece[:100]!r}")
    number = _CORRELATION.search(piece, found.end())
    parts = [piece[: found.start(1)], piece[found.end(1) :], b""]
    if number is None:
        return _Template(parts, float(found[1]), 0, on_gpu)
    group = 1 if number[1] else 2
    parts = [piece[: found.start(1)], piece[found.end(1) : number.start(group)], piece[number.end(group) :]]
    return _Template(parts, float(found[1]), int(number[group]), on_gpu)


def ours(path: Path) -> str:
    report = analyse([path])
    rank = report.ranks[0]
    assert rank.period_us is not None
    return f"{rank.steps.used} of {rank.steps.found} steps, {rank.period_us.median:.1f} us"


def bare(path: Path) -> str:
    """The ceiling: decompress, cut, typed decode with the same types; nothing is looked at. One thread."""
    return _decoded(path, lambda chunks: EventDecoder(chunks)._open)


def _decoded(path: Path, decoder_for: Callable[[Chunks], msgspec.json.Decoder[Any]]) -> str:
    with igzip.open(path) as file:
        chunks = Chunks(iter(lambda: file.read(BLOCK_BYTES), b""), str(path))
        decoder = decoder_for(chunks)
        events = sum(len(decoder.decode(text)) for text in chunks if not chunks.last)
    return f"{events:,} events"


class _Arguments(msgspec.Struct, gc=False):
    correlation: int | None = None
    stream: int | str | None = None
    device: int | None = None


class _Event(msgspec.Struct, gc=False):
    ph: str | None = None
    cat: str | None = None
    name: str | None = None
    pid: int | str | None = None
    tid: int | str | None = None
    ts: float | None = None
    dur: float | None = None
    args: _Arguments | None = None


def bare_flat(path: Path) -> str:
    """The same with one type for every event, as the first sketches had it."""
    return _decoded(path, lambda chunks: msgspec.json.Decoder(list[_Event]))


def json_load(path: Path) -> str:
    with gzip.open(path) as file:
        return f"{len(json.load(file)['traceEvents']):,} events"


def hta(path: Path) -> str:
    from hta.common.trace import parse_trace_file  # type: ignore[import-not-found]

    _, frame, _ = parse_trace_file(str(path))[:3]
    return f"{len(frame):,} rows"


METHODS: dict[str, Callable[[Path], str]] = {
    "ours": ours,
    "bare": bare,
    "bare, one struct": bare_flat,
    "json.load": json_load,
    "hta": hta,
}


def run_one(name: str, path: Path) -> None:
    """In the child: one method, its time and peak memory as JSON."""
    gc.freeze()
    begin, cpu_begin = time.perf_counter(), time.process_time()
    note = METHODS[name](path)
    seconds, cpu_seconds = time.perf_counter() - begin, time.process_time() - cpu_begin
    print(json.dumps({"seconds": seconds, "cpu_seconds": cpu_seconds, "rss_mb": _peak_mb(), "note": note}))


def _peak_mb() -> float:
    status = Path("/proc/self/status").read_text()
    return int(re.search(r"VmHWM:\s+(\d+) kB", status)[1]) / 1024  # type: ignore[index]


def _environment() -> dict[str, str]:
    return {**ENVIRONMENT, **os.environ, "PYTHONPATH": str(CAPTURES.parents[1] / "src")}


def measure(name: str, path: Path, python: str) -> Result | None:
    """One run in a process of its own; None where the method isn't there."""
    command = [python, __file__, "--child", name, str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=_environment())
    if done.returncode != 0:
        print(f"  {name}: {done.stderr.strip().splitlines()[-1][:100]}", file=sys.stderr)
        return None
    return msgspec.json.decode(done.stdout.splitlines()[-1], type=Result)


def measured(path: Path, only: list[str], times: int, hta_python: str) -> dict[str, Result]:
    """The run with the median of CPU seconds of each method. They take turns: the load of a shared machine changes."""
    runs: dict[str, list[Result]] = {name: [] for name in METHODS if name in only}
    for _ in range(times):
        for name in list(runs):
            result = measure(name, path, hta_python if name == "hta" else sys.executable)
            if result is None:
                del runs[name]
            else:
                runs[name].append(result)
    return {name: sorted(found, key=lambda one: one.cpu_seconds)[times // 2] for name, found in runs.items()}


def rows(mix: str, megabytes: int, only: list[str], times: int, folder: Path, hta_python: str) -> Iterator[str]:
    """Lines to print; those with BELOW or ABOVE tell of what is not as it must be."""
    path = folder / f"{mix}-{megabytes}.trace.json.gz"
    size = synthesise(next(CAPTURES.glob(MIXES[mix])), megabytes, path)
    yield f"{mix}: {size / 1e6:,.0f} MB of JSON, {path.stat().st_size / 1e6:,.1f} MB gz"
    results = measured(path, only, times, hta_python)
    mine = results.get("ours")
    for name, result in results.items():
        ratio = None if mine is None else result.cpu_seconds / mine.cpu_seconds
        times_ours = "" if ratio is None else f"ours is {ratio:5.2f}x as fast"
        if ratio is not None and name in NEEDED and ratio < NEEDED[name]:
            times_ours += f"  BELOW {NEEDED[name]}"
        if name == "ours" and result.rss_mb > RSS_MAX_MB:
            times_ours += f"  ABOVE {RSS_MAX_MB} MB"
        speed = size / 1e6 / result.seconds
        figures = f"{speed:7.1f} MB/s  {result.cpu_seconds:6.2f} CPU s  {result.rss_mb:7.1f} MB peak"
        yield f"  {name:<18} {figures}  {times_ours}  {result.note}"
    path.unlink()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--megabytes", type=int, nargs="+", default=[300])
    parser.add_argument("--mix", nargs="+", choices=MIXES, default=list(MIXES))
    parser.add_argument("--only", nargs="+", choices=METHODS, default=list(METHODS))
    parser.add_argument("--times", type=int, default=3)
    parser.add_argument("--hta", default=sys.executable, metavar="PYTHON", help="one that has HolisticTraceAnalysis")
    parser.add_argument("--child", nargs=2, metavar=("METHOD", "FILE"), help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.child:
        run_one(args.child[0], Path(args.child[1]))
        return 0
    as_needed = True
    with tempfile.TemporaryDirectory() as folder:
        for megabytes in args.megabytes:
            for mix in args.mix:
                for line in rows(mix, megabytes, args.only, args.times, Path(folder), args.hta):
                    print(line, flush=True)
                    as_needed &= "BELOW" not in line and "ABOVE" not in line
    return 0 if as_needed else 1


if __name__ == "__main__":
    sys.exit(main())
