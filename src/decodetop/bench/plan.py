"""Presets and the plans they make."""

from __future__ import annotations

import math
from collections.abc import Sequence
from importlib import resources
from pathlib import Path

import msgspec

from decodetop.bench.reading import Api, Plan, Preset
from decodetop.core.decode import NotDecoded, decode_toml
from decodetop.core.regular import read_text, why
from decodetop.errors import ConfigError, UsageError

SECONDS_PER_TOKEN = 0.5
"""A request may take this long per output token before it counts as timed out, when no time-out was asked for."""

STREAMS_MAX = 4096
REQUESTS_MAX = 1_000_000
TOKENS_MAX = 1 << 22
"""Of one prompt or answer. Prompts of more take the load process half a minute to make up."""


class Overrides(msgspec.Struct, frozen=True, kw_only=True):
    """What was asked for beside the preset; None = as the preset says. `requests` is the total of a run."""

    model: str | None = None
    api: Api | None = None
    streams: int | None = None
    requests: int | None = None
    input_tokens: int | None = None
    output_tokens: int | None = None
    timeout_s: float | None = None
    warmup_requests: int | None = None
    temperature: float | None = None
    ignore_eos: bool | None = None
    shared_prefix_tokens: int | None = None
    request_rate_s: float | None = None
    prompts_file: str | None = None
    slo_ms: dict[str, float] | None = None
    duration_s: float | None = None


