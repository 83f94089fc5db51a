"""`decodetop host`: CPU, memory, disks and the servers' processes of this box, measured over one second."""

from __future__ import annotations

import argparse
import asyncio

from decodetop.cli.common import print_json, print_lines
from decodetop.config import Settings
from decodetop.core.clock import SECOND_NS, SystemClock
from decodetop.host.probe import HostProbe
from decodetop.host.reading import HostProcess, HostReading
from decodetop.host.text import lines
from decodetop.server.discover import Proc, scan


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="print JSON")


def run(args: argparse.Namespace, settings: Settings) -> int:
    reading = asyncio.run(_read(settings))
    if args.json:
        print_json({"schema": 1, "source": "host", "reading": reading, "failure": None, "errors": []})
    else:
        print_lines(lines(reading))
    return 0


async def _read(settings: Settings) -> HostReading:
    clock = SystemClock()
    watched = _servers_processes()
    probe = HostProbe(clock, lambda: watched, lambda: [("investigation", settings.investigation)])
    try:
        await probe.read()
        # CPU shares stand between two readings
        await clock.sleep_until(clock.now_ns() + SECOND_NS)
        return await probe.read()
    finally:
        await probe.close()


def _servers_processes() -> list[HostProcess]:
    return [
        HostProcess(pid=process.pid, root_pid=server.root_pid, role=process.role, title=process.title)
        for server in scan(Proc()).found
        for process in server.processes
    ]
