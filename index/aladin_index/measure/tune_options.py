"""What a tuning is asked to reach."""

from __future__ import annotations

from dataclasses import dataclass

from aladin_network.errors import ConfigError


@dataclass(frozen=True, kw_only=True)
class TuneOptions:
    """Requested quality and limits of a tuning.

    Attributes:
        ann_recall: Share of the exact nearest items that the first stage must find.
        fidelity: Share of the exhaustive order's top hits to be kept.
        at: Number of top hits that are compared.
        num_queries: Number of queries per collection, taken from the index.
        max_candidates: Largest number of candidates of a search.
        device: Device on which the network encodes the queries. Searches are measured on the CPU,
            since the search width and the candidates are stored for it.
    """

    ann_recall: float = 0.99
    fidelity: float = 0.99
    at: int = 10
    num_queries: int = 200
    max_candidates: int = 1000
    device: str = "cpu"

    def __post_init__(self) -> None:
        """Reject impossible values."""
        for name in ("ann_recall", "fidelity"):
            share = getattr(self, name)
            if not 0 < share <= 1:
                raise ConfigError(f"{name}: expected more than 0 and at most 1, got {share}")
        for name in ("at", "num_queries", "max_candidates"):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name}: expected at least 1, got {getattr(self, name)}")
        if self.at > self.max_candidates:
            raise ConfigError(
                f"at: expected at most max_candidates, {self.max_candidates}, got {self.at}"
            )
