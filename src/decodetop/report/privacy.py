"""What a snapshot must not tell: keys, home folders, user names; anonymous: hosts, addresses, paths and serials too.

One place for all of it: the words of the state are changed before anything is written of them, so that markdown, data
and JSON agree. Masking too much costs a word, masking too little tells a name: where in doubt, it masks.
"""

from __future__ import annotations

import ipaddress
import re
import types
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints
from urllib.parse import urlsplit

import msgspec

from decodetop.bench.reading import BenchReading
from decodetop.core.state import Lane, State
from decodetop.server.reading import ENGINE_NAMES, ServerReading
from decodetop.server.redact import redact_text

T = TypeVar("T")

USER = "USER"
LOOPBACK = frozenset({"localhost", "127.0.0.1", "0.0.0.0", "::1", "::"})

_TRADE = """
root ubuntu user users admin debian centos fedora rocky ec2-user azureuser opc runner docker jovyan nobody app apps
shared share data dataset datasets model models work workspace project projects cache tmp test tests demo server
python conda venv home public opt local build bench trace traces log logs llm gpu cuda nvidia nccl torch triton
decodetop decode steps floor todo host report qwen gemma mistral deepseek claude codex opencode
"""
NO_NAMES = frozenset(_TRADE.split()) | {USER.lower(), *ENGINE_NAMES}
"""Accounts whose name is a word of the trade: hidden in a home folder's path, kept elsewhere."""

_HOME = re.compile(r"(?P<base>/(?:home|Users)/|\\Users\\)(?P<name>(?!\.)[^/\\\s\"'`:;,()<>|]+)")
"""No account's name begins with a dot: what does is a folder of a home that is itself called `home`."""
_ON = re.compile(r"[\w./~-]$")
"""The end of what a path is a part of."""
_PATH = re.compile(r"(?<![\w.:/~\\-])/(?:[^/\s\"'`|,;:()<>\[\]]+/)+[^/\s\"'`|,;:()<>\[\]]*")
_HUB = re.compile(r"/(models--[\w.-]+--[\w.-]+)/")
_UUID = re.compile(r"\b(?P<kind>GPU|MIG)-[0-9A-Fa-f]{6,}(?:-[0-9A-Fa-f]+)*\b")
_SERIAL = re.compile(r"(?i)\b(serial(?:[ _-]?(?:number|no))?\s*[:=#]?\s*)[A-Z0-9-]*\d[A-Z0-9-]*")
_MAC = re.compile(r"(?<![\w:])(?:[0-9A-Fa-f]{2}:){5}[0-9A-Fa-f]{2}(?![\w:])")
_IPV4 = re.compile(r"(?<![\w.])(?:\d{1,3}\.){3}\d{1,3}(?!\w|\.\d)")
_IPV6 = re.compile(r"(?<![\w:.])(?=[0-9A-Fa-f]*:[0-9A-Fa-f]*:)[0-9A-Fa-f:]*+(?![\w:])")
"""Possessive: `f:f:f:...:fg` would be tried in a cubic number of ways."""


class Privacy(msgspec.Struct, frozen=True, kw_only=True):
    """`names` = user names to hide beside those that home folders in the state tell. `home` = the home folder of who
    asks: where that is called `/x/home`, what lies in it is nobody's name.
    """

    names: tuple[str, ...] = ()
    home: Path | None = None
    anonymous: bool = False


def hidden(state: State, privacy: Privacy) -> tuple[State, Veil]:
    """The state as it may be told, without its history, and the veil for what else is said of it."""
    last = {source: msgspec.structs.replace(lane, history=()) for source, lane in state.lanes.items()}
    names = {name for text in _texts(last) for name in _names_in(text, privacy.home)}
    hosts = _hosts(state) if privacy.anonymous else ()
    veil = Veil((*privacy.names, *sorted(names)), hosts, anonymous=privacy.anonymous, home=privacy.home)
    lanes: Mapping[str, Lane] = types.MappingProxyType({source: veil.of(lane) for source, lane in last.items()})
    return msgspec.structs.replace(state, header=veil.of(state.header), lanes=lanes), veil


