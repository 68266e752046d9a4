"""A piece of work that a request needs done, on whichever worker.

What is kept of an error that ends the work for one client.

Does jobs against the live index, blocking; the threads or processes that call it are others'.

How to make a worker: all that a thread's or a process's worker is built from.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Generic, Literal, TypeVar

from aladin_index.devices.search_device import DeviceName, FirstStageName, SearchDevice
from aladin_index.engines.guard import OnCall, ignore_call
from aladin_index.search.query import EncodedQuery
from aladin_index.search.searcher import TwoStageSearcher
from aladin_network.detectors.base import Detector
from aladin_network.errors import AladinError
from aladin_network.inference import choose_precision
from aladin_network.photos.files import PhotosRoot
from aladin_network.photos.memory import wanted_while
from aladin_service.intake.item_changes import ItemChanger
from aladin_service.photos.photo_bytes import ThumbnailCache
from aladin_service.queries import Query
from aladin_service.search.encoder import QueryEncoder, always
from aladin_service.search.encoding_cache import EncodingCache
from aladin_service.search.job import Answered, SearchJob
from aladin_service.settings import ServiceSettings
from aladin_service.work.crashing_generations import Attempt, OnAttempt, Refusals
from aladin_service.work.live_index import LiveIndex
from aladin_service.work.sources import EngineAccess

T = TypeVar("T")

# Jobs wait and run apart by what they cost, so that slow ones do not hold up the others: look-ups,
# thumbnails and drawings, photos of full size, and changes of the index.
JobQueueName = Literal["read", "picture", "original", "write"]


class Job(ABC, Generic[T]):
    """One piece of work; it and its result may travel to another process and back."""

    @property
    def lane(self) -> JobQueueName:
        """The lane in which it waits for a worker."""
        return "read"

    @abstractmethod
    def run(self, worker: Worker) -> T:
        """Do it; blocks.

        Args:
            worker: gives the live index, and what changes it.

        Raises:
            AladinError: it cannot be done; the message is for the client.
        """


def without_traceback(error: Exception) -> Exception:
    """Have a foreseen error hold nothing but its message; another one keeps what explains it.

    A traceback refers to frames that refer to the error, and to a photo's bytes, to its pixels or
    to the index: a circle, in which all of them would stay until the next collection of such
    circles, which may be hundreds of refused photos later.
    """
    if isinstance(error, AladinError):
        error.__cause__ = error.__context__ = None
        return error.with_traceback(None)
    return error


# Told what became of the query at a place of the batch, as soon as it is known. An exception that
# is no `AladinError` is one that nobody foresaw.
Emit = Callable[[int, Answered | Exception], None]


class Worker:
    """Answers batches of queries and does single jobs; safe to use from any number of threads."""

    def __init__(
        self,
        live: LiveIndex,
        device: SearchDevice,
        encoder: QueryEncoder,
        thumbnails: ThumbnailCache,
        originals: ThumbnailCache,
    ) -> None:
        """Work on one index folder.

        Args:
            live: opened by the first job, or before.
            device: where it searches; closed with the worker.
            encoder: of the queries; closed with the worker.
            thumbnails: keeps photos that were made smaller.
            originals: keeps photos of full size that had to be written anew.
        """
        self.live = live
        self.thumbnails = thumbnails
        self.originals = originals
        self.memory = encoder.memory
        self._device = device
        self._encoder = encoder

    def searcher(self) -> TwoStageSearcher:
        """Return what answers queries, of the generation that is live now.

        Raises:
            IndexNotReadyError: no index is live.
            EngineUnavailableError: the engine that keeps it does not answer.
        """
        self.live.refresh()
        return self.live.searcher()

    def changer(self) -> ItemChanger:
        """Return what adds and removes items, of the generation that is live now.

        Raises:
            IndexNotReadyError: no index is live.
            EngineUnavailableError: the engine that keeps it does not answer.
        """
        self.live.refresh()
        return self.live.changer()

    def check_detector(self) -> None:
        """Refuse a detector that is not the one of the model that is live now.

        Raises:
            ConfigError: it is another one, or the model reads photos.
            IndexNotReadyError: no index is live.
        """
        self._encoder.check_detector(self.live.searcher().index.checkpoint.model)

    def do(self, job: Job[T], is_wanted: Callable[[], bool]) -> T:
        """Do one job.

        Args:
            job: what to do.
            is_wanted: whether someone still waits for the result; while nobody does, the job may
                end with a `WithdrawnError`.

        Raises:
            AladinError: whatever the job raises.
        """
        with wanted_while(is_wanted):
            return job.run(self)

    def encode(self, searcher: TwoStageSearcher, query: Query) -> EncodedQuery:
        """Encode one query for a job; what was searched for lately is remembered.

        Args:
            searcher: of the index that is live now.
            query: what to encode.

        Raises:
            AladinError: it cannot be encoded.
        """
        return self._encoder.encode_one(searcher, query)

    def answer(
        self, jobs: Sequence[SearchJob], emit: Emit, is_wanted: Callable[[int], bool] = always
    ) -> None:
        """Answer queries that arrived together: encode them in one go, then search one by one.

        Args:
            jobs: at least one.
            emit: called once for each that is wanted; a fault of one query is its own alone.
            is_wanted: whether someone still waits for the query at a place.

        Raises:
            IndexNotReadyError: no index is live.
            EngineUnavailableError: the engine that keeps it does not answer; no query is encoded.
        """
        searcher = self.searcher()  # one for all of them: no batch is answered from two generations
        until_s = [job.until_s for job in jobs]
        queries = [job.query for job in jobs]
        encoded = self._encoder.encode(searcher, queries, is_wanted, until_s)
        for place, (job, query) in enumerate(zip(jobs, encoded, strict=True)):
            if query is not None and is_wanted(place):
                emit(place, _find(searcher, query, job))

    def close(self) -> None:
        """Close the index; no job may run any more."""
        self._encoder.close()
        self.live.close()
        self._device.close()


def _find(
    searcher: TwoStageSearcher, query: EncodedQuery | Exception, job: SearchJob
) -> Answered | Exception:
    """Search for one query; never raises."""
    if isinstance(query, Exception):
        return without_traceback(query)
    try:
        answer = searcher.search(query, job.target, job.options, job.received_s)
    except Exception as error:
        return without_traceback(error)
    return Answered(
        body=answer.model_dump_json().encode(),
        generation=answer.generation,
        degraded=tuple(answer.degraded),
        took_ms=answer.took_ms,
        no_match=answer.no_match,
        cached=query.cached,
        batch=query.batch,
    )


# Single jobs of each lane that a worker does at the same time: look-ups mostly wait for the disk,
# pictures take a processor, changes of an index follow one another.
LANE_THREADS: Mapping[JobQueueName, int] = {"read": 4, "picture": 2, "original": 2, "write": 2}
JOB_THREADS = sum(LANE_THREADS.values())

# Jobs that may wait in a lane at most, where the settings allow more: photos of full size take up
# to seconds each, so whoever came last in a longer queue would wait in vain.
_MAX_WAITING: Mapping[JobQueueName, int] = {"picture": 64, "original": 16}


def max_waiting_jobs(settings: ServiceSettings) -> dict[JobQueueName, int]:
    """Return how many jobs of each lane may wait for a worker."""
    most = settings.max_waiting
    return {lane: min(most, _MAX_WAITING.get(lane, most)) for lane in LANE_THREADS}


@dataclass(frozen=True, kw_only=True)
class WorkerPlan:
    """What a worker is to be; it may travel to another process.

    Attributes:
        index: the index folder; it may be empty or missing.
        settings: limits.
        device: where the network runs and searches.
        first_stage: what finds the candidates there.
        warm: have each generation's files read into memory when it is opened.
        fallback: a generation to begin with should the live one be unsound.
        deadly: generations that are not opened, for they have ended other processes.
    """

    index: Path
    settings: ServiceSettings
    device: DeviceName = "cpu"
    first_stage: FirstStageName = "faiss"
    warm: bool = False
    fallback: int | None = None
    deadly: Refusals = field(default_factory=dict[Attempt, str])

    def make(self, on_call: OnCall = ignore_call, on_attempt: OnAttempt = lambda _: None) -> Worker:
        """Make the worker; its index is not open yet.

        Args:
            on_call: told of each call of an engine, if one keeps the index, on whichever thread.
            on_attempt: told what is about to be opened, see `LiveIndex`.
        """
        place = SearchDevice.choose(self.device, self.first_stage)
        detector = self._detector(place)
        limits = self.settings.query_limits  # one for all: they share the memory for photos
        photos_root = self.settings.photos_root
        live = LiveIndex(
            self.index,
            limits,
            place,
            warm=self.warm,
            fallback=self.fallback,
            detector=detector,
            access=EngineAccess(
                options=self.settings.engine_options,
                poll_s=self.settings.engine_poll_s,
                on_call=on_call,
            ),
            deadly=self.deadly,
            on_attempt=on_attempt,
            photos_root=None if photos_root is None else PhotosRoot(photos_root),
        )
        encoder = QueryEncoder(
            limits,
            EncodingCache(self.settings.query_cache_bytes),
            decode_threads=self.settings.decode_threads,
            precision=choose_precision(self.settings.query_precision, place.device),
            detector=detector,
        )
        thumbnails = ThumbnailCache(self.settings.thumbnail_cache_bytes)
        originals = ThumbnailCache(self.settings.photo_cache_bytes)
        return Worker(live, place, encoder, thumbnails, originals)

    def _detector(self, place: SearchDevice) -> Detector | None:
        if self.settings.detector is None:
            return None
        from aladin_network.detectors.base import load_detector

        return load_detector(self.settings.detector, str(place.device))
