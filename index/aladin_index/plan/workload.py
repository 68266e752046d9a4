"""The workload of a plan: number and size of the items, and how they are searched."""

from __future__ import annotations

import math
from dataclasses import dataclass

from aladin_network.errors import ConfigError
from aladin_network.types import TOKEN_DTYPES, TokenDtype


@dataclass(frozen=True, kw_only=True)
class Workload:
    """One side of an index, the searches of it, and the machines that there are for it.

    A side of texts is planned like one of photos, with its own number of tokens.

    Attributes:
        items: number of them.
        embedding_dim: size of an embedding.
        tokens: tokens of an item.
        token_dim: size of a token.
        token_dtype: how tokens are stored.
        candidates: items that the second stage orders.
        words: tokens of a query.
        queries_per_s: that come at the busiest time, at times of their own (Poisson).
        p95_ms: that 95 of 100 queries may take, their encoding included.
        replicas: copies of everything, so that one may fail.
        generations: of the index that are kept; the one before is the way back.
        machine_memory_bytes: of one machine.
        machine_cores: of one machine.
        build_machines: that encode the items, each a part.
        photos_per_s: that one of them encodes; None: as many as its cores do of the network
            that was measured.
    """

    items: int
    embedding_dim: int = 256
    tokens: int = 49
    token_dim: int = 128
    token_dtype: TokenDtype = "int8"
    candidates: int = 100
    words: int = 12
    queries_per_s: float = 10.0
    p95_ms: float = 100.0
    replicas: int = 2
    generations: int = 2
    machine_memory_bytes: int = 64 * 2**30
    machine_cores: int = 16
    build_machines: int = 1
    photos_per_s: float | None = None

    def __post_init__(self) -> None:
        """Refuse impossible values.

        Raises:
            ConfigError: a number that is not above 0, or not finite, or an unknown form of tokens.
        """
        for name in (
            *("items", "embedding_dim", "tokens", "token_dim", "candidates", "words"),
            *("queries_per_s", "p95_ms", "replicas", "generations"),
            *("machine_memory_bytes", "machine_cores", "build_machines", "photos_per_s"),
        ):
            value: float | None = getattr(self, name)
            if value is not None and not value > 0:
                raise ConfigError(f"{name}: expected more than 0, got {value}")
            if value is not None and math.isinf(value):
                raise ConfigError(f"{name}: expected a finite number, got {value}")
        if self.token_dtype not in TOKEN_DTYPES:
            known = ", ".join(TOKEN_DTYPES)
            raise ConfigError(f"token_dtype: expected one of {known}, got {self.token_dtype!r}")
