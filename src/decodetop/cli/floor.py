"""`decodetop floor`: the lower bound of a decode step, the gap to what was measured, a verdict and next moves."""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import Sequence
from pathlib import Path

import msgspec

from decodetop.cli.common import print_json, print_lines
from decodetop.config import Settings, api_key
from decodetop.core.clock import SystemClock
from decodetop.errors import DataError, UsageError
from decodetop.floor import hardware, text
from decodetop.floor.formats import FORMATS
from decodetop.floor.locate import locate
from decodetop.flows.floor import Ask, Seen, answer, clocks_of, from_server, look
from decodetop.gpu.reading import GpuReading
from decodetop.steps.analyse import analyse
from decodetop.steps.reading import StepsReport

PLAIN_WIDTH = 140
REPORT_MAX_BYTES = 64 << 20


def configure(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "The hard lower bound of one decode step from the model's bytes and the GPU, what practice adds to it, and - "
        "with a measurement - where the rest goes. Without --model the server of this box is asked for all of it."
    )
    what = parser.add_argument_group("what is served")
    what.add_argument(
        "--model",
        metavar="PATH",
        help="a checkpoint's folder, a config.json, a GGUF file, or a name in the local cache",
    )
    what.add_argument("--gpu", default="auto", metavar="NAME", help="a card by name; auto = what NVML finds here")
    what.add_argument("--tp", type=_count, metavar="N", help="tensor parallel GPUs (1)")
    what.add_argument("--pp", type=_count, metavar="N", help="pipeline stages (1)")
    what.add_argument("--ep", type=_count, metavar="N", help="GPUs that whole experts are spread over (1)")
    what.add_argument(
        "--dp-attention", type=_count, nargs="?", const=0, metavar="N", help="attention groups; alone = one per GPU"
    )
    what.add_argument("--batch", type=_count, metavar="B", help="running sequences (as in the trace, else 1)")
    what.add_argument("--context", type=_count, metavar="T", help="tokens each sequence has read (1024)")
    what.add_argument("--kv-dtype", metavar="D", help="format of the KV cache (what the checkpoint declares)")
    what.add_argument("--weights-dtype", choices=sorted(FORMATS), metavar="D", help=f"{', '.join(sorted(FORMATS))}")
    what.add_argument("--draft-steps", type=_whole, metavar="K", help="draft forwards of a step (0)")
    what.add_argument("--verify-tokens", type=_count, metavar="N", help="tokens of a sequence in a step (K + 1)")
    what.add_argument("--accept-length", type=_positive, metavar="A", help="tokens a step gives, from the server")
    seen = parser.add_argument_group("what was measured")
    seen.add_argument("--measured-ms", type=_positive, metavar="X", help="time per token of a stream (ITL)")
    seen.add_argument("--measured-step-ms", type=_positive, metavar="X", help="time per step, where it is known")
    seen.add_argument(
        "--steps", nargs="+", metavar="FILE", help="traces of all ranks, or the JSON of `decodetop steps`"
    )
    own = parser.add_argument_group("what you know better")
    own.add_argument("--bandwidth", type=_positive, metavar="GB/S", help="memory bandwidth of one GPU")
    own.add_argument("--link", choices=("nvlink", "pcie"), help="how the GPUs reach each other")
    own.add_argument("--efficiency", type=_share, metavar="0..1", help="share of the bandwidth that kernels reach here")
    own.add_argument("--allreduce-us", type=_positive, metavar="X", help="one all-reduce measured here")
    own.add_argument("--layer-us", type=_positive, metavar="X", help="a layer's cost beyond its bytes, measured here")
    own.add_argument("--gpus", type=Path, metavar="FILE", help="your own cards (TOML), before the shipped")
    parser.add_argument("--explain", action="store_true", help="every line of the arithmetic and every assumption")
    parser.add_argument("--json", action="store_true", help="data on stdout")


