"""Two-stage search: candidates by their embeddings, re-ranked by words and regions."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import NamedTuple

from aladin_index.ann.corrected import query_vectors
from aladin_index.items.filters import Filter, parse_filter
from aladin_index.items.tables import StoredItem
from aladin_index.search.box_query import check_boxed, region_fusion, take_box
from aladin_index.search.candidates import ValidSearch, check_query, retrieve
from aladin_index.search.collection import Collection, SearchBackend, SecondStageQuery
from aladin_index.search.deadline import RerankDeadline
from aladin_index.search.exhaustive import rank_everything, takes_all
from aladin_index.search.file_collection import FileCollection
from aladin_index.search.lexical import find_words, rank_with_words
from aladin_index.search.options import SearchOptions
from aladin_index.search.parts import join_parts
from aladin_index.search.presenting import Page, Times, judge, present
from aladin_index.search.query import EncodedParts, Term
from aladin_index.search.region_embedder import LazyEmbedder
from aladin_index.search.rerank import rerank
from aladin_index.search.results import SearchAnswer
from aladin_index.settings import EXACT_ALIGN
from aladin_network.calibration.judging import POOL
from aladin_network.errors import UnknownItemError
from aladin_network.scoring.encoding import Encoding
from aladin_network.types import DIRECTION_OF, MODALITY_OF, TARGETS, Modality, Target

_DEFAULTS = SearchOptions()


class AskedSearch(NamedTuple):
    """Arguments of `TwoStageSearcher.search`, for one search of a batch."""

    query: Term | EncodedParts
    target: Target
    options: SearchOptions = _DEFAULTS
    received_s: float | None = None


# Collections that searches of a batch have in common, by what they search.
SharedCollections = dict[tuple[Target, Filter | None], Collection]


class TwoStageSearcher:
    """Answers queries from one open generation; thread-safe.

    Between a text and images, and between an image and texts, the first stage finds candidates by
    the embeddings, and the second stage orders them by the fusion of both stages' scores. Items of
    one modality have no words and regions to align: the embeddings decide alone, as they do with a
    model whose alignment was not trained, unless a weight of the fusion is given.

    A query of several parts takes the candidates of those that hits have to have or be like, by the
    weighted sum of their embeddings, and orders them by the sum of all parts' scores; see
    `aladin_index.search.parts`.

    If the index is calibrated, hits have probabilities. They are computed from both stages'
    scores, compared with those of the first stage's best items (`POOL`; with a filter,
    the best that pass it), and do not depend on the order or the page.

    Attributes:
        index: The searched index.
        clock: Estimates how long the second stage takes.
    """

    def __init__(self, index: SearchBackend) -> None:
        """Search an index, which must stay open."""
        self.index = index
        manifest = index.manifest
        fusion = manifest.fusion(index.checkpoint.fusion)
        self._candidates = {target: manifest.candidates(target) for target in manifest.targets}
        self._fusions = {direction: fusion.of(direction) for direction in DIRECTION_OF.values()}
        self._is_aligned = index.checkpoint.alignment_trained
        self._embedder = LazyEmbedder(index)
        self.clock = RerankDeadline()

    def search(
        self,
        query: Term | EncodedParts,
        target: Target,
        options: SearchOptions = _DEFAULTS,
        received_s: float | None = None,
    ) -> SearchAnswer:
        """Find the best items for a query.

        Args:
            query: The query or its parts, encoded by the index's model.
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
        (answer,) = self.search_all([AskedSearch(query, target, options, received_s)])
        if isinstance(answer, Exception):
            raise answer
        return answer

    def search_all(self, asked: Sequence[AskedSearch]) -> list[SearchAnswer | Exception]:
        """Answer several searches together.

        Those of one collection, with the same filter, share a call of the first stage, of the
        second stage and of the look-up of the hits. Each answer is that of `search`.

        Returns:
            By place the answer, or the error that `search` would raise.
        """
        began_s = time.monotonic()
        answers: dict[int, SearchAnswer | Exception] = {}
        searches: dict[int, ValidSearch] = {}
        shared: SharedCollections = {}
        for place, (query, target, options, received_s) in enumerate(asked):
            try:
                how = target, options, received_s or began_s, shared
                if isinstance(query, EncodedParts):
                    each = [self.validate(part.query, *how) for part in query.parts]
                    searches[place] = join_parts(query, each)
                else:
                    searches[place] = self.validate(query, *how)
            except Exception as error:
                answers[place] = error
        try:
            found: Sequence[SearchAnswer | Exception] = self._run([*searches.values()], began_s)
        except Exception as error:
            if len(searches) == 1:
                found = [error]
            else:  # it concerns one of them
                found = [self.search_all([asked[place]])[0] for place in searches]
        answers.update(zip(searches, found, strict=True))
        return [answers[place] for place in range(len(asked))]

    def _run(self, searches: Sequence[ValidSearch], began_s: float) -> list[SearchAnswer]:
        """Run both stages and present the hits; a search of all items has no first stage."""
        among_candidates = [
            search for search in searches if not search.is_exhaustive and search.words is None
        ]
        found = retrieve(among_candidates)
        retrieved_s = time.monotonic()
        ranked = zip(found, rerank(among_candidates, found, self.clock), strict=True)
        every = (
            rank_everything(each, self.clock)
            for each in searches
            if each.is_exhaustive and each.words is None
        )
        pages: list[Page] = []
        for search in searches:
            if search.words is not None:
                of_search, page = rank_with_words(search, search.words, self.clock)
            else:
                of_search, page = next(every if search.is_exhaustive else ranked)
            verdict = judge(search, of_search, page)
            kept = page.ranking
            if len(verdict.kept) < len(kept.rows):
                kept = kept.take(verdict.kept)
            pages.append(Page(search, of_search, page, verdict, kept))
        return present(self.index, pages, Times(began_s, retrieved_s, time.monotonic()))

    def validate(
        self,
        query: Term,
        target: Target,
        options: SearchOptions,
        received_s: float,
        shared: SharedCollections | None = None,
    ) -> ValidSearch:
        """Check a query and its options, and collect what the stages need; see `search`.

        Args:
            query: See `search`.
            target: See `search`.
            options: See `search`.
            received_s: See `search`.
            shared: Collections of other searches of the batch, which grow by this one's.
        """
        options.check()
        modality = query.modality or MODALITY_OF[target]
        is_crossing = modality != MODALITY_OF[target]
        parsed = parse_filter(options.filter) if options.filter else None
        collection = None if shared is None else shared.get((target, parsed))
        if collection is None:
            collection = self.index.collection(target, parsed)
            if shared is not None and isinstance(collection, FileCollection):
                shared[target, parsed] = collection
        own = None
        if query.own_id is not None and not is_crossing:
            own = collection.items.by_ids([query.own_id])[0]
        calibration = self.index.manifest.calibration
        direction = DIRECTION_OF[modality]
        fusion = self._fusions[direction]
        # Without training, the regions say nothing: the second stage only runs if it is asked for.
        is_aligned = self._is_aligned or options.fusion is not None
        if query.box is not None:
            query = self.part_of(query, collection, options)
            fusion = fusion if is_crossing else region_fusion(query)
        check_query(query, options, collection, calibration, is_crossing=is_crossing)
        judging = calibration if is_crossing else None
        tokens = query.encoding.tokens[0][query.encoding.mask[0]]
        compares = is_crossing or query.box is not None
        aligns = compares and is_aligned and collection.entry.token_count > 0
        timeout_ms, candidates = options.timeout_ms, options.candidates
        asks_for_all = (candidates or collection.entry.ann.asked) in ("exhaustive", EXACT_ALIGN)
        weight = fusion.weight if options.fusion is None else float(options.fusion)
        reranks, embedding = options.rerank and aligns, query.encoding.embedding[0]
        if collection.entry.corrected:  # the inner product with the biases is the corrected cosine
            width = collection.entry.vector_dim
            embedding = query_vectors(embedding, width, crossing=is_crossing)
        # Bounds are those of words with regions: regions that search photos have none.
        ranks = reranks and is_crossing and weight != 0
        return ValidSearch(
            query=query,
            modality=modality,
            target=target,
            options=options,
            candidates=candidates if isinstance(candidates, int) else self._candidates[target],
            filter=parsed,
            collection=collection,
            embedding=embedding,
            tokens=tokens,
            second_stage=SecondStageQuery(tokens, modality, ranks) if aligns else None,
            is_crossing=is_crossing,
            is_aligned=is_aligned,
            reranks=reranks,
            is_exhaustive=reranks and asks_for_all and takes_all(options, collection),
            direction=direction,
            fusion=fusion,
            weight=weight,
            calibration=judging,
            deadline_s=None if timeout_ms is None else received_s + timeout_ms / 1000,
            pool_size=0 if judging is None or query.box is not None else POOL,
            own_rows=() if own is None else (own.row,),
            received_s=received_s,
            words=find_words(collection, query.text or "") if options.lexical else None,
        )

    def find_item(self, item_id: str) -> tuple[StoredItem, Modality]:
        """Look an item up by its id, among the images first.

        Raises:
            UnknownItemError: If no collection has it.
        """
        _, item, modality = self._find(item_id)
        return item, modality

    def stored_query(self, item_id: str) -> Term:
        """Return the stored encoding of an item as a query; the network does not run.

        Args:
            item_id: Id of the item, of an image or a text.

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

    def part_of(
        self, query: Term, collection: Collection, options: SearchOptions = _DEFAULTS
    ) -> Term:
        """Return the part of a photo that its box holds, as a query.

        Args:
            query: Photo with a box.
            collection: Collection to search.
            options: Options of the search.

        Raises:
            InputError: If the collection cannot be searched by this box.
            EngineUnavailableError: If the vector database does not respond.
        """
        is_aligned = self._is_aligned or options.fusion is not None
        check_boxed(query, options, collection, is_aligned=is_aligned)
        is_crossing = collection.target != "images"
        return take_box(query, self.index, self._embedder, is_crossing=is_crossing)

    def _find(self, item_id: str) -> tuple[Collection, StoredItem, Modality]:
        for target in TARGETS:
            if target in self.index.manifest.targets:
                collection = self.index.collection(target)
                item = collection.items.by_id(item_id)
                if item is not None:
                    return collection, item, MODALITY_OF[target]
        raise UnknownItemError(" and ".join(self.index.manifest.targets), item_id)
