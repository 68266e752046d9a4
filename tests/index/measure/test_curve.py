from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from aladin_index.encode.encoded import ItemBatch
from aladin_index.generations.reader import SearchIndex, open_index
from aladin_index.measure.curve import ListedOrders, candidate_curve, listed_rank
from aladin_index.measure.curve_points import CandidateCurve
from aladin_index.measure.evaluate import EvaluationQueries, Question
from aladin_index.search.results import SearchHit
from aladin_index.search.searcher import TwoStageSearcher
from aladin_network.errors import InputError
from aladin_network.scoring.encoding import Encoding
from aladin_network.scoring.fusion import DirectionFusion
from aladin_network.scoring.metrics import Ranks, retrieval_ranks, summarize
from aladin_network.types import Modality, Target
from tests.index.progress import CountedProgress
from tests.index.searching import run_search

NUMBERS = (3, 9)


@pytest.fixture(scope="module")
def curve(tied: TwoStageSearcher, tied_queries: EvaluationQueries) -> CandidateCurve:
    progress = CountedProgress()
    found = candidate_curve(tied, tied_queries, NUMBERS, progress)
    assert progress.pieces == [("questions", 32, 32), ("timed questions", 32, 32)]
    return found


def test_the_points_ascend_from_matching_alone_to_all_items(curve: CandidateCurve) -> None:
    # 6 is the default of these indexes, 27 the number of images.
    assert [point.candidates for point in curve.points] == [1, 3, 6, 9, 27]
    assert curve.default_candidates == {"text_to_image": 6, "image_to_text": 6}
    assert curve.items == {"text_to_image": 27, "image_to_text": 20}
    assert (curve.texts, curve.images) == (20, 12)
    for point in curve.points:
        for time in point.times:
            assert 0 < time.median_ms <= time.p95_ms


def test_the_ends_are_the_ranks_of_score_matrices(
    tied: TwoStageSearcher, tied_queries: EvaluationQueries, curve: CandidateCurve
) -> None:
    ends = {
        "matching": ranks_of_all(tied, tied_queries, decimals=5, rerank=False),
        "fitted": ranks_of_all(tied, tied_queries, rerank=True),
        "papers": ranks_of_all(tied, tied_queries, rerank=True, fusion=1.0),
    }
    first, last = curve.points[0], curve.points[-1]
    for quality, ranks in (
        (first.fitted, ends["matching"]),
        (first.papers, ends["matching"]),
        (last.fitted, ends["fitted"]),
        (last.papers, ends["papers"]),
    ):
        metrics = summarize(ranks)
        assert quality.text_to_image.r1.value == pytest.approx(metrics.text_to_image.r1)
        assert quality.image_to_text.r1.value == pytest.approx(metrics.image_to_text.r1)
        assert quality.rsum.value == pytest.approx(metrics.rsum)
    # These networks are random: what matters is that the ends differ.
    assert len({summarize(ranks).rsum for ranks in ends.values()}) > 1


def ranks_of_all(
    searcher: TwoStageSearcher,
    queries: EvaluationQueries,
    decimals: int | None = None,
    **options: object,
) -> Ranks:
    """Rank all pairs by the scores of searches for everything; cosines of copies need rounding."""

    def scores(questions: Sequence[Question], modality: str, target: str) -> np.ndarray:
        collection = searcher.index.collection(target)  # type: ignore[arg-type]
        matrix = np.zeros((len(questions), collection.count), dtype=np.float32)
        for row, (query, _) in enumerate(questions):
            hits = run_search(
                searcher,
                query,
                modality,
                target,
                k=collection.count,
                candidates=collection.count,
                **options,
            ).hits
            for hit in hits:
                matrix[row, collection.items.by_id(hit.id).row] = hit.score  # type: ignore[union-attr]
        return matrix if decimals is None else matrix.round(decimals)

    images, texts = searcher.index.collection("images"), searcher.index.collection("texts")
    image_rows = [images.items.by_id(next(iter(right))).row for _, right in queries.texts]  # type: ignore[union-attr]
    by_text = retrieval_ranks(
        torch.from_numpy(scores(queries.texts, "text", "images")).T, torch.tensor(image_rows)
    )
    image_of_text = torch.full((texts.count,), -1)
    for row, (_, right) in enumerate(queries.images):
        for item_id in right:
            image_of_text[texts.items.by_id(item_id).row] = row  # type: ignore[union-attr]
    assert (image_of_text >= 0).all()
    by_image = retrieval_ranks(
        torch.from_numpy(scores(queries.images, "image", "texts")), image_of_text
    )
    return Ranks(by_text.text_to_image, by_image.image_to_text)


