"""A calibration from queries to figures."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import pytest

from aladin_network.calibration.calibration import LEAST_AUROC, Calibration
from aladin_network.calibration.examples import AskedQuery, make_examples
from aladin_network.calibration.features import POOL
from aladin_network.calibration.fit import (
    AskedDirection,
    AskedShortTexts,
    ReportQueries,
    fit_calibration,
)
from aladin_network.calibration.fitted_on import FittedOn, TextLengths
from aladin_network.calibration.measures import NoMatchKind
from aladin_network.config import dump_config, parse_config
from aladin_network.errors import InputError
from aladin_network.scoring.fusion import DirectionFusion, Fusion
from aladin_network.types import Direction

DrawQueries = Callable[..., list[AskedQuery]]
BOTH: tuple[Direction, Direction] = ("text_to_image", "image_to_text")
ORDER = DirectionFusion(weight=0.5, align_std=0.5, match_std=0.1)
FALSE_ALARMS = 0.1


def asked(draw_queries: DrawQueries, photos: int, seed: int) -> dict[Direction, AskedDirection]:
    return {
        direction: AskedDirection(draw_queries(photos, items=12, seed=seed + k), 100)
        for k, direction in enumerate(BOTH)
    }


def fitted_on(photos: int) -> FittedOn:
    return FittedOn(
        data="data.jsonl", split="val", photos=photos, texts=photos, searched="split", prior=0.5
    )


@pytest.fixture(scope="module")
def calibration(draw_queries: DrawQueries) -> Calibration:
    return fit_calibration(
        asked(draw_queries, 60, 0),
        Fusion(text_to_image=ORDER, image_to_text=ORDER),
        "model",
        fitted_on(60),
        FALSE_ALARMS,
        ReportQueries("test", asked(draw_queries, 60, 10)),
    )


def test_both_stages_know_more_than_one(calibration: Calibration) -> None:
    for figures in (calibration.figures.text_to_image, calibration.figures.image_to_text):
        assert figures.aligned.hits.log_loss < figures.matching.hits.log_loss
        assert figures.aligned.auroc["probability"].value > figures.matching.auroc["cosine"].value
        assert set(figures.aligned.auroc) == {
            "probability",
            "cosine",
            "alignment",
            "alignment_per_word",
        }
        assert set(figures.matching.auroc_gain) == {"cosine"}


def test_the_figures_are_of_what_a_search_is_told(
    calibration: Calibration, draw_queries: DrawQueries
) -> None:
    """Judging the report's queries one by one gives the probabilities that were measured."""
    queries = asked(draw_queries, 60, 10)["text_to_image"].queries
    examples = make_examples(queries, 100, 0.5, ORDER)
    said = [
        calibration.text_to_image.judge(found.take(slice(POOL)), found).match_probability
        for query in queries
        for found in (query.candidates, query.candidates.take(~query.right))
    ]
    measured = calibration.figures.text_to_image.aligned.match
    assert measured.brier == pytest.approx(np.mean((np.array(said) - examples.match.right) ** 2))
    assert (calibration.figures.measured_on, calibration.figures.photos) == ("test", 60)


def test_it_is_stored_as_numbers(calibration: Calibration) -> None:
    data = dump_config(calibration)
    assert parse_config(Calibration, data, "here") == calibration
    assert calibration.pool == POOL


def test_few_queries_with_a_match_are_told_that_there_is_none(
    calibration: Calibration, draw_queries: DrawQueries
) -> None:
    """Of the queries that it was fitted to, no more than the share that was asked for."""
    for direction, models in (
        ("text_to_image", calibration.text_to_image),
        ("image_to_text", calibration.image_to_text),
    ):
        queries = asked(draw_queries, 60, 0)[direction].queries
        said = [
            models.judge(query.candidates.take(slice(POOL)), query.candidates).no_match
            for query in queries
        ]
        assert FALSE_ALARMS - 1 / len(said) < np.mean(said) <= FALSE_ALARMS


def test_what_is_said_of_other_photos_is_counted(
    calibration: Calibration, draw_queries: DrawQueries
) -> None:
    queries = asked(draw_queries, 60, 10)["text_to_image"].queries
    models = calibration.text_to_image
    figures = calibration.figures.text_to_image.aligned.no_match
    for present, expected in ((True, figures.false_alarms), (False, figures.detected)):
        asked_for = [
            query.candidates if present else query.candidates.take(~query.right)
            for query in queries
        ]
        said = [models.judge(found.take(slice(POOL)), found).no_match for found in asked_for]
        assert np.mean(said) == expected
    assert figures.detected > figures.false_alarms
    assert figures.below == models.aligned.no_match_below


def test_too_few_photos_are_refused(draw_queries: DrawQueries) -> None:
    with pytest.raises(InputError, match="expected at least 20 photos with captions, found 19"):
        fit_calibration(asked(draw_queries, 19, 0), Fusion(), "model", fitted_on(19), 0.5)


def test_what_is_never_found_is_refused(draw_queries: DrawQueries) -> None:
    """A network that finds nothing has no hits to learn from."""
    nothing = {
        direction: AskedDirection(
            [query._replace(right=np.zeros_like(query.right)) for query in each.queries], 100
        )
        for direction, each in asked(draw_queries, 20, 0).items()
    }
    with pytest.raises(InputError, match="text_to_image, hits: expected right and wrong ones"):
        fit_calibration(nothing, Fusion(), "model", fitted_on(20), 0.5)


