"""A finding becomes an item by one key."""

from __future__ import annotations

import msgspec

from decodetop.core.sample import Sample
from decodetop.core.state import State, fold
from decodetop.gpu.reading import GpuReading
from decodetop.server.reading import ServerReading
from decodetop.todo.reading import AddTodo, Todo, TodoReading
from support import states
from support.face import desk


def hot() -> State:
    """Both GPUs slowed by heat; the first is the server's."""
    state = states.box()
    reading = state.last("gpu", GpuReading)
    assert reading is not None
    gpus = tuple(msgspec.structs.replace(gpu, event_reasons=0x40, temperature_c=91.0) for gpu in reading.gpus)
    seen = msgspec.structs.replace(reading, gpus=gpus)
    return fold(state, Sample(source="gpu", t_ns=state.now_ns, seq=state.seq + 1, reading=seen))


async def test_the_finding_shown_becomes_an_item_with_its_number() -> None:
    async with desk(hot()) as d:
        await d.press("!")
        (command,) = d.sent
        assert isinstance(command, AddTodo)
        assert command.content.startswith("GPU 0 is slowed by heat: find out why the GPU runs hot")
        assert command.hypothesis and command.priority == "medium"
        (evidence,) = command.evidence
        assert (evidence.kind, evidence.ref) == ("finding", "thermal:0")
        assert evidence.summary == "GPU 0 is slowed by heat: hardware thermal slowdown at 91 °C"


async def test_the_next_one_when_the_first_has_an_open_item() -> None:
    state = hot()
    async with desk(state) as d:
        await d.press("!")
        (command,) = d.sent
        assert isinstance(command, AddTodo)
        item = Todo(id="t99", content=command.content, status="pending", evidence=command.evidence)
        reading = state.last("todo", TodoReading)
        assert reading is not None
        listed = msgspec.structs.replace(reading, todos=(*reading.todos, item))
        await d.show(fold(state, Sample(source="todo", t_ns=state.now_ns, seq=state.seq + 1, reading=listed)))
        await d.press("!")
        assert isinstance(d.sent[-1], AddTodo) and d.sent[-1].evidence[0].ref == "graphs:off"


async def test_all_of_them_with_their_numbers() -> None:
    async with desk(hot()) as d:
        await d.press("F")
        text = "\n".join(d.screen())
        assert "GPU 0 is slowed by heat" in text and "hardware thermal slowdown at 91 °C, since 02:01" in text
        assert "CUDA graphs are off" in text
        await d.press("down", "enter")
        assert [one.evidence[0].ref for one in d.sent if isinstance(one, AddTodo)] == ["graphs:off"]


async def test_without_a_finding_the_key_says_so() -> None:
    state = states.box()
    reading = state.last("server", ServerReading)
    assert reading is not None
    servers = tuple(msgspec.structs.replace(server, cuda_graph=None) for server in reading.servers)
    seen = msgspec.structs.replace(reading, servers=servers)
    quiet = fold(state, Sample(source="server", t_ns=state.now_ns, seq=state.seq + 1, reading=seen))
    async with desk(quiet) as d:
        await d.press("!")
        assert d.sent == [] and "there is no finding" in d.footer
