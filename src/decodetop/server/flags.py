"""What a server was asked for and what it runs with: command lines to flags, and the two side by side. Pure."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from pathlib import PurePath

from decodetop.server.reading import Engine, Flag
from decodetop.server.redact import MASK, is_secret_name, redact, redact_text

ALIASES: Mapping[Engine, Mapping[str, str]] = {
    "sglang": {
        "model": "model_path",
        "tp": "tp_size",
        "tensor_parallel_size": "tp_size",
        "pp": "pp_size",
        "pipeline_parallel_size": "pp_size",
        "dp": "dp_size",
        "data_parallel_size": "dp_size",
        "ep": "ep_size",
        "expert_parallel_size": "ep_size",
        "cuda_graph_max_bs": "cuda_graph_max_bs_decode",
        "cuda_graph_bs": "cuda_graph_bs_decode",
    },
    "vllm": {
        "tp": "tensor_parallel_size",
        "pp": "pipeline_parallel_size",
        "dp": "data_parallel_size",
        "q": "quantization",
        "O": "optimization_level",
        "cc": "compilation_config",
    },
    "llamacpp": {
        "m": "model",
        "c": "ctx_size",
        "np": "parallel",
        "ngl": "n_gpu_layers",
        "gpu_layers": "n_gpu_layers",
        "b": "batch_size",
        "ub": "ubatch_size",
        "fa": "flash_attn",
        "md": "model_draft",
        "ctk": "cache_type_k",
        "ctv": "cache_type_v",
        "ts": "tensor_split",
        "sm": "split_mode",
        "a": "alias",
    },
}
"""Short and old names to the one name a flag has here: the engine's own field name."""

POSITIONAL_MODEL: Mapping[Engine, str] = {"vllm": "model", "sglang": "model_path"}

_NUMBER = re.compile(r"-?\d+(\.\d+)?")
_PROGRAM = re.compile(r"python[\d.]*|pypy[\d.]*")


def requested_flags(engine: Engine, argv: Sequence[str]) -> dict[str, str]:
    """The flags of a server's command line by canonical name, in the order typed, redacted. A bare flag is `true`."""
    aliases = ALIASES.get(engine, {})
    flags: dict[str, str] = {}
    name: str | None = None
    for word in redact(_arguments(argv)):
        if word.startswith("-") and not _NUMBER.fullmatch(word) and word.strip("-"):
            typed, equals, value = word.lstrip("-").partition("=")
            if engine == "vllm" and re.fullmatch(r"O\d", typed):
                typed, equals, value = "O", "=", typed[1:]
            name = _canonical(typed, aliases)
            flags[name] = value if equals else "true"
        elif name is not None:
            flags[name] = word if flags[name] == "true" else f"{flags[name]} {word}"
        elif engine in POSITIONAL_MODEL:
            flags.setdefault(POSITIONAL_MODEL[engine], word)
    return flags


def merge_flags(
    requested: Mapping[str, str], resolved: Mapping[str, str], telling: Collection[str]
) -> tuple[Flag, ...]:
    """Requested next to resolved: what was typed, in its order, then the `telling` ones nobody typed."""
    flags = [Flag(name=name, requested=value, resolved=resolved.get(name)) for name, value in requested.items()]
    for name in telling:
        if name in resolved and name not in requested:
            flags.append(Flag(name=name, resolved=resolved[name]))
    return tuple(flags)


def shown(name: str, value: object) -> str | None:
    """A setting's value as text without keys; None for null. A secret's value is masked whatever it is."""
    if value is None:
        return None
    if is_secret_name(name):
        return MASK
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (list, tuple)):
        return redact_text(clipped(" ".join(str(item) for item in value)))
    return redact_text(clipped(str(value)))


TEXT_MAX = 2000
"""Characters of a name or setting that a server tells: it stands in every sample."""


def clipped(text: str) -> str:
    return text if len(text) <= TEXT_MAX else text[: TEXT_MAX - 1] + "…"


def whole(text: str | None) -> int | None:
    """A flag's value as a whole number; None if it is none."""
    return int(text) if text is not None and re.fullmatch(r"\d{1,18}", text) else None


def _arguments(argv: Sequence[str]) -> Sequence[str]:
    """What follows the program: after `python -m module`, `python /bin/vllm serve`, `vllm serve`, `llama-server`."""
    words = [word for word in argv if word]
    at = 1
    if words and _PROGRAM.fullmatch(PurePath(words[0]).name):
        while at < len(words) and words[at].startswith("-") and words[at] != "-m":
            at += 1
        at += 2 if at < len(words) and words[at] == "-m" else 1
    while at < len(words) and words[at] in ("serve", "api_server"):
        at += 1
    return words[at:]


def _canonical(typed: str, aliases: Mapping[str, str]) -> str:
    name = typed.replace("-", "_")
    return aliases.get(name, name)
