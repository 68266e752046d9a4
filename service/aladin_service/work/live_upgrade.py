"""The upgrade of a live index to another model, opened while the old model answers."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from aladin_index.devices.search_device import SearchDevice
from aladin_index.format.upgrade_plan import UpgradePlan
from aladin_index.search.backend import SearchBackend
from aladin_index.search.searcher import TwoStageSearcher
from aladin_index.upgrade.opening import find_upgrade, load_successor, open_upgrade
from aladin_index.upgrade.searcher import UpgradingSearcher
from aladin_network.checkpoint_files import Checkpoint
from aladin_network.errors import AladinError

_LOG = logging.getLogger(__name__)


class LiveUpgrade:
    """Opens the upgrade of a generation on a thread of its own; thread-safe.

    Loading a network takes seconds, in which no query is to wait: the old model answers alone until
    the new one is loaded. If it cannot be loaded, that is logged, and the old one goes on.
    """

    def __init__(
        self, device: SearchDevice | None, warm_up: Callable[[SearchBackend], None]
    ) -> None:
        """Follow no generation yet.

        Args:
            device: Device of the network, or None for the CPU.
            warm_up: Called with what the new model searches before it answers.
        """
        self._device = "cpu" if device is None else device.device
        self._warm_up = warm_up
        self._lock = threading.Lock()
        self._loading = threading.Lock()
        self._live: TwoStageSearcher | None = None
        self._opened: UpgradingSearcher | None = None
        self._loaded: Checkpoint | None = None
        self._logged = ""

    def searcher(self, live: TwoStageSearcher) -> TwoStageSearcher:
        """Return what answers in place of the searcher of a generation.

        Args:
            live: Searcher of the live generation.
        """
        opened = self._opened
        return opened if opened is not None and self._live is live else live

    @property
    def checkpoint(self) -> Checkpoint | None:
        """The new model if it is loaded, which the next generation will be of."""
        return self._loaded

    def follow(self, live: TwoStageSearcher) -> None:
        """Look for an upgrade of a generation, and open it on a thread; to be called one at a time.

        Args:
            live: Searcher of the live generation.
        """
        index = live.index
        with self._lock:
            if self._live is not live:
                self._live, self._opened = live, None
        try:
            plan = find_upgrade(index)
        except AladinError as error:
            self._log(error)
            return
        if plan is None:  # there is none, or it was given up
            with self._lock:
                self._opened = self._loaded = None
            return
        threading.Thread(target=self._open, args=(live, plan), name="upgrade", daemon=True).start()

    def close(self) -> None:
        """Forget the upgrade; a thread that is still loading a network opens nothing."""
        with self._lock:
            self._live = self._opened = self._loaded = None

    def _open(self, live: TwoStageSearcher, plan: UpgradePlan) -> None:
        try:
            with self._loading:
                checkpoint = self._loaded
                if checkpoint is None or checkpoint.model_id != plan.model.id:
                    checkpoint = load_successor(live.index.path, plan, self._device)
                opened = open_upgrade(live, plan, checkpoint)
                if opened is not None:
                    self._warm_up(opened.successor.index)
                with self._lock:
                    if self._live is not live:
                        return
                    self._loaded, self._opened = checkpoint, opened
            if opened is not None:
                _LOG.info("an upgrade of generation %d: both models answer", live.index.generation)
        except Exception as error:
            self._log(error)

    def _log(self, error: Exception) -> None:
        """Log once why the new model does not answer."""
        if str(error) != self._logged:
            self._logged = str(error)
            trace = None if isinstance(error, AladinError) else error
            _LOG.error("the old model answers alone: %s", error, exc_info=trace)
