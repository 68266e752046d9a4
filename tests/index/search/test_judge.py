"""What a calibration says of answers, beyond the probabilities that the reference works out."""

from __future__ import annotations

import math
import shutil
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from aladin_index.format.disk import only_builder
from aladin_index.generations.published import publish_entries
from aladin_index.generations.reader import open_index
from aladin_index.search.results import SearchAnswer
from aladin_index.search.searcher import TwoStageSearcher
from aladin_network.calibration.calibration import Calibration
from aladin_network.calibration.judging import LogisticModel
from tests.index.searching import run_search

Search = Callable[..., SearchAnswer]


@pytest.fixture(scope="module")
def search_with(published: Path, tmp_path_factory: pytest.TempPathFactory) -> Search:
    """Searches the photos for a text, by a calibration: ``search_with(calibration, k=5)``."""
    root = Path(shutil.copytree(published, tmp_path_factory.mktemp("judged") / "index"))

    def search(calibration: Calibration, **options: object) -> SearchAnswer:
        with only_builder(root), open_index(root) as index:
            publish_entries(root, index.manifest, {}, "calibrate", calibration)
        with open_index(root) as index:
            searcher = TwoStageSearcher(index)
            query = searcher.stored_query("text 0").encoding
            return run_search(searcher, query, "text", "images", **options)  # type: ignore[arg-type]

    return search


@pytest.fixture
def made(make_calibration: Callable[..., Calibration]) -> Calibration:
    return make_calibration("any")


def test_a_calibration_of_other_photos_says_nothing(search_with: Search, made: Calibration) -> None:
    others = replace(made, other_photos=True)
    found = search_with(others, k=5)
    assert (found.probabilities_reliable, found.unreliable_because) == (False, "other_photos")
    assert (found.no_match, [hit.probability for hit in found.hits]) == (None, [None] * 5)
    likely = search_with(others, k=5, min_probability=1.0)
    assert (len(likely.hits), likely.degraded) == (5, ["min_probability"])


@pytest.mark.parametrize(("no_match_below", "no_match"), [(-20.0, False), (20.0, True)])
def test_nothing_matches_below_the_threshold(
    search_with: Search, made: Calibration, no_match_below: float, no_match: bool
) -> None:
    direction = replace(made.text_to_image, no_match_below=no_match_below)
    result = search_with(replace(made, text_to_image=direction), k=1)
    assert (result.no_match, len(result.hits)) == (no_match, 1)


def test_without_the_second_stage_a_calibration_of_both_says_nothing(
    search_with: Search, made: Calibration
) -> None:
    past = time.monotonic() - 1
    result = search_with(made, k=5, deadline_s=past)
    assert (result.reranked, result.degraded) == (False, ["rerank_timeout"])
    assert (result.no_match, result.unreliable_because) == (None, "no_alignment")
    assert [hit.probability for hit in result.hits] == [None] * 5
    nothing = search_with(made, k=5, filter={"number": 99}, deadline_s=past)
    assert (nothing.hits, nothing.unreliable_because) == ([], None)


@pytest.mark.parametrize("rerank", [True, False])
def test_a_calibration_of_the_first_stage_judges_without_the_second(
    search_with: Search, made: Calibration, rerank: bool
) -> None:
    hit = LogisticModel(intercept=0.0, weights=[3.0, *[0.0] * 7])
    direction = replace(made.text_to_image, aligned=False, hit=hit)
    result = search_with(replace(made, text_to_image=direction), k=5, rerank=rerank)
    for each in result.hits:
        expected = 1 / (1 + math.exp(-3 * each.stages.match.score))
        assert each.probability == pytest.approx(expected, abs=1e-6)
