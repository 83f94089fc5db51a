"""`decodetop demo`: the screen on a simulated box; `--serve`: only its server, to be tried by hand."""

from __future__ import annotations

import argparse
from typing import get_args

from decodetop.cli.common import tell
from decodetop.cli.tui import add_screen_options, log_to, show
from decodetop.config import Settings
from decodetop.core.clock import SystemClock
from decodetop.errors import UsageError
from decodetop.flows.demo import KV_TOKENS, VISITORS, build_demo, demo_box, demo_settings
from decodetop.sim.model import KvCast
from decodetop.sim.options import port
from decodetop.sim.server import main as serve

GPUS_MAX = 16


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--gpus", type=int, default=2, metavar="N", help="simulated GPUs (default 2; at most 16)")
    parser.add_argument(
        "--tp", type=int, choices=(1, 2), default=2, help="how many of them the server uses (default 2)"
    )
    parser.add_argument(
        "--graphs", action=argparse.BooleanOptionalAction, default=True, help="CUDA graphs; --no-graphs is host-bound"
    )
    parser.add_argument(
        "--kv-cast",
        choices=get_args(KvCast),
        default="full",
        help="cast the whole FP8 KV pool in each layer (full), the rows in use (active: the fix), or nothing (none)",
    )
    parser.add_argument("--serve", action="store_true", help="only the simulated server, until Ctrl-C")
    parser.add_argument("--port", type=port, default=0, help="for --serve; default: any free one")
    add_screen_options(parser)


def run(args: argparse.Namespace, settings: Settings) -> int:
    """Raises UsageError, DataError when the simulated server does not start."""
    if not args.tp <= args.gpus <= GPUS_MAX:
        raise UsageError(
            f"--gpus {args.gpus} is not between {args.tp} (--tp) and {GPUS_MAX}", "use for example --gpus 2"
        )
    if args.serve:
        url = f"http://127.0.0.1:{args.port}" if args.port else "URL, the endpoint below"
        tell(f"try: decodetop --endpoint {url}, or decodetop bench run single --endpoint {url}")
        graphs = "--graphs" if args.graphs else "--no-graphs"
        cast = ["--kv-cast", args.kv_cast, "--kv-tokens", str(KV_TOKENS)]
        return serve(["--tp", str(args.tp), "--port", str(args.port), "--visitors", str(VISITORS), graphs, *cast])
    if args.log is not None:
        log_to(args.log)
    with demo_box(tp=args.tp, gpu_count=args.gpus, graphs=args.graphs, kv_cast=args.kv_cast) as box:
        return show(build_demo(settings, SystemClock(), box), demo_settings(settings, box))
