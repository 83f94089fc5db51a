"""The presets of a session: a file that is wrong costs the operator's own ones, not the session."""

from __future__ import annotations

from pathlib import Path

from decodetop.bench.plan import load_presets
from decodetop.bench.reading import Preset
from decodetop.core.engine import Context
from decodetop.core.sample import Command, Notice
from decodetop.errors import ConfigError


class PresetsWord:
    """Says once what is wrong with the presets file, if anything is."""

    source = "presets"
    commands: tuple[type[Command], ...] = ()

    def __init__(self, folder: Path) -> None:
        self.problem: ConfigError | None = None
        self.presets: tuple[Preset, ...]
        try:
            self.presets = load_presets(folder / "presets.toml")
        except ConfigError as error:
            self.presets, self.problem = load_presets(), error

    async def run(self, context: Context) -> None:
        if self.problem is not None:
            message = f"{self.problem.message}: the shipped presets are used"
            context.notify(Notice(level="warning", message=message, hint=self.problem.hint))

    async def handle(self, command: Command, context: Context) -> None:
        """It takes none."""
