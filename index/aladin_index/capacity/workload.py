"""Workload of a plan, its latency, and the number of machines that it requires.

A workload is the number and size of the items, and how they are searched. A latency is a
distribution: median, tail, and the time that requests wait in a queue.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from statistics import NormalDist
from typing import NamedTuple

from aladin_network.errors import ConfigError
from aladin_network.types import TOKEN_DTYPES, TokenDtype

_NORMAL = NormalDist()
_Z95 = _NORMAL.inv_cdf(0.95)

# Machines with a higher load become slow whenever the load increases slightly or one of them fails.
MOST_BUSY = 0.6
# A larger number is not a useful answer.
MOST_MACHINES = 2**14


@dataclass(frozen=True, kw_only=True)
class Workload:
    """One collection of an index, its searches, and the available machines.

    A side of texts is planned like one of photos, with its own number of tokens.

    Attributes:
        items: Number of items.
        embedding_dim: Size of an embedding.
        tokens: Number of tokens of an item.
        token_dim: Size of a token.
        token_dtype: Storage format of the tokens.
        candidates: Number of items that the second stage orders.
        words: Number of tokens of a query.
        queries_per_s: Peak rate of queries, with independent arrivals (Poisson).
        p95_ms: Limit that 95 of 100 queries must meet, including their encoding.
        replicas: Number of copies of everything, so that one may fail.
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
            ConfigError: If a number is not above 0 or not finite, or the token format is unknown.
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


class Latency(NamedTuple):
    """A log-normally distributed time, defined by two of its quantiles.

    Attributes:
        p50_s: Median latency.
        p95_s: 95 of 100 are shorter.
    """

    p50_s: float
    p95_s: float

    @classmethod
    def spread_by(cls, p50_s: float, spread: float) -> Latency:
        """Return a time with this median, and with a p95 of `spread` times the median."""
        return cls(p50_s, p50_s * spread)

    def quantile(self, share: float) -> float:
        """Return the quantile of a share in (0, 1)."""
        if self.p95_s <= self.p50_s or self.p50_s <= 0:
            return self.p95_s
        sigma = math.log(self.p95_s / self.p50_s) / _Z95
        return self.p50_s * math.exp(sigma * _NORMAL.inv_cdf(share))

    def slowest_of(self, count: int) -> Latency:
        """Return the time of the slowest of several independent concurrent runs.

        All of n stay below t with probability F(t)^n, so the slowest's quantile q is the
        quantile q^(1/n) of each (Dean and Barroso, The Tail at Scale, CACM 2013).
        """
        return Latency(self.quantile(0.5 ** (1 / count)), self.quantile(0.95 ** (1 / count)))

    def then(self, other: Latency) -> Latency:
        """Return the total time of two consecutive steps.

        The p95 of a sum is at most about the sum of the p95: rather too long than too short.
        """
        return Latency(self.p50_s + other.p50_s, self.p95_s + other.p95_s)


def waiting(service_s: float, arrivals_per_s: float, servers: int) -> Latency:
    """Return the waiting time in a queue for several servers, by Erlang's C formula.

    Arrivals at random and times of service that vary exponentially (M/M/c), which ours do less:
    rather too long. P(wait > t) = C exp(-(1 - rho) c t / s) with rho = arrivals s / c
    (Erlang 1917; Gross et al., Fundamentals of Queueing Theory, section 3.3).

    Args:
        service_s: Mean service time.
        arrivals_per_s: Arrivals of the whole queue.
        servers: Number of servers of the queue.

    Returns:
        Median and p95; infinite where more comes than can be served.
    """
    load = arrivals_per_s * service_s
    if load >= servers:
        return Latency(math.inf, math.inf)
    # Erlang B by its recursion, which does not overflow for many servers; C is computed from it.
    blocked = 1.0
    for count in range(1, servers + 1):
        blocked = load * blocked / (count + load * blocked)
    delayed = servers * blocked / (servers - load * (1 - blocked))
    pace = servers / service_s * (1 - load / servers)

    def longer_than_all_but(share: float) -> float:
        return max(0.0, math.log(delayed / share) / pace) if delayed > 0 else 0.0

    return Latency(longer_than_all_but(0.5), longer_than_all_but(0.05))


def machines_for_load(workload: Workload, core_s: float) -> int:
    """Return how many machines keep the utilisation at or below `MOST_BUSY`.

    Args:
        workload: Rate of queries, and cores of a machine.
        core_s: Seconds of one core that a query takes.
    """
    return math.ceil(workload.queries_per_s * core_s / (workload.machine_cores * MOST_BUSY))


def fewest_machines(
    start: int, most: int, latency: Callable[[int], Latency], p95_s: float
) -> int | None:
    """Return the fewest machines that meet the latency limit.

    One after the other is tried, for more are not always faster: of many that have to answer
    together the slowest is slower.

    Args:
        start: Smallest number of machines allowed; the search starts with it.
        most: Largest number of machines that can share the work.
        latency: Latency of a query by number of machines.
        p95_s: Limit of the 95th percentile of the latency.

    Returns:
        None where no number of them does.
    """
    numbers = range(start, max(start, min(most, MOST_MACHINES)) + 1)
    return next((number for number in numbers if latency(number).p95_s <= p95_s), None)
