"""Cards: the shipped table against the reference's own, names as NVML gives them, conflicts, overrides."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from decodetop.errors import ConfigError, UsageError
from decodetop.floor import links
from decodetop.floor.hardware import Override, find, from_nvml, load, named
from decodetop.gpu.reading import Gpu, GpuReading, Link

SPECS = load()
with (Path(__file__).parent / "gpus.csv").open(encoding="utf-8") as file:
    ROWS = list(csv.DictReader(file))


@pytest.mark.parametrize("row", ROWS, ids=lambda row: str(row["gpu"]))
def test_the_table_is_the_reference_s(row: dict[str, str]) -> None:
    spec = find(row["gpu"], SPECS)
    assert spec is not None and spec.source == row["source"] and spec.memory == row["mem_type"]
    scale = 2 if row["gpu"] == "MI250X" else 1
    low, high = row["spec_bandwidth_low_GB_per_s"], row["spec_bandwidth_high_GB_per_s"]
    assert spec.bandwidth[0] * scale == pytest.approx(float(low), rel=0.001)
    assert spec.bandwidth[1] * scale == pytest.approx(float(high), rel=0.001)
    for name, field in (("bf16_dense", spec.bf16), ("fp8_dense", spec.fp8), ("fp4_dense", spec.fp4)):
        top = row[f"{name}_high_TFLOPS"]
        assert (field is None) == (top == "")
        if field is not None:
            assert field[1] * scale == pytest.approx(float(top))


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("NVIDIA H200", "H200 SXM/NVL"), ("NVIDIA H100 80GB HBM3", "H100 SXM"), ("NVIDIA H100 PCIe", "H100 PCIe"),
        ("NVIDIA A100-SXM4-80GB", "A100 80GB SXM"), ("NVIDIA A100 80GB PCIe", "A100 80GB PCIe"),
        ("NVIDIA A100-PCIE-40GB", "A100 40GB SXM/PCIe"), ("NVIDIA RTX A6000", "RTX A6000"),
        ("NVIDIA RTX 6000 Ada Generation", "RTX 6000 Ada"),
        ("NVIDIA RTX PRO 6000 Blackwell Server Edition", "RTX PRO 6000 Blackwell (WS/Server/Max-Q)"),
        ("NVIDIA GeForce RTX 4090", "RTX 4090"), ("NVIDIA GeForce RTX 3090 Ti", "RTX 3090 Ti"), ("Tesla T4", "T4"),
        ("Tesla V100-SXM2-16GB", "V100 SXM2"), ("NVIDIA L40S", "L40S"), ("NVIDIA L40", "L40"),
        ("NVIDIA B200", "B200 SXM"),
        ("NVIDIA GH200 480GB", "GH200 96GB"), ("NVIDIA GB10", "GB10 (DGX Spark)"), ("h200", "H200 SXM/NVL"),
        ("A6000", "RTX A6000"),
    ],
)  # fmt: skip
def test_names(name: str, found: str) -> None:
    spec = find(name, SPECS)
    assert spec is not None and spec.name == found


@pytest.mark.parametrize(
    "name",
    [
        "NVIDIA GeForce RTX 4070 Ti SUPER",
        "NVIDIA GeForce RTX 4090 Laptop GPU",
        "NVIDIA GeForce RTX 4080 SUPER",
        "A6",
        "",
    ],
)
def test_cards_that_only_look_alike(name: str) -> None:
    assert find(name, SPECS) is None


def test_an_unknown_card_names_what_is_near_and_takes_a_bandwidth() -> None:
    with pytest.raises(UsageError, match="'RTX 4070 Ti SUPER' is not in the table") as caught:
        named("RTX 4070 Ti SUPER", SPECS)
    assert "RTX 4070 Ti" in caught.value.hint and "--bandwidth" in caught.value.hint
    card = named("RTX 4070 Ti SUPER", SPECS, Override(bandwidth_gb_s=672))
    assert (card.hardware.bandwidth_gb_s, card.hardware.origin) == (672, "user")
    assert card.hardware.peak_bf16_tflops is None


def test_conflicting_figures() -> None:
    """The bound takes the larger, practice the smaller."""
    card = named("B200", SPECS).hardware
    assert (card.bandwidth_gb_s, card.practical_gb_s) == (8000, 7700)


def reading(*gpus: Gpu, links_between: tuple[Link, ...] = ()) -> GpuReading:
    return GpuReading(gpus=gpus, links=links_between)


def h200(index: int = 0, **changes: object) -> Gpu:
    known = {"name": "NVIDIA H200", "mem_clock_max_mhz": 3201, "mem_clock_mhz": 3201, "memory_bus_bits": 6016}
    return Gpu(index=index, **{**known, **changes})  # type: ignore[arg-type]


def test_nvml_s_figure_is_taken_when_it_is_near_the_table() -> None:
    card = from_nvml(reading(h200()), SPECS).hardware
    assert card.bandwidth_gb_s == pytest.approx(4814.3, abs=0.1)
    assert (card.practical_gb_s, card.origin) == (4800, "nvml")
    odd = from_nvml(reading(h200(memory_bus_bits=3008)), SPECS).hardware
    assert odd.bandwidth_gb_s == 4800
    assert any("the table is taken" in note for note in odd.notes)


def test_a_lowered_memory_clock_lowers_practice_only() -> None:
    """GeForce and RTX A cards drop to P2 under CUDA."""
    gpu = Gpu(
        index=0, name="NVIDIA GeForce RTX 3090", mem_clock_max_mhz=9751, mem_clock_mhz=9501, memory_bus_bits=384,
        performance_state=2,
    )  # fmt: skip
    card = from_nvml(reading(gpu), SPECS).hardware
    assert card.bandwidth_gb_s == pytest.approx(936.1, abs=0.1)
    assert card.practical_gb_s == pytest.approx(912, abs=1)
    assert any("9501 of 9751 MHz" in note for note in card.notes)


def test_the_slowest_card_counts_and_dead_ones_do_not() -> None:
    a6000 = Gpu(index=1, name="NVIDIA RTX A6000", mem_clock_max_mhz=8001, memory_bus_bits=384)
    dead = Gpu(index=2, name="Tesla T4", state="lost")
    assert from_nvml(reading(h200(), a6000, dead), SPECS).hardware.name == "RTX A6000"
    with pytest.raises(UsageError, match="no GPU of this box can be read"):
        from_nvml(reading(dead), SPECS)


def test_a_card_that_is_not_in_the_table() -> None:
    gpu = Gpu(index=0, name="NVIDIA X9000", mem_clock_max_mhz=1000, memory_bus_bits=1024)
    card = from_nvml(reading(gpu), SPECS).hardware
    assert (card.bandwidth_gb_s, card.origin) == (256.0, "nvml")
    with pytest.raises(UsageError, match="NVML does not tell its memory clock"):
        from_nvml(reading(Gpu(index=0, name="NVIDIA X9000", memory_bus_bits=1024)), SPECS)
    with pytest.raises(UsageError, match="NVML does not tell"):
        from_nvml(reading(Gpu(index=0, name="NVIDIA X9000", mem_clock_max_mhz=1, memory_is_unified=True)), SPECS)


@pytest.mark.parametrize(
    ("path", "link"), [("nvlink", "nvlink"), ("pcie_switch", "pcie"), ("sockets", "pcie"), ("same_board", "pcie")]
)
def test_links(path: str, link: str) -> None:
    found = from_nvml(reading(h200(), h200(1), links_between=(Link(a=0, b=1, path=path),)), SPECS)  # type: ignore[arg-type]
    assert found.hardware.link == link
    one_slow = (Link(a=0, b=1, path="nvlink"), Link(a=1, b=2, path="sockets"))
    assert from_nvml(reading(h200(), links_between=one_slow), SPECS).hardware.link == "pcie"


def test_a_bridge_is_not_taken_for_granted() -> None:
    card = named("RTX A6000", SPECS)
    assert card.hardware.link == "pcie"
    assert any("NVLink bridge" in note for note in card.hardware.notes)
    bridged = named("RTX A6000", SPECS, Override(link="nvlink"))
    assert (bridged.hardware.link, bridged.hardware.link_gb_s) == ("nvlink", 56.25)


def test_all_reduce_costs() -> None:
    h = named("H200", SPECS)
    assert links.allreduce(h.hardware, h.arch, h.pcie_gen, 1, 8192).us == 0
    assert links.allreduce(h.hardware, h.arch, h.pcie_gen, 2, 8192).us == pytest.approx(4.6, abs=0.05)
    pro = named("RTX PRO 6000", SPECS)
    assert links.allreduce(pro.hardware, pro.arch, pro.pcie_gen, 8, 12288).us == pytest.approx(26.6, abs=0.4)
    assert links.allreduce(pro.hardware, pro.arch, pro.pcie_gen, 3, 0).us == 13.7, "the next larger number"
    assert links.allreduce(h.hardware, h.arch, h.pcie_gen, 16, 8192).beyond_table


def test_own_cards(tmp_path: Path) -> None:
    path = tmp_path / "gpus.toml"
    path.write_text('[[gpu]]\nname = "H200 slow"\nnames = ["h200"]\nbandwidth = [3000, 3100]\n', "utf-8")
    assert named("NVIDIA H200", load(path)).hardware.bandwidth_gb_s == 3100
    for text, word in (
        ('[[gpu]]\nname = "x"\n', "missing required field"),
        ('[[gpu]]\nname = "x"\nnames = []\nbandwidth = [2, 1]\n', "low comes first"),
        ('[[gpu]]\nname = "x"\nnames = []\nbandwidth = [1, 2]\nspeed = 3\n', "speed"),
        ("[[gpu", "gpus.toml"),
    ):
        path.write_text(text, "utf-8")
        with pytest.raises(ConfigError, match=word):
            load(path)
    with pytest.raises(ConfigError, match="can't read"):
        load(tmp_path / "gone")
