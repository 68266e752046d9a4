"""The index that the service answers from: whatever generation is live, from when there is one."""

from __future__ import annotations

import logging
import threading
import time
import weakref
from pathlib import Path
from typing import NamedTuple

from aladin.checkpoint import Checkpoint
from aladin.detectors.base import Detector
from aladin.errors import (
    AladinError,
    GenerationRefusedError,
    IndexMismatchError,
    IndexNotReadyError,
)
from index.devices.search_device import SearchDevice
from index.layout import CURRENT, live_generation
from index.probe import probe_index
from index.reader import SearchIndex, open_index
from index.searcher import TwoStageSearcher
from service.engine import SearchEngine
from service.item_changes import ItemChanger
from service.query_limits import QueryLimits

_LOG = logging.getLogger(__name__)

# What tells one state of CURRENT from another: it is replaced, never written to.
_State = tuple[int, int]

# A refused generation is tried again, for the fault may have been the machine's: no memory, no
# descriptors, files that were still on their way. After so long, and twice as long each time.
_FIRST_RETRY_S, _LONGEST_RETRY_S = 1.0, 60.0


class LiveState(NamedTuple):
    """What an index folder is answered from, and what not.

    Attributes:
        generation: that answers; None: none does.
        refused_generation: the live one, where it is not what answers and has a number.
        refused: why the live one is not what answers; None where it is.
    """

    generation: int | None
    refused_generation: int | None = None
    refused: str | None = None


class LiveIndex:
    """Opens an index folder as soon as it has a live generation, and every later one beside it.

    A generation is tried before it answers. One that is unsound is refused, and the one before
    stays; it takes no changes meanwhile, which nobody would see once it is put right.

    A search keeps the engine that it began with; the index behind an engine is closed when
    nothing refers to the engine any more.
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
    ) -> None:
        """Open nothing yet.

        Args:
            path: the index folder; it may be empty or missing.
            limits: what a query may cost.
            device: where the network and the searches go; None: the processor.
            warm: have each generation's files read into memory when it is opened.
            fallback: a generation to begin with should the live one be refused.
            detector: finds the regions of photos that are added, for models that read regions.
        """
        self.path = path
        self._device = device
        self._warm = warm
        self._limits = limits
        self._fallback = fallback
        self._detector = detector
        self._engine: SearchEngine | None = None
        self._changer: ItemChanger | None = None
        self._checkpoint: Checkpoint | None = None
        self._close_index: weakref.finalize[[], SearchEngine] | None = None
        self._seen: _State | None = None
        self._refused: LiveState | None = None
        self._retry_at_s = self._retry_s = 0.0
        self._lock = threading.Lock()

    @property
    def is_current(self) -> bool:
        """Whether there is nothing to open; costs one look at the disk."""
        state = self._state()
        if state is None:
            return True
        if state != self._seen:
            return False
        return self._refused is None or time.monotonic() < self._retry_at_s

    @property
    def state(self) -> LiveState:
        """What answers, and what was refused."""
        engine, refused = self._engine, self._refused
        generation = None if engine is None else engine.manifest.generation
        if refused is None:
            return LiveState(generation)
        return refused._replace(generation=generation)

    def open(self) -> None:
        """Open the live generation, unless it is open; takes a moment, call it off the event loop.

        Where it is unsound, the one that is open stays.

        Raises:
            IndexNotReadyError: there is none yet.
            SearchIndexError: it is damaged, or does not fit its model.
            CheckpointError: its model cannot be loaded.
        """
        with self._lock:
            if self.is_current and self._seen is not None:
                return
            state = self._state()
            if state != self._seen:
                self._retry_s = _FIRST_RETRY_S
            # Before it is tried, and not after: meanwhile others go on with what there is.
            self._retry_at_s = time.monotonic() + self._retry_s
            self._retry_s = min(2 * self._retry_s, _LONGEST_RETRY_S)
            try:
                self._take_up(self._open_index())
                self._refused = None
            except IndexNotReadyError:
                raise
            except AladinError as error:
                self._refuse(error)
                raise
            finally:
                # Not before: requests that come now have to wait for what is being opened.
                self._seen = state

    def close(self) -> None:
        """Close the index; no query may run any more."""
        with self._lock:
            if self._changer is not None:
                self._changer.close()
            if self._close_index is not None:
                self._close_index()
            self._engine = self._changer = self._checkpoint = self._close_index = None
            self._seen = self._refused = None

    def try_to_open(self) -> None:
        """Open the live generation if there is a sound one; one that is refused is logged."""
        before = self._refused
        try:
            self.open()
        except IndexNotReadyError:
            pass
        except AladinError as error:
            if before is None or before.refused != str(error):
                _LOG.error("the index at %s cannot be opened: %s", self.path, error)

    def engine(self) -> SearchEngine:
        """Return what answers queries; its index stays open as long as it is referred to.

        Raises:
            IndexNotReadyError: no index is open.
        """
        if self._engine is None:
            raise self._not_ready()
        return self._engine

    def changer(self) -> ItemChanger:
        """Return what adds and removes items.

        Raises:
            IndexNotReadyError: no index is open.
            GenerationRefusedError: what would be changed is not what answers.
        """
        if self._changer is None:
            raise self._not_ready()
        if self._refused is not None:
            raise GenerationRefusedError
        return self._changer

    def _not_ready(self) -> IndexNotReadyError:
        if self._refused is None:
            return IndexNotReadyError("no index is live yet")
        return IndexNotReadyError("the live generation of the index is damaged")

    def _refuse(self, error: AladinError) -> None:
        try:
            number = live_generation(self.path)
        except AladinError:
            number = None
        self._refused = LiveState(None, number, str(error))
        if self._engine is None and self._fallback is not None:
            try:
                self._take_up(self._open_index(self._fallback))
            except AladinError as other:
                _LOG.error("generation %d cannot be opened either: %s", self._fallback, other)

    def _take_up(self, index: SearchIndex) -> None:
        """Let new requests be answered from an index, if it proves sound."""
        if self._engine is not None and index.manifest == self._engine.manifest:
            index.close()
            return
        try:
            probe_index(index)
        except BaseException:
            index.close()
            raise
        if self._warm:
            index.warm()
        replaces = self._engine is not None
        self._engine = SearchEngine(TwoStageSearcher(index), self._limits)
        self._close_index = weakref.finalize(self._engine, index.close)
        if self._changer is None or self._checkpoint is not index.checkpoint:
            if self._changer is not None:
                self._changer.close()
            self._changer = ItemChanger(
                self.path, index.manifest.model.id, self._limits, self._detector
            )
        self._checkpoint = index.checkpoint
        if replaces:
            _LOG.info("generation %d is live now", index.generation)

    def _open_index(self, generation: int | None = None) -> SearchIndex:
        if self._checkpoint is not None:
            try:
                return open_index(
                    self.path,
                    checkpoint=self._checkpoint,
                    device=self._device,
                    generation=generation,
                )
            except IndexMismatchError:  # the whole folder was put in the place of another
                pass
        return open_index(self.path, device=self._device, generation=generation)

    def _state(self) -> _State | None:
        try:
            state = (self.path / CURRENT).stat()
        except OSError:
            return None
        return state.st_ino, state.st_mtime_ns
