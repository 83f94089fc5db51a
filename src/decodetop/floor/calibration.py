"""Constants of practice measured on this box: taken from a step breakdown, kept, and preferred for what-ifs.

They are not used to judge the very step they come from: what a stack does would then always look like the best.
"""

from __future__ import annotations

from pathlib import Path

import msgspec

from decodetop.core.atomic import make_folder, replace
from decodetop.core.decode import NotDecoded, decode
from decodetop.core.regular import read_regular
from decodetop.errors import DataError
from decodetop.floor.gap import SMALL
from decodetop.floor.measured import Measurement
from decodetop.floor.practice import Overrides
from decodetop.floor.reading import FloorReport

FILE = "calibration.json"
SCHEMA = 1


class Calibration(msgspec.Struct, frozen=True, kw_only=True):
    """Of one card. `allreduce_us` by number of GPUs. None = the breakdown could not tell."""

    eta: float | None = None
    layer_us: float | None = None
    allreduce_us: dict[int, float] = {}
    source: str = ""


class _File(msgspec.Struct, frozen=True, kw_only=True):
    schema: int = SCHEMA
    cards: dict[str, Calibration] = {}


def of(report: FloorReport, measured: Measurement, source: str) -> Calibration:
    """Raises DataError where the breakdown does not allow it."""
    seen = measured.breakdown
    if seen is None or not seen.trusted:
        raise DataError("a calibration needs a step breakdown that covers its steps", "give --steps TRACE of all ranks")
    if report.bound == "compute":
        raise DataError("arithmetic bounds this step: it says nothing of the bandwidth", "use a capture of one stream")
    matrices = seen.kinds.get("gemm", 0.0) + seen.kinds.get("moe", 0.0)
    read_ms = (report.bytes.weights + report.bytes.draft) / (report.hardware.practical_gb_s * 1e6)
    eta = read_ms / matrices if matrices > 0 else None
    if eta is not None and eta > 1:
        raise DataError("the matrices take less than their bytes need", "is it the trace of this model and plan?")
    cache_ms = (report.bytes.kv + report.bytes.state) / (report.hardware.practical_gb_s * 1e6 * (eta or 1.0))
    attention = seen.kinds.get("attention", 0.0) + seen.kinds.get("linear_attention", 0.0)
    fixed = sum(seen.kinds.get(kind, 0.0) for kind in SMALL) + max(0.0, attention - cache_ms)
    if not measured.profiled and measured.step_ms is not None:
        fixed += max(0.0, measured.step_ms - seen.working)
    reduced = {}
    if seen.collectives and seen.waiting is not None:
        moved = seen.kinds.get("communication", 0.0) - seen.waiting
        reduced[report.plan.tp] = 1e3 * moved / seen.collectives
    return Calibration(
        # how many experts were read is not known, so their rate is not either
        eta=None if report.model.is_moe else eta,
        layer_us=1e3 * fixed / report.model.layers,
        allreduce_us=reduced,
        source=source,
    )


def load(investigation: Path) -> dict[str, Calibration]:
    """By card; empty without a file. Raises DataError for one that can't be read."""
    path = investigation / FILE
    try:
        data = decode(read_regular(path), _File)
    except FileNotFoundError:
        return {}
    except (OSError, NotDecoded) as error:
        raise DataError(f"can't read {path}: {error}", "move it away, or use another --investigation DIR") from error
    if data.schema > SCHEMA:
        raise DataError(f"{path} is of a newer decodetop (schema {data.schema})", "update decodetop")
    return data.cards


def save(investigation: Path, card: str, found: Calibration) -> Path:
    """What an earlier one knew and this does not is kept. Raises DataError."""
    cards = load(investigation)
    before = cards.get(card, Calibration())
    merged = Calibration(
        eta=found.eta if found.eta is not None else before.eta,
        layer_us=found.layer_us if found.layer_us is not None else before.layer_us,
        allreduce_us={**before.allreduce_us, **found.allreduce_us},
        source=found.source,
    )
    make_folder(investigation)
    replace(investigation / FILE, msgspec.json.encode(_File(cards={**cards, card: merged})))
    return investigation / FILE


def completed(asked: Overrides, stored: Calibration | None, tp: int) -> Overrides:
    """What the user gave, else what was measured here."""
    if stored is None:
        return asked
    measured = {"eta": stored.eta, "layer_us": stored.layer_us, "allreduce_us": stored.allreduce_us.get(tp)}
    added = {name: value for name, value in measured.items() if value is not None and getattr(asked, name) is None}
    return msgspec.structs.replace(asked, **added, measured=tuple(sorted(added)), source=stored.source)
