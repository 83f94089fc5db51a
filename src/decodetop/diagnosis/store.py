"""Diagnoses on disk: one JSON file each in the investigation, written after every stage."""

from __future__ import annotations

from pathlib import Path

import msgspec

from decodetop.core.atomic import make_folder, replace
from decodetop.core.decode import NotDecoded, decode
from decodetop.core.encode import encode
from decodetop.core.regular import read_regular
from decodetop.diagnosis.reading import SCHEMA, Diagnosis

FOLDER = "diagnoses"


class DiagnosisStore:
    """Blocks on the disk. A file that can't be read is left where it is and counts as none."""

    def __init__(self, investigation: Path) -> None:
        self.folder = investigation / FOLDER

    def newest(self) -> Diagnosis | None:
        """Never raises."""
        try:
            paths = sorted(self.folder.glob("*.json"), reverse=True)
        except OSError:
            return None
        return next((found for path in paths if (found := _read(path)) is not None), None)

    def keep(self, diagnosis: Diagnosis) -> None:
        """Put it in the place of an earlier state of itself. Raises DataError."""
        make_folder(self.folder)
        still = tuple(msgspec.structs.replace(stage, since_ns=None) for stage in diagnosis.stages)
        data = encode(msgspec.structs.replace(diagnosis, stages=still))
        replace(self.folder / f"{diagnosis.id}.json", msgspec.json.format(data, indent=1) + b"\n")


def _read(path: Path) -> Diagnosis | None:
    try:
        found = decode(read_regular(path), Diagnosis)
    except (OSError, NotDecoded):
        return None
    return found if found.schema <= SCHEMA else None
