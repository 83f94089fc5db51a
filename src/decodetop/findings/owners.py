"""Which GPUs a server uses. Pure."""

from __future__ import annotations

from decodetop.gpu.reading import Gpu, GpuReading
from decodetop.server.reading import Server


def gpus_of(server: Server | None, reading: GpuReading | None) -> tuple[Gpu, ...] | None:
    """The GPUs on which the server's processes hold memory, else those its CUDA_VISIBLE_DEVICES names.

    None = can't be told. A server elsewhere has none of this box's GPUs.
    """
    if server is None or reading is None:
        return None
    if not server.local:
        return ()
    pids = {process.pid for process in server.processes}
    by_pid = tuple(gpu for gpu in reading.gpus if any(process.pid in pids for process in gpu.processes or ()))
    if by_pid:
        return by_pid
    if server.gpu_uuids:
        named = tuple(gpu for gpu in reading.gpus if gpu.uuid and gpu.uuid.startswith(server.gpu_uuids))
        return named or None
    if server.gpu_indices:
        return tuple(gpu for gpu in reading.gpus if gpu.index in server.gpu_indices) or None
    return reading.gpus if len(reading.gpus) == 1 else None


def foreign_processes(server: Server, gpu: Gpu) -> tuple[int, ...]:
    """Pids on the GPU that are not the server's; empty when the driver lists none or the server's are unknown."""
    own = {process.pid for process in server.processes} | ({server.root_pid} if server.root_pid else set())
    held = [process.pid for process in gpu.processes or ()]
    return tuple(pid for pid in held if pid not in own) if own.intersection(held) else ()
