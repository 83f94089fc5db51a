"""What the actions of `decodetop bench` share: their options, and measuring on this box."""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import TypeVar

from decodetop.bench import text
from decodetop.bench.compare import Comparison
from decodetop.bench.plan import Overrides, parse_slo
from decodetop.bench.reading import Preset
from decodetop.cli.common import Meter, add_common, complain, finite
from decodetop.config import Settings, api_key
from decodetop.core.clock import SystemClock
from decodetop.core.engine import Engine
from decodetop.core.regular import named_path
from decodetop.errors import UsageError
from decodetop.flows.bench import BenchService
from decodetop.flows.bench_headless import Ended, box_probes, headless
from decodetop.flows.evidence import Linker, made_of_comparison

T = TypeVar("T")

INTERRUPTED = 130
ID_DIGITS_MAX = 18
"""Of a run's number: SQLite counts no further than 19 digits."""


def action(
    actions: argparse._SubParsersAction[argparse.ArgumentParser], name: str, summary: str
) -> argparse.ArgumentParser:
    """A parser for one action, with the common options and --json."""
    # SUPPRESS: an option not typed after the action must not undo one typed before it
    parser = actions.add_parser(
        name, help=summary, description=summary, allow_abbrev=False, argument_default=argparse.SUPPRESS
    )
    add_common(parser)
    parser.add_argument("--json", action="store_true", default=False, help="data on stdout")
    return parser


def plan_options(parser: argparse.ArgumentParser) -> None:
    """What may be asked for beside a preset; see Overrides."""
    group = parser.add_argument_group("instead of what the preset says")
    apis = ("chat", "completions", "generate", "completion")
    group.add_argument("--model", metavar="NAME", help="as the server calls it (default: its first)")
    group.add_argument("--api", choices=apis, help="generate is SGLang's own, completion llama.cpp's own")
    group.add_argument("--streams", type=int, metavar="N", help="requests under way at once")
    group.add_argument("--requests", type=int, metavar="M", help="measured requests in all")
    while_s = "begin no request after S seconds; what is under way then drains, and is in no rate"
    group.add_argument("--duration-s", type=finite, metavar="S", help=while_s)
    group.add_argument("--input-tokens", type=int, metavar="I", help="of every prompt")
    group.add_argument("--output-tokens", type=int, metavar="O", help="of every answer")
    group.add_argument("--timeout-s", type=finite, metavar="S", help="for one request as a whole")
    group.add_argument(
        "--warmup", dest="warmup_requests", type=int, metavar="N", help="requests before (1 per stream, until steady)"
    )
    group.add_argument("--temperature", type=finite, metavar="T", help="of the sampling (default 0)")
    group.add_argument("--shared-prefix", dest="shared_prefix_tokens", type=int, metavar="N", help="tokens in common")
    rate = "requests arrive at random, R a second, however long the others take (default: N streams in a loop)"
    group.add_argument("--rate", dest="request_rate_s", type=finite, metavar="R", help=rate)
    real = 'JSONL: {"prompt" or "messages" or "input_tokens", "output_tokens"?, "t_s"?}; t_s: they arrive as recorded'
    group.add_argument("--prompts", dest="prompts_file", metavar="FILE", help=real)
    group.add_argument("--slo", dest="slo", metavar="ttft=MS,tpot=MS", help="also count the requests within bounds")
    group.add_argument("--seed", type=int, metavar="N", help="of the prompts (default: another one each time)")
    allow = "answers may end before --output-tokens"
    group.add_argument("--allow-eos", dest="ignore_eos", action="store_const", const=False, help=allow)


def own_presets(settings: Settings) -> Path:
    """The user's presets file, in the investigation."""
    return settings.investigation / "presets.toml"


def overrides(args: argparse.Namespace) -> Overrides:
    """What was typed beside the preset. Raises UsageError, and DataError for a prompts file that can't be used."""
    typed = {field: getattr(args, field, None) for field in Overrides.__struct_fields__ if field != "slo_ms"}
    slo = getattr(args, "slo", None)
    if typed["prompts_file"] is not None:
        typed["prompts_file"] = str(named_path(typed["prompts_file"], "--prompts").resolve())
    return Overrides(**typed, slo_ms=parse_slo(slo) if slo is not None else None)


def measured(
    work: Callable[[BenchService, Engine, asyncio.Event], Awaitable[T]],
    settings: Settings,
    presets: Sequence[Preset],
    endpoints: Sequence[str] | None = None,
    *,
    link: bool = True,
) -> Ended[T]:
    """`work` on this box, with a line of progress on a terminal. `endpoints` (or the settings') are watched too.

    `link`: each run is evidence of the item in progress, if there is one.

    Raises UsageError when readonly.
    """
    if settings.readonly:
        raise UsageError("a benchmark puts load on a server: refused with --readonly", "leave --readonly out")
    key = api_key(settings)
    service = BenchService(settings.investigation, presets, lambda: key)
    meter = Meter()
    clock = SystemClock()
    linker = Linker(settings.investigation, clock)
    probes = box_probes(settings.endpoints if endpoints is None else endpoints, key)
    ended = asyncio.run(
        headless(
            lambda engine, stop: work(service, engine, stop),
            service,
            clock,
            lambda progress: meter.show(text.progress_line(progress)),
            probes,
            linker.hear if link else lambda sample: None,
        )
    )
    meter.clear()
    if ended.unstored is not None:
        complain(f"not stored: {ended.unstored.message}", f"{ended.unstored.hint}; its figures are on stdout alone")
    _say(linker)
    return ended


def link_comparisons(settings: Settings, found: Sequence[Comparison]) -> None:
    """Each comparison that has pairs is evidence of the item in progress, if there is one."""
    linker = Linker(settings.investigation, SystemClock())
    linker.link([made_of_comparison(one) for one in found if one.pairs])
    _say(linker)


def _say(linker: Linker) -> None:
    for word in linker.words:
        complain(word)


def run_number(text: str) -> int:
    """An argparse type: the number of a stored run, `7` or `#7`."""
    digits = text.removeprefix("#")
    if not (digits.isascii() and digits.isdecimal()) or len(digits) > ID_DIGITS_MAX or int(digits) < 1:
        raise argparse.ArgumentTypeError(f"{text[:40]!r} is no run's number (`decodetop bench list` shows them)")
    return int(digits)
