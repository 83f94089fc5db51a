"""`decodetop doctor`: what was found, which permission or flag is missing, which settings are in force and why."""

from __future__ import annotations

import argparse
import asyncio
import locale
import os
import platform
import shutil
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Literal

import msgspec

from decodetop import __version__
from decodetop.cli.common import print_json, print_lines
from decodetop.cli.tui import screen_problems
from decodetop.config import UNREAD_HINT, Settings, api_key, default_config_path
from decodetop.core.clock import SystemClock
from decodetop.core.sample import Notice, Sample
from decodetop.core.state import State
from decodetop.core.words import UNKNOWN
from decodetop.errors import ConfigError
from decodetop.flows.live import build_live, settled
from decodetop.flows.session import watch
from decodetop.gpu.reading import GpuReading
from decodetop.server.reading import ENGINE_NAMES, Server, ServerReading
from decodetop.server.text import unknown

LOOK_S = 6.0
Word = Literal["ok", "note", "missing"]
MARKS: dict[Word, str] = {"ok": "ok     ", "note": "note   ", "missing": "missing"}


class Check(msgspec.Struct, frozen=True):
    """One thing looked at. `hint` says what to do when it isn't ok."""

    name: str
    word: Word
    detail: str
    hint: str = ""


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="JSON on stdout")


def run(args: argparse.Namespace, settings: Settings) -> int:
    checks = [*_program(), *_terminal(), *_config(args, settings)]
    try:
        api_key(settings)
    except ConfigError as error:
        checks.append(Check("api key", "missing", error.message, error.hint))
        settings = msgspec.structs.replace(settings, api_key_file=None)
    clock = SystemClock()
    notices: list[Notice] = []

    def heard(sample: Sample) -> None:
        if isinstance(sample.reading, Notice) and sample.reading.level != "info":
            notices.append(sample.reading)

    state = asyncio.run(watch(build_live(settings, clock), clock, LOOK_S, heard, ready=settled))
    checks += [Check("warning", "missing", notice.message, notice.hint) for notice in notices]
    checks += [
        Check("screen", "missing", words, "see docs/themes.md and docs/keys.md") for words in screen_problems(settings)
    ]
    checks += [*_investigation(settings), *_gpus(state), *_servers(state, settings)]
    if args.json:
        in_force = {name: {"value": value, "origin": origin} for name, value, origin in _settings(settings)}
        print_json({"schema": 1, "checks": checks, "settings": in_force, "errors": []})
        return 0
    print_lines(_lines(checks, settings))
    return 0


def _lines(checks: Sequence[Check], settings: Settings) -> Iterator[str]:
    for check in checks:
        yield f"{MARKS[check.word]}  {check.name:<14} {check.detail}"
        if check.hint:
            yield f"{'':<25}{check.hint}"
    yield ""
    yield "settings in force (command line over environment over file over default)"
    for name, value, origin in _settings(settings):
        yield f"  {name:<14} {_shown(value):<44} {origin}"


def _shown(value: object) -> str:
    if value is None or value == "" or value == () or value == {}:
        return UNKNOWN
    if isinstance(value, dict):
        return ", ".join(f"{name} = {key}" for name, key in value.items())
    return ", ".join(map(str, value)) if isinstance(value, tuple) else str(value)


def _config(args: argparse.Namespace, settings: Settings) -> Iterator[Check]:
    problem: ConfigError | None = getattr(args, "problem", None)
    if problem is not None:
        hint = f"{problem.hint}; what follows is with the defaults"
        yield Check("settings", "missing", problem.message, hint)
    elif settings.unread is not None:
        yield Check("settings", "missing", f"{settings.unread}: the defaults", UNREAD_HINT)
    elif settings.config_path is not None:
        yield Check("settings", "ok", str(settings.config_path))
    else:
        yield Check("settings", "ok", f"no file at {default_config_path()}: the defaults")


def _settings(settings: Settings) -> Iterator[tuple[str, object, str]]:
    for name, origin in settings.origin.items():
        value = getattr(settings, name)
        yield name, str(value) if isinstance(value, Path) else value, origin
    has_key = api_key(settings) is not None
    yield "api key", "set (never shown)" if has_key else None, "DECODETOP_API_KEY" if has_key else "default"


