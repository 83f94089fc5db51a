"""GPUs that are not well: what their rows and their page say."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from decodetop.core.state import State
from decodetop.gpu.reading import Gpu, GpuReading, Link
from decodetop.gpu.text import alarm_words, alarms
from decodetop_tui.paint import Picture, View
from decodetop_tui.panes import gpu
from support import states


def drawn(reading: GpuReading, view: View, state: State | None = None) -> str:
    return whole(gpu.draw(box_of(reading, state), view))


def box_of(reading: GpuReading, state: State | None = None) -> State:
    return states.put(state or states.empty(), {"gpu": reading}, 6)


def whole(picture: Picture) -> str:
    return "\n".join("".join(span.text for span in line) for line in picture.lines)


def boxed(**changes: object) -> GpuReading:
    reading = states.gpus(2)
    return replace(reading, gpus=(replace(reading.gpus[0], **changes), reading.gpus[1]))


@pytest.mark.parametrize(
    ("changes", "word"),
    [
        ({"pcie_gen": 3}, "PCIe slow"),
        ({"ecc_uncorrected": 3}, "ECC errors"),
        ({"row_remap_failed": True}, "row remap"),
        ({"nvlink_links": 18, "nvlink_links_active": 17}, "NVLink down"),
        ({"recovery_action": "a GPU reset (action 1)"}, "to recover"),
    ],
)
def test_an_alarm_too_long_for_its_column_is_said_in_short(changes: dict[str, object], word: str) -> None:
    reading = boxed(**changes)
    assert word in drawn(reading, View(80, 5)) and len(alarm_words(reading.gpus[0])) == len(alarms(reading.gpus[0]))
    assert f"▲ {alarms(reading.gpus[0])[0]}" in drawn(reading, View(120, 40, zoomed=True))


def test_of_a_gpu_that_was_never_read_there_are_no_last_figures() -> None:
    unread = Gpu(index=0, state="denied", state_message="no permission", state_since_ns=0)
    page = drawn(replace(states.gpus(2), gpus=(unread, states.gpus(2).gpus[1])), View(120, 40, zoomed=True))
    assert "NO ACCESS" in page and "it was never read" in page
    assert "last good" not in page and "memory used" not in page


def test_free_for_kv_speaks_of_a_server_only_where_there_is_one() -> None:
    view = View(120, 60, zoomed=True)
    assert "no server was found" in drawn(states.gpus(2), view)
    other = box_of(states.gpus(2), states.box(5))
    page = whole(gpu.draw(other, view._replace(cursor="gpu:1")))
    assert "not this server's" in page and "no server was found" not in page


def test_a_gpu_no_longer_listed_and_the_one_at_its_index_have_a_row_each() -> None:
    one, other = states.gpus(2).gpus
    gone = replace(other, index=0, state="lost", state_message="the driver no longer lists it", state_since_ns=0)
    reading = replace(states.gpus(1), gpus=(one, gone))
    state = box_of(reading)
    rows = [row for row in gpu.draw(state, View(120, 10)).rows if row]
    assert len(set(rows)) == 2
    page = whole(gpu.draw(state, View(120, 40, zoomed=True, cursor=rows[-1])))
    assert f"{gone.uuid}" in page and "figures are the last good ones" in page


def test_a_slow_driver_is_told_in_the_title() -> None:
    slow = box_of(replace(states.gpus(2), took_ms=4100.0))
    assert gpu.draw(slow, View(120, 10)).note.startswith("the driver is slow: 4 s a round")
    usual = box_of(replace(states.gpus(2), took_ms=12.0))
    assert "slow" not in gpu.draw(usual, View(120, 10)).note


@pytest.mark.parametrize("width", [80, 120, 200])
def test_every_pair_of_sixteen_gpus_is_in_sight(width: int) -> None:
    """Eight on each socket: the 64 pairs across were cut off at the edge of the screen."""
    links = tuple(
        Link(a=a, b=b, path="nvlink" if a // 8 == b // 8 else "sockets") for a in range(16) for b in range(a + 1, 16)
    )
    reading = replace(states.gpus(16), links=links)
    page = drawn(reading, View(width, 200, zoomed=True))
    assert "7-15" in page and "8-15" in page and "14-15" in page
    assert all(f" {index:>2}  " in page for index in range(16))
