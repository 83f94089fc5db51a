"""Process trees as recorded and as read in the engines' sources: one row per server, children folded in."""

from __future__ import annotations

import json
from typing import Any

import pytest

from decodetop.server.flags import TEXT_MAX
from decodetop.server.processes import (
    Process,
    asked_port,
    engine_of,
    flags_of,
    listening_at,
    published_port,
    roots,
    url_of,
)
from support.engine_replay import read

Tree = tuple[list[Process], dict[int, list[tuple[str, int]]]]


def recording(folder: str) -> Tree:
    table: list[dict[str, Any]] = json.loads(read(folder, "processes.json"))
    processes = [
        Process(
            pid=one["pid"], ppid=one["ppid"], argv=tuple(w for w in one["cmdline"] if w), created_s=one["create_time"]
        )
        for one in table
    ]
    return processes, {one["pid"]: [(ip, port) for ip, port in one["listen"]] for one in table}


def process(pid: int, ppid: int, *argv: str) -> Process:
    return Process(pid=pid, ppid=ppid, argv=argv)


def test_sglang_tp2() -> None:
    processes, sockets = recording("sglang_tp2_graph")
    (root,) = roots(processes)
    assert (root.engine, root.pid) == ("sglang", 3670)
    assert [(child.pid, child.role, child.title) for child in root.children] == [
        (3803, "scheduler", "sglang::scheduler_TP0"),
        (3804, "scheduler", "sglang::scheduler_TP1"),
        (3805, "detokenizer", "sglang::detokenizer"),
    ], "the resource tracker is no part of it"
    assert listening_at(root, sockets) == ("127.0.0.1", 30002), "not one of the schedulers' many ports"
    assert flags_of(root)["tp_size"] == "2"


def test_two_sglang_servers_on_one_box() -> None:
    processes, sockets = recording("sglang_tp1_graph")
    first, second = roots(processes)
    assert [listening_at(root, sockets) for root in (first, second)] == [("127.0.0.1", 30000), ("127.0.0.1", 30001)]
    assert [child.pid for child in first.children] == [3080, 3081]
    assert [child.pid for child in second.children] == [3011, 3012]
    assert "disable_cuda_graph" in flags_of(second) and "disable_cuda_graph" not in flags_of(first)


def test_vllm_tp2() -> None:
    processes, sockets = recording("vllm_tp2_graph")
    (root,) = roots(processes)
    assert (root.engine, root.pid) == ("vllm", 2623)
    assert [(child.role, child.title) for child in root.children] == [
        ("engine", "VLLM::EngineCore"),
        ("worker", "VLLM::Worker_TP0"),
        ("worker", "VLLM::Worker_TP1"),
    ]
    at = listening_at(root, sockets)
    assert at == ("0.0.0.0", 8002) and url_of(*at) == "http://127.0.0.1:8002"


@pytest.mark.parametrize(
    ("command", "engine"),
    [
        ("python3 -m sglang.launch_server --model-path m", "sglang"),
        ("/opt/venv/bin/python3.12 -u -X faulthandler -m sglang.launch_server", "sglang"),
        ("/usr/bin/python3 /usr/local/bin/sglang serve --model-path m", "sglang"),
        ("/opt/venv/bin/python /opt/venv/bin/vllm serve Qwen/Qwen3-8B", "vllm"),
        ("vllm serve m", "vllm"),
        ("python -m vllm.entrypoints.openai.api_server --model m", "vllm"),
        ("/usr/bin/llama-server -m m.gguf", "llamacpp"),
        ("ollama serve", "ollama"),
        ("text-generation-launcher --model-id m", "tgi"),
        ("/usr/bin/python3 /usr/bin/trtllm-serve m", "trtllm"),
        ("/usr/bin/python3 /usr/bin/lmdeploy serve api_server m", "lmdeploy"),
        ("python3 -m sglang.bench_serving --port 30000", None),
        ("python3 -m sglang.bench_one_batch_server", None),
        ("vllm bench serve --model m", None),
        ("vllm chat", None),
        ("docker run -p 8000:8000 vllm/vllm-openai vllm serve m", None),
        ("sudo python3 -m sglang.launch_server", None),
        ("ssh box vllm serve m", None),
        ("grep sglang.launch_server", None),
        ("python3", None),
        ("python3 -m", None),
        ("", None),
    ],
)
def test_which_command_starts_which_server(command: str, engine: str | None) -> None:
    assert engine_of(command.split()) == engine


def test_a_shell_that_holds_the_command_is_no_server() -> None:
    shell = process(10, 1, "bash", "-c", "exec python3 -m sglang.launch_server --port 1")
    server = process(11, 10, "python3", "-m", "sglang.launch_server", "--port", "1")
    (root,) = roots([shell, server])
    assert root.pid == 11


