"""The command line of the simulated server."""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, get_args

import msgspec

from decodetop.sim.exact import Schedule
from decodetop.sim.info import Setup
from decodetop.sim.model import KvCast
from decodetop.sim.serving import Faults

STALL_DEFAULT = 8
SLOW_DEFAULT = 10.0


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """`parent` is the process whose end is ours; `scratch` its temporary folder."""

    setup: Setup
    faults: Faults
    host: str
    exact: Schedule | None
    truth: Path | None
    profile_dir: Path | None
    speed: float
    visitors: int
    seed: int
    parent: int
    scratch: Path | None


def parse_options(argv: Sequence[str] | None = None) -> Options:
    """Exits with 2 and a message for what can't be."""
    parser = _parser()
    args = parser.parse_args(argv)
    try:
        faults = parse_faults(args.fault)
    except argparse.ArgumentTypeError as error:
        parser.error(str(error))
    if args.speed <= 0:
        parser.error("--speed must be above 0")
    return Options(
        setup=Setup(
            served_name=args.served_name,
            model_path=args.model_path,
            port=args.port,
            tp=args.tp,
            graphs=args.graphs,
            graph_max_batch=args.graph_max_batch,
            context_length=args.context_length,
            max_running=args.max_running,
            kv_tokens=args.kv_tokens,
            kv_cast=args.kv_cast,
            api_key=args.api_key,
        ),
        faults=faults,
        host=args.host,
        exact=args.exact,
        truth=args.truth,
        profile_dir=args.profile_dir,
        speed=args.speed,
        visitors=args.visitors,
        seed=args.seed,
        parent=args.parent or os.getppid(),
        scratch=args.scratch,
    )


def port(text: str) -> int:
    """Raises ArgumentTypeError."""
    if not text.isdecimal() or int(text) > 65_535:
        raise argparse.ArgumentTypeError(f"{text} is no port: 0 to 65535")
    return int(text)


def parse_faults(words: Sequence[str]) -> Faults:
    """`error_after=8`, `cut_after=8`, `stall[=8]`, `http500`, `slow[=10]`. Raises ArgumentTypeError."""
    fields: dict[str, Any] = {}
    for word in words:
        name, _, value = word.partition("=")
        try:
            if name in ("error_after", "cut_after"):
                fields[name] = int(value)
            elif name == "stall":
                fields["stall_after"] = int(value or STALL_DEFAULT)
            elif name == "http500" and not value:
                fields[name] = True
            elif name == "slow":
                fields[name] = float(value or SLOW_DEFAULT)
            else:
                raise ValueError
        except ValueError as error:
            known = "error_after=N, cut_after=N, stall[=N], http500, slow[=FACTOR]"
            raise argparse.ArgumentTypeError(f"{word!r} is no fault; they are: {known}") from error
    return Faults(**fields)


def parse_schedule(text: str) -> Schedule:
    """`ttft_ms=100,itl_ms=20[,batched=1][,jitter_ms=J][,tokens=N]`. Raises ArgumentTypeError."""
    pairs = dict(part.partition("=")[::2] for part in text.split(","))
    try:
        return msgspec.convert(
            {name: value == "1" if name == "batched" else value for name, value in pairs.items()},
            Schedule,
            strict=False,
        )
    except msgspec.ValidationError as error:
        raise argparse.ArgumentTypeError(f"{text!r}: {error}") from error


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m decodetop.sim.server", description="a simulated inference server", allow_abbrev=False
    )
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=port, default=0, help="0 = any free one, printed as JSON")
    parser.add_argument("--served-name", default=Setup().served_name)
    parser.add_argument("--model-path", default=Setup().model_path)
    parser.add_argument("--tp", type=int, choices=(1, 2), default=1)
    parser.add_argument("--graphs", action=argparse.BooleanOptionalAction, default=True, help="CUDA graphs")
    parser.add_argument("--graph-max-batch", type=int, default=32)
    parser.add_argument("--context-length", type=int, default=16_384)
    parser.add_argument("--max-running", type=int, default=256)
    parser.add_argument("--kv-tokens", type=int, metavar="N", help="size of the KV pool (default as recorded)")
    parser.add_argument("--kv-cast", choices=get_args(KvCast), default="none", help="FP8 KV cast to BF16 in each step")
    parser.add_argument("--speed", type=float, default=1.0, help="times as fast as the recorded box")
    parser.add_argument("--exact", type=parse_schedule, metavar="ttft_ms=T,itl_ms=I", help="serve at fixed times")
    parser.add_argument("--fault", action="append", default=[], metavar="NAME[=VALUE]")
    parser.add_argument("--truth", type=Path, metavar="FILE", help="log what was received and sent when")
    parser.add_argument("--profile-dir", type=Path, metavar="DIR", help="for traces whose request names no folder")
    parser.add_argument("--api-key", help="answer 401 without it")
    parser.add_argument("--visitors", type=int, default=0, help="users inside the box; they give way to others")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--parent", type=int, help="end when this is no longer the parent process")
    parser.add_argument("--scratch", type=Path, metavar="DIR", help="removed when the parent was killed")
    return parser
