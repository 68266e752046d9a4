"""A worker: answers batches of queries and runs jobs against the live index.

Workers run in threads of the service's own process (`service.work.workers`) or in processes of
their own (`service.work.worker_process`). All calls block.
"""

from __future__ import annotations

import math
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Generic, Literal, NamedTuple, TypeVar, cast

from aladin_index.changes.item_changer import ItemChanger
from aladin_index.devices.search_device import SearchDevice
from aladin_index.engines.guard import OnCall, ignore_call
from aladin_index.search.options import AskedSearch
from aladin_index.search.query import Query, Term
from aladin_index.search.results import SEARCH_ANSWER
from aladin_index.search.searcher import TwoStageSearcher
from aladin_network.detectors.base import Detector
from aladin_network.errors import AladinError, IndexMismatchError
from aladin_network.photos.files import PhotosRoot
from aladin_network.photos.memory import wanted_while
from aladin_network.types import DeviceName
from aladin_service.photos.photo_bytes import ThumbnailCache
from aladin_service.search.encoder import EncodingCache, QueryEncoder, query_networks
from aladin_service.search.job import (
    Answered,
    EncodeJob,
    PlainQuery,
    QueuedWork,
    SearchJob,
    WorkAnswer,
)
from aladin_service.search.reading import read_search
from aladin_service.settings import ServiceSettings
from aladin_service.work.crashing_generations import Attempt, OnAttempt, Refusals
from aladin_service.work.hot_swap import LiveIndex, Opening
from aladin_service.work.sources import EngineAccess

T = TypeVar("T")

# Jobs are queued by cost, so that slow ones do not delay the others: look-ups, thumbnails and
# drawings, photos at full size, and changes of the index.
JobQueueName = Literal["read", "picture", "original", "write"]


class JobQueueFacts(NamedTuple):
    """How the jobs of a queue are run.

    Attributes:
        threads: Threads of a worker for them.
        most_waiting: Most jobs that wait, whatever the settings allow.
    """

    threads: int
    most_waiting: int = sys.maxsize


# Look-ups mostly wait for the disk, pictures use a processor, changes of an index are serialized. A
# photo at full size takes up to seconds, so the last job of a longer queue would time out.
JOB_QUEUES: Mapping[JobQueueName, JobQueueFacts] = {
    "read": JobQueueFacts(4),
    "picture": JobQueueFacts(2, 64),
    "original": JobQueueFacts(2, 16),
    "write": JobQueueFacts(2),
}

# Memory for scaled photos, and as much for full-size ones that had to be re-encoded.
_PICTURE_CACHE_BYTES = 64 * 2**20


class Job(ABC, Generic[T]):
    """Work other than a search; a job and its result can be sent to another process."""

    @property
    def queue(self) -> JobQueueName:
        """The queue in which the job waits for a worker."""
        return "read"

    @abstractmethod
    def run(self, worker: Worker) -> T:
        """Run the job; blocks. The message of an `AladinError` is meant for the client."""


# What a worker does at a time: a batch of queries or documents, or a job.
Work = Sequence[QueuedWork] | Job[Any]
# Tells whether a client still waits for the result at a place of a batch, or at 0 for a job.
IsWanted = Callable[[int], bool]


def without_traceback(error: Exception) -> Exception:
    """Remove traceback and causes from an expected error; return any other error unchanged.

    The frames of a traceback refer to the error, and also to a photo's bytes or pixels or to the
    index. This reference cycle would keep them in memory until the garbage collector runs, which
    can be hundreds of rejected photos later.
    """
    if isinstance(error, AladinError):
        error.__cause__ = error.__context__ = None
        return error.with_traceback(None)
    return error


