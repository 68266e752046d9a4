import numpy as np
import pytest

from aladin_index.encode.source_items import ImageItem, TextItem
from aladin_index.measure.evaluate import EvaluationText, evaluation_queries
from aladin_index.search.searcher import TwoStageSearcher
from aladin_network.errors import InputError
from aladin_network.inference import encode_texts
from aladin_network.types import NullProgress


@pytest.fixture
def captions(texts: list[TextItem]) -> list[EvaluationText]:
    """The first nine texts: two of each of the first four photos, one of the fifth."""
    return [EvaluationText(item.id, item.text, item.image_id or "") for item in texts[:9]]


def test_captions_ask_for_their_photo_and_photos_for_their_captions(
    searcher: TwoStageSearcher, images: list[ImageItem], captions: list[EvaluationText]
) -> None:
    # The photos in another order: places are those of the photos that ask.
    ids = [item.id for item in reversed(images)]
    progress = Counter()
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
    assert progress.done == progress.total == 9 + 5
    model = searcher.index.checkpoint.model
    for text, question in zip(captions, queries.texts, strict=True):
        alone = encode_texts(model, [text.text])
        np.testing.assert_allclose(question.query.embedding, alone.embedding, atol=1e-6)
        np.testing.assert_allclose(question.query.item_tokens(0), alone.item_tokens(0), atol=1e-6)
    stored, _ = searcher.stored_query("photo 4")[:2]
    assert np.array_equal(queries.images[0].query.tokens, stored.tokens)


def test_ids_have_to_be_in_the_index(
    searcher: TwoStageSearcher, images: list[ImageItem], captions: list[EvaluationText]
) -> None:
    ids = [item.id for item in images]
    with pytest.raises(InputError, match="1 of the images to evaluate are not in the index"):
        evaluation_queries(searcher, [*ids, "photo 99"], captions)
    unknown = EvaluationText("text 99", "two dogs", ids[0])
    with pytest.raises(InputError, match="1 of the texts to evaluate are not in the index"):
        evaluation_queries(searcher, ids, [*captions, unknown])
    with pytest.raises(
        InputError, match="text 'text 0' belongs to 'photo 0', which is not among the images"
    ):
        evaluation_queries(searcher, ids[1:], captions)
    with pytest.raises(InputError, match="nothing to evaluate: 23 images, 0 texts"):
        evaluation_queries(searcher, ids, [])


class Counter(NullProgress):
    """Counts the questions."""

    total, done = 0, 0

    def start(self, total: int | None, unit: str) -> None:
        assert unit == "questions encoded"
        self.total = total or 0

    def advance(self, count: int = 1) -> None:
        self.done += count
