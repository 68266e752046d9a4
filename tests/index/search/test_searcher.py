import threading
import time
from dataclasses import asdict
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from PIL import Image

from aladin_index.building.builder import build_index
from aladin_index.encode.source_items import ImageItem, TextItem
from aladin_index.generations.reader import SearchIndex, open_index
from aladin_index.search.results import SearchHit
from aladin_index.search.searcher import TwoStageSearcher
from aladin_index.settings import BuildSettings
from aladin_network.checkpoint import load_checkpoint, save_checkpoint
from aladin_network.errors import InputError, NoSuchTargetError, ShapeError, UnknownItemError
from aladin_network.scoring.encoding import Encoding
from aladin_network.scoring.fusion import DirectionFusion, Fusion
from aladin_network.scoring.scores import matching_scores
from tests.index.searching import run_search
from tests.tensors import encode_photos, encode_texts

QUERY = "a small red circle above the green grass"


class Scores:
    """The model's own scores of all pairs, with no index in between."""

    def __init__(self, index: SearchIndex, images: list[ImageItem], texts: list[TextItem]) -> None:
        model = index.checkpoint.model
        photos = encode_photos(model, [Image.open(item.path).convert("RGB") for item in images])
        query = encode_texts(model, [QUERY])
        words = encode_texts(model, [item.text for item in texts])
        self.query, self.images, self.texts = query.arrays(), photos.arrays(), words.arrays()
        self.query_align = model.scores("alignment", photos, query)[:, 0].numpy()
        self.query_match = matching_scores(photos, query)[:, 0].numpy()
        self.align = model.scores("alignment", photos, words).numpy()


@pytest.fixture(scope="module")
def scores(search_index: SearchIndex, images: list[ImageItem], texts: list[TextItem]) -> Scores:
    return Scores(search_index, images, texts)


@pytest.fixture(scope="module")
def fused(
    tmp_path_factory: pytest.TempPathFactory,
    tiny_checkpoint: Path,
    images: list[ImageItem],
    texts: list[TextItem],
) -> TwoStageSearcher:
    """Searches an index whose checkpoint has constants of its own for each direction."""
    folder = tmp_path_factory.mktemp("fused")
    fusion = Fusion(
        text_to_image=DirectionFusion(
            weight=0.25, align_mean=2.0, align_std=0.5, match_mean=0.1, match_std=0.2
        ),
        image_to_text=DirectionFusion(
            weight=0.75, align_mean=1.0, align_std=2.0, match_mean=0.0, match_std=0.1
        ),
    )
    save_checkpoint(folder / "checkpoint", load_checkpoint(tiny_checkpoint).model, fusion)
    settings = BuildSettings(token_dtype="int8", default_candidates=7)
    build_index(folder / "checkpoint", folder / "index", images, texts, settings)
    return TwoStageSearcher(open_index(folder / "index"))


def number(hit: SearchHit) -> int:
    return int(hit.id.split()[-1])


def test_a_text_finds_images_with_the_scores_of_the_model(
    searcher: TwoStageSearcher, scores: Scores, images: list[ImageItem]
) -> None:
    result = run_search(searcher, scores.query, "text", "images", k=100)
    assert (result.reranked, result.fusion, result.candidates, result.generation) == (
        True,
        1.0,
        23,
        1,
    )
    assert sorted(number(hit) for hit in result.hits) == list(range(23))
    for place, hit in enumerate(result.hits):
        row, item = number(hit), images[number(hit)]
        assert hit.rank == place + 1
        assert hit.score == hit.stages.align.score
        assert hit.score == pytest.approx(scores.query_align[row], abs=1e-2)
        assert hit.per_word == pytest.approx(hit.stages.align.score / 8)
        assert hit.stages.match.score == pytest.approx(scores.query_match[row], abs=1e-5)
        assert (hit.uri, hit.text, hit.metadata) == (item.uri, item.text, item.metadata)
        assert hit.evidence is None
    assert [hit.stages.align.rank for hit in result.hits] == list(range(1, 24))
    by_match = sorted(result.hits, key=lambda hit: -hit.stages.match.score)
    assert [hit.stages.match.rank for hit in by_match] == list(range(1, 24))
    assert min(asdict(result.took_ms).values()) >= 0


