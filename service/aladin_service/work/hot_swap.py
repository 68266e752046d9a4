"""The live index: opens the published generation, and replaces it while requests run."""

from __future__ import annotations

import logging
import threading
import time
import weakref
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field, replace
from pathlib import Path

from aladin_index.changes.item_changer import ItemChanger
from aladin_index.devices.search_device import SearchDevice
from aladin_index.encode.item_encoders import ImageReader
from aladin_index.format.layout import generation_folder
from aladin_index.search.collection import SearchBackend
from aladin_index.search.searcher import TwoStageSearcher
from aladin_network.checkpoint_files import Checkpoint
from aladin_network.detectors.base import Detector
from aladin_network.errors import (
    AladinError,
    EngineUnavailableError,
    GenerationRefusedError,
    IndexCorruptError,
    IndexMismatchError,
    IndexNotReadyError,
)
from aladin_network.heads.trained import UNALIGNED, untrained_reason
from aladin_network.photos.files import PhotosRoot
from aladin_service.settings import QueryLimits
from aladin_service.work.crashing_generations import Attempt, OnAttempt, Refusals
from aladin_service.work.health import EngineStatus, LiveState
from aladin_service.work.sources import EngineAccess, IndexSource, find_source, holds_index

_LOG = logging.getLogger(__name__)

# A refused generation is retried, because the cause may have been temporary: too little memory, no
# file descriptors, files that were still being copied. The interval doubles with each attempt.
_FIRST_RETRY_S, _LONGEST_RETRY_S = 1.0, 60.0


@dataclass(frozen=True, kw_only=True)
class Opening:
    """How generations are opened, and what changes of them may contain; see `WorkerPlan`.

    `fallback` is served if the live generation is refused; `crashing` ones are refused unopened.
    """

    limits: QueryLimits = field(default_factory=QueryLimits)
    device: SearchDevice | None = None
    warm: bool = False
    fallback: int | None = None
    detector: Detector | None = None
    access: EngineAccess = field(default_factory=EngineAccess)
    crashing: Refusals = field(default_factory=dict[Attempt, str])
    photos_root: PhotosRoot | None = None


