"""What decodetop costs while it watches 8 GPUs and a scraped server, beside other monitors on the same driver.

    python benchmarks/monitor_cost.py --nvitop nvitop --nvtop nvtop --btop btop --together --json cost.json

The driver is the tests' fake `libnvidia-ml.so.1` (8 H100s whose figures move once a second, one process on each; needs
a C compiler), the server the simulated one, a process of its own that is not counted. Each case runs in a pseudo
terminal of 120x40 with TERM=xterm-256color, no COLORTERM and an empty HOME, and is measured for `--seconds` from
`--settle` seconds after its start, from outside: /proc, the pty, the library's own count of calls.
One after the other; `--together` runs all at once, so that a machine's other work disturbs all alike: compare within
one run. `others` = CPU seconds of everything else in the window (the server included).
"""

from __future__ import annotations

import argparse
import json
import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from monitored import Screen, machine_s, watch

from decodetop.sim.process import start_server
from support.fake_nvml import FakeNvml, build, h100s

PEAK_EVERY_S = 5.0
VISITORS = 3
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
"""What the framework costs with next to nothing on the screen."""
ZOOMED = b"SM occupancy"
"""Words that only the zoomed GPU pane has."""
LINKS = b"NVLink up"
HISTORY = b"else busy, of 100"
BTOP_SETTINGS = "update_ms = 1000\n"


@dataclass(frozen=True)
class Case:
    """`keys` are typed a second before the window begins; `shows` must then be on the screen."""

    name: str
    command: list[str]
    keys: str = ""
    shows: bytes = b""


@dataclass(frozen=True)
class Cost:
    """One case over the window. CPU is user + system of the process tree."""

    name: str
    seconds: float
    cpu_s_per_min: float
    system_s_per_min: float
    rss_peak_mib: float
    terminal_bytes_s: float
    bursts_s: float
    nvml_calls_s: float
    first_output_s: float
    start_cpu_s: float
    threads: int
    others_cpu_s: float


class Running:
    """A case at work: its screen, its home, its own copy of the driver."""

    def __init__(self, case: Case, folder: Path, library: Path, script: Sequence[str]) -> None:
        self.case = case
        self.driver = FakeNvml(folder / "driver", library)
        self.driver.script(script)
        home = folder / "home"
        settings = home / ".config" / "btop" / "btop.conf"
        settings.parent.mkdir(parents=True)
        settings.write_text(BTOP_SETTINGS)
        self.screen = Screen(case.command, home, self.driver.environment({}))
        self.peak_mib = 0.0

    def begin(self) -> None:
        self.start_used, self.start_bytes, self.start_bursts = self.screen.used(), self.screen.bytes, self.screen.bursts
        self.start_calls = sum(self.driver.calls().values())

    def cost(self, seconds: float, machine: float) -> Cost:
        if self.screen.ended:
            raise SystemExit(f"{self.case.name}: ended before its measurement did")
        used = self.screen.used().since(self.start_used)
        first_ns = self.screen.first_ns or self.screen.started_ns
        return Cost(
            name=self.case.name,
            seconds=seconds,
            cpu_s_per_min=60 * used.total_s / seconds,
            system_s_per_min=60 * used.system_s / seconds,
            rss_peak_mib=self.peak_mib,
            terminal_bytes_s=(self.screen.bytes - self.start_bytes) / seconds,
            bursts_s=(self.screen.bursts - self.start_bursts) / seconds,
            nvml_calls_s=(sum(self.driver.calls().values()) - self.start_calls) / seconds,
            first_output_s=(first_ns - self.screen.started_ns) / 1e9,
            start_cpu_s=self.start_used.total_s,
            threads=self.screen.threads(),
            others_cpu_s=machine - used.total_s,
        )


