"""A calibration from queries to figures."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from aladin_network.calibration.calibration import Calibration, DataSample, FittedOn
from aladin_network.calibration.fit import (
    AskedDirection,
    AskedQuery,
    ReportQueries,
    calibration_error,
    candidates_kept,
    fit_calibration,
)
from aladin_network.calibration.judging import POOL
from aladin_network.errors import InputError
from aladin_network.scoring.fusion import DirectionFusion, Fusion
from aladin_network.types import Direction
from tests.aladin.calibration.drawn_queries import draw_queries

BOTH: tuple[Direction, Direction] = ("text_to_image", "image_to_text")
ORDER = DirectionFusion(weight=0.5, align_std=0.5, match_std=0.1)
FUSION = Fusion(text_to_image=ORDER, image_to_text=ORDER)
FALSE_ALARMS = 0.1


def asked(photos: int, seed: int, gain: float = 0.15) -> dict[Direction, AskedDirection]:
    return {
        direction: AskedDirection(draw_queries(photos, items=12, seed=seed + k, gain=gain), 100)
        for k, direction in enumerate(BOTH)
    }


def fitted_on(photos: int) -> FittedOn:
    return FittedOn(
        data="data.jsonl",
        split="val",
        photos=photos,
        texts=photos,
        short_texts=0,
        searched="split",
        data_sample=DataSample.of(()),
        correction="none",
    )


@pytest.fixture(scope="module")
def calibration() -> Calibration:
    report_on = ReportQueries("test", asked(60, 10))
    made = asked(60, 0)
    return fit_calibration(made, FUSION, "model", fitted_on(60), FALSE_ALARMS, report_on)


def no_match(calibration: Calibration, queries: list[AskedQuery], *, present: bool) -> list[bool]:
    models = calibration.text_to_image
    found = [each.candidates if present else each.candidates.take(~each.right) for each in queries]
    return [models.judge(each.take(slice(POOL)), each).no_match for each in found]


def test_probabilities_tell_right_hits_and_are_about_as_frequent(calibration: Calibration) -> None:
    queries = draw_queries(400, items=12, seed=77)
    hits = [calibration.text_to_image.judge(q.candidates, q.candidates) for q in queries]
    said = np.concatenate([each.probabilities for each in hits])
    right = np.concatenate([q.right for q in queries])
    # Half of the queries of the fit lack their right answer, so half as many hits are right.
    assert said.mean() == pytest.approx(right.mean() / 2, rel=0.5)
    assert said[right].mean() > 3 * said[~right].mean()


def test_figures_are_those_of_answers_to_other_queries(calibration: Calibration) -> None:
    queries = draw_queries(60, items=12, seed=10)
    figures = calibration.text_to_image.figures
    assert np.mean(no_match(calibration, queries, present=True)) == figures.false_alarms
    assert np.mean(no_match(calibration, queries, present=False)) == pytest.approx(figures.detected)
    assert figures.detected > figures.false_alarms
    assert calibration.measured_on == "test"
    assert 0.7 < figures.auroc < 1
    assert figures.ece < 0.05
    # Few of the fitted queries with a match are told that there is none.
    said = no_match(calibration, draw_queries(60, items=12, seed=0), present=True)
    assert FALSE_ALARMS - 1 / len(said) < np.mean(said) <= FALSE_ALARMS


def test_figures_out_of_fold_are_like_those_of_other_queries_and_need_both_stages(
    calibration: Calibration,
) -> None:
    both = asked(60, 0)
    one = {
        direction: AskedDirection(
            [q._replace(candidates=q.candidates._replace(align=None)) for q in each.queries], 100
        )
        for direction, each in both.items()
    }
    fits = [fit_calibration(each, FUSION, "model", fitted_on(60), 0.1) for each in (both, one)]
    found, first_stage = (each.text_to_image for each in fits)
    assert fits[0].measured_on == "out of fold"
    assert (found.aligned, first_stage.aligned) == (True, False)
    assert found.figures.auroc > first_stage.figures.auroc
    other = calibration.text_to_image
    assert replace(found, figures=other.figures) == other
    assert found.figures.auroc == pytest.approx(other.figures.auroc, abs=0.12)


def test_short_texts_and_foreign_ones_are_told_by_the_same_model() -> None:
    """Right answers of short texts stand out more; nothing stands out for foreign texts."""

    def made(seed: int) -> dict[Direction, AskedDirection]:
        found = asked(60, seed)
        queries = list(found["text_to_image"].queries)
        for query in draw_queries(60, items=12, seed=seed + 3, gain=0.5):
            words = np.full(12, 2)
            scores = query.candidates
            assert scores.align is not None
            align = scores.align / scores.words * 2
            short = scores._replace(words=words, align=align.astype(np.float32))
            queries.append(query._replace(candidates=short, is_short=True))
        for query in draw_queries(60, items=12, seed=seed + 5, gain=0.0):
            low = query.candidates._replace(match=query.candidates.match - 0.4)
            nothing = np.zeros_like(query.right)
            queries.append(query._replace(candidates=low, right=nothing, has_match=False))
        return found | {"text_to_image": AskedDirection(queries, 100)}

    report_on = ReportQueries("test", made(10))
    found = fit_calibration(made(0), FUSION, "model", fitted_on(60), FALSE_ALARMS, report_on)
    queries = list(report_on.asked["text_to_image"].queries)
    assert np.mean(no_match(found, queries[60:120], present=False)) > 0.8
    assert np.mean(no_match(found, queries[120:], present=True)) > 0.8
    assert found.text_to_image.figures.auroc > 0.8


@pytest.mark.parametrize(
    ("photos", "finds", "message"),
    [
        (19, True, "expected at least 20 photos with captions, found 19"),
        (20, False, "text_to_image, hits: expected right and wrong ones"),
    ],
)
def test_too_few_photos_and_a_network_that_finds_nothing_are_refused(
    photos: int, finds: bool, message: str
) -> None:
    made = {
        direction: AskedDirection(
            [query._replace(right=query.right & finds) for query in each.queries], 100
        )
        for direction, each in asked(photos, 0).items()
    }
    with pytest.raises(InputError, match=message):
        fit_calibration(made, FUSION, "model", fitted_on(photos), 0.5)


def test_candidates_are_kept_for_the_pool_without_right_answers() -> None:
    assert candidates_kept(20, 3) == POOL + 3
    assert candidates_kept(500, 3) == 503


def test_the_calibration_error_is_that_of_bins_of_equal_mass() -> None:
    probabilities = np.repeat([0.1, 0.5], 10)
    right = np.arange(20) % 2 == 0
    even = np.ones(20)
    assert calibration_error(probabilities, right, even) == pytest.approx(0.4 / 2)
    # The second half counts three times as much.
    weights = np.repeat([1.0, 3.0], 10)
    assert calibration_error(probabilities, right, weights) == pytest.approx(0.4 / 4)
    assert calibration_error(np.full(4, 0.5), np.array([1, 0, 1, 0]) > 0, np.ones(4)) == 0
