"""How a service encodes queries: what `aladin index tune` measured and chose."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from aladin_network.types import Way

# A way is chosen that is at least this much faster on the whole, the geometric mean of how much
# faster a query is on its own and in a batch, and in neither slower than by this factor.
LEAST_SPEEDUP = 1.3
_MOST_SLOWDOWN = 1.1


@dataclass(frozen=True, kw_only=True)
class MeasuredWay:
    """A way to encode queries of one modality, as `aladin index tune` measured it.

    Attributes:
        way: Runtime and precision.
        alone_ms: Median time of a query on its own, on the machine of the measurement.
        batch_ms: Median time of a query in a batch, or None for photos, which are encoded one by
            one.
        overlap: Mean share of the top hits of the first way that are its top hits, too.
        difference: Largest difference of a hit's score from that by the first way.
    """

    way: Way
    alone_ms: float
    batch_ms: float | None
    overlap: float
    difference: float


@dataclass(frozen=True, kw_only=True)
class QueryEncoding:
    """How a service encodes the queries of one modality, chosen by `aladin index tune`.

    Attributes:
        chosen: Chosen way.
        overlap_wanted: Least overlap of a way that may be chosen.
        at: Number of top hits that are compared.
        queries: Number of queries that were encoded.
        measured: All ways; the first is that of an index that was not tuned.
    """

    chosen: Way
    overlap_wanted: float
    at: int
    queries: int
    measured: list[MeasuredWay]


def choose_way(measured: Sequence[MeasuredWay], overlap_wanted: float) -> Way:
    """Choose the fastest way that agrees with the first one, or the first where none is faster.

    Args:
        measured: All ways; the first is the one to keep in doubt.
        overlap_wanted: Least overlap of another way.
    """
    first = measured[0]
    chosen, most = first, LEAST_SPEEDUP
    for each in measured[1:]:
        speedups = [first.alone_ms / each.alone_ms]
        if first.batch_ms is not None and each.batch_ms is not None:
            speedups.append(first.batch_ms / each.batch_ms)
        overall = prod(speedups) ** (1 / len(speedups))
        agrees = each.overlap >= overlap_wanted
        if agrees and overall >= most and min(speedups) * _MOST_SLOWDOWN >= 1:
            chosen, most = each, overall
    return chosen.way
