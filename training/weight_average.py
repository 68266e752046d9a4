"""An exponential moving average of the trained weights."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn


class WeightAverage:
    """Follows the trained parameters of a module; averages of late steps generalise better."""

    def __init__(self, module: nn.Module, decay: float) -> None:
        """Start at the current weights.

        Args:
            module: its parameters that require a gradient are followed.
            decay: share of the old average kept at each step, in [0, 1).
        """
        self.decay = decay
        self.steps = 0
        self._followed = {
            name: parameter
            for name, parameter in module.named_parameters()
            if parameter.requires_grad
        }
        self.values: dict[str, Tensor] = {
            name: value.detach().clone() for name, value in self._followed.items()
        }

    @torch.no_grad()
    def update(self) -> None:
        """Take in the weights after an optimizer step."""
        self.steps += 1
        # Early on the average must not cling to the random start.
        decay = min(self.decay, self.steps / (self.steps + 10))
        for name, value in self.values.items():
            value.lerp_(self._followed[name].detach(), 1 - decay)

    @contextmanager
    def applied(self) -> Generator[None]:
        """Put the averages in the module's place for the time of the block."""
        trained = {name: value.detach().clone() for name, value in self._followed.items()}
        self._copy(self.values)
        try:
            yield
        finally:
            self._copy(trained)

    def state_dict(self) -> dict[str, Any]:
        """Return what `load_state_dict` takes."""
        return {"steps": self.steps, "values": self.values}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from a saved state of the same module."""
        self.steps = state["steps"]
        self.values = state["values"]

    @torch.no_grad()
    def _copy(self, values: dict[str, Tensor]) -> None:
        for name, value in values.items():
            self._followed[name].copy_(value)
