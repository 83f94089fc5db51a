"""What decodetop costs while it watches 8 simulated GPUs and a scraped server: CPU, memory, bytes to the terminal.

    python benchmarks/monitor_cost.py --seconds 60 --json cost.json
    python benchmarks/monitor_cost.py --peer 'nvitop=nvitop -m --interval 1'

Each case runs alone in a pseudo terminal of 120x40, with TERM=xterm-256color, no COLORTERM and an empty HOME, and is
measured for `--seconds` from `--settle` seconds after its start, from outside: /proc and the pty. The simulated server
is a child of `decodetop demo` and is not counted. `others` = CPU seconds of everything else on the machine in the
window (the simulated server included): much of it means a disturbed run.
"""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import json
import os
import pty
import select
import shlex
import signal
import struct
import sys
import tempfile
import termios
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import psutil

COLUMNS, LINES = 120, 40
NOT_COUNTED = "decodetop.sim.server"
REPLIES = {
    b"\x1b[c": b"\x1b[?62;22c",  # what terminal are you
    b"\x1b[6n": b"\x1b[1;1R",  # where is the cursor
    b"\x1b[?2026$p": b"\x1b[?2026;2$y",  # can you draw a frame at once
}
"""Questions programs ask at start, and a plain terminal's answers."""
STOP_S = 5.0
FLOOR = """
from textual.app import App
from textual.widgets import Static

class Floor(App):
    def compose(self):
        yield Static("0", id="line")

    def on_mount(self):
        self.count = 0
        self.set_interval(1.0, self.tick)

    def tick(self):
        self.count += 1
        self.query_one("#line", Static).update(f"{self.count} seconds")

Floor().run()
"""
"""What the framework costs with next to nothing on the screen: machines differ, so compare within one batch."""


@dataclass(frozen=True)
class Case:
    """`keys` are typed a second before the window begins."""

    name: str
    command: list[str]
    keys: str = ""


@dataclass(frozen=True)
class Cost:
    """One case over the window. CPU is user + system of the process tree."""

    name: str
    seconds: float
    cpu_s_per_min: float
    rss_peak_mib: float
    terminal_bytes_s: float
    bursts_s: float
    first_frame_s: float
    start_cpu_s: float
    threads: int
    others_cpu_s: float


class Screen:
    """The program's terminal: reads and counts what it draws, answers what it asks."""

    def __init__(self, command: list[str], home: Path) -> None:
        self.bytes = 0
        self.bursts = 0
        self.first_ns: int | None = None
        self._last_ns = 0
        self.started_ns = time.monotonic_ns()
        self.pid, self._fd = pty.fork()
        if self.pid == 0:
            _become(command, home)

    def watch(self, seconds: float) -> None:
        """Read until `seconds` have passed. Raises SystemExit when the program ends."""
        end_ns = time.monotonic_ns() + int(seconds * 1e9)
        while (left_ns := end_ns - time.monotonic_ns()) > 0:
            if not select.select([self._fd], [], [], left_ns / 1e9)[0]:
                continue
            try:
                data = os.read(self._fd, 1 << 16)
            except OSError:
                data = b""
            if not data:
                raise SystemExit(f"pid {self.pid} ended before its measurement did")
            self._seen(data)

    def type(self, keys: str) -> None:
        os.write(self._fd, keys.encode())

    def close(self) -> None:
        """SIGTERM, then SIGKILL."""
        for word, patience_s in ((signal.SIGTERM, STOP_S), (signal.SIGKILL, STOP_S)):
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, word)
            end_ns = time.monotonic_ns() + int(patience_s * 1e9)
            while time.monotonic_ns() < end_ns:
                with contextlib.suppress(OSError):
                    if select.select([self._fd], [], [], 0.05)[0]:
                        os.read(self._fd, 1 << 16)
                if os.waitpid(self.pid, os.WNOHANG)[0]:
                    os.close(self._fd)
                    return

    def _seen(self, data: bytes) -> None:
        now_ns = time.monotonic_ns()
        self.first_ns = self.first_ns or now_ns
        self.bursts += now_ns - self._last_ns > 20_000_000
        self._last_ns = now_ns
        self.bytes += len(data)
        for question, answer in REPLIES.items():
            if question in data:
                os.write(self._fd, answer)


class Tree:
    """The program's processes, without the simulated server."""

    def __init__(self, pid: int) -> None:
        self._root = psutil.Process(pid)

    def processes(self) -> Iterator[psutil.Process]:
        for process in (self._root, *self._root.children(recursive=True)):
            with contextlib.suppress(psutil.NoSuchProcess):
                if NOT_COUNTED not in process.cmdline():
                    yield process

    def cpu_s(self) -> float:
        """Of those alive, and of the children that were waited for."""
        total = 0.0
        for process in self.processes():
            with contextlib.suppress(psutil.NoSuchProcess):
                used = process.cpu_times()
                total += used.user + used.system + used.children_user + used.children_system
        return total

    def rss_mib(self) -> float:
        total = 0.0
        for process in self.processes():
            with contextlib.suppress(psutil.NoSuchProcess):
                total += process.memory_info().rss / 2**20
        return total

    def threads(self) -> int:
        return sum(process.num_threads() for process in self.processes())


