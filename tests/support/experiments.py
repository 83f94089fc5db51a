"""`decodetop bench experiment` as a process of its own, with runs as short as they can be."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

FAST = ("--requests", "1", "--warmup", "0", "--input-tokens", "16", "--output-tokens", "24")


async def experiment(tmp_path: Path, file: Path | None, *argv: str) -> tuple[int, str, str]:
    config = tmp_path / "config.toml"
    config.write_text("")
    named = () if file is None else (str(file),)
    common = ("--investigation", str(tmp_path / "investigation"), "--config", str(config))
    words = (sys.executable, "-m", "decodetop", "bench", "experiment", *named, *argv, *common)
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(
        *words, stdin=asyncio.subprocess.DEVNULL, stdout=pipe, stderr=pipe, env=dict(os.environ)
    )
    out, err = await process.communicate()
    assert process.returncode is not None
    return process.returncode, out.decode(), err.decode()
