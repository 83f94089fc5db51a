"""Servers of this box: found with and without permission, in units and containers, and lost again."""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from decodetop.core.clock import SystemClock
from decodetop.server.discover import Proc, Scan, is_local, scan
from decodetop.server.probe import ServerProbe
from decodetop.server.reading import Server, ServerReading
from decodetop.server.redact import redact_text
from support.clock import ManualClock
from support.engine_replay import EngineReplay, Reply, recorded
from support.fake_proc import FakeProc

Make = Callable[..., ServerProbe]
LAUNCH = ("python3", "-m", "sglang.launch_server", "--model-path", "/m", "--port")


def proc(port: int = 30000, devices: str | None = None) -> FakeProc:
    box = FakeProc()
    box.add(1, "init")
    box.add(100, *LAUNCH, str(port), listen=[("0.0.0.0", port)], devices=devices)
    box.add(101, "sglang::scheduler_TP0", ppid=100, listen=[("127.0.0.1", 41000)])
    return box


def test_what_is_found() -> None:
    (found,) = scan(proc()).found
    assert (found.engine, found.endpoint, found.listening) == ("sglang", "http://127.0.0.1:30000", True)
    assert [(process.pid, process.role) for process in found.processes] == [(100, "api"), (101, "scheduler")]
    assert found.started_wall_ns == 1_700_000_000_500_000_000
    assert found.unit is None and found.reasons["unit"] == "started by hand, by no unit"


@pytest.mark.parametrize(
    ("devices", "indices", "uuids"),
    [
        ("0,1", (0, 1), None),
        ("3", (3,), None),
        ("GPU-8f2c,GPU-1a", None, ("GPU-8f2c", "GPU-1a")),
        ("MIG-1f", None, ("MIG-1f",)),
        (None, None, None),
        ("", None, None),
        ("all", None, None),
    ],
)
def test_the_gpus_it_may_use(
    devices: str | None, indices: tuple[int, ...] | None, uuids: tuple[str, ...] | None
) -> None:
    (found,) = scan(proc(devices=devices)).found
    assert (found.gpu_indices, found.gpu_uuids) == (indices, uuids)
    assert ("gpu_indices" in found.reasons) == (indices is None)


def test_without_permission_the_port_is_the_command_line_s() -> None:
    box = proc(31234)
    box.denied = {100, 101}
    (found,) = scan(box).found
    assert (found.endpoint, found.listening) == ("http://127.0.0.1:31234", False)
    assert "no permission" in found.reasons["sockets"] and "no permission" in found.reasons["gpu_indices"]


@pytest.mark.parametrize(
    ("cgroup", "unit"),
    [
        ("0::/system.slice/sglang.service\n", "sglang.service"),
        ("0::/user.slice/user-1000.slice/user@1000.service/app.slice/llm.service\n", "llm.service"),
        ("0::/user.slice/user-1000.slice/user@1000.service/tmux-spawn-1.scope\n", None),
        ("12:pids:/system.slice/vllm.service\n1:name=systemd:/system.slice/vllm.service\n", "vllm.service"),
        ("0::/system.slice/docker-0123456789ab.scope\n", None),
        ("0::/kubepods.slice/kubepods-pod1.slice/cri-containerd-1.scope\n", None),
    ],
)
def test_the_unit(cgroup: str, unit: str | None) -> None:
    box = proc()
    box.cgroups[100] = cgroup
    (found,) = scan(box).found
    assert found.unit == unit
    assert ("unit" in found.reasons) == (unit is None)


def test_a_container_s_published_port() -> None:
    box = proc(8000)
    box.away = {100}
    box.add(7, "/usr/bin/docker-proxy", "-proto", "tcp", "-host-port", "9000", "-container-port", "8000")
    (found,) = scan(box).found
    assert found.endpoint == "http://127.0.0.1:9000" and "container" in found.reasons["endpoint"]


