"""The state of the live index as a worker reports it, and that of all workers together."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

# Whether the vector database that stores an index responds.
EngineStatus = Literal["up", "unavailable"]


@dataclass(frozen=True)
class LiveState:
    """State of the live index.

    Attributes:
        generation: Generation that answers requests, or None if there is none.
        refused_generation: Number of the published generation if it was refused, or None if it was
            not or has no known number.
        refused: Reason why the published generation was refused, or None if it was not; the
            previous one is still live then.
        engine: Whether the vector database responds, or None if the index is stored in files or
            there is no index yet.
    """

    generation: int | None
    refused_generation: int | None = None
    refused: str | None = None
    engine: EngineStatus | None = None


@dataclass(frozen=True, kw_only=True)
class WorkersHealth(LiveState):
    """State of the workers and of their index; of several databases' states the worst.

    Attributes:
        wanted: Number of workers that should be running.
        alive: Number of workers that accept jobs.
        pids: Process ids of the live worker processes by worker number; empty for threads.
    """

    wanted: int
    alive: int
    pids: Mapping[int, int] = field(default_factory=dict[int, int])

    @property
    def ready(self) -> bool:
        """Whether all workers are alive, an index is live and its vector database responds."""
        is_served = self.generation is not None and self.engine != "unavailable"
        return self.alive == self.wanted and is_served