def test_short_texts_get_models_and_figures_of_their_own(
    draw_queries: DrawQueries, caplog: pytest.LogCaptureFixture
) -> None:
    lengths = TextLengths(low=2, high=5)
    # Their right answers stand out more than those of captions.
    short = AskedShortTexts(
        AskedDirection(draw_queries(40, items=12, seed=3, gain=0.5), 100), lengths
    )
    others = AskedShortTexts(
        AskedDirection(draw_queries(40, items=12, seed=4, gain=0.5), 100), lengths
    )

    def fit(of_texts: AskedShortTexts) -> Calibration:
        return fit_calibration(
            asked(draw_queries, 40, 0),
            Fusion(text_to_image=ORDER, image_to_text=ORDER),
            "model",
            fitted_on(40),
            FALSE_ALARMS,
            ReportQueries("test", asked(draw_queries, 40, 10), others),
            short_texts=of_texts,
        )

    fitted = fit(short)
    found = fitted.short_texts
    assert found is not None
    assert (found.lengths, found.texts) == (lengths, 40)
    auroc = found.figures.aligned.auroc["probability"].value
    assert auroc > 0.95 > fitted.figures.text_to_image.aligned.auroc["probability"].value
    said = [
        found.text_to_image.judge(query.candidates.take(slice(POOL)), query.candidates).no_match
        for query in others.asked.queries
    ]
    assert np.mean(said) == found.figures.aligned.no_match.false_alarms
    data = dump_config(fitted)
    assert parse_config(Calibration, data, "here") == fitted
    # Too few of them are no error: such queries are then not judged.
    few = AskedShortTexts(AskedDirection(short.asked.queries[:4], 100), lengths)
    assert fit(few).short_texts is None
    assert "no probabilities for short texts: short texts, hits: expected at least" in caplog.text


def of_kinds(draw_queries: DrawQueries, photos: int, seed: int) -> dict[Direction, AskedDirection]:
    """Queries whose embeddings differ in half of the dimensions; those of far ones in all.

    Near queries have the scores of queries without a right answer.
    """
    found = asked(draw_queries, photos, seed)
    generator = np.random.default_rng(seed)

    def embedded(queries: Sequence[AskedQuery], spread: float) -> list[AskedQuery]:
        deviations = np.array([1.0] * 4 + [spread] * 4)
        vectors = (deviations * generator.normal(size=(len(queries), 8))).astype(np.float32)
        pairs = zip(queries, vectors, strict=True)
        return [query._replace(embedding=vector) for query, vector in pairs]

    queries = embedded(found["text_to_image"].queries, 0.1)
    kinds: list[tuple[NoMatchKind, float]] = [("near", 0.1), ("far", 1.0)]
    for kind, spread in kinds:
        others = draw_queries(photos, items=12, seed=seed + 5, gain=0.0)
        queries += [
            query._replace(has_match=False, kind=kind, right=np.zeros_like(query.right))
            for query in embedded(others, spread)
        ]
    return found | {"text_to_image": AskedDirection(queries, 100)}


@pytest.fixture(scope="module")
def calibration_of_kinds(draw_queries: DrawQueries) -> Calibration:
    return fit_calibration(
        of_kinds(draw_queries, 60, 0),
        Fusion(text_to_image=ORDER, image_to_text=ORDER),
        "model",
        fitted_on(60),
        FALSE_ALARMS,
        ReportQueries("test", of_kinds(draw_queries, 60, 10)),
    )


def test_each_kind_of_query_without_a_match_has_a_model_and_figures(
    calibration_of_kinds: Calibration, draw_queries: DrawQueries
) -> None:
    models, figures = (
        calibration_of_kinds.text_to_image,
        calibration_of_kinds.figures.text_to_image.aligned,
    )
    assert list(models.aligned.unlike) == ["near", "far"]
    assert figures.kinds["far"].value > 0.95 > figures.kinds["near"].value
    # Every kind counts the same.
    mean = np.mean([each.value for each in figures.kinds.values()])
    assert figures.auroc["probability"].value == pytest.approx(mean, abs=1e-9)
    assert figures.no_match.detected == pytest.approx(np.mean([*figures.no_match.kinds.values()]))
    of_photos = calibration_of_kinds.figures.image_to_text.aligned
    assert (of_photos.kinds, of_photos.no_match.kinds) == ({}, {})

    # What a search is told is what was measured.
    queries = of_kinds(draw_queries, 60, 10)["text_to_image"].queries
    said = [
        models.judge(query.candidates, query.candidates, query.embedding).no_match
        for query in queries
        if query.kind == "far"
    ]
    assert np.mean(said) == pytest.approx(figures.no_match.kinds["far"])


def test_density_and_models_of_kinds_are_stored(calibration_of_kinds: Calibration) -> None:
    stored = json.loads(json.dumps(dump_config(calibration_of_kinds)))
    assert parse_config(Calibration, stored, "test") == calibration_of_kinds


def test_one_kind_that_is_told_well_is_enough(calibration_of_kinds: Calibration) -> None:
    """A calibration that only knows foreign subjects may say so."""
    lengths = replace(calibration_of_kinds.fitted_on, text_lengths=TextLengths(low=1, high=9))
    known = replace(calibration_of_kinds, fitted_on=lengths)
    figures = known.figures.text_to_image.aligned
    assert figures.kinds["hard"].value < LEAST_AUROC
    assert known.unreliable_because("text_to_image", words=5.0) is None
    weak = {kind: replace(each, value=0.7) for kind, each in figures.kinds.items()}
    of_text = replace(known.figures.text_to_image, aligned=replace(figures, kinds=weak))
    known = replace(known, figures=replace(known.figures, text_to_image=of_text))
    assert known.unreliable_because("text_to_image", words=5.0) == "weak_calibration"
