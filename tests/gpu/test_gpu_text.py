"""Words about GPUs: what is normal, what is worth a look, what is an alarm; and that they fit where they go."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from decodetop.gpu import text
from decodetop.gpu.reading import NOT_ON_PCIE, Gpu, GpuProcess, GpuReading, Link, MigInstance, Xid


def gpu(**values: Any) -> Gpu:
    base: dict[str, Any] = {"name": "NVIDIA H200", "uuid": "GPU-0", "utilization_percent": 100.0, "event_reasons": 0}
    base |= {"pcie_gen": 5, "pcie_gen_max": 5, "pcie_gen_device_max": 5, "pcie_width": 16, "pcie_width_max": 16}
    return Gpu(index=0, **(base | values))


IDLE = {"utilization_percent": 0.0, "event_reasons": 1}


@pytest.mark.parametrize(
    ("values", "words", "severity"),
    [
        ({}, "gen5 x16", "quiet"),
        ({**IDLE, "pcie_gen": 1}, "gen1 x16 idle", "quiet"),
        ({"utilization_percent": 0.0, "pcie_gen": 1}, "gen1 x16 idle", "quiet"),
        ({"pcie_gen": 1}, "gen1 x16 of gen5", "suspect"),
        ({"pcie_width": 8}, "gen5 x8 of x16", "info"),
        ({"pcie_gen": 4, "pcie_width": 8}, "gen4 x8 of gen5 x16", "suspect"),
        ({**IDLE, "pcie_gen": 1, "pcie_width": 8}, "gen1 x8 idle of x16", "info"),
        ({"pcie_gen_device_max": 6}, "gen5 x16", "info"),
        ({"utilization_percent": None, "event_reasons": None, "pcie_gen": 1}, "gen1 x16 of gen5", "quiet"),
        ({"pcie_gen": None, "pcie_width": None}, "–", "quiet"),
        ({"pcie_gen": None, "pcie_width": None, "reasons": {"pcie_gen": NOT_ON_PCIE}}, "on package", "quiet"),
        ({"pcie_width": None}, "gen5 x?", "quiet"),
    ],
)
def test_a_link_is_judged_under_load_only(values: dict[str, Any], words: str, severity: str) -> None:
    seen = gpu(**values)
    assert (text.pcie(seen), text.pcie_severity(seen)) == (words, severity)
    if severity != "quiet" or "idle" in words:
        assert "PCIe" in (text.pcie_note(seen) or "") or "card" in (text.pcie_note(seen) or "")


@pytest.mark.parametrize(
    ("bits", "words", "worst"),
    [
        (0, "none", None),
        (None, "–", None),
        (0x1, "idle", "quiet"),
        (0x4, "power cap", "info"),
        (0x4 | 0x20, "power cap, SW thermal", "alarm"),
        (0x40 | 0x80 | 0x8, "HW slowdown, HW thermal, power brake", "alarm"),
        (0x8000 | 0x4, "power cap, 0x8000", "info"),
    ],
)
def test_reasons_become_words_and_a_power_cap_is_no_alarm(bits: int | None, words: str, worst: str | None) -> None:
    seen = gpu(event_reasons=bits)
    assert text.limits_text(seen) == words
    order = ["quiet", "info", "suspect", "alarm"]
    severities = [limit.severity for limit in text.limits(seen)]
    assert max(severities, key=order.index, default=None) == worst
    assert bool(text.alarms(seen)) == (worst == "alarm")


@pytest.mark.parametrize(
    ("name", "mhz", "bits", "gb_s"),
    [
        ("Tesla T4", 5001, 256, 320),
        ("NVIDIA GeForce RTX 4090", 10501, 384, 1008),
        ("NVIDIA RTX A6000", 8001, 384, 768),
        ("NVIDIA A100-SXM4-40GB", 1215, 5120, 1555),
        ("NVIDIA H100 80GB HBM3", 2619, 5120, 3352),
        ("NVIDIA H200", 3201, 6016, 4814.3),
        ("NVIDIA H200", 3201, 6144, 4800),
        ("NVIDIA B200", 3996, 8192, 7700),
        ("NVIDIA B200", 3996, 7680, 7672),
        ("NVIDIA GB10", None, None, 273),
        ("NVIDIA L4", None, 192, None),
    ],
)
def test_theoretical_bandwidth(name: str, mhz: int | None, bits: int | None, gb_s: float | None) -> None:
    peak = text.dram_peak_gb_s(gpu(name=name, mem_clock_max_mhz=mhz, memory_bus_bits=bits))
    assert peak is None if gb_s is None else peak == pytest.approx(gb_s, rel=0.001)


def test_dram_traffic_of_one_stream_is_the_weights() -> None:
    """Recorded: 61.75 % of 4814.3 GB/s at 5.154 ms a token, of a model whose weights are 15.136 GB."""
    seen = gpu(mem_clock_max_mhz=3201, memory_bus_bits=6016, dram_bandwidth_percent=61.75)
    assert text.dram_gb_s(seen) == pytest.approx(15.136 / 5.154e-3, rel=0.02)
    assert text.dram_gb_s(gpu(name="NVIDIA L4", dram_bandwidth_percent=61.75)) is None


@pytest.mark.parametrize(
    ("values", "alarm"),
    [
        ({"ecc_uncorrected": 3}, "3 uncorrected ECC errors"),
        ({"row_remap_failed": True}, "replacing"),
        ({"row_remap_pending": True}, "reset"),
        ({"recovery_action": "a reboot"}, "a reboot"),
        ({"nvlink_links": 18, "nvlink_links_active": 17}, "17 of 18 NVLinks"),
        ({"xids": (Xid(code=79, t_ns=1),)}, "Xid 79"),
        ({"pcie_gen": 3}, "gen3 under load"),
    ],
)
def test_alarms_are_sentences_with_their_number(values: dict[str, Any], alarm: str) -> None:
    assert any(alarm in sentence for sentence in text.alarms(gpu(**values)))
    assert not text.alarms(gpu())


def test_a_state_says_how_long_and_why() -> None:
    lost = gpu(state="lost", state_message="the GPU is lost", state_since_ns=3_000_000_000)
    assert text.state(lost, 15_000_000_000) == "LOST for 12 s: the GPU is lost"
    assert text.state(lost) == "LOST: the GPU is lost"
    assert text.state(gpu(state="denied", state_message="no permission")) == "NO ACCESS: no permission"
    assert text.state(gpu(), 1) is None


@pytest.mark.parametrize(
    ("name", "short"),
    [("NVIDIA H100 80GB HBM3", "H100 80GB HBM3"), ("Tesla T4", "T4"), ("GB10", "GB10"), (None, "–")],
)
def test_short_names(name: str | None, short: str) -> None:
    assert text.short_name(name) == short


def test_lines_name_what_is_unknown_and_why() -> None:
    seen = gpu(reasons={"fan_percent": "not supported by this GPU", "power_w": "no permission"})
    said = text.lines(GpuReading(gpus=(seen,)))
    assert "   not known  fan_percent: not supported by this GPU" in said
    assert "   not known  power_w: no permission" in said


def test_a_gpu_without_a_handle_is_one_row_and_one_sentence() -> None:
    denied = Gpu(index=1, state="denied", state_message="no permission")
    said = text.lines(GpuReading(gpus=(gpu(), denied), links=(Link(a=0, b=1, path="sockets"),)))
    row = next(at for at, line in enumerate(said) if line.startswith(" 1 "))
    assert "NO ACCESS: no permission" in said[row + 1]
    assert said[row + 2 :] == ["", "links", "   across CPU sockets: 0-1"]


def test_mig_instances_have_a_line_each() -> None:
    one = MigInstance(uuid="MIG-1", name="NVIDIA H100 MIG 1g.10gb", memory_used_bytes=3 * 2**30)
    said = text.lines(GpuReading(gpus=(gpu(mig_instances=(one,)),)))
    assert "   MIG        H100 MIG 1g.10gb 3.0 of – GiB" in said


EVIL = "evil | name `x` \n# title <b>"


def test_markdown_is_one_table_whatever_the_names_are() -> None:
    seen = gpu(name=EVIL, processes=(GpuProcess(pid=7, name=EVIL, memory_bytes=2**30),))
    page = "\n".join(text.markdown(GpuReading(gpus=(seen, gpu()), driver_version="580.1")))
    html = MarkdownIt("commonmark").enable("table").render(page)
    assert html.count("<tr>") == 3 and html.count("<h1>") == 0 and "<code>" not in html
    rows = html.split("<tr>")[2:]
    assert all(row.count("<td") == 11 for row in rows)
    assert page.startswith("## GPUs")


def readings() -> st.SearchStrategy[GpuReading]:
    percent = st.none() | st.floats(0, 100)
    size = st.none() | st.integers(0, 2**41)
    one = st.builds(
        Gpu,
        index=st.integers(0, 15),
        name=st.none() | st.text(max_size=60) | st.just("NVIDIA\nH200\x85 x"),
        state=st.sampled_from(["ok", "lost", "denied", "stalled", "broken"]),
        state_message=st.none() | st.text(max_size=200),
        sm_clock_mhz=st.none() | st.integers(0, 20000),
        sm_clock_max_mhz=st.none() | st.integers(0, 20000),
        event_reasons=st.none() | st.integers(0, 2**32),
        pcie_gen=st.none() | st.integers(1, 8),
        pcie_gen_max=st.none() | st.integers(1, 8),
        utilization_percent=percent,
        dram_bandwidth_percent=percent,
        memory_used_bytes=size,
        memory_total_bytes=size,
        power_w=st.none() | st.floats(0, 5000),
        processes=st.none() | st.just((GpuProcess(pid=4194304, name="n" * 90, memory_bytes=2**40),) * 3),
        reasons=st.dictionaries(st.text(max_size=20), st.text(min_size=1, max_size=90), max_size=4),
    )
    return st.builds(GpuReading, gpus=st.lists(one, max_size=3).map(tuple))


@settings(deadline=None)
@given(readings())
def test_any_reading_has_words_within_80_columns(reading: GpuReading) -> None:
    assert all(len(line) <= 80 and "\n" not in line for line in text.lines(reading, 10**9))
    assert all("\n" not in line for line in text.markdown(reading, 10**9))


def test_paths_of_one_kind_are_said_once() -> None:
    def links(paths: dict[tuple[int, int], Any]) -> GpuReading:
        found = tuple(Link(a=a, b=b, path=path) for (a, b), path in paths.items())
        return GpuReading(gpus=tuple(Gpu(index=at) for at in range(3)), links=found)

    alike = links({(0, 1): "nvlink", (0, 2): "nvlink", (1, 2): "nvlink"})
    assert text.link_words(alike) == ["NVLink: all pairs"]
    mixed = links({(0, 1): "nvlink", (0, 2): "sockets", (1, 2): "sockets"})
    assert text.link_words(mixed) == ["NVLink: 0-1", "across CPU sockets: 0-2, 1-2"]
    assert text.link_words(links({(0, 1): "nvlink"})) == ["NVLink: 0-1"], "two of three pairs are not known"
    pairs = {(a, b): "nvlink" for a in range(3) for b in range(a + 1, 3)}
    four = GpuReading(gpus=(*links(pairs).gpus, Gpu(index=3)), links=links(pairs).links)
    assert text.link_words(four) == ["NVLink: all pairs of 0, 1, 2"]


def test_what_was_set_by_hand_and_what_would_undo_it() -> None:
    gpu = Gpu(
        index=0,
        compute_mode="default",
        persistence_mode=False,
        sm_clock_application_mhz=1410,
        time_limited_run_ns={"power cap": 37_000_000_000, "HW thermal": 400_000_000, "sync boost": 0},
        run_began_ns=0,
    )
    said = "\n".join(text.lines(GpuReading(gpus=(gpu,)), 60_000_000_000))
    assert "application clocks SM/mem 1410/– MHz, compute mode default, persistence off" in " ".join(said.split())
    assert "power cap 37 s, HW thermal 0.4 s in 1 m" in said and "persistence mode is off" in said
    report = "\n".join(text.markdown(GpuReading(gpus=(gpu,)), 60_000_000_000))
    assert "clocks held by power cap 37 s" in report and "set by hand are lost" in report
