"""What each engine's profiler is asked for, and what its refusals mean."""

from __future__ import annotations

import re

from decodetop.errors import RequestError, UsageError
from decodetop.flows.capture_client import ProfileClient, Reply, Unreachable
from decodetop.server.reading import ENGINE_NAMES, Engine, Server

START_S = 60.0
"""An engine's first profile loads CUPTI, which takes seconds; later ones answer within 0.1 s."""

PROFILED: tuple[Engine, ...] = ("sglang", "vllm")

KEY_HINT = "set DECODETOP_API_KEY or api_key_file"

FLAG = (
    """--profiler-config '{"profiler":"torch","torch_profiler_dir":"/abs/folder","torch_profiler_with_stack":false}'"""
)
VARIABLES = "VLLM_TORCH_PROFILER_DIR=/abs/folder VLLM_TORCH_PROFILER_WITH_STACK=0"
FLAG_SINCE = (0, 13)
"""vLLM 0.13 takes the flag; until 0.12 the profiler is configured by environment variables."""


class Refused(RequestError):
    """The server said no: no profile of ours runs there."""


def check_engine(server: Server) -> None:
    """Raises UsageError for an engine that has no profiler over HTTP that is known here."""
    if server.engine in PROFILED:
        return
    name = ENGINE_NAMES[server.engine]
    how = "profile it its own way and open the files: decodetop steps FILE.. (o on the screen)"
    if server.engine == "unknown":
        raise UsageError(f"{server.endpoint}: its engine is not known, so nothing is asked of it", how)
    raise UsageError(f"{server.endpoint}: {name} has no profiler over HTTP", how)


async def start(client: ProfileClient, server: Server, steps: int, folder: str | None) -> None:
    """Have it profile `steps` forward passes; `folder` is where SGLang is to write (None = its default).

    SGLang ends by itself after them. vLLM needs `stop`; from 0.26 it also ends by itself, older ones ignore the body.
    Stacks and shapes are off: half to four fifths of a trace are Python frames with them.
    Raises Refused or Unreachable (nothing was started), RequestError when that is not known.
    """
    if server.engine == "sglang":
        body: dict[str, object] = {
            "num_steps": steps,
            "activities": ["CPU", "GPU"],
            "with_stack": False,
            "record_shapes": False,
        }
        if folder is not None:
            body["output_dir"] = folder
        reply = await client.post("/start_profile", body, START_S)
    else:
        reply = await client.post("/start_profile", {"max_iterations": steps}, START_S)
        if reply.code == 422:
            reply = await client.post("/start_profile", None, START_S)
    if reply.code != 200:
        raise _refused(client, server, reply)


async def stop(client: ProfileClient, engine: str, timeout_s: float) -> None:
    """Have it stop. Returns when its profiler is known not to run. Raises RequestError when that is not known."""
    try:
        reply = await client.post("/stop_profile", None, timeout_s)
    except Unreachable as error:
        if error.nobody:
            return  # who profiled is gone
        raise
    # SGLang answers 500 when none is under way, vLLM without a profiler 404
    idle = reply.code == 404 or (engine == "sglang" and reply.code in (400, 500))
    if reply.code != 200 and not idle:
        hint = KEY_HINT if reply.code in (401, 403) else f"when it is idle: curl -X POST {client.endpoint}/stop_profile"
        raise RequestError(f"{client.endpoint} answered {reply.code} to POST /stop_profile: {reply.text}", hint)


def _refused(client: ProfileClient, server: Server, reply: Reply) -> Refused:
    endpoint, engine = client.endpoint, ENGINE_NAMES[server.engine]
    if reply.code in (401, 403):
        what = "refuses the key given" if client.has_key else "wants a key"
        admin = "; SGLang takes its admin key here, if it was given one" if server.engine == "sglang" else ""
        return Refused(f"{endpoint} {what} for POST /start_profile ({reply.code})", KEY_HINT + admin)
    if reply.code == 404 and server.engine == "vllm":
        named = f"vLLM {server.version}" if server.version else "vLLM"
        return Refused(f"{endpoint}: {named} was started without a profiler (404)", vllm_hint(server.version))
    if reply.code in (404, 405):
        hint = "is it a router or a gateway? give the address of a worker"
        return Refused(f"{endpoint}: no POST /start_profile there ({reply.code})", hint)
    if "in progress" in reply.text.lower():
        hint = f"wait for its end; if nobody waits for it: curl -X POST {endpoint}/stop_profile"
        return Refused(f"{endpoint} is being profiled already: {reply.text}", hint)
    if server.engine == "sglang" and reply.code == 500:
        hint = "most often because a profile is under way already: its log says"
        return Refused(f"{endpoint}: SGLang refused to start its profiler (500: {reply.text})", hint)
    return Refused(f"{endpoint}: {engine} answered {reply.code} to POST /start_profile: {reply.text}", "see its log")


def vllm_hint(version: str | None) -> str:
    """Which start option is missing."""
    found = re.match(r"v?(\d+)\.(\d+)", version or "")
    if found is None:
        return f"start it with {FLAG} (0.13 and newer), or {VARIABLES} (older)"
    if (int(found[1]), int(found[2])) >= FLAG_SINCE:
        return f"start it with {FLAG}"
    return f"start it with {VARIABLES} in its environment"
