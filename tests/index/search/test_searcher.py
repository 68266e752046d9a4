"""Searches of photos and texts that the network encoded: its scores, evidence, times, threads."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from types import SimpleNamespace

import numpy as np
import pytest
from PIL import Image

from aladin_index.encode.source_items import ImageItem, TextItem
from aladin_index.generations.reader import SearchIndex
from aladin_index.search.results import SearchHit
from aladin_index.search.searcher import TwoStageSearcher
from aladin_network.errors import UnknownItemError
from aladin_network.scoring.scores import matching_scores
from tests.index.searching import run_search
from tests.tensors import encode_photos, encode_texts

QUERY = "a small red circle above the green grass"


class Scores:
    """The model's own scores of all pairs, with no index in between."""

    def __init__(self, index: SearchIndex, images: list[ImageItem], texts: list[TextItem]) -> None:
        model = index.checkpoint.model
        photos = encode_photos(model, [Image.open(item.path).convert("RGB") for item in images])
        words = encode_texts(model, [QUERY, *(item.text for item in texts)])
        self.images, self.texts = photos.arrays(), words.arrays()
        self.query = self.texts.item(0)
        self.align = model.scores("alignment", photos, words).numpy()
        self.match = matching_scores(photos, words).numpy()


@pytest.fixture(scope="module")
def scores(search_index: SearchIndex, images: list[ImageItem], texts: list[TextItem]) -> Scores:
    return Scores(search_index, images, texts)


def number(hit: SearchHit) -> int:
    return int(hit.id.split()[-1])


def test_pairs_have_the_scores_of_the_model_in_both_directions(
    searcher: TwoStageSearcher, scores: Scores, images: list[ImageItem]
) -> None:
    for text in range(17):
        answer = run_search(searcher, scores.texts.item(text), "text", "images", k=100)
        assert (answer.reranked, answer.fusion, answer.generation) == (True, 1.0, 1)
        assert min(asdict(answer.took_ms).values()) >= 0
        assert sorted(map(number, answer.hits)) == list(range(23))
        for hit in answer.hits:
            row, words = number(hit), int(scores.texts.mask[text].sum())
            item = images[row]
            assert hit.stages.align.score == pytest.approx(scores.align[row, text], abs=1e-2)
            assert hit.stages.match.score == pytest.approx(scores.match[row, text], abs=1e-5)
            assert hit.per_word == pytest.approx(hit.score / words)
            assert (hit.uri, hit.text, hit.metadata) == (item.uri, item.text, item.metadata)
            assert hit.evidence is None
    for image in range(23):
        for hit in run_search(searcher, scores.images.item(image), "image", "texts", k=16).hits:
            place = 1 + number(hit)
            words = int(scores.texts.mask[place].sum())
            assert hit.score == pytest.approx(scores.align[image, place], abs=1e-2)
            assert (hit.per_word, hit.uri) == (pytest.approx(hit.score / words), None)


@pytest.mark.parametrize("modality", ["image", "text"])
def test_items_of_one_modality_have_no_evidence(
    searcher: TwoStageSearcher, scores: Scores, modality: str
) -> None:
    query = (scores.images if modality == "image" else scores.texts).item(4)
    answer = run_search(searcher, query, modality, f"{modality}s", k=5, explain=True, fusion=1.0)
    assert (answer.reranked, answer.fusion, answer.degraded) == (False, None, [])
    for hit in answer.hits:
        assert (hit.stages.align, hit.per_word, hit.evidence) == (None, None, None)


def test_the_times_of_the_stages_are_milliseconds_of_their_own_work(
    searcher: TwoStageSearcher, scores: Scores, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Start, candidates found, ranked, items looked up, evidence made, end: in seconds.
    readings = iter([10.0, 11.0, 13.0, 17.0, 25.0, 30.0])
    clock = SimpleNamespace(monotonic=lambda: next(readings))
    monkeypatch.setattr("aladin_index.search.searcher.time", clock)
    monkeypatch.setattr("aladin_index.search.answer.time", clock)
    options = {"k": 3, "explain": True, "text": QUERY}
    took_ms = run_search(searcher, scores.query, "text", "images", **options).took_ms
    # Evidence is work of the second stage.
    assert (took_ms.retrieve, took_ms.rerank, took_ms.total) == (1000, 2000 + 8000, 20_000)


def test_an_item_asks_with_what_is_stored_of_it(searcher: TwoStageSearcher, scores: Scores) -> None:
    photo, text = searcher.stored_query("photo 6"), searcher.stored_query("text 3")
    assert (photo.modality, photo.text, photo.own_id) == ("image", None, "photo 6")
    np.testing.assert_allclose(photo.encoding.embedding, scores.images.item(6).embedding)
    expected = scores.images.item(6).tokens
    np.testing.assert_allclose(photo.encoding.tokens, expected, atol=1e-3, rtol=0)
    assert (text.modality, text.text, text.encoding.mask.tolist()) == ("text", "star", [[True]])
    assert searcher.find_item("text 3")[0].image_id == "photo 1"
    with pytest.raises(UnknownItemError, match="'photo 99' among the images and texts"):
        searcher.stored_query("photo 99")


def test_threads_get_the_answers_that_one_gets(searcher: TwoStageSearcher, scores: Scores) -> None:
    def answer(text: int) -> list[tuple[str, float]]:
        options = {"k": 23, "filter": {"number": {"gte": text}}}
        result = run_search(searcher, scores.texts.item(text), "text", "images", **options)
        return [(hit.id, round(hit.score, 5)) for hit in result.hits]

    alone = [answer(text) for text in range(16)]
    asked = np.random.default_rng(0).integers(0, 16, 180).tolist()
    with ThreadPoolExecutor(6) as pool:
        assert list(pool.map(answer, asked)) == [alone[text] for text in asked]
