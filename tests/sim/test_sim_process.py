"""The simulated server's process: its end, its port, what a killed one leaves."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from decodetop.cli import main
from decodetop.errors import DataError
from decodetop.sim.process import start_server


def test_it_ends_on_sigterm_and_stop_may_be_called_twice() -> None:
    server = start_server()
    assert psutil.pid_exists(server.process.pid)
    server.stop()
    assert server.process.returncode == 0
    server.stop()


def test_it_dies_with_its_parent() -> None:
    program = (
        "import os, sys\nfrom decodetop.sim.process import start_server\n"
        "print(start_server().process.pid, flush=True)\nsys.stdin.readline()\nos._exit(1)\n"
    )
    parent = subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None and parent.stdin is not None
    child = psutil.Process(int(parent.stdout.readline()))
    assert child.is_running()
    os.kill(parent.pid, signal.SIGKILL)
    parent.wait()
    for pipe in (parent.stdin, parent.stdout):
        pipe.close()
    gone, alive = psutil.wait_procs([child], timeout=10)
    assert gone and not alive


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_no_alarm_outlives_the_loop(number: signal.Signals) -> None:
    """A pending alarm without its handler would end the process with SIGALRM."""
    for _ in range(3):
        with start_server(visitors=3) as server:
            server.process.send_signal(number)
            assert server.process.wait(20) == 0


def test_a_port_in_use_is_one_line(capfd: pytest.CaptureFixture[str]) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        number = taken.getsockname()[1]
        with pytest.raises(DataError, match=f"can't listen at 127.0.0.1:{number}: address already in use"):
            start_server(more=("--port", str(number)))
        assert main(["demo", "--serve", "--port", str(number)]) == 1
    assert "address already in use" in capfd.readouterr().err


@pytest.mark.parametrize("word", ["-1", "65536", "x"])
def test_a_port_that_is_none_is_usage(word: str) -> None:
    with pytest.raises(SystemExit) as stop:
        main(["demo", "--serve", f"--port={word}"])
    assert stop.value.code == 2


def test_the_folder_of_a_demo_that_was_killed_goes(tmp_path: Path) -> None:
    scratch = tmp_path / "scratch"
    (scratch / "sub").mkdir(parents=True)
    program = (
        "from decodetop.sim.process import start_server\n"
        f"server = start_server(more=('--scratch', {str(scratch)!r}))\n"
        "print(server.process.pid, flush=True)\nserver.process.wait()"
    )
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        child = psutil.Process(int(parent.stdout.readline()))
        parent.kill()
    psutil.wait_procs([child], timeout=20)
    assert not scratch.exists()