@pytest.mark.parametrize("name", ["searcher", "fused"])
def test_both_directions_give_a_pair_the_same_alignment_score(
    request: pytest.FixtureRequest, scores: Scores, name: str
) -> None:
    searcher: TwoStageSearcher = request.getfixturevalue(name)
    limit = 1e-2 if name == "searcher" else 5e-2  # int8
    for text in range(16):
        hits = run_search(searcher, scores.texts.item(text), "text", "images", k=23).hits
        for hit in hits:
            assert hit.stages.align.score == pytest.approx(
                scores.align[number(hit), text], abs=limit
            )
    for image in range(23):
        hits = run_search(searcher, scores.images.item(image), "image", "texts", k=16).hits
        for hit in hits:
            words = int(scores.texts.mask[number(hit)].sum())
            expected = float(scores.align[image, number(hit)])
            assert hit.stages.align.score == pytest.approx(expected, abs=limit)
            assert hit.per_word == pytest.approx(hit.stages.align.score / words)
            assert hit.uri is None


@pytest.mark.parametrize("override", [None, 0, 0.5, 1])
def test_candidates_are_ordered_by_the_fusion_of_their_direction(
    fused: TwoStageSearcher, scores: Scores, override: float | None
) -> None:
    for modality, target, query, fitted in (
        ("text", "images", scores.query, fused.index.checkpoint.fusion.text_to_image),
        ("image", "texts", scores.images.item(3), fused.index.checkpoint.fusion.image_to_text),
    ):
        result = run_search(fused, query, modality, target, k=7, fusion=override)
        assert result.fusion == (fitted.weight if override is None else override)
        assert result.candidates == 7
        assert sorted(hit.stages.match.rank for hit in result.hits) == list(range(1, 8))
        for hit in result.hits:
            align, match = hit.stages.align.score, hit.stages.match.score
            weight = result.fusion
            expected = weight * (align - fitted.align_mean) / fitted.align_std
            expected += (1 - weight) * (match - fitted.match_mean) / fitted.match_std
            assert hit.score == pytest.approx(align if weight == 1 else expected, abs=1e-4)
        assert [hit.score for hit in result.hits] == sorted(
            (hit.score for hit in result.hits), reverse=True
        )


def test_without_reranking_the_first_stage_orders(fused: TwoStageSearcher, scores: Scores) -> None:
    result = run_search(fused, scores.query, "text", "images", k=23, rerank=False)
    assert (result.reranked, result.fusion) == (False, None)
    expected = np.argsort(-scores.query_match).tolist()
    assert [number(hit) for hit in result.hits] == expected
    for hit in result.hits:
        assert hit.score == hit.stages.match.score
        assert hit.stages.align.score == pytest.approx(scores.query_align[number(hit)], abs=5e-2)
    assert sorted(hit.stages.align.rank for hit in result.hits) == list(range(1, 24))


@pytest.mark.parametrize("modality", ["image", "text"])
def test_one_modality_is_searched_by_the_embedding_alone_and_says_so(
    searcher: TwoStageSearcher, scores: Scores, modality: str
) -> None:
    encoded = scores.images if modality == "image" else scores.texts
    result = run_search(
        searcher, encoded.item(4), modality, f"{modality}s", k=5, explain=True, fusion=1.0
    )
    cosines = encoded.embedding @ encoded.embedding[4]
    assert not result.reranked
    assert result.fusion is None
    assert number(result.hits[0]) == 4
    assert [number(hit) for hit in result.hits] == np.argsort(-cosines)[:5].tolist()
    for hit in result.hits:
        assert hit.score == pytest.approx(cosines[number(hit)], abs=1e-5)
        assert (hit.stages.align, hit.per_word, hit.evidence) == (None, None, None)


def test_ranks_of_the_first_stage_go_on_from_page_to_page(
    searcher: TwoStageSearcher, scores: Scores
) -> None:
    page = run_search(searcher, scores.texts.item(4), "text", "texts", k=3, offset=5).hits
    assert [(hit.rank, hit.stages.match.rank) for hit in page] == [(6, 6), (7, 7), (8, 8)]