def test_forked_copies_are_children() -> None:
    """Until it sets its title, a forked child shows its parent's command line."""
    argv = ("vllm", "serve", "m")
    (root,) = roots([process(10, 1, *argv), process(11, 10, *argv), process(12, 11, "VLLM::Worker_DP0_TP1_EP1")])
    assert root.pids == (10, 11, 12)
    assert root.children[1].role == "worker"


def test_old_vllm_children_without_a_title() -> None:
    spawn = ("python", "-c", "from multiprocessing.spawn import spawn_main; spawn_main(5)", "--multiprocessing-fork")
    (root,) = roots([process(10, 1, "vllm", "serve", "m"), process(11, 10, *spawn)])
    assert root.children[0].role == "worker"


@pytest.mark.parametrize(
    "title", ["sglang::scheduler", "sglang::scheduler_None", "sglang::scheduler_DP0_PP0_ATTN_CP0_MOE_DP0_TP3_EP3"]
)
def test_scheduler_titles_of_all_versions(title: str) -> None:
    (root,) = roots([process(10, 1, "sglang", "serve"), process(11, 10, title)])
    assert (root.children[0].role, root.children[0].title) == ("scheduler", title)


@pytest.mark.parametrize("title", ["sglang::scheduler_TP0" + "x" * 60_000, "x" * 60_000])
def test_a_title_without_end_is_cut(title: str) -> None:
    """It stands in every sample."""
    (root,) = roots([process(10, 1, "sglang", "serve"), process(11, 10, title)])
    assert len(root.children[0].title) <= TEXT_MAX


def test_the_engine_ollama_starts_is_not_a_second_server() -> None:
    runner = process(11, 10, "/usr/lib/ollama/llama-server", "--model", "/blob", "--port", "40123")
    (root,) = roots([process(10, 1, "/usr/bin/ollama", "serve"), runner])
    assert (root.engine, root.children[0].role) == ("ollama", "engine")
    sockets = {10: [("127.0.0.1", 11434)], 11: [("127.0.0.1", 40123)]}
    assert listening_at(root, sockets) == ("127.0.0.1", 11434)


def test_llama_server_s_router_folds_its_models() -> None:
    models = [process(11, 10, "llama-server", "-m", "a"), process(12, 10, "llama-server", "-m", "b")]
    (root,) = roots([process(10, 1, "llama-server"), *models])
    assert root.pids == (10, 11, 12)


def test_a_child_may_hold_the_socket() -> None:
    """vLLM's and SGLang's Rust front ends."""
    server = process(10, 1, "vllm", "serve", "m", "--port", "8005")
    (root,) = roots([server, process(11, 10, "/opt/vllm-rs", "--port", "8005")])
    assert listening_at(root, {11: [("0.0.0.0", 8005), ("127.0.0.1", 41000)]}) == ("0.0.0.0", 8005)
    assert listening_at(root, {11: [("127.0.0.1", 41000)]}) is None


def test_the_port_is_the_root_s_only_one_when_nothing_names_it() -> None:
    (root,) = roots([process(10, 1, "llama-server", "-m", "m")])
    assert asked_port(root) == 8080
    assert listening_at(root, {10: [("127.0.0.1", 9999)]}) == ("127.0.0.1", 9999)
    assert listening_at(root, {10: [("127.0.0.1", 9999), ("127.0.0.1", 9998)]}) is None


def test_a_published_port_of_a_container() -> None:
    proxy = "/usr/bin/docker-proxy -proto tcp -host-port 9000 -container-ip 172.17.0.2 -container-port 8000"
    assert published_port([process(5, 1, *proxy.split())], 8000) == 9000
    assert published_port([process(5, 1, *proxy.split())], 8001) is None


def test_addresses() -> None:
    assert url_of("::", 1) == "http://127.0.0.1:1"
    assert url_of("::1", 1) == "http://[::1]:1"
    assert url_of("10.0.0.5", 1) == "http://10.0.0.5:1"


def test_a_loop_of_parents_ends() -> None:
    assert roots([process(10, 11, "vllm", "serve"), process(11, 10, "bash")])[0].pid == 10


def test_vllm_with_a_prefix_of_its_own() -> None:
    """VLLM_PROCESS_NAME_PREFIX."""
    (root,) = roots(
        [process(1, 0, "vllm", "serve", "m"), process(2, 1, "prod::EngineCore_DP0"), process(3, 2, "prod::Worker_TP1")]
    )
    assert [child.role for child in root.children] == ["engine", "worker"]
