"""The index that the service answers from: whatever generation is live, from when there is one."""

from __future__ import annotations

import logging
import threading
import time
import weakref
from collections.abc import Hashable
from pathlib import Path
from typing import Literal, NamedTuple

from aladin_index.devices.search_device import SearchDevice
from aladin_index.format.layout import generation_folder
from aladin_index.search.backend import SearchBackend
from aladin_index.search.searcher import TwoStageSearcher
from aladin_network.checkpoint import Checkpoint
from aladin_network.detectors.base import Detector
from aladin_network.errors import (
    AladinError,
    EngineUnavailableError,
    GenerationRefusedError,
    IndexCorruptError,
    IndexMismatchError,
    IndexNotReadyError,
)
from aladin_network.photos.files import PhotosRoot
from aladin_service.intake.item_changes import ItemChanger
from aladin_service.settings import QueryLimits
from aladin_service.work.crashing_generations import Attempt, OnAttempt, Refusals
from aladin_service.work.sources import EngineAccess, IndexSource, find_source, holds_index

_LOG = logging.getLogger(__name__)

# Whether the engine of an index answers.
EngineStatus = Literal["up", "away"]

# A refused generation is tried again, for the fault may have been the machine's: no memory, no
# descriptors, files that were still on their way. After so long, and twice as long each time.
_FIRST_RETRY_S, _LONGEST_RETRY_S = 1.0, 60.0


class LiveState(NamedTuple):
    """What an index folder is answered from, and what not.

    Attributes:
        generation: that answers; None: none does.
        refused_generation: the live one, where it is not what answers and has a number.
        refused: why the live one is not what answers; None where it is.
        engine: that keeps the index; None: it is in files, or nowhere yet.
    """

    generation: int | None
    refused_generation: int | None = None
    refused: str | None = None
    engine: EngineStatus | None = None


