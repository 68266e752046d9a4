"""What the service and a worker process say to each other.

The service numbers the batches and the jobs that it sends to a worker. The worker says of each
when it begins with it and when it is done; of a batch also what became of its queries, some at a
time.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from service.work.deadly_generations import Attempt
from service.work.guarded_engine import EngineCall
from service.work.job import Job
from service.work.live_index import LiveState
from service.work.search_job import Answered, SearchJob


@dataclass(frozen=True)
class RunBatch:
    """To the worker: answer these queries together."""

    number: int
    jobs: list[SearchJob]


@dataclass(frozen=True)
class RunJob:
    """To the worker: do this."""

    number: int
    job: Job[Any]


@dataclass(frozen=True)
class Unwanted:
    """To the worker: nobody waits any more for a job, or for one query of a batch."""

    number: int
    place: int


@dataclass(frozen=True)
class Forgiven:
    """To the worker: generations that have ended other workers may be opened again."""


@dataclass(frozen=True)
class Attempting:
    """From the worker: what it opens now, and might not survive; None: it is through with that."""

    attempt: Attempt | None


@dataclass(frozen=True)
class Status:
    """From the worker: it lives; sent when it can take work, on every change, and regularly.

    Attributes:
        live: what it answers from.
        engine_calls: that ended since the last one, if an engine keeps the index.
    """

    live: LiveState
    engine_calls: tuple[EngineCall, ...] = ()


@dataclass(frozen=True)
class Begun:
    """From the worker: it begins with a batch or a job, and might not survive it."""

    number: int


@dataclass(frozen=True)
class PlacesAnswered:
    """From the worker: what became of some queries of a batch, each with its place."""

    number: int
    answers: list[tuple[int, Answered | Exception]]


@dataclass(frozen=True)
class Done:
    """From the worker: it is through with a batch or a job.

    Attributes:
        number: of the batch or the job.
        result: of a job; of a batch, None.
        error: what the job raised; of a batch, why queries have no answer.
    """

    number: int
    result: Any = None
    error: Exception | None = None


class UnforeseenError(Exception):
    """A worker process met an error that nobody foresaw; the message is its traceback."""