class _Entry(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    title: str | None = None
    streams: tuple[int, ...] = (1,)
    requests_per_stream: int = 4
    input_tokens: int | tuple[int, ...] = 128
    output_tokens: int = 256
    api: Api = "completions"
    timeout_s: float = 120.0


def load_presets(own: Path | None = None) -> tuple[Preset, ...]:
    """The shipped presets and those of the user's file, if it is there; one of the same name replaces a shipped one.

    Raises ConfigError naming the file and what is wrong in it.
    """
    shipped = resources.files("decodetop.bench").joinpath("presets.toml").read_text("utf-8")
    found = {preset.name: preset for preset in parse_presets(shipped, "presets.toml")}
    if own is not None:
        try:
            text = read_text(own)
        except (FileNotFoundError, NotADirectoryError):
            text = ""
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(f"can't read {own}: {why(error)}", "it holds one table per preset") from error
        found |= {preset.name: preset for preset in parse_presets(text, str(own))}
    return tuple(found.values())


def parse_presets(text: str, where: str) -> tuple[Preset, ...]:
    """Raises ConfigError."""
    try:
        entries = decode_toml(text, dict[str, _Entry])
    except NotDecoded as error:
        known = ", ".join(_Entry.__struct_fields__)
        raise ConfigError(f"{where}: {error}", f"a preset has: {known}") from error
    return tuple(_preset(name, entry, where) for name, entry in entries.items())


def _preset(name: str, entry: _Entry, where: str) -> Preset:
    contexts = entry.input_tokens if isinstance(entry.input_tokens, tuple) else (entry.input_tokens,)
    sizes = (*entry.streams, entry.requests_per_stream, *contexts, entry.output_tokens, entry.timeout_s)
    if not entry.streams or not contexts or min(sizes) <= 0 or max(entry.streams) > STREAMS_MAX:
        message = (
            f"{where}: preset {name}: streams (up to {STREAMS_MAX}), requests, tokens and time-out must be above 0"
        )
        raise ConfigError(message, 'see docs/benchmark.md, "Presets"')
    return Preset(
        name=name,
        title=entry.title or name,
        streams=entry.streams,
        requests_per_stream=entry.requests_per_stream,
        input_tokens=contexts[0],
        contexts=contexts if len(contexts) > 1 else (),
        output_tokens=entry.output_tokens,
        api=entry.api,
        timeout_s=entry.timeout_s,
    )


def choose(presets: Sequence[Preset], name: str) -> Preset:
    """Raises UsageError naming what there is."""
    for preset in presets:
        if preset.name == name:
            return preset
    raise UsageError(f"there is no preset {name!r}", f"presets: {', '.join(preset.name for preset in presets)}")


def plans_of(preset: Preset, endpoint: str, seed: int, asked: Overrides | None = None) -> list[Plan]:
    """One plan per number of streams and input length. Each has its own seed, so that no run reads another's prefix
    cache.

    Warm-up is one request per stream, until steady. Raises UsageError for a number that makes no sense.
    """
    asked = Overrides() if asked is None else asked
    plans = []
    for step, (streams, input_tokens) in enumerate(_steps(preset, asked)):
        output_tokens = preset.output_tokens if asked.output_tokens is None else asked.output_tokens
        patient_s = max(preset.timeout_s, SECONDS_PER_TOKEN * output_tokens)
        plan = Plan(
            preset=preset.name,
            endpoint=endpoint,
            api=asked.api or preset.api,
            model=asked.model,
            streams=streams,
            requests=_requests(preset, asked, streams),
            warmup_requests=streams if asked.warmup_requests is None else asked.warmup_requests,
            warmup_steady=asked.warmup_requests is None,
            input_tokens=input_tokens,
            output_tokens=output_tokens,
            timeout_s=patient_s if asked.timeout_s is None else asked.timeout_s,
            seed=seed + step,
            temperature=asked.temperature or 0.0,
            ignore_eos=True if asked.ignore_eos is None else asked.ignore_eos,
            shared_prefix_tokens=asked.shared_prefix_tokens or 0,
            request_rate_s=asked.request_rate_s,
            prompts_file=asked.prompts_file,
            slo_ms=asked.slo_ms or {},
            duration_s=asked.duration_s,
        )
        _check(plan)
        plans.append(plan)
    return plans


def _steps(preset: Preset, asked: Overrides) -> list[tuple[int, int]]:
    """(streams, input tokens) of each run."""
    streams = preset.streams if asked.streams is None else (asked.streams,)
    contexts = preset.contexts or (preset.input_tokens,) if asked.input_tokens is None else (asked.input_tokens,)
    return [(count, tokens) for count in streams for tokens in contexts]


def several(preset: Preset, asked: Overrides) -> bool:
    """Whether it is a sweep or a ladder: more than one run."""
    return len(_steps(preset, asked)) > 1


def _requests(preset: Preset, asked: Overrides, streams: int) -> int:
    if asked.requests is not None:
        return asked.requests
    return streams * preset.requests_per_stream if asked.duration_s is None else REQUESTS_MAX


def fitting(plans: Sequence[Plan], context_length: int | None) -> list[Plan]:
    """Those of several that a model of `context_length` tokens can hold; all of them when it holds none."""
    most = math.inf if context_length is None else context_length
    return [plan for plan in plans if plan.input_tokens + plan.output_tokens <= most] or list(plans)


SLO_METRICS = ("ttft", "tpot", "e2e")


def parse_slo(text: str) -> dict[str, float]:
    """`ttft=200,tpot=20` in ms. Raises UsageError."""
    found = {}
    for part in text.split(","):
        metric, _, bound = part.partition("=")
        try:
            found[metric.strip()] = float(bound)
        except ValueError as error:
            raise UsageError(f"--slo {text!r}: {part!r} is no bound in ms", "use --slo ttft=200,tpot=20") from error
    if not found.keys() <= set(SLO_METRICS) or not all(0 < bound < math.inf for bound in found.values()):
        raise UsageError(f"--slo {text!r}: bounds above 0 of {', '.join(SLO_METRICS)}", "use --slo ttft=200,tpot=20")
    return found


def _check(plan: Plan) -> None:
    limits = {
        "streams": (plan.streams, STREAMS_MAX, "one box can't stamp more than that well"),
        "requests": (plan.requests, REQUESTS_MAX, "each keeps the stamps of its tokens"),
        "warmup": (plan.warmup_requests + 1, REQUESTS_MAX, "one a stream is the usual"),
        "input-tokens": (plan.input_tokens, TOKENS_MAX, "no model holds a longer prompt"),
        "output-tokens": (plan.output_tokens, TOKENS_MAX, "no model gives a longer answer"),
    }
    for option, (value, most, reason) in limits.items():
        if value < 1 and option != "warmup":
            raise UsageError(f"--{option} {value} is not a number above 0", f"use for example --{option} 8")
        if value > most:
            raise UsageError(f"--{option} {value} is above {most:,}", reason)
    if not 0 < plan.timeout_s < math.inf:
        raise UsageError(f"--timeout-s {plan.timeout_s:g} is not above 0", "use for example --timeout-s 120")
    if plan.duration_s is not None and not 0 < plan.duration_s < math.inf:
        raise UsageError(f"--duration-s {plan.duration_s:g} is not above 0", "use for example --duration-s 60")
    if plan.request_rate_s is not None and not 0 < plan.request_rate_s < math.inf:
        raise UsageError(f"--rate {plan.request_rate_s:g} is not above 0 requests/s", "use for example --rate 2")
    sampled = plan.warmup_requests >= 0 and 0 <= plan.temperature < math.inf
    if not sampled or not 0 <= plan.shared_prefix_tokens < plan.input_tokens:
        message = "--warmup and --temperature must not be below 0, --shared-prefix less than --input-tokens"
        raise UsageError(message, "leave them out for the usual ones")
