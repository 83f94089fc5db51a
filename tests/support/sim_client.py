"""What asks the simulated server by raw sockets, and reads what it says."""

from __future__ import annotations

import json
import socket
import threading
import time
from pathlib import Path
from typing import Any, NamedTuple

from prometheus_client.parser import text_string_to_metric_families

from decodetop.sim.process import SimServer
from decodetop.sim.truth import TruthLine, read_truth


class Reply(NamedTuple):
    status: int
    headers: dict[str, str]
    reads: list[tuple[int, bytes]]
    """CLOCK_MONOTONIC ns after each read, and what was read of the body."""

    @property
    def body(self) -> bytes:
        raw = b"".join(data for _, data in self.reads)
        return dechunk(raw) if self.headers.get("transfer-encoding") == "chunked" else raw

    @property
    def events(self) -> list[Any]:
        texts = [block[6:] for block in self.body.split(b"\n\n") if block.startswith(b"data: ")]
        return [json.loads(text) for text in texts if text != b"[DONE]"]

    @property
    def done(self) -> bool:
        return self.body.endswith(b"data: [DONE]\n\n")


def dechunk(raw: bytes) -> bytes:
    out = b""
    while b"\r\n" in raw:
        size, _, rest = raw.partition(b"\r\n")
        out, raw = out + rest[: int(size, 16)], rest[int(size, 16) + 2 :]
    return out


def ask(server: SimServer, method: str, path: str, body: Any = None, **headers: str) -> Reply:
    data = b"" if body is None else json.dumps(body).encode()
    lines = {"Host": "sim", "Connection": "close", "Content-Length": str(len(data)), **headers}
    head = f"{method} {path} HTTP/1.1\r\n" + "".join(f"{k}: {v}\r\n" for k, v in lines.items()) + "\r\n"
    with socket.create_connection(("127.0.0.1", server.port), timeout=20) as sock:
        sock.sendall(head.encode() + data)
        raw = b""
        while b"\r\n\r\n" not in raw:
            piece = sock.recv(65536)
            if not piece:
                return Reply(0, {}, [])
            raw += piece
        first_ns = time.monotonic_ns()
        top, _, rest = raw.partition(b"\r\n\r\n")
        reads = [(first_ns, rest)]
        try:
            while piece := sock.recv(65536):
                reads.append((time.monotonic_ns(), piece))
        except ConnectionResetError:
            pass
    status, *fields = top.decode().split("\r\n")
    parsed = {k.lower(): v for k, _, v in (field.partition(": ") for field in fields)}
    return Reply(int(status.split()[1]), parsed, reads)


def stream_body(tokens: int, prompt: int = 32, seed: int = 1, **more: Any) -> dict[str, Any]:
    return {
        "prompt": [seed * 1000 + at for at in range(prompt)],
        "max_tokens": tokens,
        "ignore_eos": True,
        "stream": True,
        "stream_options": {"include_usage": True, "continuous_usage_stats": True},
        **more,
    }


def together(server: SimServer, bodies: list[dict[str, Any]]) -> list[Reply]:
    replies: list[Reply | None] = [None] * len(bodies)

    def one(at: int) -> None:
        replies[at] = ask(server, "POST", "/v1/completions", bodies[at])

    threads = [threading.Thread(target=one, args=(at,)) for at in range(len(bodies))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return [reply for reply in replies if reply is not None]


def samples(text: str, name: str) -> dict[tuple[tuple[str, str], ...], float]:
    return {
        tuple(sorted(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if sample.name == name
    }


def total(text: str, name: str) -> float:
    return sum(samples(text, name).values())


def line_of(truth: Path, reply: Reply) -> TruthLine:
    return next(line for line in read_truth(truth) if line.id == reply.events[0]["id"])
