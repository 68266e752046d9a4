"""The index that the service answers from, from the moment there is one."""

from __future__ import annotations

import logging
import threading
from pathlib import Path

from aladin.errors import AladinError, IndexNotReadyError
from index.layout import CURRENT
from index.reader import open_index
from index.searcher import TwoStageSearcher
from service.engine import QueryLimits, SearchEngine

_LOG = logging.getLogger(__name__)


class LiveIndex:
    """Opens an index folder as soon as it has a live generation."""

    def __init__(self, path: Path, limits: QueryLimits) -> None:
        """Open nothing yet.

        Args:
            path: the index folder; it may be empty or missing.
            limits: what a query may cost.
        """
        self.path = path
        self._limits = limits
        self._engine: SearchEngine | None = None
        self._lock = threading.Lock()

    @property
    def is_open(self) -> bool:
        """Whether queries can be answered."""
        return self._engine is not None

    @property
    def is_published(self) -> bool:
        """Whether the folder names a live generation; costs one look at the disk."""
        return (self.path / CURRENT).exists()

    def open(self) -> None:
        """Open the live generation; takes seconds, call it off the event loop.

        Raises:
            IndexNotReadyError: there is none yet.
            SearchIndexError: it is damaged, or does not fit its model.
            CheckpointError: its model cannot be loaded.
        """
        with self._lock:
            if self._engine is None:
                self._engine = SearchEngine(TwoStageSearcher(open_index(self.path)), self._limits)

    def close(self) -> None:
        """Close the index; no query may run any more."""
        with self._lock:
            if self._engine is not None:
                self._engine.close()
                self._engine = None

    def try_to_open(self) -> None:
        """Open the live generation if there is a sound one; a damaged one is logged."""
        try:
            self.open()
        except IndexNotReadyError:
            pass
        except AladinError as error:
            _LOG.error("the index at %s cannot be opened: %s", self.path, error)

    def engine(self) -> SearchEngine:
        """Return what answers queries.

        Raises:
            IndexNotReadyError: no index is open.
        """
        if self._engine is None:
            raise IndexNotReadyError("no index is live yet")
        return self._engine
