"""The thin layer over nvidia-ml-py: its error traps, older and newer drivers, and impostors of the module."""

from __future__ import annotations

import sys
import warnings
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pynvml
import pytest

from decodetop.errors import ProbeError
from decodetop.gpu.calls import load
from decodetop.gpu.codes import NvmlError, state_of, words
from decodetop.gpu.nvml import Nvml


def layer(**functions: Any) -> Nvml:
    """The layer over a module with nvidia-ml-py's own error classes and these functions."""
    module: Any = SimpleNamespace(
        NVMLError=pynvml.NVMLError,
        NVMLLibraryMismatchError=pynvml.NVMLLibraryMismatchError,
        nvmlMemory_v2=pynvml.nvmlMemory_v2,
        c_nvmlGpmMetricsGet_t=pynvml.c_nvmlGpmMetricsGet_t,
        NVML_GPM_METRICS_GET_VERSION=1,
        **functions,
    )
    return Nvml(module)


def refuse(code: int) -> Any:
    def function(*_: Any) -> Any:
        raise pynvml.NVMLError(code)

    return function


@pytest.mark.parametrize("code", [1, 3, 4, 9, 13, 15, 18, 25, 26, 27, 999, 12345])
def test_only_the_number_of_an_error_goes_on(code: int) -> None:
    """pynvml's own errors can be neither hashed nor compared with anything else."""
    with pytest.raises(TypeError):
        hash(pynvml.NVMLError(code))
    with pytest.raises(NvmlError) as caught:
        layer(nvmlDeviceGetPowerUsage=refuse(code)).power_mw(object())
    assert caught.value.code == code and caught.value.call == "nvmlDeviceGetPowerUsage"
    assert words(code) in caught.value.message
    assert hash(caught.value) is not None and caught.value not in [None, 3]


def test_an_error_that_says_success_is_unknown() -> None:
    with pytest.raises(NvmlError) as caught:
        layer(nvmlDeviceGetPowerUsage=refuse(0)).power_mw(object())
    assert caught.value.code == 999


def test_a_function_missing_in_driver_or_binding_is_function_not_found() -> None:
    """The driver's lack comes in two unrelated classes, the binding's as no attribute at all."""

    def mismatch(*_: Any) -> Any:
        raise pynvml.NVMLLibraryMismatchError("unversioned function")

    for nvml in (layer(nvmlDeviceGetBusType=refuse(13)), layer(nvmlDeviceGetBusType=mismatch), layer()):
        with pytest.raises(NvmlError) as caught:
            nvml.bus_type(object())
        assert caught.value.code == 13


def test_the_older_name_answers_where_the_newer_is_missing_and_is_remembered() -> None:
    asked: list[str] = []

    def old(*_: Any) -> int:
        asked.append("old")
        return 4

    def new(*_: Any) -> int:
        asked.append("new")
        raise pynvml.NVMLError(13)

    names = {"nvmlDeviceGetCurrentClocksEventReasons": new, "nvmlDeviceGetCurrentClocksThrottleReasons": old}
    nvml = layer(**names)
    assert [nvml.event_reasons(object()) for _ in range(3)] == [4, 4, 4]
    assert asked == ["new", "old", "old", "old"]
    assert nvml.calls == 4


@pytest.mark.parametrize("code", [13, 25, 26])
def test_temperature_falls_back_to_the_deprecated_call(code: int) -> None:
    nvml = layer(nvmlDeviceGetTemperatureV=refuse(code), nvmlDeviceGetTemperature=lambda *_: 44)
    assert nvml.temperature(object()) == 44


def test_an_error_of_the_newer_call_is_not_hidden_by_the_older() -> None:
    nvml = layer(nvmlDeviceGetTemperatureV=refuse(15), nvmlDeviceGetTemperature=lambda *_: 44)
    with pytest.raises(NvmlError) as caught:
        nvml.temperature(object())
    assert caught.value.code == 15


@pytest.mark.parametrize("code", [13, 25, 999])
def test_memory_falls_back_to_the_first_form(code: int) -> None:
    """WSL answers the second form with 999."""

    def memory(gpu: object, version: int | None = None) -> Any:
        if version is not None:
            assert version == 0x02000028
            raise pynvml.NVMLError(code)
        return SimpleNamespace(total=100, used=30, free=70)

    assert layer(nvmlDeviceGetMemoryInfo=memory).memory(object()) == (100, 30, 70, None)