class Veil:
    """Hides in one text as in another: the same host is `host-1` wherever it stands."""

    def __init__(
        self, names: Iterable[str], hosts: Iterable[str], *, anonymous: bool, home: Path | None = None
    ) -> None:
        told = sorted({name for name in names if _is_name(name)}, key=lambda name: (-len(name), name))
        self._names = _words(told) if told else None
        self._anonymous = anonymous
        self._home = home
        self._stands_for: dict[str, str] = {}
        self._counts: dict[str, int] = {}
        self._done: dict[str, str] = {}
        hosts = list(dict.fromkeys(hosts))
        for host in hosts:
            self._hide("host", host)
        self._hosts = _words(sorted(hosts, key=lambda host: (-len(host), host))) if hosts else None

    def of(self, value: T) -> T:
        """`value` with every text in it changed; words of a fixed set (`Literal`) stay."""
        return mapped(value, self.text)  # type: ignore[no-any-return]

    def text(self, text: str) -> str:
        found = self._done.get(text)
        if found is None:
            found = self._done[text] = self._text(text)
        return found

    def _text(self, text: str) -> str:
        text = redact_text(text if text.isprintable() else text.encode("utf-8", "replace").decode())
        if self._anonymous:
            text = _PATH.sub(_last_part, text)
        text = _HOME.sub(lambda found: found[0] if _within(found, self._home) else f"{found['base']}{USER}", text)
        if self._names is not None:
            text = self._names.sub(USER, text)
        return self._addresses(text) if self._anonymous else text

    def _addresses(self, text: str) -> str:
        if self._hosts is not None:
            text = self._hosts.sub(lambda match: self._hide("host", match[0]), text)
        text = _UUID.sub(lambda match: self._hide(f"{match['kind']}-uuid", match[0]), text)
        text = _SERIAL.sub(r"\1***", text)
        text = _MAC.sub(lambda match: self._hide("mac", match[0]), text)
        return _IPV6.sub(self._address, _IPV4.sub(self._address, text))

    def _address(self, match: re.Match[str]) -> str:
        try:
            address = ipaddress.ip_address(match[0])
        except ValueError:
            return match[0]
        return match[0] if address.is_loopback or address.is_unspecified else self._hide("ip", match[0])

    def _hide(self, kind: str, what: str) -> str:
        if what not in self._stands_for:
            self._counts[kind] = self._counts.get(kind, 0) + 1
            self._stands_for[what] = f"{kind}-{self._counts[kind]}"
        return self._stands_for[what]


def _last_part(match: re.Match[str]) -> str:
    """`PATH/name`; of a hub's cache the name of the model, for the last part is a hash there."""
    hub = _HUB.search(match[0])
    return f"PATH/{hub[1] if hub else match[0].rstrip('/').rpartition('/')[2]}"


def _words(found: Iterable[str]) -> re.Pattern[str]:
    return re.compile(rf"(?<![A-Za-z0-9])(?:{'|'.join(map(re.escape, found))})(?![A-Za-z0-9])")


def _is_name(name: str) -> bool:
    return len(name) >= 3 and name.lower() not in NO_NAMES and not name.isdigit()


def _names_in(text: str, home: Path | None) -> Iterator[str]:
    if "/" in text or "\\" in text:
        yield from (found["name"] for found in _HOME.finditer(text) if not _within(found, home))


def _within(found: re.Match[str], home: Path | None) -> bool:
    """Whether what stands for a name is a folder of this home."""
    if home is None:
        return False
    path = found.string[: found.end("base") - 1]
    return path.endswith(str(home)) and not _ON.search(path.removesuffix(str(home)))


def _hosts(state: State) -> list[str]:
    """Names of machines in the state, ours first; a name without its domain too."""
    found = [state.header.host]
    server, bench = state.last("server", ServerReading), state.last("bench", BenchReading)
    endpoints = [one.endpoint for one in server.servers] if server is not None else []
    for run in bench.runs if bench is not None else ():
        found += [run.environment.host] if run.environment.host else []
        endpoints.append(run.plan.endpoint)
    found += [host for host in map(_host_of, endpoints) if host]
    found += [host.partition(".")[0] for host in found]
    return [host for host in found if host not in LOOPBACK and not _is_address(host)]


def _host_of(endpoint: str) -> str | None:
    try:
        return urlsplit(endpoint).hostname
    except ValueError:
        return None


def _is_address(host: str) -> bool:
    return host.replace(".", "").isdigit() or ":" in host


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, msgspec.Struct):
        for field in _free_fields(type(value)):
            yield from _texts(getattr(value, field))
    elif isinstance(value, Mapping):
        for key, inner in value.items():
            yield from _texts(key)
            yield from _texts(inner)
    elif isinstance(value, (tuple, list)):
        for inner in value:
            yield from _texts(inner)


def mapped(value: Any, change: Callable[[str], str]) -> Any:
    """`value` with every text in it, keys included, changed; words of a fixed set (`Literal`) stay."""
    if isinstance(value, str):
        return change(value)
    if isinstance(value, msgspec.Struct):
        seen = {field: getattr(value, field) for field in _free_fields(type(value))}
        changed = {field: mapped(inner, change) for field, inner in seen.items()}
        changed = {field: inner for field, inner in changed.items() if inner is not seen[field]}
        return msgspec.structs.replace(value, **changed) if changed else value
    if isinstance(value, Mapping):
        return {mapped(key, change): mapped(inner, change) for key, inner in value.items()}
    if isinstance(value, (tuple, list)):
        return type(value)(mapped(inner, change) for inner in value)
    return value


@cache
def _free_fields(kind: type[msgspec.Struct]) -> tuple[str, ...]:
    """Fields that may hold a text from outside: all but numbers and words of a fixed set."""
    hints = get_type_hints(kind)
    return tuple(field for field in kind.__struct_fields__ if not _fixed(hints[field]))


def _fixed(hint: Any) -> bool:
    if get_origin(hint) is Literal or hint in (int, float, bool, type(None)):
        return True
    return get_origin(hint) in (Union, types.UnionType) and all(map(_fixed, get_args(hint)))