class Worker:
    """Answers batches of queries and runs jobs; all methods are thread-safe.

    Closing it closes the index, the device and the encoder. Photos that were scaled down, and those
    of full size that had to be re-encoded, are cached.
    """

    def __init__(
        self,
        live: LiveIndex,
        device: SearchDevice,
        encoder: QueryEncoder,
        thumbnails: ThumbnailCache,
        originals: ThumbnailCache,
    ) -> None:
        self.live = live
        self.thumbnails = thumbnails
        self.originals = originals
        self.memory = encoder.memory
        self.image_limits = encoder.image_limits
        self._device = device
        self._encoder = encoder

    def searcher(self) -> TwoStageSearcher:
        """Return the searcher of the live generation."""
        self.live.refresh()
        return self.live.searcher()

    def change(self, change: Callable[[ItemChanger], T]) -> T:
        """Add or remove items in the live generation.

        A generation of another model may become live meanwhile, at the end of an upgrade: nothing
        was applied then, and the change is made once more by the new model.
        """
        self.live.refresh()
        changer = self.live.changer()
        try:
            return change(changer)
        except IndexMismatchError:
            self.live.refresh(polls=True)
            if (other := self.live.changer()) is changer:
                raise
            return change(other)

    def check_detector(self) -> None:
        """Check that the detector is the one the live model was trained with."""
        self._encoder.check_detector(self.live.searcher().index.checkpoint.model)

    def do(self, work: Work, is_wanted: IsWanted) -> Any:
        """Return the result of a job, or by place those of a batch.

        In place of the answer to a query or of an encoded document is why there is none: an
        `AladinError` about it, another exception if something unforeseen happened, None if nobody
        waits for it. Raises what concerns all of a batch, or the job: no index is live, or its
        vector database does not respond. A job that nobody waits for may end with a
        `WithdrawnError`.
        """
        if isinstance(work, Job):
            with wanted_while(partial(is_wanted, 0)):
                return work.run(self)
        self.live.refresh()
        searcher = self.live.searcher()  # the same one for all: a batch has one generation
        if isinstance(work[0], EncodeJob):  # then all are documents
            documents = cast(Sequence[EncodeJob], work)
            return self._encoder.documents.encode(searcher, documents, is_wanted)
        return self.answer(searcher, cast(Sequence[SearchJob], work), is_wanted)

    def encode(self, searcher: TwoStageSearcher, query: PlainQuery) -> Term:
        """Encode one query for a job; recent encodings are cached."""
        (term,) = self._encoder.encode_one(searcher, query)
        return term

    def answer(
        self, searcher: TwoStageSearcher, jobs: Sequence[SearchJob], is_wanted: IsWanted
    ) -> list[WorkAnswer | Exception | None]:
        """Encode queries together, then search with them together; see `do`."""
        until_s = [job.received_s + (job.options.timeout_ms or math.inf) / 1000 for job in jobs]
        reads = [read_search(searcher, job.query, job.target, job.options) for job in jobs]
        queries = self._encoder.encode(searcher, [each.query for each in reads], is_wanted, until_s)
        results: list[WorkAnswer | Exception | None] = [None] * len(jobs)
        asked: dict[int, AskedSearch[Query]] = {}
        for place, (job, query) in enumerate(zip(jobs, queries, strict=True)):
            if isinstance(query, Exception):
                results[place] = query
            elif query is not None and is_wanted(place):
                asked[place] = AskedSearch(query, job.target, reads[place].options, job.received_s)
        answers = searcher.search_all(list(asked.values()))
        for (place, search), answer in zip(asked.items(), answers, strict=True):
            if isinstance(answer, Exception):
                results[place] = answer
                continue
            results[place] = Answered(
                body=SEARCH_ANSWER.dump_json(reads[place].told(answer)),
                generation=answer.generation,
                degraded=tuple(answer.degraded),
                took_ms=answer.took_ms,
                no_match=answer.no_match,
                cached=all(term.cached for term in search.query),
                batch=max(term.batch for term in search.query),
            )
        return results

    def close(self) -> None:
        """Close the index; no job may run any more."""
        self._encoder.close()
        self.live.close()
        self._device.close()


@dataclass(frozen=True, kw_only=True)
class WorkerPlan:
    """Everything needed to create a worker; can be sent to another process.

    Attributes:
        index: Index folder; may be empty or missing.
        settings: Settings of the service.
        device: Device on which the network runs and searches.
        warm: Whether to read the files of each generation into memory when it is opened.
        photo_folders: Folders outside of which no photo is served, unless the settings name one;
            empty for no such limit.
        fallback: Generation to serve if the live one is invalid, or None.
        crashing: Generations that are not opened because they crashed other processes, with the
            reason for each.
    """

    index: Path
    settings: ServiceSettings
    device: DeviceName = "cpu"
    warm: bool = False
    photo_folders: tuple[Path, ...] = ()
    fallback: int | None = None
    crashing: Refusals = field(default_factory=dict[Attempt, str])

    def make(self, on_call: OnCall = ignore_call, on_attempt: OnAttempt = lambda _: None) -> Worker:
        """Create the worker without opening its index."""
        settings = self.settings
        place = SearchDevice.choose(self.device)
        detector = self._detector(place)
        limits = settings.query_limits  # shared, because they hold the memory for photos
        folders = self.photo_folders if settings.photos_root is None else (settings.photos_root,)
        encoder = QueryEncoder(
            limits,
            EncodingCache(settings.query_cache_bytes),
            decode_threads=settings.decode_threads,
            detector=detector,
            networks=query_networks(settings, place.device),
        )
        opening = Opening(
            limits=limits,
            device=place,
            warm=self.warm,
            fallback=self.fallback,
            detector=detector,
            access=EngineAccess(
                options=settings.engine_options, poll_s=settings.engine_poll_s, on_call=on_call
            ),
            crashing=self.crashing,
            photos_root=PhotosRoot(*folders) if folders else None,
        )
        live = LiveIndex(self.index, opening, on_attempt, encoder.warm_up)
        caches = ThumbnailCache(_PICTURE_CACHE_BYTES), ThumbnailCache(_PICTURE_CACHE_BYTES)
        return Worker(live, place, encoder, *caches)

    def _detector(self, place: SearchDevice) -> Detector | None:
        if self.settings.detector is None:
            return None
        from aladin_network.detectors.base import load_detector

        return load_detector(self.settings.detector, place.device)