def test_a_server_with_a_certificate_and_one_of_a_further_node() -> None:
    box = FakeProc()
    box.add(10, "vllm", "serve", "m", "--ssl-certfile", "/c.pem", listen=[("0.0.0.0", 8000)])
    box.add(20, *LAUNCH, "30000", "--nnodes", "2", "--node-rank", "1")
    first, second = scan(box).found
    assert first.endpoint == "https://127.0.0.1:8000"
    assert second.reasons["endpoint"] == "node rank 1: the server answers on the node of rank 0"


def test_only_the_visible_devices_are_kept_of_an_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "2")
    program = [sys.executable, "-c", "print(flush=True); input()"]
    child = subprocess.Popen(program, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        assert child.stdout is not None and child.stdout.readline(), "its environment is in place before it speaks"
        assert Proc().visible_devices(child.pid) == "2"
    finally:
        child.communicate(b"\n")


@pytest.mark.parametrize(
    ("endpoint", "local"),
    [
        ("http://127.0.0.1:30000", True),
        ("http://localhost:30000", True),
        ("http://[::1]:30000", True),
        ("http://GPU-BOX-7:30000", True),
        ("http://192.0.2.2:30000", True),
        ("http://other:30000", False),
        ("https://192.0.2.3", False),
        ("http://127.0.0.1:2222", False),
    ],
)
def test_local(endpoint: str, local: bool) -> None:
    assert is_local(endpoint, Scan(hosts=proc().hosts(), tunnels=frozenset({2222}))) is local


def current(reading: ServerReading) -> Server:
    server = reading.current_server
    assert server is not None
    return server


async def settled(probe: ServerProbe, clock: ManualClock, seconds: float) -> ServerReading:
    """A reading after a new look at the box, which goes on by itself on its thread."""
    await clock.advance(seconds)
    await probe.read()
    while probe.searching:
        await asyncio.sleep(0.001)
    await clock.advance(1.0)
    return await probe.read()


async def test_found_and_read(make_probe: Make, clock: ManualClock, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"torch_dtype": "bfloat16"}')
    answers = recorded("sglang_tp1_graph", "loaded")
    for path in ("/model_info", "/server_info"):
        body = answers[path].body.replace(b"/srv/models/dense8b", str(tmp_path).encode())
        answers[path] = Reply(200, body)
    async with EngineReplay(answers) as replay:
        box = proc(replay.port, devices="1")
        probe = make_probe(discover=True, proc=box)
        reading = await probe.read()
    server = current(reading)
    assert reading.searched == ("3 processes of this box",)
    assert (server.status, server.root_pid, server.gpu_indices, server.local) == ("up", 100, (1,), True)
    assert (server.weights_dtype, server.kv_dtype) == ("bf16", "bf16"), "auto, by the model's own config"
    assert {flag.name: (flag.requested, flag.resolved) for flag in server.flags}["model_path"][0] == "/m"


async def test_a_named_endpoint_and_its_process_are_one_server(make_probe: Make) -> None:
    async with EngineReplay(recorded("sglang_tp1_graph", "loaded")) as replay:
        probe = make_probe(f"http://localhost:{replay.port}/v1", discover=True, proc=proc(replay.port))
        (server,) = (await probe.read()).servers
    assert (server.endpoint, server.root_pid) == (f"http://localhost:{replay.port}/v1", 100)
    assert server.command[:3] == LAUNCH[:3]


async def test_starting_up_and_gone(make_probe: Make, clock: ManualClock) -> None:
    async with EngineReplay({}) as replay:
        pass
    box = proc(replay.port)
    box.listening[100] = []
    probe = make_probe(discover=True, proc=box)
    server = current(await probe.read())
    assert (server.status, server.engine) == ("starting", "sglang")
    assert server.status_message == "process 100 runs, its port is not open yet"
    async with EngineReplay(recorded("sglang_tp1_graph", "loaded"), replay.port):
        box.listening[100] = [("0.0.0.0", replay.port)]
        server = current(await settled(probe, clock, 10.0))
        assert (server.status, server.running) == ("up", 32)
    box.remove(100)
    box.remove(101)
    reading = await settled(probe, clock, 10.0)
    server = current(reading)
    assert (server.status, server.status_message) == ("down", "its process has ended")
    assert (server.engine, server.model, server.root_pid, server.processes) == (
        "sglang",
        "/srv/models/dense8b",
        None,
        (),
    )
    assert current(await settled(probe, clock, 120.0)).status == "down", "the only one stays listed"


async def test_a_restart_is_found_soon(make_probe: Make, clock: ManualClock) -> None:
    async with EngineReplay(recorded("sglang_tp1_graph", "after")) as replay:
        box = proc(replay.port, devices="0")
        probe = make_probe(discover=True, proc=box)
        await probe.read()
    box.remove(100)
    box.remove(101)
    await clock.advance(1.0)
    assert current(await probe.read()).status == "down"
    async with EngineReplay(recorded("sglang_tp1_graph", "idle")) as replay:
        box.add(200, *LAUNCH, str(replay.port), listen=[("127.0.0.1", replay.port)], devices="1")
        await probe.read()
        reading = await settled(probe, clock, 2.1)
        assert box.scans == 3, "well before the ordinary ten seconds"
        assert [(server.root_pid, server.status) for server in reading.servers] == [(None, "down"), (200, "up")]
        assert current(reading).status == "down", "the choice does not wander at once"
        reading = await settled(probe, clock, 70.0)
    assert [server.root_pid for server in reading.servers] == [200]
    assert current(reading).root_pid == 200


@pytest.mark.parametrize("seconds", [1.0, 300.0])
async def test_the_first_reading_after_a_restart_is_of_the_new_process(
    make_probe: Make, clock: ManualClock, seconds: float
) -> None:
    """Before a run the server is read once: with the process of before, the run said that it was started anew."""
    async with EngineReplay(recorded("sglang_tp1_graph", "loaded")) as replay:
        box = proc(replay.port, devices="0")
        probe = make_probe(discover=True, proc=box)
        await probe.read()
        box.remove(100)
        box.remove(101)
        box.add(200, *LAUNCH, str(replay.port), listen=[("127.0.0.1", replay.port)], devices="1")
        await clock.advance(seconds)
        (server,) = (await probe.read()).servers
    assert (server.root_pid, server.gpu_indices, server.status) == (200, (1,), "up")


async def test_another_process_at_the_same_port_starts_anew(make_probe: Make, clock: ManualClock) -> None:
    async with EngineReplay(recorded("sglang_tp1_graph", "loaded")) as replay:
        box = proc(replay.port, devices="0")
        probe = make_probe(discover=True, proc=box)
        await probe.read()
        box.remove(100)
        box.remove(101)
        replay.answers = recorded("vllm_tp1_graph", "after")
        box.add(200, "vllm", "serve", "m", "--port", str(replay.port), listen=[("0.0.0.0", replay.port)], devices="1")
        reading = await settled(probe, clock, 10.0)
    (server,) = reading.servers
    assert (server.engine, server.root_pid, server.gpu_indices, server.tp) == ("vllm", 200, (1,), 1)


async def test_usual_ports_are_tried_when_no_process_is_seen(
    make_probe: Make, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with (
        EngineReplay(recorded("vllm_tp1_graph", "loaded")) as engine,
        EngineReplay({"/v1/models": Reply(200, b"<html>", "text/html")}) as website,
    ):
        ports = {"vllm": engine.port, "sglang": website.port}
        monkeypatch.setattr("decodetop.server.probe.PORTS", ports)
        probe = make_probe(discover=True, proc=FakeProc())
        reading = await probe.read()
        (server,) = reading.servers
        assert (server.endpoint, server.status, server.root_pid) == (engine.endpoint, "up", None)
        asked = len(website.paths)
        await settled(probe, clock, 10.0)
    assert len(website.paths) == asked, "another program's port is left alone"
    assert str(engine.port) in reading.searched[1]


async def test_a_key_is_not_sent_to_a_server_nobody_named_and_that_is_said(make_probe: Make) -> None:
    async with EngineReplay({"/v1/models": Reply(401, b"{}"), "/metrics": Reply(401, b"")}) as locked:
        box = FakeProc()
        box.add(
            7, "python3", "-m", "sglang.launch_server", "--port", str(locked.port), listen=[("127.0.0.1", locked.port)]
        )
        probe = make_probe(discover=True, usual_ports=False, proc=box, api_key="sk-mine")
        (server,) = (await probe.read()).servers
    assert server.status == "needs_key"
    assert server.status_message == f"keys go to named servers only: --endpoint {locked.endpoint}"


async def test_an_ssh_tunnel_is_another_box(make_probe: Make) -> None:
    async with EngineReplay(recorded("vllm_tp1_graph", "loaded")) as replay:
        box = FakeProc()
        box.forwarded = frozenset({replay.port})
        server = current(await make_probe(replay.endpoint, discover=True, proc=box).read())
    assert (server.status, server.local) == ("up", False)
    assert server.reasons["gpu_indices"] == "it runs on another host"


def test_a_real_tunnel_is_known_by_its_program(tmp_path: Path) -> None:
    (tmp_path / "ssh").symlink_to(Path(sys.executable).resolve())
    listen = "import socket; s = socket.create_server(('127.0.0.1', 0)); print(s.getsockname()[1], flush=True); input()"
    child = subprocess.Popen([tmp_path / "ssh", "-c", listen], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        assert child.stdout is not None
        assert int(child.stdout.readline()) in Proc().tunnels(Proc().all())
    finally:
        child.communicate(b"\n")


SERVER = """
import http.server, sys
class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def do_GET(self):
        found = self.path == "/v1/models"
        body = b'{"object":"list","data":[{"id":"tiny","owned_by":"sglang"}]}' if found else b"{}"
        self.send_response(200 if found else 404)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
    def log_message(self, *_):
        pass
port = int(sys.argv[sys.argv.index("--port") + 1])
server = http.server.ThreadingHTTPServer(("127.0.0.1", port), Handler)
print("ready", flush=True)
server.serve_forever()
"""


async def test_a_real_process_is_found_by_psutil(tmp_path: Path) -> None:
    package = tmp_path / "sglang"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "launch_server.py").write_text(SERVER)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "sglang.launch_server", "--port", str(port), "--api-key", "planted-key-123"]
    environment = {**os.environ, "CUDA_VISIBLE_DEVICES": "5", "PYTHONPATH": str(tmp_path), "SOME_TOKEN": "planted-env"}
    child = subprocess.Popen(command, stdout=subprocess.PIPE, env=environment)
    probe = ServerProbe(SystemClock())
    try:
        assert child.stdout is not None and child.stdout.readline() == b"ready\n"
        for _ in range(20):  # a busy machine may need more than one look
            reading = await probe.read()
            if any(server.root_pid == child.pid and server.status == "up" for server in reading.servers):
                break
    finally:
        await probe.close()
        child.kill()
        child.communicate()
    (server,) = [server for server in reading.servers if server.root_pid == child.pid]
    assert (server.endpoint, server.engine, server.status) == (f"http://127.0.0.1:{port}", "sglang", "up")
    assert (server.gpu_indices, server.local, server.served_name) == ((5,), True, "tiny")
    assert "planted" not in repr(reading)


@pytest.mark.parametrize("flag", [("--api-key", "local-flag-key-77"), ("--admin-api-key=local-flag-key-77",)])
def test_a_key_of_a_command_line_of_this_box_is_masked_in_every_text(flag: tuple[str, ...]) -> None:
    box = FakeProc()
    box.add(100, *LAUNCH, "30000", *flag, listen=[("0.0.0.0", 30000)])
    (found,) = scan(box).found
    assert "local-flag-key-77" not in repr(found)
    assert redact_text("refused local-flag-key-77 for /v1") == "refused *** for /v1"


def test_a_short_value_is_no_key_to_look_for() -> None:
    box = FakeProc()
    box.add(100, *LAUNCH, "30000", "--api-key", "none", listen=[("0.0.0.0", 30000)])
    scan(box)
    assert redact_text("none of them") == "none of them"