class LiveIndex:
    """Opens the live generation of an index folder, and each later one while requests run.

    A new generation is validated before it serves requests. If it is invalid, it is refused and
    the previous one stays live; changes are rejected meanwhile, because they would be lost once the
    generation is repaired.

    A search keeps the `TwoStageSearcher` with which it began; its index is closed when
    nothing refers to it any more. An `IndexSource` hides whether the index is stored in files or in
    a vector database. `on_attempt` is called with a generation before it is opened, and with None
    afterwards; `warm_up` with each index before it answers.
    """

    def __init__(
        self,
        path: Path,
        opening: Opening,
        on_attempt: OnAttempt = lambda _: None,
        warm_up: Callable[[SearchBackend], None] = lambda _: None,
    ) -> None:
        self.path = path
        self.photos_root = opening.photos_root
        self._opening = opening
        self._crashing = opening.crashing
        self._on_attempt = on_attempt
        self._warm_up = warm_up
        self._source: IndexSource | None = None
        # Returns an identifier of the published generation: of the source, once it is known.
        self._published: Callable[[], Hashable | None] = self._before_source
        self._searcher: TwoStageSearcher | None = None
        self._changer: ItemChanger | None = None
        self._checkpoint: Checkpoint | None = None
        self._close_index: weakref.finalize[[], TwoStageSearcher] | None = None
        self._place: Hashable = None  # of the open index
        self._seen: Hashable | None = None
        self._refused: LiveState | None = None
        self._retry_at_s = self._retry_s = 0.0
        self._lock = threading.Lock()

    @property
    def is_current(self) -> bool:
        """Whether there is nothing to open; costs at most one look-up of a file."""
        published = self._published()
        if published is None:
            return True
        if published != self._seen:
            return False
        return self._refused is None or time.monotonic() < self._retry_at_s

    @property
    def state(self) -> LiveState:
        """The served generation, the refused generation, and the status of the database."""
        searcher, refused, source = self._searcher, self._refused, self._source
        generation = None if searcher is None else searcher.index.generation
        status: EngineStatus | None = None
        if source is not None and source.polls:
            status = "up" if source.unavailable() is None else "unavailable"
        if refused is None:
            return LiveState(generation, engine=status)
        return replace(refused, generation=generation, engine=status)

    def open(self) -> None:
        """Open the live generation, unless it is open; blocks.

        If it is invalid, the generation that is open stays in use.
        """
        with self._lock:
            if self.is_current and self._seen is not None:
                return
            before, published = self._seen, self._published()
            if published != before:
                self._retry_s = _FIRST_RETRY_S
            # Set before the attempt: meanwhile other requests use the generation that is open.
            self._retry_at_s = time.monotonic() + self._retry_s
            self._retry_s = min(2 * self._retry_s, _LONGEST_RETRY_S)
            try:
                source = self._find_source()
                published = source.published()
                self._activate(self._open_index(source), source)
                self._refused = None
            except EngineUnavailableError:
                published = before  # the published generation is unknown
                raise
            except IndexNotReadyError:
                raise
            except Exception as error:
                self._refuse(error)
                raise
            finally:
                # Not earlier: requests that arrive now have to wait for what is being opened.
                self._seen = published

    def refresh(self, *, polls: bool = False) -> None:
        """Open a generation that was published since; concurrent requests wait for it.

        They would otherwise miss items that were added to the new generation and acknowledged. One
        in a vector database is opened in the background, as remote calls may take long, or with
        `polls` here.
        """
        if self._source is not None and self._source.polls:
            if not polls:
                return
            self._source.poll()
        if not self.is_current:
            self.try_to_open()

    def retry_crashing(self) -> None:
        """Retry generations that were refused because they crashed other processes."""
        self._crashing = {}
        self._retry_at_s = 0.0

    def close(self) -> None:
        """Close the index; no query may run any more."""
        source = self._source
        if source is not None:
            source.close()  # first, because its thread may be opening a generation
        with self._lock:
            if self._changer is not None:
                self._changer.close()
            if self._close_index is not None:
                self._close_index()
            self._searcher = self._changer = self._checkpoint = self._close_index = None
            self._source = self._seen = self._refused = None
            self._published = self._before_source

    def try_to_open(self) -> None:
        """Open the live generation if it is valid; log the reason if it is refused."""
        before = self._refused
        try:
            self.open()
        except (IndexNotReadyError, EngineUnavailableError):
            pass
        except Exception as error:
            reason = _reason(error)
            if before is None or before.refused != reason:
                # The traceback helps with unexpected errors only.
                trace = None if isinstance(error, AladinError) else error
                _LOG.error("cannot open the index at %s: %s", self.path, reason, exc_info=trace)

    def searcher(self) -> TwoStageSearcher:
        """Return the current searcher; its index stays open while it is referenced."""
        if self._source is not None and self._source.polls:
            self._check_database(self._source)
        if self._searcher is None:
            raise self._not_ready()
        return self._searcher

    def changer(self) -> ItemChanger:
        """Return the object that adds and removes items; raises if what is published is refused."""
        if self._source is not None and self._source.polls:
            self._check_database(self._source)
        if self._changer is None:
            raise self._not_ready()
        if self._refused is not None:
            raise GenerationRefusedError
        return self._changer

    def _check_database(self, source: IndexSource) -> None:
        """Fail at once instead of letting a request wait for the vector database."""
        unavailable = source.unavailable()
        if unavailable is not None:
            raise unavailable

    def _not_ready(self) -> IndexNotReadyError:
        if self._refused is None:
            return IndexNotReadyError("no index is live yet")
        return IndexNotReadyError("the live generation of the index is damaged")

    def _before_source(self) -> Hashable | None:
        return "not opened yet" if holds_index(self.path) else None

    def _find_source(self) -> IndexSource:
        """Return the source of the generations; its kind never changes once it is known."""
        if self._source is None:
            self._source = find_source(
                self.path, self._opening.access, self._opening.device, warm=self._opening.warm
            )
            self._published = self._source.published
        self._source.start(self.try_to_open)
        return self._source

    def _refuse(self, error: Exception) -> None:
        source, fallback = self._source, self._opening.fallback
        self._refused = LiveState(
            None, None if source is None else source.live_number(), _reason(error)
        )
        if self._searcher is None and fallback is not None and source is not None:
            try:
                self._activate(self._open_index(source, fallback), source)
            except Exception as other:
                reason = _reason(other)
                _LOG.error("cannot open the fallback generation %d: %s", fallback, reason)

    def _activate(self, index: SearchBackend, source: IndexSource) -> None:
        """Answer new requests from an index."""
        # A copy of the same generation at another place may have other changes.
        is_same = self._searcher is not None and index.manifest == self._searcher.index.manifest
        if is_same and index.place == self._place and self._searcher is not None:
            index.close()
            return
        replaces = self._searcher is not None
        self._searcher = TwoStageSearcher(index)
        self._close_index = weakref.finalize(self._searcher, index.close)
        self._place = index.place
        if self._changer is None or self._checkpoint is not index.checkpoint:
            if self._changer is not None:
                self._changer.close()
            writer = source.writer(index.manifest.model.id)
            limits = self._opening.limits
            images = ImageReader(
                limits.image,
                memory=limits.memory,
                regions=limits.regions,
                detector=self._opening.detector,
                exif=limits.exif,
            )
            network, bounds = index.checkpoint.model, (limits.metadata, limits.max_text_chars)
            self._changer = ItemChanger(writer, network, images, *bounds)
        self._checkpoint = index.checkpoint
        if replaces:
            _LOG.info("generation %d is live", index.generation)

    def _open_index(self, source: IndexSource, generation: int | None = None) -> SearchBackend:
        number = source.live_number() if generation is None else generation
        attempt = None if number is None else Attempt(source.published(), number)
        if attempt is not None and attempt in self._crashing:
            folder = generation_folder(self.path, attempt.generation)
            raise IndexCorruptError(folder, self._crashing[attempt])
        self._on_attempt(attempt)
        try:
            index = self._open_by_network(source, generation)
            try:
                self._warm_up(index)
            except BaseException:
                index.close()
                raise
            return index
        finally:
            self._on_attempt(None)

    def _open_by_network(self, source: IndexSource, generation: int | None) -> SearchBackend:
        if self._checkpoint is not None:
            try:
                return source.open(self._checkpoint, generation)
            except IndexMismatchError:  # another model, or a folder that was replaced
                pass
        index = source.open(generation=generation)
        provenance = index.checkpoint.provenance
        untrained = untrained_reason(provenance.recipe, provenance.stage)
        if untrained is not None:
            _LOG.warning(untrained)
        elif not index.checkpoint.alignment_trained:
            _LOG.info(UNALIGNED)
        return index


def _reason(error: Exception) -> str:
    """Describe why a generation is refused; unexpected errors include their class."""
    if isinstance(error, AladinError):
        return str(error)
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