def run(args: argparse.Namespace, settings: Settings) -> int:
    steps = _steps(args.steps) if args.steps else None
    specs = hardware.load(args.gpus)
    override = hardware.Override(bandwidth_gb_s=args.bandwidth, link=args.link)
    ask = _ask(args)
    seen = Seen()
    if args.model is None or args.gpu == "auto":
        seen = asyncio.run(
            look(
                SystemClock(), settings.endpoints, api_key(settings), server=args.model is None, gpus=args.gpu == "auto"
            )
        )
    if args.model is None:
        if seen.server is None:
            raise UsageError("there is no model to judge", "give --model PATH, or start the server on this box")
        ask = from_server(seen.server, ask)
    card = (
        hardware.from_nvml(_own_gpus(seen), specs, override)
        if args.gpu == "auto"
        else hardware.named(args.gpu, specs, override)
    )
    report = answer(ask, card, steps=steps, server=seen.server, clocks=clocks_of(seen.gpus))
    if args.json:
        print_json(report)
    else:
        print_lines(text.lines(report, PLAIN_WIDTH))
        for error in report.errors:
            print(f"decodetop: {error}", file=sys.stderr)
        if args.explain:
            print_lines(["", *text.explain(report, PLAIN_WIDTH)])
    return 0


def _ask(args: argparse.Namespace) -> Ask:
    return Ask(
        model=None if args.model is None else locate(args.model),
        tp=args.tp,
        pp=args.pp,
        ep=args.ep,
        dp_attention=args.dp_attention,
        batch=args.batch,
        context=args.context,
        kv_dtype=args.kv_dtype,
        weights_dtype=args.weights_dtype,
        draft_steps=args.draft_steps,
        verify_tokens=args.verify_tokens,
        accept_length=args.accept_length,
        token_ms=args.measured_ms,
        step_ms=args.measured_step_ms,
        eta=args.efficiency,
        allreduce_us=args.allreduce_us,
        layer_us=args.layer_us,
    )


def _own_gpus(seen: Seen) -> GpuReading:
    """The GPUs the server holds, else all of the box. Raises UsageError with the driver's word."""
    if seen.gpus is None:
        raise UsageError(f"no GPU is found: {seen.gpu_problem or 'NVML is silent'}", "give the card's name: --gpu NAME")
    held = seen.server.gpu_indices if seen.server is not None else None
    if not held:
        return seen.gpus
    return msgspec.structs.replace(seen.gpus, gpus=tuple(gpu for gpu in seen.gpus.gpus if gpu.index in held))


def _steps(files: Sequence[str]) -> StepsReport:
    """Traces, or one report that `decodetop steps --json` printed. Raises DataError."""
    if len(files) == 1 and (known := _report(Path(files[0]))) is not None:
        report = known
    else:
        report = analyse(files)
    for error in report.errors:
        print(f"decodetop: {error}", file=sys.stderr)
    if not any(rank.period_us is not None for rank in report.ranks):
        raise DataError(f"no decode step can be shown in {files[0]}", "decodetop steps says what is wrong with it")
    return report


def _report(path: Path) -> StepsReport | None:
    """None when the file is a trace, or none at all: then reading it as a trace says so."""
    try:
        with path.open("rb") as file:
            raw = file.read(REPORT_MAX_BYTES)
        return msgspec.json.decode(raw, type=StepsReport) if b'"ranks"' in raw[:4096] else None
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError):
        return None


def _whole(word: str) -> int:
    value = int(word)
    if not 0 <= value <= 1_000_000_000:
        raise argparse.ArgumentTypeError(f"{word} is no count")
    return value


def _count(word: str) -> int:
    value = _whole(word)
    if value < 1:
        raise argparse.ArgumentTypeError(f"{word}: at least 1 is needed")
    return value


def _positive(word: str) -> float:
    value = float(word)
    if not 0 < value < float("inf"):
        raise argparse.ArgumentTypeError(f"{word} is not a positive number")
    return value


def _share(word: str) -> float:
    value = _positive(word)
    if value > 1:
        raise argparse.ArgumentTypeError(f"{word} is not between 0 and 1")
    return value