def measure(cases: Sequence[Case], seconds: float, settle: float, library: Path, script: Sequence[str]) -> list[Cost]:
    """Run these cases at once and look at them from outside."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="monitor-cost-")))
        running = []
        for at, case in enumerate(cases):
            running.append(Running(case, folder / str(at), library, script))
            stack.callback(running[-1].screen.close)
        screens = [one.screen for one in running]
        watch(screens, settle - 1)
        for one in running:
            if one.case.keys:
                one.screen.type(one.case.keys)
        watch(screens, 1.0)
        for one in running:
            if one.case.shows not in one.screen.seen:
                raise SystemExit(f"{one.case.name}: {one.case.shows.decode()!r} is not on its screen")
        machine, began_ns = machine_s(), time.monotonic_ns()
        for one in running:
            one.begin()
        while (left_s := seconds - (time.monotonic_ns() - began_ns) / 1e9) > 0:
            for one in running:
                one.peak_mib = max(one.peak_mib, one.screen.rss_mib())
            watch(screens, min(PEAK_EVERY_S, left_s))
        span_s = (time.monotonic_ns() - began_ns) / 1e9
        return [one.cost(span_s, machine_s() - machine) for one in running]


def cases(endpoint: str, peers: Sequence[tuple[str, str | None]], more: Sequence[str]) -> list[Case]:
    """Ours, the floor, then the peers. Raises SystemExit for a peer that is not `name=command`."""
    ours = [sys.executable, "-m", "decodetop"]
    scraping = [*ours, "--endpoint", endpoint]
    found = [
        Case("decodetop: dashboard, server scraped", scraping),
        Case("decodetop: gpu pane zoomed, server scraped", scraping, keys="1", shows=ZOOMED),
        Case("decodetop: gpu pane zoomed", ours, keys="1", shows=ZOOMED),
        Case("decodetop: gpu pane zoomed, links, without history lines", ours, keys="1v", shows=LINKS),
        Case("decodetop: gpu pane zoomed, a history line each", ours, keys="1vvv", shows=HISTORY),
        Case("floor: a bare Textual app, one line a second", [sys.executable, "-c", FLOOR]),
    ]
    found += [Case(name, shlex.split(command)) for name, command in peers if command]
    for peer in more:
        name, separator, command = peer.partition("=")
        if not separator:
            raise SystemExit(f"--peer {peer!r} is not NAME=COMMAND")
        found.append(Case(name, shlex.split(command)))
    return found


def table(costs: Sequence[Cost]) -> list[str]:
    """Markdown; `of nvitop` where nvitop was measured."""
    nvitop = next((cost.cpu_s_per_min for cost in costs if cost.name == "nvitop"), None)
    lines = [
        "| monitor | CPU s/min | of nvitop's | of it system | peak RSS MiB | to the terminal B/s | bursts/s "
        "| NVML calls/s | first output s | CPU s before the window | threads | others' CPU s |",
        "|---|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for cost in costs:
        share = "–" if not nvitop else f"{cost.cpu_s_per_min / nvitop:.2f}"
        lines.append(
            f"| {cost.name} | {cost.cpu_s_per_min:.2f} | {share} | {cost.system_s_per_min:.2f} "
            f"| {cost.rss_peak_mib:.1f} | {cost.terminal_bytes_s:,.0f} | {cost.bursts_s:.2f} | {cost.nvml_calls_s:.0f} "
            f"| {cost.first_output_s:.2f} | {cost.start_cpu_s:.2f} | {cost.threads} | {cost.others_cpu_s:.0f} |"
        )
    return lines


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=60.0, help="of the window (default 60)")
    parser.add_argument("--settle", type=float, default=20.0, help="from start to window (default 20)")
    parser.add_argument("--gpus", type=int, default=8)
    parser.add_argument("--together", action="store_true", help="all cases at once")
    parser.add_argument("--nvitop", metavar="PROGRAM")
    parser.add_argument("--nvtop", metavar="PROGRAM")
    parser.add_argument("--btop", metavar="PROGRAM")
    parser.add_argument("--peer", action="append", default=[], metavar="NAME=COMMAND", help="another (repeatable)")
    parser.add_argument("--only", metavar="WORD", help="cases with WORD in their name")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there as well")
    args = parser.parse_args()
    peers = [
        ("nvitop", args.nvitop and f"{args.nvitop} -m --interval 1"),
        ("nvtop", args.nvtop and f"{args.nvtop} -d 10"),
        ("btop", args.btop),
    ]
    costs: list[Cost] = []
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="monitor-cost-")))
        library = build(folder)
        sleeps = [stack.enter_context(subprocess.Popen(["sleep", "infinity"])) for _ in range(args.gpus)]
        for sleep in sleeps:
            stack.callback(sleep.kill)
        server = stack.enter_context(start_server(tp=2, visitors=VISITORS))
        script = h100s(args.gpus, moving=True)
        script += [f"process {gpu} {sleep.pid} 1073741824" for gpu, sleep in enumerate(sleeps)]
        wanted = [one for one in cases(server.endpoint, peers, args.peer) if not args.only or args.only in one.name]
        for group in [wanted] if args.together else [[one] for one in wanted]:
            costs += measure(group, args.seconds, args.settle, library, script)
            print(f"{', '.join(one.name for one in group)}: done", file=sys.stderr)
    print("\n".join(table(costs)))
    if args.json is not None:
        args.json.write_text(json.dumps([asdict(cost) for cost in costs], indent=2) + "\n", "utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