def test_a_score_per_word_counts_the_words_of_the_text_that_asks(
    searcher: TwoStageSearcher, scores: Scores
) -> None:
    asked = scores.texts.item(4)
    length = int(asked.mask.sum())
    # Neither the width of a token nor the number of texts.
    assert length not in (asked.tokens.shape[2], 1)
    for hit in run_search(searcher, asked, "text", "images", k=3).hits:
        assert hit.per_word == pytest.approx(hit.stages.align.score / length)


def test_the_times_of_the_stages_are_milliseconds_of_their_own_work(
    searcher: TwoStageSearcher, scores: Scores, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Start, candidates found, ranked, items looked up, evidence made, end: in seconds.
    readings = iter([10.0, 11.0, 13.0, 17.0, 25.0, 30.0])
    clock = SimpleNamespace(monotonic=lambda: next(readings))
    monkeypatch.setattr("aladin_index.search.searcher.time", clock)
    monkeypatch.setattr("aladin_index.search.answer.time", clock)
    took_ms = run_search(
        searcher, scores.query, "text", "images", k=3, explain=True, text=QUERY
    ).took_ms
    # Evidence is work of the second stage.
    assert (took_ms.retrieve, took_ms.rerank, took_ms.total) == (1000, 2000 + 8000, 20_000)


@pytest.mark.parametrize("name", ["searcher", "fused"])
@pytest.mark.parametrize("rerank", [True, False])
def test_evidence_adds_up_to_the_alignment_score(
    request: pytest.FixtureRequest, scores: Scores, name: str, rerank: bool
) -> None:
    searcher: TwoStageSearcher = request.getfixturevalue(name)
    result = run_search(
        searcher, scores.query, "text", "images", k=5, explain=True, text=QUERY, rerank=rerank
    )
    for hit in result.hits:
        assert [entry.token for entry in hit.evidence] == QUERY.split()
        assert sum(entry.score for entry in hit.evidence) == pytest.approx(
            hit.stages.align.score, abs=1e-4
        )
        for entry in hit.evidence:
            assert QUERY[entry.start : entry.end] == entry.token
            row, column = divmod(entry.region, 4)  # the photo is squashed into 4 x 4 cells
            assert entry.box == pytest.approx(
                (column / 4, row / 4, (column + 1) / 4, (row + 1) / 4)
            )
    result = run_search(
        searcher, scores.images.item(2), "image", "texts", k=5, explain=True, size_px=(40, 30)
    )
    for hit in result.hits:
        assert [entry.token for entry in hit.evidence] == hit.text.split()
        assert sum(entry.score for entry in hit.evidence) == pytest.approx(
            hit.stages.align.score, abs=1e-4
        )
        assert all(entry.box is not None for entry in hit.evidence)


def test_an_item_asks_with_what_is_stored_of_it(searcher: TwoStageSearcher, scores: Scores) -> None:
    encoding, modality = searcher.stored_query("photo 6")[:2]
    assert modality == "image"
    np.testing.assert_allclose(encoding.embedding, scores.images.item(6).embedding)
    np.testing.assert_allclose(encoding.tokens, scores.images.item(6).tokens, atol=1e-3, rtol=0)
    encoding, modality = searcher.stored_query("text 3")[:2]
    assert (modality, encoding.mask.tolist()) == ("text", [[True]])
    assert searcher.find_item("text 3")[0].image_id == "photo 1"
    with pytest.raises(UnknownItemError, match="'photo 99' among the images and texts"):
        searcher.stored_query("photo 99")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"k": 0}, "k: expected at least 1, got 0"),
        ({"offset": -1}, "offset: expected at least 0, got -1"),
        ({"candidates": 0}, "candidates: expected at least 1 or exhaustive, got 0"),
        ({"fusion": 1.5}, "fusion: expected 0 to 1, got 1.5"),
        ({"fusion": -0.5}, "fusion: expected 0 to 1, got -0.5"),
        ({"fusion": float("nan")}, "fusion: expected 0 to 1, got nan"),
        ({"min_probability": 1.5}, "min_probability: expected 0 to 1, got 1.5"),
        ({"min_probability": -0.5}, "min_probability: expected 0 to 1, got -0.5"),
        ({"min_probability": 0.5}, "min_probability: the index is not calibrated"),
        ({"filter": {"a": None}}, "filter field 'a'"),
        ({"explain": True}, "explain: expected the query's text"),
        ({"explain": True, "text": "two"}, "the query has 8 words, its text 1"),
    ],
)
def test_impossible_options_are_refused(
    searcher: TwoStageSearcher, scores: Scores, options: dict[str, object], message: str
) -> None:
    with pytest.raises(InputError, match=message):
        run_search(searcher, scores.query, "text", "images", **{"k": 3} | options)


