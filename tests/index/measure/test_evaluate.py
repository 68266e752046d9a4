import numpy as np
import pytest
import torch

from aladin_index.encode.source_items import ImageItem, TextItem
from aladin_index.measure.evaluate import (
    EvaluationText,
    evaluate_index,
    evaluation_queries,
    rank_as_served,
)
from aladin_index.search.searcher import TwoStageSearcher
from aladin_network.errors import InputError
from aladin_network.inference import encode_texts
from aladin_network.scoring.metrics import retrieval_ranks
from tests.index.progress import CountedProgress
from tests.index.searching import bare_hit, run_search


@pytest.fixture
def captions(texts: list[TextItem]) -> list[EvaluationText]:
    """The first nine texts: two of each of the first four photos, one of the fifth."""
    return [EvaluationText(item.id, item.text, item.image_id or "") for item in texts[:9]]


def test_with_all_as_candidates_the_ranks_are_those_of_the_score_matrix(
    searcher: TwoStageSearcher,
    images: list[ImageItem],
    texts: list[TextItem],
) -> None:
    progress = CountedProgress()
    queries = evaluation_queries(
        searcher,
        [item.id for item in images],
        [EvaluationText(item.id, item.text, item.image_id or "") for item in texts],
    )
    served = evaluate_index(searcher, queries, compared_queries=4, progress=progress)
    scores = torch.zeros(23, 16)
    for column, item in enumerate(texts):
        query, _ = searcher.stored_query(item.id)[:2]
        for hit in run_search(searcher, query, "text", "images", k=23).hits:
            scores[int(hit.id.split()[1]), column] = hit.score
    expected = retrieval_ranks(scores, torch.arange(16) // 2)
    # Queries come fresh from the network, the matrix from stored ones: near ties may swap.
    for direction in range(2):
        off = (served.ranks[direction] - expected[direction]).abs()
        assert off.max() <= 1
        assert off.float().mean() <= 0.2
    assert served.ranks.image_to_text.shape == (8,)  # photos without a caption do not ask
    assert served.text_to_image.agreement == served.image_to_text.agreement == 1.0
    assert (served.text_to_image.compared, served.image_to_text.compared) == (4, 4)
    assert served.text_to_image.median_ms > 0
    r1 = float((served.ranks.text_to_image < 1).double().mean()) * 100
    assert served.metrics.text_to_image.r1 == pytest.approx(r1)
    assert progress.pieces == [("queries", 24, 24)]


def test_answers_that_are_no_candidates_rank_last(
    searcher: TwoStageSearcher, images: list[ImageItem], captions: list[EvaluationText]
) -> None:
    queries = evaluation_queries(searcher, [item.id for item in images], captions)
    served = evaluate_index(searcher, queries, num_candidates=3)
    outside = 0
    for text, rank in zip(captions, served.ranks.text_to_image.tolist(), strict=True):
        query, _ = searcher.stored_query(text.id)[:2]
        found = run_search(searcher, query, "text", "images", k=3, candidates=3).hits
        if text.image_id not in {hit.id for hit in found}:
            outside += 1
            assert rank == 22
        else:
            assert rank < 3
    assert outside > 0
    assert served.text_to_image.agreement < 1


def test_the_weight_can_be_overridden(
    searcher: TwoStageSearcher, images: list[ImageItem], captions: list[EvaluationText]
) -> None:
    queries = evaluation_queries(searcher, [item.id for item in images], captions)
    by_match = evaluate_index(searcher, queries, fusion=0.0)
    for place, text in enumerate(captions):
        query, _ = searcher.stored_query(text.id)[:2]
        hits = run_search(searcher, query, "text", "images", k=23, rerank=False).hits
        expected = [hit.id for hit in hits].index(text.image_id)
        assert by_match.ranks.text_to_image[place] == expected


@pytest.mark.parametrize(
    ("right", "rank"),
    [
        ({"a"}, 0),
        ({"b"}, 2),  # c scores as much: it outranks the right one
        ({"c"}, 2),
        ({"b", "c"}, 1),  # the two right ones do not stand in each other's way
        ({"d", "a"}, 0),
        ({"x"}, 9),
        ({"x", "y"}, 8),
    ],
)
def test_ties_count_against_us(right: set[str], rank: int) -> None:
    hits = [
        bare_hit(place + 1, score, name)
        for place, (name, score) in enumerate([("a", 3.0), ("b", 2.0), ("c", 2.0), ("d", 1.0)])
    ]
    assert rank_as_served(hits, right, 10) == rank


def test_captions_ask_for_their_photo_and_photos_for_their_captions(
    searcher: TwoStageSearcher, images: list[ImageItem], captions: list[EvaluationText]
) -> None:
    # The photos in another order: places are those of the photos that ask.
    ids = [item.id for item in reversed(images)]
    progress = CountedProgress()
    queries = evaluation_queries(searcher, ids, captions, progress)
    assert [question.right for question in queries.texts] == [
        {f"photo {number // 2}"} for number in range(9)
    ]
    assert [question.right for question in queries.images] == [
        {"text 8"},
        {"text 6", "text 7"},
        {"text 4", "text 5"},
        {"text 2", "text 3"},
        {"text 0", "text 1"},
    ]
    assert queries.image_of_text.tolist() == [4, 4, 3, 3, 2, 2, 1, 1, 0]
    assert progress.pieces == [("questions encoded", 14, 14)]
    model = searcher.index.checkpoint.model
    for text, question in zip(captions, queries.texts, strict=True):
        alone = encode_texts(model, [text.text])
        np.testing.assert_allclose(question.query.embedding, alone.embedding, atol=1e-6)
        np.testing.assert_allclose(question.query.item_tokens(0), alone.item_tokens(0), atol=1e-6)
    stored, _ = searcher.stored_query("photo 4")[:2]
    assert np.array_equal(queries.images[0].query.tokens, stored.tokens)


@pytest.mark.parametrize(
    ("first", "more", "captioned", "message"),
    [
        (0, ["photo 99"], 9, "1 of the images to evaluate are not in the index"),
        (0, [], 10, "1 of the texts to evaluate are not in the index"),
        (1, [], 9, "text 'text 0' belongs to 'photo 0', which is not among the images"),
        (0, [], 0, "nothing to evaluate: 23 images, 0 texts"),
    ],
)
def test_ids_have_to_be_in_the_index(
    searcher: TwoStageSearcher,
    images: list[ImageItem],
    captions: list[EvaluationText],
    first: int,
    more: list[str],
    captioned: int,
    message: str,
) -> None:
    ids = [*(item.id for item in images[first:]), *more]
    unknown = EvaluationText("text 99", "two dogs", "photo 0")
    with pytest.raises(InputError, match=message):
        evaluation_queries(searcher, ids, [*captions, unknown][:captioned])
