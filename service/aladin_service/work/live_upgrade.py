"""The upgrade of a live index to another model, opened while the old model answers.

Once it is open, queries are encoded by the new model and, where there is no bridge, by the old one.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence

from aladin_index.devices.search_device import SearchDevice
from aladin_index.format.upgrade_plan import UpgradePlan
from aladin_index.search.backend import EncodedQuery, SearchBackend
from aladin_index.search.searcher import TwoStageSearcher
from aladin_index.upgrade.opening import find_upgrade, load_successor, open_upgrade
from aladin_index.upgrade.searcher import UpgradingSearcher
from aladin_network.checkpoint_files import Checkpoint
from aladin_network.errors import AladinError
from aladin_service.search.job import PhotoQuery, PlainQuery, SearchJob, TextQuery
from aladin_service.search.parts import Encoded, Encoder, encode_with_parts

_LOG = logging.getLogger(__name__)


class LiveUpgrade:
    """Opens the upgrade of a generation on a thread of its own; thread-safe.

    Loading a network takes seconds, in which no query is to wait: the old model answers alone until
    the new one is loaded. If it cannot be loaded, that is logged, and the old one goes on.

    Attributes:
        opened: Answers in place of its `live` searcher; None while there is no upgrade to answer.
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
        self.opened: UpgradingSearcher | None = None
        self._warm_up = warm_up
        self._lock = threading.Lock()
        self._loading = threading.Lock()
        self._followed: tuple[TwoStageSearcher, UpgradePlan] | None = None
        self._loaded: Checkpoint | None = None
        self._logged = ""

    @property
    def checkpoint(self) -> Checkpoint | None:
        """The new model if it is loaded, which the next generation will be of."""
        return self._loaded

    def follow(self, live: TwoStageSearcher) -> None:
        """Look for an upgrade of a generation, and open it on a thread; to be called one at a time.

        Args:
            live: Searcher of the live generation.
        """
        plan = None
        try:
            plan = find_upgrade(live.index)
        except AladinError as error:
            self._log(error)
        if plan is None:  # there is none, or it was given up
            self.close()
            return
        with self._lock:
            self._followed = live, plan
        threading.Thread(target=self._open, args=(live, plan), name="upgrade", daemon=True).start()

    def close(self) -> None:
        """Forget the upgrade; a thread that is still loading a network opens nothing."""
        with self._lock:
            self._followed = self.opened = self._loaded = None

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
                    if self._followed != (live, plan):  # another generation, or given up
                        return
                    self._loaded, self.opened = checkpoint, opened
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


def encode_for_both(
    encoder: Encoder,
    searcher: UpgradingSearcher,
    jobs: Sequence[SearchJob],
    is_wanted: Callable[[int], bool],
    until_s: Sequence[float],
) -> list[Encoded | Exception | None]:
    """Encode queries for the models that are to answer them; see `QueryEncoder.encode`.

    Texts and photos are encoded by the new model and, unless there is a bridge, by the old one. All
    other queries are encoded by the old model alone, and so is a text or a photo that the new one
    cannot encode: it was not refused before the upgrade, and is not now.

    Args:
        encoder: Encodes the queries.
        searcher: Searcher of the index.
        jobs: Searches, at least one.
        is_wanted: Tells whether the search at a place is still awaited.
        until_s: Deadline of each search.

    Returns:
        By place the encoded query, or why there is none. `EncodedQuery.by_new` is set where the new
        model answers, too.
    """
    asked: dict[int, PlainQuery] = {}
    for place, job in enumerate(jobs):
        query = job.query
        if isinstance(query, PhotoQuery) and query.box is not None:
            continue
        if isinstance(query, TextQuery | PhotoQuery) and searcher.asks_both(
            job.target, job.options
        ):
            asked[place] = query
    by_new: dict[int, EncodedQuery] = {}
    found: dict[int, Encoded | Exception | None] = {}
    if asked:
        places = [*asked]
        deadlines = [until_s[place] for place in places]
        wanted = _at(places, is_wanted)
        encoded = encoder.encode(searcher.successor, [*asked.values()], wanted, deadlines)
        for place, each in zip(places, encoded, strict=True):
            if isinstance(each, EncodedQuery):
                by_new[place] = each
                over_bridge = searcher.over_bridge(jobs[place].target, each)
                if over_bridge is not None:
                    found[place] = over_bridge._replace(by_new=each)
    rest = [place for place in range(len(jobs)) if place not in found]
    if rest:
        queries = [jobs[place].query for place in rest]
        deadlines = [until_s[place] for place in rest]
        by_old = encode_with_parts(encoder, searcher, queries, _at(rest, is_wanted), deadlines)
        for place, each in zip(rest, by_old, strict=True):
            if isinstance(each, EncodedQuery) and place in by_new:
                each = each._replace(
                    by_new=by_new[place], encode_ms=each.encode_ms + by_new[place].encode_ms
                )
            found[place] = each
    return [found[place] for place in range(len(jobs))]


def _at(places: Sequence[int], is_wanted: Callable[[int], bool]) -> Callable[[int], bool]:
    return lambda number: is_wanted(places[number])
