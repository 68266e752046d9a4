"""What the HTTP routes see of the workers, whether they are threads or processes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol, TypeVar

from aladin.errors import NoWorkerError, OverloadedError
from service.work.job import Job
from service.work.live_index import EngineStanding
from service.work.search_job import Answered, Lane, SearchJob

T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class WorkersHealth:
    """How the workers are.

    Attributes:
        wanted: workers that there should be.
        alive: workers that take jobs now.
        generation: the live one; None where no index is live.
        refused: why the newest published generation was not taken up, None where it was; the
            one before it is still live then.
        engine: that keeps the index, as the worker says that is worst off; None: it is in files.
        pids: of the worker processes that are alive, by their place; none where the workers are
            threads.
    """

    wanted: int
    alive: int
    generation: int | None
    refused: str | None = None
    engine: EngineStanding | None = None
    pids: Mapping[int, int] = field(default_factory=dict[int, int])

    @property
    def ready(self) -> bool:
        """Whether every worker is there, an index is live and its engine answers."""
        return self.alive == self.wanted and self.generation is not None and self.engine != "away"


class Workers(Protocol):
    """Does the blocking work of requests; its methods are called from the event loop only."""

    async def start(self) -> None:
        """Start the workers; returns when they take jobs, be an index live or not."""
        ...

    async def stop(self) -> None:
        """Finish the jobs that run, fail those that wait, and end the workers."""
        ...

    async def search(self, job: SearchJob) -> Answered:
        """Answer one query, encoded together with others that wait; cancelling it withdraws it.

        Raises:
            AladinError: whatever the engine raises of the query itself; no other query sees it.
            IndexNotReadyError: no index is live.
            EngineUnavailableError: the engine that keeps it does not answer.
            OverloadedError: too many queries wait already.
            WorkerDiedError: the worker ended while it ran this query.
            NoWorkerError: for some seconds there has been no worker.
        """
        ...

    def refusal(self, lane: Lane) -> OverloadedError | NoWorkerError | None:
        """Say why a query of a lane would be refused now; None: it would be taken."""
        ...

    async def call(self, job: Job[T]) -> T:
        """Do one job that is no search.

        Raises:
            AladinError: whatever the job raises.
            IndexNotReadyError: no index is live.
            EngineUnavailableError: the engine that keeps it does not answer; of a change, part
                may have been made.
            OverloadedError: too many jobs wait already.
            WorkerDiedError: the worker ended while it ran this job; it may have been done.
            NoWorkerError: for some seconds there has been no worker; it was not begun.
        """
        ...

    def health(self) -> WorkersHealth:
        """Say how the workers are."""
        ...
