"""What a snapshot is written of: the state as it may be told, the findings, and hashes of what was there before."""

from __future__ import annotations

from typing import NamedTuple

from decodetop.core.state import State
from decodetop.findings import Finding, evaluate
from decodetop.report.hashes import Hashes, hashes_of
from decodetop.report.privacy import Privacy, hidden


class Story(NamedTuple):
    state: State
    findings: tuple[Finding, ...]
    hashes: Hashes
    anonymous: bool


def tell(state: State, privacy: Privacy) -> Story:
    """Findings and hashes are of the whole state; then names are hidden in all of it."""
    shown, veil = hidden(state, privacy)
    hashes = hashes_of(state)
    captures = {veil.text(id): hash for id, hash in hashes.captures.items()}
    return Story(shown, veil.of(evaluate(state)), hashes._replace(captures=captures), privacy.anonymous)
