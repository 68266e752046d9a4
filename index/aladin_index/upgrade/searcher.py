"""Searches of an index that is being upgraded: two models answer, on one scale.

The new model scores the items that it has encoded. All others are scored by the old model, or by
the new one's query over a bridge to the old model's encodings, as was chosen by recall
(`aladin_index.upgrade.measuring`). The scores of both are brought to one scale
(`aladin_index.upgrade.scale`) and merged, and each hit says which model scored it.

What needs the live generation as a whole is answered by the old model alone: queries by an item, an
embedding, a part of a photo or several parts, searches by words, probabilities.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple, Protocol

from aladin_index.format.upgrade_methods import RestMethod
from aladin_index.search.backend import Collection, EncodedQuery, SearchBackend
from aladin_index.search.candidates import ValidSearch, retrieve
from aladin_index.search.exhaustive import rank_everything
from aladin_index.search.options import SearchOptions
from aladin_index.search.presenting import Times
from aladin_index.search.rerank import rerank
from aladin_index.search.results import SearchAnswer
from aladin_index.search.searcher import AskedSearch, SharedCollections, TwoStageSearcher
from aladin_index.upgrade.bridge import Bridge
from aladin_index.upgrade.merging import EncodedCollection, RankedHits, merge_hits
from aladin_index.upgrade.scale import ScaleItems
from aladin_network.types import Target


class Successor(SearchBackend, Protocol):
    """What the new model has encoded of an index, as an index that it searches."""

    def over(self, live: Collection) -> EncodedCollection:
        """Return what is encoded of a snapshot of a live collection, with its filter."""
        ...


@dataclass(frozen=True, eq=False)
class UpgradingSide:
    """How one collection is searched by both models.

    Attributes:
        rest: How the items that are not encoded yet are asked.
        bridge: The bridge, if that is the method.
        searcher: Searches them.
        old_scale: The sample of the scale in the old model's encodings.
        new_scale: The sample in the new model's encodings.
    """

    rest: RestMethod
    bridge: Bridge | None
    searcher: TwoStageSearcher
    old_scale: ScaleItems
    new_scale: ScaleItems


class _Pair(NamedTuple):
    """One search by both models, on the same snapshot of a collection."""

    asked: AskedSearch
    old: ValidSearch
    new: ValidSearch
    encoded: EncodedCollection


class _Shared(NamedTuple):
    """Collections that searches of a batch have in common.

    Attributes:
        live: Live collections by what they are.
        encoded: What is encoded of a live collection, by its identity: an item is found by one of
            the models, whatever is encoded meanwhile.
    """

    live: SharedCollections
    encoded: dict[int, EncodedCollection]


class UpgradingSearcher(TwoStageSearcher):
    """Answers queries of an index that is being upgraded; thread-safe.

    Attributes:
        live: Searcher of the live generation.
        successor: Searches what the new model has encoded.
        sides: How each collection is searched.
    """

    def __init__(
        self, live: TwoStageSearcher, successor: Successor, sides: Mapping[Target, UpgradingSide]
    ) -> None:
        """Search by both models.

        Args:
            live: Searcher of the live generation, kept for as long as this one is.
            successor: What the new model has encoded.
            sides: How each collection is searched.
        """
        super().__init__(live.index)
        self.successor = TwoStageSearcher(successor)
        self.live = live
        self._successor = successor
        self.sides = sides

    def asks_both(self, target: Target, options: SearchOptions) -> bool:
        """Whether a text or a photo with these options is answered by both models."""
        is_whole = options.min_probability is not None or bool(options.lexical)
        return target in self.sides and not is_whole

    def over_bridge(self, target: Target, query: EncodedQuery) -> EncodedQuery | None:
        """Return a query for the items that the new model has not encoded yet.

        Args:
            target: The collection to search.
            query: The query, encoded by the new model.

        Returns:
            The query in the terms of the old encodings, or None if the old model has to encode it.
        """
        bridge, entry = self.sides[target].bridge, self.index.manifest.side(target)
        if bridge is None or entry is None:
            return None
        return query._replace(encoding=bridge.query(query.encoding, entry.token_dim))

    def search_all(self, asked: Sequence[AskedSearch]) -> list[SearchAnswer | Exception]:
        """Answer several searches, see `TwoStageSearcher`: those with `by_new` by both models."""
        both: dict[int, AskedSearch] = {}
        for place, each in enumerate(asked):
            if isinstance(each.query, EncodedQuery) and each.query.by_new is not None:
                both[place] = each
        others = [each for place, each in enumerate(asked) if place not in both]
        by_old = iter(super().search_all(others) if others else ())
        mixed = iter(self._search_both([*both.values()]))
        return [next(mixed) if place in both else next(by_old) for place in range(len(asked))]

    def _search_both(self, asked: Sequence[AskedSearch]) -> list[SearchAnswer | Exception]:
        """Answer searches by both models; those of one collection share the first stages."""
        began_s = time.monotonic()
        answers: dict[int, SearchAnswer | Exception] = {}
        pairs: dict[int, _Pair] = {}
        shared = _Shared({}, {})
        for place, each in enumerate(asked):
            try:
                pairs[place] = self._validate_both(each, began_s, shared)
            except Exception as error:
                answers[place] = error
        try:
            found: Sequence[SearchAnswer | Exception] = self._run_both([*pairs.values()], began_s)
        except Exception as error:
            if len(pairs) == 1:
                found = [error]
            else:  # it concerns one of them
                found = [self._search_both([pair.asked])[0] for pair in pairs.values()]
        answers.update(zip(pairs, found, strict=True))
        return [answers[place] for place in range(len(asked))]

    def _validate_both(self, asked: AskedSearch, began_s: float, shared: _Shared) -> _Pair:
        """Check a query for both models; all hits up to the last of the page are wanted."""
        query, target, options, received_s = asked
        assert isinstance(query, EncodedQuery)
        assert query.by_new is not None
        every = replace(options, offset=0, k=options.offset + options.k, sort=None)
        rest = target, every, received_s or began_s
        old = self.sides[target].searcher.validate(query, *rest, shared.live)
        new = self.successor.validate(query.by_new, *rest)
        encoded = shared.encoded.get(id(old.collection))
        if encoded is None:
            encoded = shared.encoded[id(old.collection)] = self._successor.over(old.collection)
        old = replace(old, collection=encoded.rest, calibration=None, pool_size=0)
        return _Pair(asked, old, replace(new, collection=encoded), encoded)

    def _run_both(self, pairs: Sequence[_Pair], began_s: float) -> list[SearchAnswer]:
        by_old = _rank([pair.old for pair in pairs], self.live)
        by_new = _rank([pair.new for pair in pairs], self.successor)
        times = Times(began_s, began_s, time.monotonic())
        answers: list[SearchAnswer] = []
        for pair, old, new in zip(pairs, by_old, by_new, strict=True):
            side = self.sides[pair.asked.target]
            answers.append(
                merge_hits(
                    pair.asked.options,
                    old.scaled(side.searcher.index, side.rest.method, side.old_scale),
                    new.scaled(self._successor, "new", side.new_scale),
                    times,
                    share=pair.encoded.share,
                    is_calibrated=self.index.manifest.calibration is not None,
                )
            )
        return answers


def _rank(searches: Sequence[ValidSearch], searcher: TwoStageSearcher) -> list[RankedHits]:
    """Run both stages of some searches."""
    among = [search for search in searches if not search.is_exhaustive]
    found = retrieve(among)
    ranked = iter(zip(found, rerank(among, found, searcher.clock), strict=True))
    return [
        RankedHits(
            search,
            *(rank_everything(search, searcher.clock) if search.is_exhaustive else next(ranked)),
        )
        for search in searches
    ]