def test_each_field_answers_for_itself_with_its_type() -> None:
    values = (pynvml.c_nvmlFieldValue_t * 5)()
    kinds = [(0, "dVal", 1.5), (1, "uiVal", 7), (4, "sllVal", -8), (5, "siVal", -2)]
    for at, (kind, member, number) in enumerate(kinds):
        values[at].valueType = kind
        setattr(values[at].value, member, number)
    values[4].nvmlReturn = 3
    answers = layer(nvmlDeviceGetFieldValues=lambda *_: values).fields(object(), [(1, 0)] * 5)
    assert answers[:4] == [1.5, 7, -8, -2]
    refused = answers[4]
    assert isinstance(refused, NvmlError) and refused.code == 3


def test_processes_of_both_kinds_once_and_memory_may_be_unknown() -> None:
    def one(pid: int, memory: int | None) -> Any:
        return SimpleNamespace(pid=pid, usedGpuMemory=memory)

    nvml = layer(
        nvmlDeviceGetComputeRunningProcesses_v3=lambda _: [one(5, 100), one(6, None)],
        nvmlDeviceGetGraphicsRunningProcesses_v3=refuse(13),
        nvmlDeviceGetGraphicsRunningProcesses_v2=lambda _: [one(5, 1), one(7, 3)],
    )
    assert nvml.processes(object()) == [(5, 100), (6, None), (7, 3)]


def test_mig_instances_have_gaps_and_may_refuse_their_memory() -> None:
    def at(gpu: object, place: int) -> str:
        if place == 1:
            raise pynvml.NVMLError(6)
        return f"mig{place}"

    nvml = layer(
        nvmlDeviceGetMaxMigDeviceCount=lambda _: 3,
        nvmlDeviceGetMigDeviceHandleByIndex=at,
        nvmlDeviceGetUUID=lambda one: f"MIG-{one}",
        nvmlDeviceGetGpuInstanceId=lambda one: 7,
        nvmlDeviceGetName=lambda one: "NVIDIA H100 MIG 1g.10gb",
        nvmlDeviceGetMemoryInfo=refuse(4),
    )
    assert [(one.uuid, one.gpu_instance, one.memory) for one in nvml.mig_instances(object())] == [
        ("MIG-mig0", 7, None),
        ("MIG-mig2", 7, None),
    ]


def test_a_filled_count_of_mig_places_is_not_walked_through() -> None:
    asked = []

    def at(gpu: object, place: int) -> str:
        asked.append(place)
        assert len(asked) < 1000, "the whole round waits for this"
        raise pynvml.NVMLError(6)

    nvml = layer(nvmlDeviceGetMaxMigDeviceCount=lambda _: 0xFFFFFFFF, nvmlDeviceGetMigDeviceHandleByIndex=at)
    assert nvml.mig_instances(object()) == [] and len(asked) >= 7


def test_a_metric_without_a_name_does_not_exist() -> None:
    """Real drivers answer SUCCESS and 0.0 for ids they don't know."""

    def metrics(request: Any) -> Any:
        for at, (name, code, value) in enumerate(
            [(b"dram", 0, 61.75), (None, 0, 0.0), (b"x", 3, 1.0), (b"n", 0, 1e999)]
        ):
            request.metrics[at].metricInfo.shortName = name
            request.metrics[at].nvmlReturn = code
            request.metrics[at].value = value
        return request

    assert layer(nvmlGpmMetricsGet=metrics).gpm_metrics(None, None, (10, 8, 2, 3)) == {10: 61.75}


def test_a_name_that_is_not_text_is_an_error_not_a_crash() -> None:
    def name(_: object) -> str:
        return b"\xff\xfe".decode()

    with pytest.raises(NvmlError):
        layer(nvmlDeviceGetName=name).name(object())


def test_another_module_under_the_same_name_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    impostor = ModuleType("pynvml")
    impostor.__file__ = "/somewhere/pynvml.py"
    monkeypatch.setitem(sys.modules, "pynvml", impostor)
    with pytest.raises(ProbeError) as caught:
        load()
    assert caught.value.kind == "broken" and "nvidia-ml-py" in caught.value.message
    monkeypatch.setitem(sys.modules, "pynvml", None)
    with pytest.raises(ProbeError) as caught:
        load()
    assert "nvidia-ml-py" in caught.value.hint


def test_the_deprecated_shells_warning_never_lands_on_the_screen(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The distribution pynvml warns at import, whoever installed it."""
    (tmp_path / "pynvml.py").write_text("import warnings\nwarnings.warn('pynvml is deprecated', FutureWarning)\n")
    monkeypatch.delitem(sys.modules, "pynvml")
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(ProbeError, match="nvidia-ml-py"), warnings.catch_warnings(record=True) as warned:
        load()
    assert not warned


def test_the_real_module_passes() -> None:
    assert load() is pynvml


def test_states_of_codes() -> None:
    assert {code: state_of(code) for code in (15, 16, 4, 17, 999, 2)} == {
        15: "lost",
        16: "lost",
        4: "denied",
        17: "denied",
        999: "broken",
        2: "broken",
    }