def test_a_query_of_other_dimensions_is_refused(searcher: TwoStageSearcher, scores: Scores) -> None:
    with pytest.raises(ShapeError, match=r"embedding \(1, 16\), got \(2, 16\)"):
        run_search(searcher, Encoding(*(part[:2] for part in scores.images)), "image", "texts", k=1)
    narrow = scores.query._replace(tokens=scores.query.tokens[..., :7])
    with pytest.raises(ShapeError, match=r"expected shape tokens \(1, any, 8\)"):
        run_search(searcher, narrow, "text", "images", k=1)


def test_a_collection_that_is_not_there_is_named(
    tmp_path: Path, tiny_checkpoint: Path, texts: list[TextItem], scores: Scores
) -> None:
    build_index(tiny_checkpoint, tmp_path / "index", None, texts)
    with open_index(tmp_path / "index") as index:
        searcher = TwoStageSearcher(index)
        assert len(run_search(searcher, scores.images.item(0), "image", "texts", k=3).hits) == 3
        with pytest.raises(NoSuchTargetError, match="no images, only texts"):
            run_search(searcher, scores.query, "text", "images", k=3)
        with pytest.raises(UnknownItemError):
            searcher.stored_query("photo 1")


def test_threads_get_the_answers_that_one_gets(searcher: TwoStageSearcher, scores: Scores) -> None:
    def answer(text: int) -> list[tuple[str, float]]:
        result = run_search(
            searcher,
            scores.texts.item(text),
            "text",
            "images",
            k=23,
            filter={"number": {"gte": text}},
        )
        return [(hit.id, round(hit.score, 5)) for hit in result.hits]

    alone = [answer(text) for text in range(16)]
    faults: list[int] = []

    def work(seed: int) -> None:
        for text in np.random.default_rng(seed).integers(0, 16, 30).tolist():
            if answer(text) != alone[text]:
                faults.append(text)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert faults == []


def test_with_time_enough_a_deadline_changes_nothing(
    searcher: TwoStageSearcher, scores: Scores
) -> None:
    plain = run_search(searcher, scores.query, "text", "images", k=10)
    timed = run_search(
        searcher, scores.query, "text", "images", k=10, deadline_s=time.monotonic() + 60
    )
    assert timed.hits == plain.hits
    assert (timed.reranked, timed.degraded) == (True, [])


@pytest.mark.parametrize("offset", [0, 5])
def test_after_the_deadline_the_first_stage_decides(
    searcher: TwoStageSearcher, scores: Scores, offset: int
) -> None:
    late = run_search(
        searcher,
        scores.query,
        "text",
        "images",
        k=4,
        offset=offset,
        candidates=3,
        explain=True,
        text=QUERY,
        deadline_s=time.monotonic() - 1,
    )
    plain = run_search(
        searcher, scores.query, "text", "images", k=4, offset=offset, candidates=3, rerank=False
    )
    assert (late.reranked, late.fusion, late.degraded) == (False, None, ["rerank_timeout"])
    assert [(hit.id, hit.rank, hit.score) for hit in late.hits] == [
        (hit.id, hit.rank, hit.score) for hit in plain.hits
    ]
    for hit in late.hits:  # the second stage did not run at all
        assert (hit.stages.align, hit.per_word, hit.evidence) == (None, None, None)


def test_a_search_that_asks_for_no_second_stage_is_not_degraded_by_its_deadline(
    searcher: TwoStageSearcher, scores: Scores
) -> None:
    late = time.monotonic() - 1
    plain = run_search(searcher, scores.query, "text", "images", k=4, rerank=False, deadline_s=late)
    assert plain.degraded == []
    same = run_search(searcher, scores.query, "text", "texts", k=4, deadline_s=late)
    assert same.degraded == []
