"""Quality and time of two-stage search by number of candidates; tokens are scored once."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from numpy.typing import NDArray
from torch import Tensor

from aladin_index.measure.curve_points import (
    RULES,
    CandidateCurve,
    CurvePoint,
    DirectionQuality,
    Draws,
    PhotoBootstrap,
    Quality,
    Rule,
    SearchTime,
    SearchTimes,
    search_times,
)
from aladin_index.measure.evaluate import EvaluationQueries, Question
from aladin_index.search.collection import Collection, FirstStageQuery
from aladin_index.search.order import Ranking, ordered_page
from aladin_index.search.searcher import TwoStageSearcher
from aladin_network.errors import InputError
from aladin_network.scoring.encoding import Encoding
from aladin_network.scoring.fusion import DirectionFusion
from aladin_network.scoring.metrics import Ranks
from aladin_network.types import DIRECTION_OF, Modality, NullProgress, Progress, Target

# Tolerance of a cosine: the ANN and the scores of items beyond its candidates are summed in
# different orders.
_ROUNDING = 1e-6

# Between matching alone (one candidate) and the exhaustive order (all candidates).
DEFAULT_NUMBERS = (2, 5, 10, 20, 50, 100, 200, 500)

_TOP = 10
# One more item is listed to detect a tie at the tenth place.
_LISTED = _TOP + 1
_TIMED_QUERIES = 200


class FirstStageOrder(NamedTuple):
    """The first stage's result for a page.

    Attributes:
        rows: (items,) int64, best first: whole blocks of candidates.
        match: (items,) float32, their cosines.
        block: Number of candidates in a block.
    """

    rows: NDArray[np.int64]
    match: NDArray[np.float32]
    block: int


class ListedOrders:
    """Computes what `TwoStageSearcher.search` lists for a query with any candidates.

    The first stage is asked anew for every number, as a search asks it: what an ANN finds depends
    on how much it is asked for, and the last bits of a cosine on how it is computed. A pair's
    alignment score depends on neither, and takes nearly all of the time: every item is scored
    once, and looked up from then on.
    """

    def __init__(
        self, collection: Collection, query: Encoding, modality: Modality, listed: int
    ) -> None:
        """Score every item of a collection."""
        self._collection = collection
        self._listed = listed
        self._embedding = query.embedding[0]
        tokens = query.item_tokens(0)
        count = collection.count
        everything = collection.order(FirstStageQuery(self._embedding, count, count)).rows
        # Rows may be arbitrary numbers, see `Collection`.
        self._rows = np.sort(everything)
        self._align = collection.align(tokens, modality, self._rows)

    def first_stage(self, num_candidates: int) -> FirstStageOrder:
        """Request as many blocks of candidates from the first stage as the page spans."""
        total = self._collection.count
        block = min(num_candidates, total)
        stop = min(-(-self._listed // block) * block, total)
        query = FirstStageQuery(self._embedding, stop, block)
        return FirstStageOrder(*self._collection.order(query)[:3])

    def page(self, order: FirstStageOrder, fusion: DirectionFusion, weight: float) -> Ranking:
        """Order the candidates by the fusion, and return the page."""
        align = self._align[np.searchsorted(self._rows, order.rows)]
        total = fusion.combine(align, order.match, weight)
        blocks = np.arange(len(total)) // order.block
        best = ordered_page(total, order.match, blocks, slice(0, self._listed))
        return Ranking(order.rows[best], total[best], order.match[best], 1 + best)


def listed_rank(page: Ranking, right: NDArray[np.int64], block: int) -> int:
    """Return the 0-based rank of the best right answer on a page; ties rank it lower.

    Two items tie where what put one before the other tells no difference: within a block of
    candidates the score, between two blocks the cosine. So one candidate at a time ranks as
    the first stage alone does, and all at a time as the exhaustive order.
    """
    places = np.arange(len(page.rows))
    is_right = np.isin(page.rows, right)
    ranks = [len(places)]
    for place in np.flatnonzero(is_right):
        together = places // block == place // block
        level = np.where(
            together,
            page.scores == page.scores[place],
            np.abs(page.match - page.match[place]) <= _ROUNDING,
        )
        ranks.append(int(np.count_nonzero(((places < place) | level) & ~is_right)))
    return min(ranks)


def check_numbers(numbers: Sequence[int]) -> None:
    """Reject numbers of candidates that do not form a curve.

    Raises:
        InputError: If the list is empty, a number is below 1, or the numbers are not ascending.
    """
    if not numbers or numbers[0] < 1 or any(low >= high for low, high in pairwise(numbers)):
        shown = ",".join(map(str, numbers)) or "none"
        raise InputError(f"numbers of candidates: expected ascending ones from 1, got {shown}")


def candidate_curve(
    searcher: TwoStageSearcher,
    queries: EvaluationQueries,
    numbers: Sequence[int] = DEFAULT_NUMBERS,
    progress: Progress | None = None,
) -> CandidateCurve:
    """Measure two-stage search with several numbers of candidates.

    Every item is scored for every question: seconds for 1,000 images and 5,000 texts, hours for
    a million of either.

    Args:
        searcher: Searcher of an index with images and texts, and their tokens.
        queries: Image and text queries of this index.
        numbers: Numbers of candidates, ascending, at least 1. One candidate, the index's defaults
            and all items are measured in addition. A number above the number of items means all
            items.
        progress: Receives the progress of the queries, and of the timed queries.

    Raises:
        InputError: If the numbers are not valid, or the index has no tokens.
    """
    check_numbers(numbers)
    progress = progress or NullProgress()
    by_text = _Direction(searcher, "text", "images", queries.texts)
    by_image = _Direction(searcher, "image", "texts", queries.images)
    directions = (by_text, by_image)
    most = max(direction.items for direction in directions)
    defaults = {direction.default for direction in directions}
    measured = sorted({1, most, *(min(each, most) for each in (*numbers, *defaults))})
    progress.start(len(queries.texts) + len(queries.images), "questions")
    found = [direction.find(measured, progress) for direction in directions]
    progress.start(sum(len(each.timed) for each in directions), "timed questions")
    times = [direction.time(measured, progress) for direction in directions]
    bootstrap = PhotoBootstrap(queries.image_of_text)
    qualities = {rule: _qualities(bootstrap, *(each[rule] for each in found)) for rule in RULES}
    return CandidateCurve(
        points=[
            CurvePoint(number, fitted, papers, SearchTimes(*both))
            for number, fitted, papers, both in zip(
                measured,
                qualities["fitted"],
                qualities["papers"],
                zip(*times, strict=True),
                strict=True,
            )
        ],
        default_candidates={"text_to_image": by_text.default, "image_to_text": by_image.default},
        items={"text_to_image": by_text.items, "image_to_text": by_image.items},
        texts=len(queries.texts),
        images=len(queries.images),
        resamples=bootstrap.resamples,
        timed=max(len(each.timed) for each in directions),
    )


class _Found(NamedTuple):
    """Results of one direction with one fusion rule.

    Attributes:
        ranks: Ranks of the right answers; `_LISTED` represents all that are not listed.
        agreement: Mean over the questions, see `DirectionQuality`.
    """

    ranks: Int[Tensor, "numbers questions"]
    agreement: list[float]


class _Direction:
    """Runs the queries of one direction.

    Attributes:
        items: Number of competing items.
        default: Default number of candidates of a search.
        timed: Evenly spread questions that are timed.
    """

    def __init__(
        self,
        searcher: TwoStageSearcher,
        modality: Modality,
        target: Target,
        questions: Sequence[Question],
    ) -> None:
        self._searcher = searcher
        self._modality: Modality = modality
        self._target: Target = target
        self._questions = questions
        self._collection = searcher.index.collection(target)
        if not self._collection.has_tokens:
            raise InputError(f"the index has no tokens of its {target}: nothing is re-ranked")
        self.items = self._collection.count
        self.default = searcher.index.manifest.candidates(target)
        self.timed = questions[:: -(-len(questions) // _TIMED_QUERIES)]

    def find(self, numbers: Sequence[int], progress: Progress) -> dict[Rule, _Found]:
        """Search with every number of candidates and every rule."""
        index = self._searcher.index
        fusion = index.manifest.fusion(index.checkpoint.fusion).of(DIRECTION_OF[self._modality])
        weights: dict[Rule, float] = {"fitted": fusion.weight, "papers": 1.0}
        shape = (len(RULES), len(numbers), len(self._questions))
        ranks, kept = np.empty(shape, dtype=np.int64), np.empty(shape)
        for place, (query, right_ids) in enumerate(self._questions):
            orders = ListedOrders(self._collection, query, self._modality, _LISTED)
            right = self._rows(right_ids)
            firsts = [orders.first_stage(number) for number in numbers]
            for row, rule in enumerate(RULES):
                pages = [orders.page(first, fusion, weights[rule]) for first in firsts]
                exhaustive = pages[-1].rows[:_TOP]
                for column, (first, page) in enumerate(zip(firsts, pages, strict=True)):
                    ranks[row, column, place] = listed_rank(page, right, first.block)
                    kept[row, column, place] = np.isin(exhaustive, page.rows[:_TOP]).mean()
            progress.advance()
        agreement = kept.mean(axis=2).tolist()
        return {
            rule: _Found(torch.from_numpy(ranks[row]), agreement[row])
            for row, rule in enumerate(RULES)
        }

    def time(self, numbers: Sequence[int], progress: Progress) -> list[SearchTime]:
        """Time searches with every number of candidates."""
        return search_times(
            self._searcher, self.timed, self._modality, self._target, numbers, progress
        )

    def _rows(self, ids: set[str]) -> np.ndarray:
        found = self._collection.items.by_ids(list(ids))
        return np.array([item.row for item in found if item is not None], dtype=np.int64)


class _Recalls(NamedTuple):
    """Bootstrap draws of one point of the curve."""

    text_r1: Draws
    image_r1: Draws
    rsum: Draws


def _qualities(bootstrap: PhotoBootstrap, by_text: _Found, by_image: _Found) -> list[Quality]:
    """Summarise the points of one rule; the first point is matching alone."""
    recalls = [
        _recalls(bootstrap, Ranks(*both))
        for both in zip(by_text.ranks, by_image.ranks, strict=True)
    ]
    matching = recalls[0]
    return [
        Quality(
            text_to_image=DirectionQuality(
                each.text_r1.estimate(), (each.text_r1 - matching.text_r1).estimate(), of_texts
            ),
            image_to_text=DirectionQuality(
                each.image_r1.estimate(), (each.image_r1 - matching.image_r1).estimate(), of_images
            ),
            rsum=each.rsum.estimate(),
            rsum_gain=(each.rsum - matching.rsum).estimate(),
        )
        for each, of_texts, of_images in zip(
            recalls, by_text.agreement, by_image.agreement, strict=True
        )
    ]


def _recalls(bootstrap: PhotoBootstrap, ranks: Ranks) -> _Recalls:
    texts = [bootstrap.mean_of_texts(_percent(ranks.text_to_image < k)) for k in (1, 5, _TOP)]
    images = [bootstrap.mean_of_images(_percent(ranks.image_to_text < k)) for k in (1, 5, _TOP)]
    rsum = texts[0] + texts[1] + texts[2] + images[0] + images[1] + images[2]
    return _Recalls(texts[0], images[0], rsum)


def _percent(hit: Bool[Tensor, " questions"]) -> Float[Tensor, " questions"]:
    return 100 * hit.double()
