"""Evaluation of both stages through the searcher, query by query, as the service searches.

Every caption is a query for its image, and every image for its captions.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import torch
from jaxtyping import Int
from torch import Tensor

from aladin_index.search.collection import Collection
from aladin_index.search.options import SearchOptions
from aladin_index.search.query import Term
from aladin_index.search.results import SearchHit
from aladin_index.search.searcher import TwoStageSearcher
from aladin_network.errors import InputError, brief
from aladin_network.inference import encode_texts
from aladin_network.scoring.encoding import Encoding
from aladin_network.scoring.metrics import Ranks, RetrievalMetrics, summarize
from aladin_network.types import Modality, NullProgress, Progress, Target

_TEXTS_AT_A_TIME = 64

_TOP = 10

# Receives the direction and the candidates of a query, best first.


class EvaluationText(NamedTuple):
    """A caption as a query for its image.

    Attributes:
        id: Id of the text in the index.
        text: Text of the caption.
        image_id: Id of its image in the index.
    """

    id: str
    text: str
    image_id: str


class Question(NamedTuple):
    """A query and its right answers.

    Attributes:
        query: Encoding of one item.
        right: IDs of the right answers, at least one.
    """

    query: Encoding
    right: set[str]


class EvaluationQueries(NamedTuple):
    """The questions of both directions.

    Attributes:
        texts: One question per caption; a caption of 13 words of 128 values takes 8 kB.
        images: One question per image that has a caption.
        image_of_text: Index in `images` of the image of each of `texts`.
    """

    texts: list[Question]
    images: list[Question]
    image_of_text: Int[Tensor, " texts"]


def evaluation_queries(
    searcher: TwoStageSearcher,
    image_ids: Sequence[str],
    texts: Sequence[EvaluationText],
    progress: Progress | None = None,
) -> EvaluationQueries:
    """Make the questions: texts are encoded like user queries, images use stored encodings.

    Args:
        searcher: Searcher of an index with images and texts.
        image_ids: IDs of the images; images without a caption are not used as queries.
        texts: Captions, any number per image.
        progress: Progress, advanced question by question.

    Raises:
        NoSuchTargetError: If the index has no images or no texts.
        InputError: If there is nothing to evaluate, or an id is not in the index or not among
            `image_ids`.
    """
    if not image_ids or not texts:
        raise InputError(f"nothing to evaluate: {len(image_ids)} images, {len(texts)} texts")
    _check_known(searcher.index.collection("images"), image_ids)
    _check_known(searcher.index.collection("texts"), (text.id for text in texts))
    captions: dict[str, set[str]] = {image_id: set() for image_id in image_ids}
    for text in texts:
        if text.image_id not in captions:
            raise InputError(
                f"text {brief(text.id)} belongs to {brief(text.image_id)}, which is not among the "
                "images"
            )
        captions[text.image_id].add(text.id)
    asking = [image_id for image_id in image_ids if captions[image_id]]
    progress = progress or NullProgress()
    progress.start(len(texts) + len(asking), "questions encoded")

    of_texts: list[Question] = []
    for start in range(0, len(texts), _TEXTS_AT_A_TIME):
        batch = texts[start : start + _TEXTS_AT_A_TIME]
        encoded = encode_texts(
            searcher.index.checkpoint.model, [text.text for text in batch], truncate=True
        )
        for place, text in enumerate(batch):
            of_texts.append(Question(encoded.item(place), {text.image_id}))
        progress.advance(len(batch))
    of_images: list[Question] = []
    for image_id in asking:
        of_images.append(Question(_stored_image(searcher, image_id), captions[image_id]))
        progress.advance()
    place_of = {image_id: place for place, image_id in enumerate(asking)}
    image_of_text = torch.tensor([place_of[text.image_id] for text in texts])
    return EvaluationQueries(of_texts, of_images, image_of_text)


def _stored_image(searcher: TwoStageSearcher, image_id: str) -> Encoding:
    query = searcher.stored_query(image_id)
    assert query.modality == "image"  # `stored_query` looks among the images first
    return query.encoding


def _check_known(collection: Collection, ids: Iterable[str]) -> None:
    # Only these: the index may have many times as many items as are evaluated.
    wanted = list(ids)
    known = collection.items.by_ids(wanted)
    unknown = [item_id for item_id, item in zip(wanted, known, strict=True) if item is None]
    if unknown:
        raise InputError(
            f"{len(unknown)} of the {collection.target} to evaluate are not in the index, "
            f"e.g. {brief(unknown[0])}"
        )


class DirectionReport(NamedTuple):
    """Agreement and speed of one direction in production form.

    Attributes:
        agreement: Share of the exhaustive order's top 10, by the same score, that is in the top 10
            as served; mean over the queries that were compared.
        compared: Number of queries that were compared.
        median_ms: Median time of both stages, without encoding the query and looking up the hits.
    """

    agreement: float
    compared: int
    median_ms: float


class ServedEvaluation(NamedTuple):
    """Quality and speed in production form.

    Attributes:
        ranks: Ranks of the right answers; an answer outside the candidates ranks last.
        metrics: Metrics of these ranks.
        text_to_image: Report of searches for images by text.
        image_to_text: Report of searches for texts by image.
    """

    ranks: Ranks
    metrics: RetrievalMetrics
    text_to_image: DirectionReport
    image_to_text: DirectionReport


def evaluate_index(
    searcher: TwoStageSearcher,
    queries: EvaluationQueries,
    *,
    num_candidates: int | None = None,
    fusion: float | None = None,
    compared_queries: int = 200,
    progress: Progress | None = None,
) -> ServedEvaluation:
    """Query an index for every image's captions and every caption's image.

    All items of the index compete, also those that are not part of the evaluation.

    Args:
        searcher: Searcher of an index with images and texts.
        queries: Image and text queries of this index.
        num_candidates: Number of candidates of the first stage, or None for the index's default.
        fusion: Weight of the alignment score, or None for the one chosen on validation data.
        compared_queries: Number of queries per direction for the agreement; an exhaustive search is
            slow.
        progress: Progress, advanced query by query.
    """
    progress = progress or NullProgress()
    progress.start(len(queries.texts) + len(queries.images), "queries")
    by_text = _Direction(searcher, "text", "images", num_candidates, fusion)
    by_text.ask_all(queries.texts, compared_queries, progress)
    by_image = _Direction(searcher, "image", "texts", num_candidates, fusion)
    by_image.ask_all(queries.images, compared_queries, progress)
    ranks = Ranks(torch.tensor(by_text.ranks), torch.tensor(by_image.ranks))
    return ServedEvaluation(ranks, summarize(ranks), by_text.report(), by_image.report())


class _Direction:
    """Collects the search results of one direction."""

    def __init__(
        self,
        searcher: TwoStageSearcher,
        modality: Modality,
        target: Target,
        num_candidates: int | None,
        fusion: float | None,
    ) -> None:
        self._searcher = searcher
        self._modality: Modality = modality
        self._target: Target = target
        default = searcher.index.manifest.candidates(target)
        self._num_candidates = num_candidates or default
        self._fusion = fusion
        self._count = searcher.index.collection(target).count
        self._times_ms: list[float] = []
        self._agreements: list[float] = []
        self.ranks: list[int] = []

    def ask_all(
        self, questions: Sequence[Question], compared_queries: int, progress: Progress
    ) -> None:
        """Run all questions, and compare an evenly spaced subset with exhaustive search."""
        step = max(1, len(questions) // compared_queries)
        for place, (query, right) in enumerate(questions):
            self._ask(query, right, compare=place % step == 0)
            progress.advance()

    def report(self) -> DirectionReport:
        """Summarise the direction."""
        return DirectionReport(
            agreement=statistics.fmean(self._agreements),
            compared=len(self._agreements),
            median_ms=statistics.median(self._times_ms),
        )

    def _ask(self, query: Encoding, right: set[str], *, compare: bool) -> None:
        """Search once, and a second time exhaustively if the results are compared."""
        hits, took_ms = self._search(query, max(_TOP, self._num_candidates), self._num_candidates)
        self._times_ms.append(took_ms)
        self.ranks.append(rank_as_served(hits[: self._num_candidates], right, self._count))
        if compare:
            exhaustive, _ = self._search(query, _TOP, self._count)
            wanted = {hit.id for hit in exhaustive}
            found = {hit.id for hit in hits[:_TOP]}
            self._agreements.append(len(wanted & found) / len(wanted))

    def _search(self, query: Encoding, k: int, candidates: int) -> tuple[list[SearchHit], float]:
        result = self._searcher.search(
            Term(query, self._modality),
            self._target,
            SearchOptions(k=k, candidates=candidates, fusion=self._fusion),
        )
        return result.hits, result.took_ms.retrieve + result.took_ms.rerank


def rank_as_served(hits: Sequence[SearchHit], right: set[str], count: int) -> int:
    """Return the 0-based rank of the best right answer among `count` items; ties rank it lower.

    Without a right answer among the hits, all wrong ones rank before it.
    """
    best = max((hit.score for hit in hits if hit.id in right), default=None)
    if best is None:
        return count - len(right)
    return sum(hit.score >= best and hit.id not in right for hit in hits)
