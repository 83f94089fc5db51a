"""The servers' part of the log: first seen, restarted, and what differs in their flags. Knows earlier sessions' servers
by what the log holds of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import msgspec

from decodetop.core.clock import SECOND_NS
from decodetop.log.reading import RESTARTED, Entry
from decodetop.server.reading import Flag, Server, ServerReading
from decodetop.server.text import model, name, parallel

SETTLED_NS = 3 * SECOND_NS
"""A server that has just come up tells its flags piece by piece: what is logged has stood for so long."""
NAMED = 12
"""Flags named in one entry; more are counted."""
FLEETING = ("seed", "port", "nccl", "dist_init", "launch_command", "start_time", "startup")
"""Parts of names of settings that an engine chooses anew at each start: no choice of the operator's."""


Flags = Mapping[str, tuple[str | None, str | None]]
"""(requested, resolved) by name."""


class Known(msgspec.Struct, frozen=True, kw_only=True):
    """What tells a server from itself before: `flags` as (requested, resolved)."""

    engine: str
    version: str | None
    model: str | None
    pid: int | None
    started_wall_ns: int | None
    flags: dict[str, tuple[str | None, str | None]]


class ServerWatch:
    """`see` gives the entries that a reading calls for. Endpoints are told apart, nothing else is shared."""

    def __init__(self, entries: Iterable[Entry] = ()) -> None:
        self._logged: dict[str, Known] = {}
        self._pending: dict[str, tuple[Known, int]] = {}
        self._away: set[str] = set()
        """Endpoints that were seen down since they were logged."""
        for entry in entries:
            known = _known_of(entry.data) if entry.kind == "server" and entry.ref else None
            if known is not None and entry.ref is not None:
                self._logged[entry.ref] = known

    def see(self, reading: ServerReading, now_ns: int, wall_ns: int) -> Iterator[Entry]:
        """`now_ns` is session time."""
        for server in reading.servers:
            if server.status == "up" and server.engine != "unknown" and (server.flags or server.command):
                yield from self._see(server, now_ns, wall_ns)
            else:
                self._pending.pop(server.endpoint, None)
                if server.status == "down":
                    self._away.add(server.endpoint)

    def _see(self, server: Server, now_ns: int, wall_ns: int) -> Iterator[Entry]:
        now, before = _known(server), self._logged.get(server.endpoint)
        pending = self._pending.get(server.endpoint)
        if pending is None or pending[0] != now:
            self._pending[server.endpoint] = (now, now_ns)
            return
        if now_ns - pending[1] < SETTLED_NS:
            return
        words = f"{name(server)} {model(server)} {parallel(server)} at {server.endpoint}".split()
        text = _words(" ".join(words), before, now, was_away=server.endpoint in self._away)
        self._logged[server.endpoint] = now
        self._away.discard(server.endpoint)
        if text is None:
            return
        data: dict[str, Any] = {"engine": now.engine, "version": now.version, "model": now.model, "pid": now.pid}
        data |= {
            "started_wall_ns": now.started_wall_ns,
            "flags": {flag: list(both) for flag, both in now.flags.items()},
        }
        key = f"server:{server.endpoint}:{text}"
        yield Entry(wall_ns=wall_ns, kind="server", text=text, ref=server.endpoint, key=key, data=data)


def differences(before: Flags, now: Flags) -> list[str]:
    """`kv_cache_dtype auto -> fp8_e5m2`: what was asked for first, then what the engine made of it."""
    found = []
    for flag in dict.fromkeys((*now, *before)):
        old, new = before.get(flag, (None, None)), now.get(flag, (None, None))
        if old[0] != new[0]:
            found.append(f"{flag} {_shown(old[0], old[1])} -> {_shown(new[0], new[1])}")
        elif old[1] != new[1] and None not in (old[1], new[1]) and not any(part in flag for part in FLEETING):
            found.append(f"{flag} {old[1]} -> {new[1]} (by itself)")
    return found


def _words(title: str, before: Known | None, now: Known, *, was_away: bool) -> str | None:
    """None if it is the server that was logged last. `was_away` tells a restart where the process can't be seen."""
    if before is None:
        asked = [f"{flag} {both[0]}" for flag, both in now.flags.items() if both[0] is not None]
        return f"{title}: {_listed(asked)}" if asked else title
    changes = differences(before.flags, now.flags)
    for field in ("engine", "version", "model"):
        old, new = getattr(before, field), getattr(now, field)
        if None not in (old, new) and old != new:
            changes.insert(0, f"{field} {old} -> {new}")
    seen = now.pid is not None
    # a process that is found only now may be the one that was there all along
    other = (before.pid, before.started_wall_ns) != (now.pid, now.started_wall_ns)
    restarted = seen and other and (before.pid is not None or was_away)
    if not changes:
        if restarted:
            return f"{title} restarted with the same flags"
        return f"{title} is back with the same flags" if was_away and not seen else None
    return f"{title}{RESTARTED if restarted else ' differs: '}{_listed(changes)}"


def _listed(parts: list[str]) -> str:
    rest = f" and {len(parts) - NAMED} more" if len(parts) > NAMED else ""
    return ", ".join(parts[:NAMED]) + rest


def _shown(requested: str | None, resolved: str | None) -> str:
    """A flag that is not asked for stands at the engine's own value, where that is known."""
    if requested is not None:
        return requested
    return f"default ({resolved})" if resolved is not None else "not given"


def _known(server: Server) -> Known:
    return Known(
        engine=server.engine,
        version=server.version,
        model=server.model,
        pid=server.root_pid,
        started_wall_ns=server.started_wall_ns,
        flags={flag.name: _both(flag) for flag in server.flags},
    )


def _both(flag: Flag) -> tuple[str | None, str | None]:
    return flag.requested, flag.resolved


def _known_of(data: Mapping[str, Any]) -> Known | None:
    """None if the entry is of another shape."""
    try:
        return msgspec.convert(data, Known)
    except msgspec.ValidationError:
        return None
