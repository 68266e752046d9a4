"""How to make a worker: all that a thread's or a process's worker is built from."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from aladin.detectors.base import Detector
from aladin.photos_root import PhotosRoot
from aladin.query_precision import choose_precision
from index.devices.search_device import DeviceName, FirstStageName, SearchDevice
from service.encoding_cache import EncodingCache
from service.photos.thumbnail_cache import ThumbnailCache
from service.query_encoder import QueryEncoder
from service.settings import ServiceSettings
from service.work.find_source import EngineAccess
from service.work.guarded_engine import OnCall, pass_over
from service.work.live_index import LiveIndex
from service.work.worker import Worker

# Single jobs that a worker does at the same time: they mostly wait for the disk.
JOB_THREADS = 4


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
    """

    index: Path
    settings: ServiceSettings
    device: DeviceName = "cpu"
    first_stage: FirstStageName = "faiss"
    warm: bool = False
    fallback: int | None = None

    def make(self, on_call: OnCall = pass_over) -> Worker:
        """Make the worker; its index is not open yet.

        Args:
            on_call: told of each call of an engine, if one keeps the index, on whichever thread.
        """
        place = SearchDevice.choose(self.device, self.first_stage)
        detector = self._detector(place)
        photos_root = self.settings.photos_root
        live = LiveIndex(
            self.index,
            self.settings.query_limits,
            place,
            warm=self.warm,
            fallback=self.fallback,
            detector=detector,
            access=EngineAccess(
                options=self.settings.engine_options,
                poll_s=self.settings.engine_poll_s,
                on_call=on_call,
            ),
            photos_root=None if photos_root is None else PhotosRoot(photos_root),
        )
        encoder = QueryEncoder(
            self.settings.query_limits,
            EncodingCache(self.settings.query_cache_bytes),
            decode_threads=self.settings.decode_threads,
            precision=choose_precision(self.settings.query_precision, place.device),
            detector=detector,
        )
        thumbnails = ThumbnailCache(self.settings.thumbnail_cache_bytes)
        return Worker(live, place, encoder, thumbnails)

    def _detector(self, place: SearchDevice) -> Detector | None:
        if self.settings.detector is None:
            return None
        from aladin.detectors.loading import load_detector

        return load_detector(self.settings.detector, str(place.device))
