"""How to make a worker: all that a thread's or a process's worker is built from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from aladin.detectors.base import Detector
from aladin.photos_root import PhotosRoot
from aladin.query_precision import choose_precision
from index.devices.search_device import DeviceName, FirstStageName, SearchDevice
from service.encoding_cache import EncodingCache
from service.photos.thumbnail_cache import ThumbnailCache
from service.query_encoder import QueryEncoder
from service.settings import ServiceSettings
from service.work.deadly_generations import Attempt, OnAttempt, Refusals
from service.work.find_source import EngineAccess
from service.work.guarded_engine import OnCall, pass_over
from service.work.job import JobLane
from service.work.live_index import LiveIndex
from service.work.worker import Worker

# Single jobs of each lane that a worker does at the same time: look-ups mostly wait for the disk,
# pictures take a processor, changes of an index follow one another.
LANE_THREADS: Mapping[JobLane, int] = {"read": 4, "picture": 2, "original": 2, "write": 2}
JOB_THREADS = sum(LANE_THREADS.values())

# Jobs that may wait in a lane at most, where the settings allow more: photos of full size take up
# to seconds each, so whoever came last in a longer queue would wait in vain.
_MAX_WAITING: Mapping[JobLane, int] = {"picture": 64, "original": 16}


def max_waiting_jobs(settings: ServiceSettings) -> dict[JobLane, int]:
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

    def make(self, on_call: OnCall = pass_over, on_attempt: OnAttempt = lambda _: None) -> Worker:
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
        from aladin.detectors.loading import load_detector

        return load_detector(self.settings.detector, str(place.device))