def measure(case: Case, seconds: float, settle: float) -> Cost:
    """Run one case and look at it from outside."""
    with tempfile.TemporaryDirectory(prefix="monitor-cost-") as home:
        screen = Screen(case.command, Path(home))
        try:
            return _window(case, screen, seconds, settle)
        finally:
            screen.close()


def _window(case: Case, screen: Screen, seconds: float, settle: float) -> Cost:
    screen.watch(settle - 1 if case.keys else settle)
    if case.keys:
        screen.type(case.keys)
        screen.watch(1.0)
    tree = Tree(screen.pid)
    before_cpu, before_all = tree.cpu_s(), _machine_cpu_s()
    bytes_before, bursts_before, start_ns = screen.bytes, screen.bursts, time.monotonic_ns()
    peak_mib = 0.0
    while time.monotonic_ns() - start_ns < seconds * 1e9:
        peak_mib = max(peak_mib, tree.rss_mib())
        screen.watch(min(5.0, seconds - (time.monotonic_ns() - start_ns) / 1e9))
    span_s = (time.monotonic_ns() - start_ns) / 1e9
    cpu_s, all_s = tree.cpu_s() - before_cpu, _machine_cpu_s() - before_all
    return Cost(
        name=case.name,
        seconds=span_s,
        cpu_s_per_min=60 * cpu_s / span_s,
        rss_peak_mib=peak_mib,
        terminal_bytes_s=(screen.bytes - bytes_before) / span_s,
        bursts_s=(screen.bursts - bursts_before) / span_s,
        first_frame_s=((screen.first_ns or start_ns) - screen.started_ns) / 1e9,
        start_cpu_s=before_cpu,
        threads=tree.threads(),
        others_cpu_s=all_s - cpu_s,
    )


def _machine_cpu_s() -> float:
    """Busy CPU seconds of all cores since boot."""
    used = psutil.cpu_times()
    return float(used.user + used.nice + used.system + used.irq + used.softirq)


def _become(command: list[str], home: Path) -> None:
    fcntl.ioctl(0, termios.TIOCSWINSZ, struct.pack("HHHH", LINES, COLUMNS, 0, 0))
    kept = {name: os.environ[name] for name in ("PATH", "VIRTUAL_ENV", "PYTHONPATH") if name in os.environ}
    environment = {**kept, "HOME": str(home), "TERM": "xterm-256color", "LANG": "C.UTF-8"}
    try:
        os.execvpe(command[0], command, environment)
    except OSError as error:
        os.write(2, f"{command[0]}: {error.strerror}\n".encode())
        os._exit(127)


def cases(gpus: int, peers: list[str]) -> list[Case]:
    """Ours, the floor, then the peers. Raises SystemExit for a peer that is not `name=command`."""
    ours = [sys.executable, "-m", "decodetop", "demo", "--gpus", str(gpus)]
    found = [Case("decodetop: dashboard", ours), Case("decodetop: gpu pane zoomed", ours, keys="11")]
    found.append(Case("floor: a bare Textual app, one line a second", [sys.executable, "-c", FLOOR]))
    for peer in peers:
        name, separator, command = peer.partition("=")
        if not separator:
            raise SystemExit(f"--peer {peer!r} is not NAME=COMMAND")
        found.append(Case(name, shlex.split(command)))
    return found


def table(costs: list[Cost]) -> list[str]:
    """Markdown."""
    lines = [
        "| monitor | CPU s/min | peak RSS MiB | to the terminal B/s | bursts/s | first output s "
        "| CPU s before the window | threads | others' CPU s |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for cost in costs:
        lines.append(
            f"| {cost.name} | {cost.cpu_s_per_min:.2f} | {cost.rss_peak_mib:.1f} | {cost.terminal_bytes_s:,.0f} "
            f"| {cost.bursts_s:.2f} | {cost.first_frame_s:.2f} | {cost.start_cpu_s:.2f} | {cost.threads} "
            f"| {cost.others_cpu_s:.0f} |"
        )
    return lines


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=60.0, help="of the window (default 60)")
    parser.add_argument("--settle", type=float, default=8.0, help="from start to window (default 8)")
    parser.add_argument("--gpus", type=int, default=8)
    parser.add_argument(
        "--peer", action="append", default=[], metavar="NAME=COMMAND", help="measure it too (repeatable)"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there as well")
    args = parser.parse_args()
    costs = []
    for case in cases(args.gpus, args.peer):
        costs.append(measure(case, args.seconds, args.settle))
        print(f"{case.name}: done", file=sys.stderr)
    print("\n".join(table(costs)))
    if args.json is not None:
        args.json.write_text(json.dumps([asdict(cost) for cost in costs], indent=2) + "\n", "utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
