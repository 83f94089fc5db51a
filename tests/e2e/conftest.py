"""Fixtures of the scripted investigations."""

from support.sitting import at_once

__all__ = ["at_once"]
