"""The workload of a plan: number and size of the items, and how they are searched."""

from __future__ import annotations

import math
from dataclasses import dataclass

from aladin_network.errors import ConfigError
from aladin_network.types import TOKEN_DTYPES, TokenDtype


@dataclass(frozen=True, kw_only=True)
class Workload:
    """One collection of an index, its searches, and the available machines.

    A side of texts is planned like one of photos, with its own number of tokens.

    Attributes:
        items: number of them.
        embedding_dim: size of an embedding.
        tokens: tokens of an item.
        token_dim: size of a token.
        token_dtype: Storage format of the tokens.
        candidates: items that the second stage orders.
        words: tokens of a query.
        queries_per_s: Peak rate of queries, with independent arrivals (Poisson).
        p95_ms: Limit that 95 of 100 queries must meet, including their encoding.
        replicas: copies of everything, so that one may fail.
        generations: Number of generations kept; the previous one allows a rollback.
        machine_memory_bytes: Memory of one machine.
        machine_cores: Cores of one machine.
        build_machines: Number of machines that encode the items, each a part.
        photos_per_s: Encoding rate of one of them, or None for the rate of its cores with the
            measured network.
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
        """Reject impossible values.

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
