"""Children of ours: gone when we say so, however much they had still to say."""

import asyncio
import sys

from decodetop.core.child import gone

PATIENCE_S = 60
POUR = "import os\nwhile True: os.write(1, b'x' * 65536)"


async def test_a_child_that_poured_and_was_not_read_is_gone_once_killed() -> None:
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", POUR, stdout=asyncio.subprocess.PIPE)
    assert process.stdout is not None
    await process.stdout.readexactly(1 << 20)
    process.kill()
    await asyncio.wait_for(gone(process), PATIENCE_S)
    assert process.returncode is not None


async def test_somebody_else_may_be_reading_it() -> None:
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", POUR, stdout=asyncio.subprocess.PIPE)
    assert process.stdout is not None
    reading = asyncio.ensure_future(process.stdout.read())
    await asyncio.sleep(0)
    process.kill()
    await asyncio.wait_for(gone(process), PATIENCE_S)
    assert isinstance(await reading, bytes)
