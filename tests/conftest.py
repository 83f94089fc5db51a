"""Pins the environment, so that no test depends on whose terminal it runs in."""

import os
import shutil
import tempfile
import time

from hypothesis import settings

_PINNED = {
    "TERM": "xterm-256color",
    "COLORTERM": "truecolor",
    "COLUMNS": "120",
    "LINES": "40",
    "LANG": "C.UTF-8",
    "LC_ALL": "C.UTF-8",
    "TZ": "UTC",
    "TEXTUAL_ANIMATIONS": "none",
    "PYTHONHASHSEED": "0",
}
os.environ.update(_PINNED)
time.tzset()
for name in list(os.environ):
    if name in {
        "NO_COLOR",
        "TEXTUAL_THEME",
        "TEXTUAL_COLOR_SYSTEM",
        "OPENAI_API_KEY",
        "TMUX",
    } or (name.startswith("DECODETOP_") and name != "DECODETOP_GOLDEN"):  # that one writes the goldens anew
        del os.environ[name]

# tests of several processes at once play the same servers: each has locks of its own
os.environ["XDG_RUNTIME_DIR"] = _runtime = tempfile.mkdtemp(prefix="decodetop-tests-")


def pytest_unconfigure() -> None:
    """Not atexit: worker processes of xdist leave without it."""
    shutil.rmtree(_runtime, ignore_errors=True)


# the machine that decides what lands runs the same examples each time; a developer's looks further with each run.
# No deadline: how long an example takes says how busy the machine is
settings.register_profile("ci", derandomize=True, deadline=None)
settings.register_profile("own", deadline=None)
settings.load_profile("ci" if os.environ.get("CI") else "own")
