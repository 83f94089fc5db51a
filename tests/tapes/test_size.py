"""A recorded session, written again: the same samples in a fraction of the room."""

from __future__ import annotations

from pathlib import Path

from decodetop.core.clock import SECOND_NS
from decodetop.core.tape import Tape, TapeWriter
from decodetop.flows.catalog import codec

RECORDED = Path(__file__).with_name("h200_sglang.tape")
WHOLE_BYTES = 20_000
"""The first line of each source is whole; after it only changes count."""


def test_an_hour_of_two_servers_and_two_gpus_takes_ten_megabytes(tmp_path: Path) -> None:
    samples = list(Tape(RECORDED, codec()).samples())
    writer = TapeWriter(tmp_path / "again.tape", Tape(RECORDED, codec()).header, codec())
    for sample in samples:
        writer.write(sample)
    writer.close()
    again = Tape(tmp_path / "again.tape", codec())
    assert list(again.samples()) == samples
    seconds = (samples[-1].t_ns - samples[0].t_ns) / SECOND_NS
    assert (tmp_path / "again.tape").stat().st_size < 3000 * seconds + WHOLE_BYTES < RECORDED.stat().st_size / 3
