"""Interrupting a run between two of its steps."""

from __future__ import annotations

from aladin_network.types import NullProgress


class InterruptionError(Exception):
    """Stands for whatever ends a process between two steps."""


class InterruptAfter(NullProgress):
    """Interrupts the run after a number of optimizer steps, counted from its n-th stage on."""

    def __init__(self, steps: int, stage: int = 1) -> None:
        self.steps, self.stage = steps, stage
        self.unit = ""

    def start(self, total: int | None, unit: str) -> None:  # noqa: ARG002
        """Note what is counted."""
        self.unit = unit
        self.stage -= unit == "steps"

    def advance(self, count: int = 1) -> None:
        """Count steps down."""
        if self.unit == "steps" and self.stage <= 0:
            self.steps -= count
            if self.steps < 0:
                raise InterruptionError
