"""Scores of given documents: by hand, and as a search scores the same items."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, cast

import numpy as np
import pytest

from aladin_index.search.documents import DocumentScore, DocumentVectors, score_documents
from aladin_index.search.options import SearchOptions
from aladin_index.search.query import Term
from aladin_index.search.searcher import TwoStageSearcher
from aladin_network.scoring.fusion import DirectionFusion, Fusion
from aladin_network.types import Modality

FUSION = DirectionFusion(weight=0.25, align_mean=1.0, align_std=2.0, match_mean=0.1, match_std=0.2)


def fused_by(
    searcher: TwoStageSearcher, fusion: DirectionFusion, *, trained: bool = True
) -> TwoStageSearcher:
    """A searcher of the same index, with other constants or an untrained second stage."""

    class Index:
        checkpoint = replace(
            searcher.index.checkpoint,
            config=replace(
                searcher.index.checkpoint.config,
                alignment_trained=trained,
                fusion=Fusion(text_to_image=fusion, image_to_text=fusion),
            ),
        )

        def __getattr__(self, name: str) -> Any:
            return getattr(searcher.index, name)

    return TwoStageSearcher(cast(Any, Index()))


@pytest.fixture(scope="module")
def fused(searcher: TwoStageSearcher) -> TwoStageSearcher:
    return fused_by(searcher, FUSION)


def vectors_of(searcher: TwoStageSearcher, item_id: str) -> DocumentVectors:
    """An item of the index as a document that is not one."""
    query = searcher.stored_query(item_id)
    encoding = query.encoding
    return DocumentVectors(
        cast(Modality, query.modality),
        encoding.embedding[0],
        encoding.item_tokens(0),
    )


def as_searched(searcher: TwoStageSearcher, query: Term, target: Any) -> dict[str, float]:
    answer = searcher.search(query._replace(own_id=None), target, SearchOptions(k=50))
    return {hit.id: hit.score for hit in answer.hits}


@pytest.mark.parametrize(
    ("query_id", "target", "scored_by"),
    [
        ("text 0", "images", "fusion"),
        ("text 3", "images", "fusion"),
        ("photo 3", "texts", "fusion"),
        ("photo 3", "images", "matching"),
    ],
)
def test_items_and_their_vectors_are_scored_as_a_search_does(
    fused: TwoStageSearcher, query_id: str, target: str, scored_by: str
) -> None:
    query = fused.stored_query(query_id)
    expected = as_searched(fused, query, target)
    mixed = [each for item in expected for each in (item, vectors_of(fused, item))]
    found = score_documents(fused, query, mixed)
    scores = [score for score in expected.values() for _ in range(2)]
    np.testing.assert_allclose([each.score for each in found], scores, atol=1e-5)
    assert {each.scored_by for each in found} == {scored_by}


def test_photos_and_texts_among_each_other_score_as_each_alone(fused: TwoStageSearcher) -> None:
    query = fused.stored_query("photo 3")
    mixed = ["photo 1", vectors_of(fused, "text 1"), "text 2", vectors_of(fused, "photo 4")]
    alone = [score_documents(fused, query, [each])[0].score for each in mixed]
    assert [each.score for each in score_documents(fused, query, mixed)] == pytest.approx(alone)


def relevances(searcher: TwoStageSearcher, fusion: DirectionFusion) -> list[DocumentScore]:
    own = fused_by(searcher, fusion)
    query = own.stored_query("text 0")
    found = score_documents(own, query, list(as_searched(own, query, "images")))
    return sorted(found, key=lambda each: -each.score)


def test_the_relevance_keeps_the_order_and_is_never_0_or_1(searcher: TwoStageSearcher) -> None:
    fitted = DirectionFusion(weight=1.0, align_mean=3.0, align_std=0.5)
    steep = DirectionFusion(weight=1.0, align_mean=0.0, align_std=1e-4)
    for found in (relevances(searcher, fitted), relevances(searcher, steep)):
        of = [each.relevance for each in found]
        assert of == sorted(of, reverse=True)
        assert all(0 < each < 1 for each in of)
    best = relevances(searcher, fitted)[0]
    assert best.relevance == pytest.approx(1 / (1 + np.exp(-(best.score - 3) / 0.5)), abs=1e-6)


def test_without_training_the_embeddings_decide_alone(searcher: TwoStageSearcher) -> None:
    untrained = fused_by(searcher, FUSION, trained=False)
    query = untrained.stored_query("text 0")
    expected = as_searched(untrained, query, "images")
    found = score_documents(untrained, query, list(expected))
    np.testing.assert_allclose([each.score for each in found], list(expected.values()), atol=1e-6)
    assert {each.scored_by for each in found} == {"matching"}


def test_unknown_items_have_no_score_and_the_others_have_theirs(searcher: TwoStageSearcher) -> None:
    query = searcher.stored_query("text 0")
    (expected,) = score_documents(searcher, query, ["text 1"])
    assert score_documents(searcher, query, ["nobody", "text 1", "nobody"]) == [
        None,
        expected,
        None,
    ]
