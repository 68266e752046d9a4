"""Prediction sets: which hits are in them, and when there is none."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from aladin_index.format.disk import only_builder
from aladin_index.generations.published import publish_entries
from aladin_index.generations.reader import SearchIndex, open_index
from aladin_index.search.answer_facts import AnswerSet
from aladin_index.search.searcher import TwoStageSearcher
from aladin_network.calibration.calibration import Calibration, DirectionCalibration
from aladin_network.calibration.fitted_on import TextLengths
from aladin_network.calibration.sets import PredictionSets
from aladin_network.errors import InputError
from aladin_network.scoring.encoding import Encoding
from tests.index.searching import run_search

# Fewer than the photos: what is beyond the pool is in no set.
PHOTOS, POOL = 23, 20


@pytest.fixture
def opened(
    published: Path, tmp_path: Path, make_calibration: Callable[..., Calibration]
) -> Iterator[Callable[..., TwoStageSearcher]]:
    """Opens the index of 23 photos with thresholds of sets: ``opened([.9, .8])``."""
    root = Path(shutil.copytree(published, tmp_path / "index"))
    indexes: list[SearchIndex] = []

    def make(
        least: list[float], items: int = PHOTOS, auroc: float = 0.9, longest: int = 30
    ) -> TwoStageSearcher:
        sets = PredictionSets(items=items, least=least)
        with only_builder(root), open_index(root) as index:
            made = make_calibration(index.manifest.model.id, pool=POOL, auroc=auroc)
            models: DirectionCalibration = made.text_to_image
            calibration = replace(
                made,
                fitted_on=replace(made.fitted_on, text_lengths=TextLengths(low=1, high=longest)),
                text_to_image=replace(
                    models,
                    aligned=replace(models.aligned, sets=sets),
                    matching=replace(models.matching, sets=sets),
                ),
            )
            publish_entries(root, index.manifest, {}, "calibrate", calibration)
        indexes.append(open_index(root))
        return TwoStageSearcher(indexes[-1])

    yield make
    for index in indexes:
        index.close()


@pytest.fixture
def text(searcher: TwoStageSearcher) -> Encoding:
    """A text of nine words, as a query."""
    return searcher.stored_query("text 0").encoding


@pytest.mark.parametrize("rerank", [True, False])
def test_a_set_has_the_likely_items_of_the_pool(
    opened: Callable[..., TwoStageSearcher], text: Encoding, rerank: bool
) -> None:
    plain = opened([])
    whole = run_search(plain, text, "text", "images", k=PHOTOS, rerank=rerank).hits
    pool = [hit for hit in whole if hit.stages.match.rank <= POOL]
    falling = sorted((hit.probability for hit in pool if hit.probability), reverse=True)
    # At 50 % the five most likely, at 51 % the nine most likely.
    least = [falling[4], falling[8]]
    searcher = opened(least)
    for confidence, level, size in [(0.5, 0.5, 5), (0.505, 0.51, 9), (0.51, 0.51, 9)]:
        found = run_search(
            searcher, text, "text", "images", k=PHOTOS, rerank=rerank, confidence=confidence
        )
        wanted = [hit for hit in pool if (hit.probability or 0) >= falling[size - 1]]
        assert found.hits == wanted
        assert len(wanted) == size
        assert found.set == AnswerSet(confidence=confidence, level=level, size=size)
        assert found.degraded == []


def test_a_page_that_lacks_items_of_the_set_says_so(
    opened: Callable[..., TwoStageSearcher], text: Encoding
) -> None:
    searcher = opened([0.0])  # the whole pool
    first = run_search(searcher, text, "text", "images", k=6, confidence=0.5)
    later = run_search(searcher, text, "text", "images", k=PHOTOS, offset=6, confidence=0.5)
    lacking = AnswerSet(confidence=0.5, level=None, size=POOL, truncated=True)
    assert (first.set, later.set) == (lacking, lacking)
    ids = [hit.id for hit in first.hits + later.hits]
    assert len(ids) == len(set(ids)) == POOL
    assert later.no_match is False


@pytest.mark.parametrize(
    ("made", "options", "because"),
    [
        ({"items": 20}, {}, "more_items"),
        ({"longest": 3}, {}, "text_length"),
        ({}, {"filter": {"missing": {"exists": False}}}, "filter"),
        ({"items": 21}, {}, None),  # 23 items are less than a tenth more
        ({"auroc": 0.6}, {}, None),  # a set holds however good the probabilities are
    ],
)
def test_without_a_set_that_holds_no_hit_is_left_out(
    opened: Callable[..., TwoStageSearcher],
    text: Encoding,
    made: dict[str, float],
    options: dict[str, Any],
    because: str | None,
) -> None:
    searcher = opened([1.0], **made)  # nothing is as likely
    found = run_search(searcher, text, "text", "images", k=5, confidence=0.5, **options)
    assert found.set is not None
    assert found.set.unreliable_because == because
    if because is None:
        assert (found.hits, found.set.size, found.degraded) == ([], 0, [])
    else:
        assert (len(found.hits), found.set.size, found.set.level) == (5, None, None)
        assert found.degraded == ["confidence"]


def test_what_the_calibration_does_not_support_is_refused(
    opened: Callable[..., TwoStageSearcher], searcher: TwoStageSearcher, text: Encoding
) -> None:
    with pytest.raises(InputError, match="aladin calibrate CHECKPOINT DATA --index INDEX"):
        run_search(searcher, text, "text", "images", k=5, confidence=0.5)
    two = opened([0.9, 0.8])
    with pytest.raises(InputError, match=r"confidence: expected at most 0\.51"):
        run_search(two, text, "text", "images", k=5, confidence=0.52)
    refused: list[tuple[dict[str, Any], str]] = [
        ({"confidence": 0.4}, r"confidence: expected 0\.5 to 0\.99, got 0\.4"),
        ({"confidence": 1.0}, r"confidence: expected 0\.5 to 0\.99, got 1\.0"),
        ({"confidence": 0.5, "min_probability": 0.5}, "expected at most one of them, got both"),
    ]
    for options, message in refused:
        with pytest.raises(InputError, match=message):
            run_search(two, text, "text", "images", k=5, **options)
    with pytest.raises(InputError, match="images for a text and texts for an image"):
        run_search(two, text, "text", "texts", k=5, confidence=0.5)
