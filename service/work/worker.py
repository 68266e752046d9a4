"""Does jobs against the live index, blocking; the threads or processes that call it are others'."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from aladin.decoding_memory import wanted_while
from index.devices.search_device import SearchDevice
from index.searcher import TwoStageSearcher
from service.engine import SearchEngine
from service.item_changes import ItemChanger
from service.photos.thumbnail_cache import ThumbnailCache
from service.queries import Query
from service.query_encoder import EncodedQuery, QueryEncoder, always
from service.work.job import Job
from service.work.job_errors import without_frames
from service.work.live_index import LiveIndex
from service.work.search_job import Answered, SearchJob

T = TypeVar("T")

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

    def engine(self) -> SearchEngine:
        """Return what answers queries, of the generation that is live now.

        Raises:
            IndexNotReadyError: no index is live.
            EngineUnavailableError: the engine that keeps it does not answer.
        """
        self.live.refresh()
        return self.live.engine()

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
        self._encoder.check_detector(self.live.engine().model)

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
        engine = self.engine()  # one for all of them: no batch is answered from two generations
        until_s = [job.until_s for job in jobs]
        queries = [job.query for job in jobs]
        encoded = self._encoder.encode(engine.searcher, queries, is_wanted, until_s)
        for place, (job, query) in enumerate(zip(jobs, encoded, strict=True)):
            if query is not None and is_wanted(place):
                emit(place, _find(engine, query, job))

    def close(self) -> None:
        """Close the index; no job may run any more."""
        self._encoder.close()
        self.live.close()
        self._device.close()


def _find(
    engine: SearchEngine, query: EncodedQuery | Exception, job: SearchJob
) -> Answered | Exception:
    """Search for one query; never raises."""
    if isinstance(query, Exception):
        return without_frames(query)
    try:
        answer = engine.find(query, job.target, job.options, job.received_s)
    except Exception as error:
        return without_frames(error)
    return Answered(
        body=answer.model_dump_json().encode(),
        generation=answer.generation,
        degraded=tuple(answer.degraded),
        took_ms=answer.took_ms,
        no_match=answer.no_match,
        cached=query.cached,
        batch=query.batch,
    )