def _program() -> Iterator[Check]:
    detail = f"{__version__}, Python {platform.python_version()}, {platform.system()} {platform.release()}"
    yield Check("decodetop", "ok", detail)


def _terminal() -> Iterator[Check]:
    term = os.environ.get("TERM", "")
    size = shutil.get_terminal_size()
    detail = f"TERM={term or 'unset'} COLORTERM={os.environ.get('COLORTERM', 'unset')} {size.columns}x{size.lines}"
    inside = " in tmux" if os.environ.get("TMUX") else ""
    if not sys.stdout.isatty():
        yield Check(
            "terminal", "note", f"stdout is no terminal; {detail}", "the screen needs one; other commands don't"
        )
    elif term in ("", "dumb"):
        yield Check(
            "terminal", "missing", detail, "the screen needs a real terminal: set TERM, for example xterm-256color"
        )
    else:
        yield Check("terminal", "ok", detail + inside)
    encoding = locale.getpreferredencoding(False)
    if encoding.lower().replace("-", "") != "utf8":
        yield Check("locale", "note", encoding, "lines and bars need UTF-8: export LANG=C.UTF-8")


def _investigation(settings: Settings) -> Iterator[Check]:
    folder = settings.investigation
    try:
        yield _folder(folder)
    except OSError as error:
        yield Check("investigation", "missing", f"{folder}: {error.strerror}", "use --investigation DIR")


def _folder(folder: Path) -> Check:
    if folder.is_dir():
        writable = os.access(folder, os.W_OK | os.X_OK)
        hint = "" if writable else "nothing can be kept there: check its owner, or use --investigation DIR"
        return Check("investigation", "ok" if writable else "missing", str(folder), hint)
    parent = next(path for path in folder.parents if path.exists())
    writable = parent.is_dir() and os.access(parent, os.W_OK | os.X_OK)
    hint = "" if writable else f"{parent} is not writable: use --investigation DIR"
    return Check("investigation", "note" if writable else "missing", f"{folder} (made at the first edit)", hint)


def _gpus(state: State) -> Iterator[Check]:
    lane = state.lane("gpu")
    reading = state.last("gpu", GpuReading)
    if lane.failure is not None:
        yield Check("gpu", "missing", lane.failure.message, lane.failure.hint)
    elif reading is None:
        yield Check("gpu", "missing", f"no word from the driver within {LOOK_S:g} s", "see nvidia-smi")
    else:
        names = sorted({gpu.name or "unknown" for gpu in reading.gpus})
        yield Check("gpu", "ok", f"{len(reading.gpus)} ({', '.join(names)}), driver {reading.driver_version}")
        for gpu in reading.gpus:
            if gpu.state != "ok":
                yield Check(f"gpu {gpu.index}", "missing", f"{gpu.state}: {gpu.state_message}")
            if gpu.persistence_mode is False:
                hint = "nvidia-smi -pm 1 keeps the driver loaded between clients"
                yield Check(f"gpu {gpu.index}", "note", "persistence mode is off", hint)


def _servers(state: State, settings: Settings) -> Iterator[Check]:
    lane = state.lane("server")
    reading = state.last("server", ServerReading)
    if lane.failure is not None:
        yield Check("server", "missing", lane.failure.message, lane.failure.hint)
    if reading is None or not reading.servers:
        looked = ", ".join(reading.searched) if reading is not None and reading.searched else "this box"
        yield Check("server", "missing", f"none found (searched: {looked})", "start one, or use --endpoint URL")
        return
    for server in reading.servers:
        yield _server(server)
        for fields, why in unknown(server):
            yield Check("  not known", "note", f"{fields}: {why}")


def _server(server: Server) -> Check:
    name = f"{ENGINE_NAMES.get(server.engine, server.engine)} {server.version or ''}".strip()
    detail = f"{server.endpoint} {name}: {server.status}"
    if server.status == "needs_key":
        return Check("server", "missing", detail, server.status_message or "set DECODETOP_API_KEY or api_key_file")
    if server.status != "up":
        return Check("server", "missing", f"{detail}: {server.status_message or 'no reason given'}")
    return Check("server", "ok", detail)
