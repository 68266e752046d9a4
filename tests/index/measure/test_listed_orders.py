import numpy as np
import pytest

from aladin_index.measure.curve import ListedOrders, listed_rank
from aladin_index.measure.evaluate import EvaluationQueries
from aladin_index.search.candidates import Ranking
from aladin_index.search.results import SearchHit
from aladin_index.search.searcher import TwoStageSearcher
from aladin_network.scoring.fusion import DirectionFusion
from aladin_network.types import Modality, Target
from tests.index.searching import run_search


@pytest.mark.parametrize("candidates", [1, 2, 3, 6, 19, 27, 100])
@pytest.mark.parametrize("weight", [None, 1.0])
@pytest.mark.parametrize(
    ("modality", "target"), [("text", "images"), ("image", "texts")], ids=["texts", "images"]
)
def test_the_page_is_that_of_a_search(
    tied: TwoStageSearcher,
    tied_queries: EvaluationQueries,
    modality: Modality,
    target: Target,
    weight: float | None,
    candidates: int,
) -> None:
    collection = tied.index.collection(target)
    fusion: DirectionFusion = tied.index.checkpoint.fusion.of(
        "text_to_image" if modality == "text" else "image_to_text"
    )
    questions = tied_queries.texts if modality == "text" else tied_queries.images
    reranked = 0
    for query, right in questions:
        hits = run_search(
            tied, query, modality, target, k=11, candidates=candidates, fusion=weight
        ).hits
        orders = ListedOrders(collection, query, modality, 11)
        first = orders.first_stage(candidates)
        page = orders.page(first, fusion, fusion.weight if weight is None else weight)
        assert [item.id for item in collection.items.by_rows(page.rows.tolist())] == [
            hit.id for hit in hits
        ]
        assert page.scores.tolist() == [hit.score for hit in hits]
        rows = [collection.items.by_id(item_id).row for item_id in right]  # type: ignore[union-attr]
        assert listed_rank(page, np.array(rows), first.block) == slow_rank(hits, right, candidates)
        reranked += page.match_ranks.tolist() != sorted(page.match_ranks.tolist())
    assert (reranked > 0) == (candidates > 1)


def slow_rank(hits: list[SearchHit], right: set[str], block: int) -> int:
    """Compare every right answer with every wrong one."""

    def ahead(wrong: SearchHit, answer: SearchHit) -> bool:
        if wrong.rank < answer.rank:
            return True
        if (wrong.rank - 1) // block == (answer.rank - 1) // block:
            return wrong.score == answer.score
        return abs(wrong.stages.match.score - answer.stages.match.score) <= 1e-6

    return min(
        (
            sum(ahead(hit, answer) for hit in hits if hit.id not in right)
            for answer in hits
            if answer.id in right
        ),
        default=len(hits),
    )


def test_copies_tie_in_the_indexes_of_these_tests(
    tied: TwoStageSearcher, tied_queries: EvaluationQueries
) -> None:
    hits = run_search(tied, tied_queries.texts[0].query, "text", "images", k=27).hits
    score = {hit.id: hit.score for hit in hits}
    originals = [score[f"photo {number}"] for number in range(4)]
    # Where a row lies in a product may change its last digit.
    assert [score[f"photo {number} again"] for number in range(4)] == pytest.approx(
        originals, abs=1e-7
    )


@pytest.mark.parametrize(
    ("right", "block", "rank"),
    [
        ([4], 5, 0),
        ([7], 5, 2),  # row 2 scores as much: it outranks the right one
        ([2], 5, 2),
        ([2, 7], 5, 1),  # two right ones do not stand in each other's way
        ([9], 5, 3),
        ([1], 5, 4),
        ([8], 5, 5),  # not on the page
        ([8, 9], 5, 3),
        ([7], 2, 1),  # row 2 is in the next block, and has another cosine
        ([9], 2, 4),  # row 1 is in the next block, and has the same cosine
        ([1], 2, 4),
    ],
)
def test_ties_count_against_us(right: list[int], block: int, rank: int) -> None:
    page = Ranking(
        rows=np.array([4, 7, 2, 9, 1]),
        scores=np.float32([3.0, 2.0, 2.0, 1.0, 0.0]),
        match=np.float32([0.9, 0.8, 0.7, 0.5, 0.5]),
        match_ranks=np.arange(1, 6),
    )
    assert listed_rank(page, np.array(right), block) == rank
