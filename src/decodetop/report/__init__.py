"""Snapshots of an investigation: markdown that tells it, the data in it, and what changed between two of them."""

from __future__ import annotations

from decodetop.core.state import State
from decodetop.report.document import Report, markdown, report
from decodetop.report.privacy import Privacy
from decodetop.report.stamps import stamp

__all__ = ["Privacy", "Report", "file_name", "markdown", "report", "stamp"]


def file_name(state: State, suffix: str = ".md") -> str:
    """Where a snapshot goes by default: `snapshot-20261130T140327Z.md`."""
    return f"snapshot-{stamp(state.wall_ns).replace('-', '').replace(':', '')}{suffix}"
