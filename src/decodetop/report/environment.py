"""`--for ENGINE`: what the bug templates of SGLang and vLLM ask for, from the state alone.

The names of the fields are those of `python3 -m sglang.check_env` and of vLLM's `collect_env.py`. What decodetop does
not read is said field by field, with the command that tells it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

from decodetop.bench import text as bench_text
from decodetop.bench.reading import BenchReading
from decodetop.core.outside import escape, fenced, plain, unlinked
from decodetop.core.state import State
from decodetop.core.words import UNKNOWN, gib, number
from decodetop.gpu import text as gpu_text
from decodetop.gpu.reading import Gpu, GpuReading
from decodetop.host.reading import HostReading
from decodetop.report.privacy import Privacy
from decodetop.report.story import tell
from decodetop.server import text as server_text
from decodetop.server.reading import ENGINE_NAMES, Server, ServerReading
from decodetop.server.redact import redact_text

NOT_READ = "not known to decodetop"


class _Seen(NamedTuple):
    gpu: GpuReading | None
    host: HostReading | None
    server: Server | None
    gpu_problem: str | None

    @property
    def gpus(self) -> tuple[Gpu, ...]:
        return self.gpu.gpus if self.gpu is not None else ()


Row = tuple[str, str | None]
"""A field and its value; None = not read, "" = a heading."""


def environment(state: State, engine: str, privacy: Privacy | None = None) -> str:
    """The blocks for an issue at `engine` (sglang, vllm); names are hidden as in a snapshot."""
    shown = tell(state, privacy or Privacy()).state
    seen = _look(shown, engine)
    template = TEMPLATES[engine]
    lines = [f"### {template.reproduction}", "", *_reproduction(seen, engine)]
    lines += ["", f"### {template.environment}", ""]
    lines += [f"As decodetop saw it; `{template.command}` tells the rest.", ""]
    lines += fenced(_row(row) for row in template.rows(seen))
    lines += ["", "### Server as it runs", "", *_running(seen, engine)]
    lines += ["", "### Measured", "", *_measured(shown, seen)]
    return "\n".join(unlinked(redact_text("\n".join(lines)).split("\n"))) + "\n"


def _look(state: State, engine: str) -> _Seen:
    """The current server if it is of that engine, else the first that is."""
    reading, failure = state.last("server", ServerReading), state.lane("gpu").failure
    servers = sorted(reading.servers, key=lambda one: one.endpoint != reading.current) if reading is not None else []
    server = next((one for one in servers if one.engine == engine), None)
    problem = None if failure is None else failure.message
    return _Seen(state.last("gpu", GpuReading), state.last("host", HostReading), server, problem)


def _row(row: Row) -> str:
    name, value = row
    if value == "":
        return f"== {plain(name)} =="
    return f"{plain(name)}: {NOT_READ if value is None else plain(value)}"


def _reproduction(seen: _Seen, engine: str) -> list[str]:
    if seen.server is None:
        return [f"No {ENGINE_NAMES[engine]} server is seen here: command and model are not known."]
    command = server_text.command(seen.server)
    told = fenced([command], "sh") if command else ["The command line is not known: its process is not seen from here."]
    return [*told, "", f"Model: {escape(seen.server.model or UNKNOWN)}"]


def _cards(seen: _Seen) -> Iterator[Row]:
    """GPUs of one name together, as both tools list them."""
    by_name: dict[str, list[str]] = {}
    for gpu in seen.gpus:
        by_name.setdefault(gpu.name or UNKNOWN, []).append(str(gpu.index))
    for name, indices in by_name.items():
        yield f"GPU {','.join(indices)}", name
    if not by_name:
        yield "GPU", f"none seen ({seen.gpu_problem})" if seen.gpu_problem else None


def _driver(seen: _Seen) -> Iterator[Row]:
    reading = seen.gpu
    yield "CUDA Driver Version", reading.driver_version if reading is not None else None
    yield "CUDA of the driver, at most", reading.cuda_version if reading is not None else None


def _topology(seen: _Seen) -> str | None:
    if seen.gpu is None:
        return None
    if len(seen.gpus) == 1:
        return "one GPU"
    return "; ".join(gpu_text.link_words(seen.gpu)) or None


def _settings(seen: _Seen) -> Iterator[Row]:
    """What changes a step and no template asks for."""
    switch = {True: "on", False: "off", None: "not known"}
    for gpu in seen.gpus:
        facts = [
            f"power limit {number(gpu.power_limit_w)} W",
            f"SM {gpu_text.sm_clock(gpu)} MHz, memory {gpu_text.mem_clock(gpu)} MHz",
            f"PCIe {gpu_text.pcie(gpu)}",
            f"{gib(gpu.memory_total_bytes)} GiB",
            f"persistence {switch[gpu.persistence_mode]}, MIG {switch[gpu.mig_enabled]}",
            f"limits now: {gpu_text.limits_text(gpu)}",
        ]
        yield f"GPU {gpu.index} settings", ", ".join(facts)


def _virtual(seen: _Seen) -> str | None:
    found = dict.fromkeys(gpu.virtualization for gpu in seen.gpus if gpu.virtualization)
    return f"{', '.join(found)} (as the driver says of the GPUs)" if found else None


def _version(seen: _Seen) -> str | None:
    return seen.server.version if seen.server is not None else None


def _cpu(seen: _Seen) -> str | None:
    host = seen.host
    if host is None:
        return None
    limit = f", {host.cpu_limit_cores:g} allowed here" if host.cpu_limit_cores is not None else ""
    return f"{host.cpu_count}{limit}"


def _sglang(seen: _Seen) -> Iterator[Row]:
    yield "Python", None
    yield "CUDA available", None
    yield from _cards(seen)
    yield "Compute Capability", None
    yield from (("CUDA_HOME", None), ("NVCC", None))
    yield from _driver(seen)
    yield "PyTorch", None
    yield "sglang", _version(seen)
    yield from ((name, None) for name in ("sgl_kernel", "flashinfer_python", "triton", "transformers", "torchao"))
    yield "other packages", None
    yield "NVIDIA Topology", _topology(seen)
    yield "Hypervisor vendor", _virtual(seen)
    yield "ulimit soft", None
    yield "Linux kernel", seen.host.kernel if seen.host is not None else None
    yield "CPU(s)", _cpu(seen)
    yield from _settings(seen)


def _vllm(seen: _Seen) -> Iterator[Row]:
    yield "System Info", ""
    yield from ((name, None) for name in ("OS", "GCC version", "Clang version", "CMake version", "Libc version"))
    yield "PyTorch Info", ""
    yield from ((name, None) for name in ("PyTorch version", "CUDA used to build PyTorch"))
    yield "Python Environment", ""
    yield "Python version", None
    yield "Python platform", seen.host.kernel if seen.host is not None else None
    yield "CUDA / GPU Info", ""
    yield from ((name, None) for name in ("Is CUDA available", "CUDA runtime version", "CUDA_MODULE_LOADING"))
    yield "GPU models and configuration", ""
    yield from _cards(seen)
    yield from _driver(seen)
    yield "cuDNN version", None
    yield from _settings(seen)
    yield "CPU Info", ""
    yield "CPU(s)", _cpu(seen)
    yield "Versions of relevant libraries", None
    yield "vLLM Info", ""
    yield "vLLM Version", _version(seen)
    yield "vLLM Build Flags", None
    yield "GPU Topology", _topology(seen)
    yield "Environment Variables", None


class Template(NamedTuple):
    reproduction: str
    environment: str
    command: str
    rows: Callable[[_Seen], Iterator[Row]]


TEMPLATES: Mapping[str, Template] = {
    "sglang": Template("Reproduction", "Environment", "python3 -m sglang.check_env", _sglang),
    "vllm": Template("How it was started", "Your current environment", "python collect_env.py", _vllm),
}


def _running(seen: _Seen, engine: str) -> list[str]:
    server = seen.server
    if server is None:
        return [f"No {ENGINE_NAMES[engine]} server is seen here."]
    facts = {
        "version": server.version,
        "parallel": server_text.parallel(server),
        "weights": server_text.weights(server),
        "KV dtype": server.kv_dtype,
        "attention": server.attention_backend,
        "CUDA graphs": server_text.graphs(server),
        "speculation": server_text.speculation(server),
        "KV cache": f"{number(server.kv_capacity_tokens)} tokens" if server.kv_capacity_tokens else None,
        "context": f"{number(server.context_length)} tokens" if server.context_length else None,
    }
    rows = [f"| {name} | {escape(value or '') or 'not known'} |" for name, value in facts.items()]
    differing = [row for row in server_text.flag_rows(server) if row[3]]
    rows += [f"| {escape(flag)} | asked {escape(asked)}, runs {escape(runs)} |" for flag, asked, runs, _ in differing]
    return ["| what | value |", "|---|---|", *(row.replace(f"| {UNKNOWN} |", "| not known |") for row in rows)]


def _measured(state: State, seen: _Seen) -> list[str]:
    """The newest run against that server, with n and spread: what maintainers ask for next."""
    bench = state.last("bench", BenchReading)
    runs = bench.runs if bench is not None else ()
    endpoint = seen.server.endpoint if seen.server is not None else None
    run = next((one for one in runs if endpoint is not None and one.plan.endpoint == endpoint), None)
    if run is None:
        return ["No benchmark of this server in this investigation."]
    return fenced(bench_text.run_lines(run))
