"""What `decodetop floor` and `decodetop diagnose` share: what is served, what the user knows better, reading steps."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

import msgspec

from decodetop.cli.common import complain, path_option
from decodetop.core.decode import NotDecoded, decode
from decodetop.core.regular import open_regular
from decodetop.errors import DataError, UsageError
from decodetop.floor import hardware
from decodetop.floor.formats import FORMATS
from decodetop.floor.hardware import Card
from decodetop.floor.locate import locate
from decodetop.flows.floor import Ask, Seen
from decodetop.gpu.reading import GpuReading
from decodetop.steps.analyse import analyse
from decodetop.steps.folder import ranks_in
from decodetop.steps.reading import StepsReport

REPORT_MAX_BYTES = 64 << 20


def served_options(parser: argparse.ArgumentParser) -> None:
    """The model and how it is served; see Ask."""
    what = parser.add_argument_group("what is served")
    what.add_argument(
        "--model",
        metavar="PATH",
        help="a checkpoint's folder, a config.json, a GGUF file, or a name in the local cache",
    )
    what.add_argument("--gpu", default="auto", metavar="NAME", help="a card by name; auto = what NVML finds here")
    what.add_argument("--tp", type=count, metavar="N", help="tensor parallel GPUs (1)")
    what.add_argument("--pp", type=count, metavar="N", help="pipeline stages (1)")
    what.add_argument("--ep", type=count, metavar="N", help="GPUs that whole experts are spread over (1)")
    what.add_argument(
        "--dp-attention", type=count, nargs="?", const=0, metavar="N", help="attention groups; alone = one per GPU"
    )
    what.add_argument("--batch", type=count, metavar="B", help="running sequences (as in the trace, else 1)")
    what.add_argument("--context", type=count, metavar="T", help="tokens each sequence has read (1024)")
    what.add_argument("--kv-dtype", metavar="D", help="format of the KV cache (what the checkpoint declares)")
    what.add_argument("--weights-dtype", choices=sorted(FORMATS), metavar="D", help=f"{', '.join(sorted(FORMATS))}")
    what.add_argument("--draft-steps", type=whole, metavar="K", help="draft forwards of a step (0)")
    what.add_argument(
        "--draft-model", metavar="PATH", help="a draft model's own checkpoint: EAGLE, or a smaller model (as --model)"
    )
    what.add_argument("--verify-tokens", type=count, metavar="N", help="tokens of a sequence in a step (K + 1)")
    what.add_argument("--accept-length", type=positive, metavar="A", help="tokens a step gives, from the server")


def own_options(parser: argparse.ArgumentParser) -> None:
    """What the user measured or knows of this box."""
    own = parser.add_argument_group("what you know better")
    own.add_argument("--bandwidth", type=positive, metavar="GB/S", help="memory bandwidth of one GPU")
    own.add_argument("--link", choices=("nvlink", "pcie"), help="how the GPUs reach each other")
    own.add_argument("--efficiency", type=share, metavar="0..1", help="share of the bandwidth that kernels reach here")
    own.add_argument("--allreduce-us", type=positive, metavar="X", help="one all-reduce measured here")
    own.add_argument("--layer-us", type=positive, metavar="X", help="a layer's cost beyond its bytes, measured here")
    own.add_argument("--gpus", type=path_option, metavar="FILE", help="your own cards (TOML), before the shipped")


def card_of(args: argparse.Namespace, seen: Seen) -> Card:
    """The card asked for, or the one NVML found. Raises UsageError, ConfigError."""
    specs = hardware.load(args.gpus)
    override = hardware.Override(bandwidth_gb_s=args.bandwidth, link=args.link)
    if args.gpu == "auto":
        return hardware.from_nvml(_own_gpus(seen), specs, override)
    return hardware.named(args.gpu, specs, override)


def ask_of(args: argparse.Namespace) -> Ask:
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
        draft_model=None if args.draft_model is None else locate(args.draft_model),
        verify_tokens=args.verify_tokens,
        accept_length=args.accept_length,
        token_ms=args.measured_ms,
        step_ms=getattr(args, "measured_step_ms", None),
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


def steps_of(files: Sequence[str]) -> StepsReport:
    """Traces, or one report that `decodetop steps --json` printed. Raises DataError."""
    if len(files) == 1 and (known := _report(Path(files[0]))) is not None:
        report = known
    else:
        report = analyse(ranks_in(files))
    for error in report.errors:
        complain(error)
    if not any(rank.period_us is not None for rank in report.ranks):
        raise DataError(f"no decode step can be shown in {files[0]}", "decodetop steps says what is wrong with it")
    return report


def _report(path: Path) -> StepsReport | None:
    """None when the file is a trace, or none at all: then reading it as a trace says so."""
    try:
        with open_regular(path) as file:
            raw = file.read(REPORT_MAX_BYTES)
        return decode(raw, StepsReport) if b'"ranks"' in raw[:4096] else None
    except (OSError, NotDecoded):
        return None


def whole(word: str) -> int:
    value = int(word)
    if not 0 <= value <= 1_000_000_000:
        raise argparse.ArgumentTypeError(f"{word} is no count")
    return value


def count(word: str) -> int:
    value = whole(word)
    if value < 1:
        raise argparse.ArgumentTypeError(f"{word}: at least 1 is needed")
    return value


def positive(word: str) -> float:
    value = float(word)
    if not 0 < value < float("inf"):
        raise argparse.ArgumentTypeError(f"{word} is not a positive number")
    return value


def share(word: str) -> float:
    value = positive(word)
    if value > 1:
        raise argparse.ArgumentTypeError(f"{word} is not between 0 and 1")
    return value