class LiveIndex:
    """Opens an index folder as soon as it has a live generation, and every later one beside it.

    A generation is tried before it answers. One that is unsound is refused, and the one before
    stays; it takes no changes meanwhile, which nobody would see once it is put right.

    A search keeps the `TwoStageSearcher` that it began with; the index behind one is closed when
    nothing refers to it any more. Whether the index is in files or in an engine on other machines
    is for its `IndexSource` to know.
    """

    def __init__(
        self,
        path: Path,
        limits: QueryLimits,
        device: SearchDevice | None = None,
        *,
        warm: bool = False,
        fallback: int | None = None,
        detector: Detector | None = None,
        access: EngineAccess | None = None,
        deadly: Refusals | None = None,
        on_attempt: OnAttempt = lambda _: None,
        photos_root: PhotosRoot | None = None,
    ) -> None:
        """Open nothing yet.

        Args:
            path: the index folder; it may be empty or missing.
            limits: what a query may cost.
            device: where the network and the searches go; None: the processor.
            warm: have each generation's files read into memory when it is opened.
            fallback: a generation to begin with should the live one be refused.
            detector: finds the regions of photos that are added, for models that read regions.
            access: how the engine is reached, if one keeps the index; None: as it is by default.
            deadly: what is refused without being opened, for it has ended other processes.
            on_attempt: told before a generation is opened, and None when that is through.
            photos_root: folder outside of which no photo is shown, or None.
        """
        self.path = path
        self._device = device
        self._warm = warm
        self._limits = limits
        self._fallback = fallback
        self._detector = detector
        self._access = access or EngineAccess()
        self._deadly = deadly or {}
        self._on_attempt = on_attempt
        self.photos_root = photos_root
        self._source: IndexSource | None = None
        self._searcher: TwoStageSearcher | None = None
        self._changer: ItemChanger | None = None
        self._checkpoint: Checkpoint | None = None
        self._close_index: weakref.finalize[[], TwoStageSearcher] | None = None
        self._place: Hashable = None  # of the index that is open
        self._seen: Hashable | None = None
        self._refused: LiveState | None = None
        self._retry_at_s = self._retry_s = 0.0
        self._lock = threading.Lock()

    @property
    def is_current(self) -> bool:
        """Whether there is nothing to open; costs one look at the disk at most."""
        published = self._published()
        if published is None:
            return True
        if published != self._seen:
            return False
        return self._refused is None or time.monotonic() < self._retry_at_s

    @property
    def state(self) -> LiveState:
        """What answers, what was refused, and whether the engine is away."""
        searcher, refused, source = self._searcher, self._refused, self._source
        generation = None if searcher is None else searcher.index.generation
        standing: EngineStatus | None = None
        if source is not None and source.looks_itself:
            standing = "up" if source.away() is None else "away"
        if refused is None:
            return LiveState(generation, engine=standing)
        return refused._replace(generation=generation, engine=standing)

    def open(self) -> None:
        """Open the live generation, unless it is open; takes a moment, call it off the event loop.

        Where it is unsound, the one that is open stays.

        Raises:
            IndexNotReadyError: there is none yet.
            EngineUnavailableError: the engine that keeps it does not answer.
            SearchIndexError: it is damaged, or does not fit its model.
            CheckpointError: its model cannot be loaded.
            Exception: whatever else opening it met, such as too little memory; it is refused then
                like a damaged one.
        """
        with self._lock:
            if self.is_current and self._seen is not None:
                return
            before, published = self._seen, self._published()
            if published != before:
                self._retry_s = _FIRST_RETRY_S
            # Before it is tried, and not after: meanwhile others go on with what there is.
            self._retry_at_s = time.monotonic() + self._retry_s
            self._retry_s = min(2 * self._retry_s, _LONGEST_RETRY_S)
            try:
                source = self._find_source()
                published = source.published()
                self._take_up(self._open_index(source), source)
                self._refused = None
            except EngineUnavailableError:
                published = before  # nothing was seen
                raise
            except IndexNotReadyError:
                raise
            except Exception as error:
                self._refuse(error)
                raise
            finally:
                # Not before: requests that come now have to wait for what is being opened.
                self._seen = published

    def refresh(self) -> None:
        """Open what has been published since; requests that come meanwhile wait for it.

        They would otherwise miss what was added to the new generation and acknowledged. What an
        engine publishes is opened beside the requests: it is on other machines, and may take its
        time.
        """
        if self._source is not None and self._source.looks_itself:
            return
        if not self.is_current:
            self.try_to_open()

    def forgive(self) -> None:
        """Try again at the next look what was refused for having ended other processes."""
        self._deadly = {}
        self._retry_at_s = 0.0

    def close(self) -> None:
        """Close the index; no query may run any more."""
        source = self._source
        if source is not None:
            source.close()  # first, for its thread may be opening something
        with self._lock:
            if self._changer is not None:
                self._changer.close()
            if self._close_index is not None:
                self._close_index()
            self._searcher = self._changer = self._checkpoint = self._close_index = None
            self._source = self._seen = self._refused = None

    def try_to_open(self) -> None:
        """Open the live generation if there is a sound one; one that is refused is logged."""
        before = self._refused
        try:
            self.open()
        except (IndexNotReadyError, EngineUnavailableError):
            pass
        except Exception as error:
            if before is None or before.refused != _reason(error):
                # Of an unforeseen error, where it came from.
                trace = None if isinstance(error, AladinError) else error
                _LOG.error(
                    "the index at %s cannot be opened: %s",
                    *(self.path, _reason(error)),
                    exc_info=trace,
                )

    def searcher(self) -> TwoStageSearcher:
        """Return what answers queries; its index stays open as long as it is referred to.

        Raises:
            IndexNotReadyError: no index is open.
            EngineUnavailableError: the engine that keeps it does not answer.
        """
        self._check_engine()
        if self._searcher is None:
            raise self._not_ready()
        return self._searcher

    def changer(self) -> ItemChanger:
        """Return what adds and removes items.

        Raises:
            IndexNotReadyError: no index is open.
            EngineUnavailableError: the engine that keeps it does not answer.
            GenerationRefusedError: what would be changed is not what answers.
        """
        self._check_engine()
        if self._changer is None:
            raise self._not_ready()
        if self._refused is not None:
            raise GenerationRefusedError
        return self._changer

    def _check_engine(self) -> None:
        """Refuse before any work is done for a request that would only wait."""
        away = None if self._source is None else self._source.away()
        if away is not None:
            raise away

    def _not_ready(self) -> IndexNotReadyError:
        if self._refused is None:
            return IndexNotReadyError("no index is live yet")
        return IndexNotReadyError("the live generation of the index is damaged")

    def _published(self) -> Hashable | None:
        if self._source is not None:
            return self._source.published()
        return "not looked into" if holds_index(self.path) else None

    def _find_source(self) -> IndexSource:
        """Return where the generations come from; what a folder turned out to be, it stays."""
        if self._source is None:
            source = find_source(self.path, self._access, self._device, warm=self._warm)
            self._source = source
        self._source.start(self.try_to_open)
        return self._source

    def _refuse(self, error: Exception) -> None:
        source = self._source
        self._refused = LiveState(
            None, None if source is None else source.live_number(), _reason(error)
        )
        if self._searcher is None and self._fallback is not None and source is not None:
            try:
                self._take_up(self._open_index(source, self._fallback), source)
            except Exception as other:
                reason = _reason(other)
                _LOG.error("generation %d cannot be opened either: %s", self._fallback, reason)

    def _take_up(self, index: SearchBackend, source: IndexSource) -> None:
        """Let new requests be answered from an index."""
        # A copy of the same generation in its place may have other changes.
        is_same = self._searcher is not None and index.manifest == self._searcher.index.manifest
        if is_same and index.place == self._place:
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
            self._changer = ItemChanger(writer, self._limits, self._detector)
        self._checkpoint = index.checkpoint
        if replaces:
            _LOG.info("generation %d is live now", index.generation)

    def _open_index(self, source: IndexSource, generation: int | None = None) -> SearchBackend:
        number = source.live_number() if generation is None else generation
        attempt = None if number is None else Attempt(source.published(), number)
        if attempt is not None and attempt in self._deadly:
            folder = generation_folder(self.path, attempt.generation)
            raise IndexCorruptError(folder, self._deadly[attempt])
        self._on_attempt(attempt)
        try:
            return self._open_without_report(source, generation)
        finally:
            self._on_attempt(None)

    def _open_without_report(self, source: IndexSource, generation: int | None) -> SearchBackend:
        if self._checkpoint is not None:
            try:
                return source.open(self._checkpoint, generation)
            except IndexMismatchError:  # the whole folder was put in the place of another
                pass
        return source.open(generation=generation)


def _reason(error: Exception) -> str:
    """Say why a generation is refused; an unforeseen error says little without its class."""
    if isinstance(error, AladinError):
        return str(error)
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
