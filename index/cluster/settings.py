"""How the nodes of a cluster are asked for."""

from __future__ import annotations

from dataclasses import dataclass

from aladin.errors import ConfigError


@dataclass(frozen=True, kw_only=True)
class WorkerSettings:
    """What each worker takes of its node, and how many there are.

    Attributes:
        cpus: cores of a worker; as many threads compute in it.
        gpus: graphics cards of a worker: 1 where the network runs on one, else 0.
        workers: how many to ask for; None: as many as the nodes hold, also those that join later.
        start_timeout_s: how long to wait while there is no worker at all, at the start or after
            every node was lost; a busy cluster may make others wait.
    """

    cpus: int = 1
    gpus: int = 0
    workers: int | None = None
    start_timeout_s: float = 300.0

    def __post_init__(self) -> None:
        """Refuse impossible values.

        Raises:
            ConfigError: a number that is too small.
        """
        for name, value, least in (
            ("cpus", self.cpus, 1),
            ("gpus", self.gpus, 0),
            ("workers", self.workers, 1),
        ):
            if value is not None and value < least:
                raise ConfigError(f"{name}: expected at least {least}, got {value}")
        if self.start_timeout_s <= 0:
            raise ConfigError(
                f"start_timeout_s: expected more than 0, got {self.start_timeout_s:g}"
            )
