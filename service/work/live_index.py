"""The index that the service answers from: whatever generation is live, from when there is one."""

from __future__ import annotations

import logging
import threading
import weakref
from pathlib import Path

from aladin.checkpoint import Checkpoint
from aladin.errors import AladinError, IndexMismatchError, IndexNotReadyError
from index.devices.search_device import SearchDevice
from index.layout import CURRENT
from index.reader import SearchIndex, open_index
from index.searcher import TwoStageSearcher
from service.engine import QueryLimits, SearchEngine
from service.item_changes import ItemChanger

_LOG = logging.getLogger(__name__)

# What tells one state of CURRENT from another: it is replaced, never written to.
_State = tuple[int, int]


class LiveIndex:
    """Opens an index folder as soon as it has a live generation, and every later one beside it.

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
    ) -> None:
        """Open nothing yet.

        Args:
            path: the index folder; it may be empty or missing.
            limits: what a query may cost.
            device: where the network and the searches go; None: the processor.
            warm: have each generation's files read into memory when it is opened.
        """
        self.path = path
        self._device = device
        self._warm = warm
        self._limits = limits
        self._engine: SearchEngine | None = None
        self._changer: ItemChanger | None = None
        self._checkpoint: Checkpoint | None = None
        self._close_index: weakref.finalize[[], SearchEngine] | None = None
        self._seen: _State | None = None
        self._lock = threading.Lock()

    @property
    def is_current(self) -> bool:
        """Whether there is nothing to open; costs one look at the disk."""
        state = self._state()
        return state is None or (self._engine is not None and state == self._seen)

    def open(self) -> None:
        """Open the live generation, unless it is open; takes a moment, call it off the event loop.

        Where another one is open already and the new one is damaged, the old one stays.

        Raises:
            IndexNotReadyError: there is none yet.
            SearchIndexError: it is damaged, or does not fit its model.
            CheckpointError: its model cannot be loaded.
        """
        with self._lock:
            state = self._state()
            if self._engine is not None and state == self._seen:
                return
            try:
                self._take_up(self._open_index())
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
            self._seen = None

    def try_to_open(self) -> None:
        """Open the live generation if there is a sound one; a damaged one is logged."""
        try:
            self.open()
        except IndexNotReadyError:
            pass
        except AladinError as error:
            _LOG.error("the index at %s cannot be opened: %s", self.path, error)

    def engine(self) -> SearchEngine:
        """Return what answers queries; its index stays open as long as it is referred to.

        Raises:
            IndexNotReadyError: no index is open.
        """
        if self._engine is None:
            raise IndexNotReadyError("no index is live yet")
        return self._engine

    def changer(self) -> ItemChanger:
        """Return what adds and removes items.

        Raises:
            IndexNotReadyError: no index is open.
        """
        if self._changer is None:
            raise IndexNotReadyError("no index is live yet")
        return self._changer

    def _take_up(self, index: SearchIndex) -> None:
        """Let new requests be answered from an index."""
        if self._engine is not None and index.manifest == self._engine.manifest:
            index.close()
            return
        if self._warm:
            index.warm()
        replaces = self._engine is not None
        self._engine = SearchEngine(TwoStageSearcher(index), self._limits)
        self._close_index = weakref.finalize(self._engine, index.close)
        if self._changer is None or self._checkpoint is not index.checkpoint:
            if self._changer is not None:
                self._changer.close()
            self._changer = ItemChanger(self.path, index.manifest.model.id, self._limits)
        self._checkpoint = index.checkpoint
        if replaces:
            _LOG.info("generation %d is live now", index.generation)

    def _open_index(self) -> SearchIndex:
        if self._checkpoint is not None:
            try:
                return open_index(self.path, checkpoint=self._checkpoint, device=self._device)
            except IndexMismatchError:  # the whole folder was put in the place of another
                pass
        return open_index(self.path, device=self._device)

    def _state(self) -> _State | None:
        try:
            state = (self.path / CURRENT).stat()
        except OSError:
            return None
        return state.st_ino, state.st_mtime_ns