def test_gains_start_at_nothing_and_agreement_ends_complete(curve: CandidateCurve) -> None:
    for rule in ("fitted", "papers"):
        qualities = [getattr(point, rule) for point in curve.points]
        assert qualities[0].rsum_gain == (0.0, 0.0, 0.0)
        assert qualities[-1].text_to_image.agreement == 1.0
        assert qualities[-1].image_to_text.agreement == 1.0
        assert qualities[0].text_to_image.agreement < 1.0
        for quality in qualities:
            assert quality.rsum_gain.value == pytest.approx(
                quality.rsum.value - qualities[0].rsum.value
            )
            for estimate in (quality.rsum, quality.rsum_gain, quality.text_to_image.r1):
                assert estimate.low <= estimate.value <= estimate.high


def test_agreement_is_the_share_of_the_exhaustive_top_ten(
    tied: TwoStageSearcher, tied_queries: EvaluationQueries, curve: CandidateCurve
) -> None:
    def top(query: Encoding, candidates: int) -> set[str]:
        options = {"k": 10, "candidates": candidates, "fusion": 1.0}
        return {hit.id for hit in run_search(tied, query, "text", "images", **options).hits}

    kept = [len(top(query, 3) & top(query, 27)) / 10 for query, _ in tied_queries.texts]
    assert curve.points[1].papers.text_to_image.agreement == pytest.approx(sum(kept) / len(kept))


def test_ranks_that_are_known(
    tmp_path: Path, made_up: Callable[..., ItemBatch], write_made_up: Callable[..., int]
) -> None:
    # Cosines with the text put photo a before b, c and d; words and regions the other way round.
    def unit(firsts: list[float], dim: int) -> np.ndarray:
        vectors = np.zeros((len(firsts), dim), dtype=np.float32)
        vectors[:, 0] = firsts
        vectors[:, 1] = np.sqrt(1 - vectors[:, 0] ** 2)
        return vectors

    def items(ids: str, embeddings: np.ndarray, tokens: np.ndarray) -> ItemBatch:
        lengths = np.ones(len(ids), dtype=np.int64)
        made = made_up(list(ids))
        return replace(made, embeddings=embeddings, tokens=tokens, lengths=lengths)

    angles, regions = unit([0.9, 0.8, 0.6, 0.0], 16), unit([0.0, 0.6, 0.8, 1.0], 8)
    text, word = unit([1.0], 16), unit([1.0], 8)
    photos, texts = items("abcd", angles, regions), items("t", text, word)
    write_made_up(tmp_path / "index", images=photos, texts=texts)
    query = Encoding.of_item(text[0], word)
    asking = Encoding.of_item(angles[2], regions[2:3])
    queries = EvaluationQueries(
        [Question(query, {"c"})], [Question(asking, {"t"})], torch.tensor([0])
    )
    with open_index(tmp_path / "index") as index:
        found = candidate_curve(TwoStageSearcher(index), queries, [2, 3])
    # One candidate: a b c d. Two: b a, d c. Three: c b a, d. All: d c b a.
    assert [point.candidates for point in found.points] == [1, 2, 3, 4]
    assert [point.papers.text_to_image.r1.value for point in found.points] == [0, 0, 100, 0]
    # The right photo is among five in any case, and the only text is found.
    assert [point.papers.rsum.value for point in found.points] == [500, 500, 600, 500]
    assert found.points[2].papers.rsum_gain == pytest.approx((100, 100, 100))


@pytest.mark.parametrize(
    ("numbers", "shown"), [([], "none"), ([0, 5], "0,5"), ([5, 5], "5,5"), ([10, 5], "10,5")]
)
def test_numbers_that_make_no_curve(
    searcher: TwoStageSearcher, tied_queries: EvaluationQueries, numbers: list[int], shown: str
) -> None:
    with pytest.raises(InputError, match=f"expected ascending ones from 1, got {shown}$"):
        candidate_curve(searcher, tied_queries, numbers)


def test_an_index_without_tokens_has_no_curve(
    search_index: SearchIndex, tied_queries: EvaluationQueries, monkeypatch: pytest.MonkeyPatch
) -> None:
    images = search_index.collection("images")
    bare = replace(images, base=replace(images.base, entry=replace(images.entry, token_count=0)))
    monkeypatch.setattr(SearchIndex, "collection", lambda _, target: {"images": bare}[target])
    with pytest.raises(InputError, match="no tokens of its images: nothing is re-ranked"):
        candidate_curve(TwoStageSearcher(search_index), tied_queries, [5])


@pytest.mark.parametrize("candidates", [1, 3, 6, 100])
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
