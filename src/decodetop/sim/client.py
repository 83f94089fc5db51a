"""A client for the simulated server's own doings: one small request, by hand, so that it costs next to nothing."""

from __future__ import annotations

import asyncio

import msgspec

from decodetop.core.decode import decode_by
from decodetop.sim.model import Load

TIMEOUT_S = 2.0


class SimClient:
    """Raises OSError (TimeoutError included) when the simulated server is gone or does not answer."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._decoder = msgspec.json.Decoder(Load)

    async def load(self) -> Load:
        """What the server has done so far. Raises NotDecoded for an answer that is none."""
        return decode_by(self._decoder, await self._request("GET", "/sim/load", b""))

    async def start_profile(self, num_steps: int, output_dir: str) -> None:
        fields = {"num_steps": num_steps, "output_dir": output_dir, "activities": ["CPU", "GPU"], "with_stack": False}
        await self._request("POST", "/start_profile", msgspec.json.encode(fields))

    async def _request(self, method: str, path: str, body: bytes) -> bytes:
        reader, writer = await asyncio.open_connection("127.0.0.1", self._port)
        try:
            head = f"{method} {path} HTTP/1.0\r\nHost: sim\r\nContent-Length: {len(body)}\r\n\r\n"
            writer.write(head.encode() + body)
            answer = await asyncio.wait_for(reader.read(), TIMEOUT_S)
        except TimeoutError:
            raise TimeoutError(f"no answer within {TIMEOUT_S:g} s") from None  # asyncio's own says nothing
        finally:
            writer.close()
        head_bytes, _, rest = answer.partition(b"\r\n\r\n")
        if b" 200 " not in head_bytes.split(b"\r\n")[0]:
            raise ConnectionError(f"{path}: {rest[:200].decode(errors='replace')}")
        return rest
