"""Writers that are killed: at each system call of one write, then at random moments."""

from __future__ import annotations

import random
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

_AT_EACH_CALL = """
import os, signal, sys
from pathlib import Path

folder = Path(sys.argv[1])
{store}

calls = sys.argv[3:]
real = {{name: getattr(os, name) for name in calls}}
for victim in range(60):
    before = held()
    child = os.fork()
    if child == 0:
        left = [victim]
        def counted(name):
            def call(*args, **more):
                if left[0] <= 0:
                    if name == "write" and sys.argv[2] == "half":
                        real["write"](args[0], bytes(args[1])[: len(args[1]) // 2])
                    os.kill(os.getpid(), signal.SIGKILL)
                left[0] -= 1
                return real[name](*args, **more)
            return call
        for name in calls:
            setattr(os, name, counted(name))
        write(f"n{{victim}}")
        os._exit(0)
    status = os.waitpid(child, 0)[1]
    after = held()
    assert after in (before, [*before, f"n{{victim}}"]), (victim, before, after)
    if status == 0:
        print(victim, len(after))
        sys.exit(0 if after[-1] == f"n{{victim}}" else 1)
sys.exit(2)
"""

_FOR_EVER = """
import sys
from pathlib import Path

folder = Path(sys.argv[1])
{store}

for number in range(10**9):
    for name in (f"{{sys.argv[2]}}-{{number}}", f"log {{sys.argv[2]}}-{{number}}")[: {kinds}]:
        write(name)
        print(name, flush=True)
"""


def at_each_call(folder: Path, store: str, calls: Sequence[str], *, half: bool = False) -> tuple[int, int]:
    """`store` is code that defines `held()` (words there are) and `write(word)` for `folder`. A child that writes is
    killed at each of the os functions `calls`, one later each time: what is held then is as it was, or with its word.

    `half` = a write is done by half first, as by a machine that dies. Returns the calls a whole write is made of, and
    how many words are held.
    """
    program = _AT_EACH_CALL.format(store=store)
    kept = "half" if half else "whole"
    done = subprocess.run(
        [sys.executable, "-c", program, str(folder), kept, *calls], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    points, items = map(int, done.stdout.split())
    return points, items


def at_random(folder: Path, store: str, *, writers: int, seed: int, kinds: int = 1, rounds: int = 4) -> set[str]:
    """So many writers at once, killed at a random moment, round after round; the words that they said were written.

    `store` as above; with `kinds` 2 each word is followed by one that begins with `log`.
    """
    chance = random.Random(seed)
    program = _FOR_EVER.format(store=store, kinds=kinds)
    told: set[str] = set()
    for round in range(rounds):
        running = [
            subprocess.Popen(
                [sys.executable, "-c", program, str(folder), f"{round}{at}"], stdout=subprocess.PIPE, text=True
            )
            for at in range(writers)
        ]
        for writer in running:
            assert writer.stdout is not None
            for _ in range(chance.randint(2, 15)):
                told.add(writer.stdout.readline().strip())
        for writer in running:
            writer.kill()
        for writer in running:
            assert writer.stdout is not None
            told |= {line.strip() for line in writer.stdout if line.endswith("\n")}
            writer.wait()
            writer.stdout.close()
    return told - {""}
