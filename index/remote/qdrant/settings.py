"""What an index's location says of how Qdrant is to keep and to search it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from pydantic import ConfigDict

from aladin.errors import ConfigError
from aladin.strict_config import STRICT, parse_config
from index.remote.client import SideSearch
from index.remote.location import EngineLocation
from index.remote.qdrant.point_store import TokenVectors

# Candidates of a graph that are tried, until enough is found.
_WIDTHS = (128, 256, 512, 1024, 2048, 4096)
# What qdrant-client calls the levels of its `ReadConsistencyType`.
Consistency = Literal["majority", "quorum", "all"]


@dataclass(frozen=True, kw_only=True)
class QdrantSettings:
    """How collections are made and searched; the defaults are ours where Qdrant's lose recall.

    In Qdrant Edge, of 20,000 vectors of 256 numbers around 200 centres, each 1.5 times as far from
    its centre as that is from 0, searches for 100 that looked at 128, 200 and 512 candidates found
    98.7, 99.4 and 99.98 % of them; with Qdrant's own 16 links, made of 100 candidates, 97.3, 98.3
    and 99.6 %.

    Attributes:
        shards: of a collection; None: one for each of the server's nodes.
        replicas: of a shard.
        index: "hnsw", or "flat" compares with every item.
        m: links of a node of the graph.
        ef_construct: candidates that are looked at for the links of a node.
        ef: candidates that a search of the graph looks at, at least; it looks at twice as many as
            are asked for. None: as a push has found to be needed.
        tokens: how tokens are kept for MaxSim, see `TokenVectors`.
        consistency: how many replicas have to agree on what is read; None: with replicas,
            "quorum", so that what most of them acknowledged is found.
    """

    __pydantic_config__: ClassVar[ConfigDict] = STRICT

    shards: int | None = None
    replicas: int = 1
    index: Literal["hnsw", "flat"] = "hnsw"
    m: int = 32
    ef_construct: int = 200
    ef: int | None = None
    tokens: TokenVectors = "float32"
    consistency: Consistency | None = None

    def __post_init__(self) -> None:
        """Refuse impossible values.

        Raises:
            ConfigError: a number below 1, or a graph without links.
        """
        for name, least in (("m", 2), ("ef_construct", 1), ("ef", 1)):
            value: int | None = getattr(self, name)
            if value is not None and value < least:
                raise ConfigError(f"{name}: expected at least {least}, got {value}")

    @property
    def most_replicas(self) -> int:
        """How many replicas are the most of them."""
        return self.replicas // 2 + 1

    @property
    def first_stage(self) -> SideSearch:
        """How collections of these settings are searched."""
        widths = _WIDTHS if self.ef is None else (self.ef,)
        return SideSearch(self.index, widths if self.index == "hnsw" else ())

    def candidates(self, count: int, width: int | None) -> int:
        """Return how many candidates a search of the graph looks at.

        Args:
            count: items wanted.
            width: that a push has chosen; None: the widest.
        """
        return max(self.ef or width or _WIDTHS[-1], 2 * count)

    @classmethod
    def of(cls, location: EngineLocation) -> QdrantSettings:
        """Read the settings of a location.

        Raises:
            ConfigError: one that Qdrant does not have, or an impossible value.
        """
        given = {
            "shards": location.shards,
            "replicas": location.replicas,
            "index": location.index,
            "consistency": location.consistency,
        }
        settings = {
            **{name: value for name, value in given.items() if value is not None},
            **location.index_params,
            **location.search_params,
        }
        return parse_config(cls, settings, f"options of {location.engine}")
