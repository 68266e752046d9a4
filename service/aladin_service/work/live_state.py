"""The state of a live index, as workers report it."""

from __future__ import annotations

from typing import Literal, NamedTuple

# Whether the vector database that stores an index responds.
EngineStatus = Literal["up", "unavailable"]


class LiveState(NamedTuple):
    """State of the live index.

    Attributes:
        generation: Generation that answers requests, or None if there is none.
        refused_generation: Number of the published generation if it was refused, or None if it was
            not or has no known number.
        refused: Reason why the published generation was refused, or None if it was not.
        engine: Whether the vector database responds, or None if the index is stored in files or
            there is no index yet.
    """

    generation: int | None
    refused_generation: int | None = None
    refused: str | None = None
    engine: EngineStatus | None = None
