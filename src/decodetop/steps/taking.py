"""The capture of a live server in words: what is asked before, and how it goes. Pure."""

from __future__ import annotations

from decodetop.core.outside import plain
from decodetop.core.words import significant
from decodetop.server.reading import ENGINE_NAMES, Server
from decodetop.steps.reading import CAPTURE_COSTS, CAPTURE_PHASES, Capturing


def others_running(server: Server) -> int:
    """Requests under way as far as is known. SGLang's gauge keeps its last value when idle, its tokens do not move."""
    return 0 if server.generated_tok_s == 0 else server.running or 0


def capture_question(steps: int, load: int | None, endpoint: str | None, server: Server | None) -> str:
    """What is about to be done to whom. `load` None = as many streams as are running, else one."""
    if server is None:
        return f"{steps} decode steps of {plain(endpoint or 'the server of this box')}. {CAPTURE_COSTS}"
    names = (ENGINE_NAMES[server.engine], server.version, server.served_name)
    name = plain(" ".join(word for word in names if word))
    running = others_running(server)
    if load is not None or not running:
        count = load or 1
        under = f"{count} stream{'s are' if count > 1 else ' is'} started for it"
        under += f", beside {running} running" if running else ""
    else:
        under = f"{running} request{'s are' if running > 1 else ' is'} running"
    return f"{steps} decode steps of {name} at {plain(server.endpoint)}; {under}. {CAPTURE_COSTS}"


def capture_words(seen: Capturing) -> str:
    """profiling, 1 stream, ITL 5.11 ms unprofiled."""
    words = [CAPTURE_PHASES[seen.phase]]
    if seen.streams:
        words.append(f"{seen.streams} stream{'s' if seen.streams > 1 else ''}")
    if seen.others:
        words.append(f"{seen.others} request{'s' if seen.others > 1 else ''} of others")
    if seen.itl_ms is not None:
        words.append(f"ITL {significant(seen.itl_ms)} ms unprofiled")
    if seen.phase == "waiting" and seen.ranks_wanted is not None:
        words.append(f"{seen.ranks_written} of {seen.ranks_wanted} ranks")
    return ", ".join(words)
