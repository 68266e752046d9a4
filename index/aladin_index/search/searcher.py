"""Two-stage search: candidates by their embeddings, re-ranked by words and regions.

A search is planned (`plan`), its candidates are found (`candidates`), scored (`score`), ordered
(`order`) and judged (`judge`), and the answer is made (`answer`).
"""

from __future__ import annotations

import time
from collections.abc import Sequence

from aladin_index.items.filters import Filter, parse_filter
from aladin_index.items.tables import StoredItem
from aladin_index.search.answer import Page, Times, answer_all
from aladin_index.search.candidates import find_candidates
from aladin_index.search.collection import Collection, SearchBackend
from aladin_index.search.deadline import RerankDeadline
from aladin_index.search.judge import judge
from aladin_index.search.options import AskedSearch, SearchOptions
from aladin_index.search.order import rank
from aladin_index.search.plan import Plan, Planner
from aladin_index.search.query import Query, Term
from aladin_index.search.results import SearchAnswer
from aladin_index.search.score import score_all
from aladin_network.errors import UnknownItemError
from aladin_network.scoring.encoding import Encoding
from aladin_network.types import MODALITY_OF, TARGETS, Modality, Target

_DEFAULTS = SearchOptions()


# A search of an encoded query.
Search = AskedSearch[Query | Term]
# Collections that searches of a batch have in common, by what they search.
SharedCollections = dict[tuple[Target, Filter | None], Collection]


class TwoStageSearcher:
    """Answers queries from one open generation; thread-safe.

    Between a text and images, and between an image and texts, the first stage finds candidates by
    the embeddings, and the second stage orders them by the fusion of both stages' scores. Items of
    one modality have no words and regions to align: the embeddings decide alone, as they do with a
    model whose alignment was not trained, unless a weight of the fusion is given.

    Attributes:
        index: The searched index.
        clock: Estimates how long the second stage takes.
    """

    def __init__(self, index: SearchBackend) -> None:
        """Search an index, which must stay open."""
        self.index = index
        self.clock = RerankDeadline()
        self._planner = Planner(index)
        self.part_of = self._planner.part_of

    def search(
        self,
        query: Query | Term,
        target: Target,
        options: SearchOptions = _DEFAULTS,
        received_s: float | None = None,
    ) -> SearchAnswer:
        """Find the best items for a query.

        Args:
            query: The query, encoded by the index's model; a term is a query of its own.
            target: The collection to search.
            options: How to search; as many hits as `k`, or fewer if there are no more.
            received_s: When the query was received, by `time.monotonic`, which its time limit and
                the total time count from; None for now.

        Raises:
            NoSuchTargetError: If the index has no such collection.
            InputError: If an option is out of its bounds, the filter is malformed,
                `min_probability` is given although hits have no probability, or a
                text query is to be explained, or searched by words, without its text.
            ShapeError: If the query is not one item of the index's dimensions.
            EngineUnavailableError: If the first stage does not answer.
        """
        (answer,) = self.search_all([AskedSearch(query, target, options, received_s or 0.0)])
        if isinstance(answer, Exception):
            raise answer
        return answer

    def search_all(self, asked: Sequence[Search]) -> list[SearchAnswer | Exception]:
        """Answer several searches together.

        Those of one collection, with the same filter, share a call of the first stage, of the
        second stage and of the look-up of the hits. Each answer is that of `search`.

        Returns:
            By place the answer, or the error that `search` would raise.
        """
        began_s = time.monotonic()
        answers: dict[int, SearchAnswer | Exception] = {}
        plans: dict[int, Plan] = {}
        shared: SharedCollections = {}
        for place, search in enumerate(asked):
            try:
                plans[place] = self.plan(search, search.received_s or began_s, shared)
            except Exception as error:
                answers[place] = error
        try:
            found: Sequence[SearchAnswer | Exception] = self._run([*plans.values()], began_s)
        except Exception as error:
            if len(plans) == 1:
                found = [error]
            else:  # it concerns one of them
                found = [self.search_all([asked[place]])[0] for place in plans]
        answers.update(zip(plans, found, strict=True))
        return [answers[place] for place in range(len(asked))]

    def _run(self, plans: Sequence[Plan], began_s: float) -> list[SearchAnswer]:
        """Run both stages and present the hits."""
        pages: dict[int, Page] = {}
        waiting, retrieved_s, started_s = dict(enumerate(plans)), began_s, began_s
        while waiting:
            candidates = find_candidates([*waiting.values()])
            retrieved_s += time.monotonic() - started_s
            scored = score_all([*waiting.values()], candidates, self.clock)
            for place, found, scores in zip([*waiting], candidates, scored, strict=True):
                plan = waiting.pop(place)
                page = rank(plan, found, scores, self.clock)
                if page.tiles.is_short:
                    waiting[place] = plan.reaching_further()
                    continue
                verdict = judge(plan, found.pool, page)
                if len(verdict.kept) < len(page.ranking.rows):
                    page = page._replace(ranking=page.ranking.take(verdict.kept))
                pages[place] = Page(plan, found, page, verdict)
            started_s = time.monotonic()
        times = Times(began_s, retrieved_s, started_s)
        return answer_all(self.index, [pages[place] for place in range(len(plans))], times)

    def plan(
        self,
        search: Search,
        received_s: float,
        shared: SharedCollections | None = None,
    ) -> Plan:
        """Check a query and its options, and collect what the stages need; see `search`.

        Args:
            search: The search.
            received_s: When it was received, by `time.monotonic`.
            shared: Collections of other searches of the batch, which grow by this one's.
        """
        query, target, options, _ = search
        options.check()
        parsed = parse_filter(options.filter) if options.filter else None
        collection = None if shared is None else shared.get((target, parsed))
        if collection is None:
            collection = self.index.collection(target, parsed)
            if shared is not None and collection.is_shared:
                shared[target, parsed] = collection
        terms = (query,) if isinstance(query, Term) else query
        return self._planner.plan(terms, collection, options, received_s)

    def find_item(self, item_id: str) -> tuple[StoredItem, Modality]:
        """Look an item up by its id, among the images first.

        Raises:
            UnknownItemError: If no collection has it.
        """
        _, item, modality = self._find(item_id)
        return item, modality

    def stored_query(self, item_id: str) -> Term:
        """Return the stored encoding of an item as a term; the network does not run.

        Raises:
            UnknownItemError: If no collection has it.
        """
        began_s = time.perf_counter()
        collection, item, modality = self._find(item_id)
        tokens = collection.tokens(item.row)
        return Term(
            Encoding.of_item(collection.embedding(item.row), tokens),
            modality,
            text=item.text if modality == "text" else None,
            size_px=item.size_px,
            boxes=item.region_boxes,
            own_id=item.id,
            is_stored=True,
            encode_ms=1000 * (time.perf_counter() - began_s),
        )

    def _find(self, item_id: str) -> tuple[Collection, StoredItem, Modality]:
        for target in TARGETS:
            if target in self.index.manifest.targets:
                collection = self.index.collection(target)
                item = collection.items.by_id(item_id)
                if item is not None:
                    return collection, item, MODALITY_OF[target]
        raise UnknownItemError(" and ".join(self.index.manifest.targets), item_id)
