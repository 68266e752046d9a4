"""Probabilities instead of scores, of both directions, as they are stored and applied."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
from pydantic import ConfigDict

from aladin.calibration.features import judged_features
from aladin.calibration.figures import CalibrationFigures
from aladin.calibration.logistic import LogisticModel
from aladin.calibration.scores import CandidateScores, Judgement
from aladin.fusion import Direction
from aladin.strict_config import STRICT


@dataclass(frozen=True, kw_only=True)
class ProbabilityModels:
    """The two questions, answered from the same scores.

    Attributes:
        hit: does this item belong together with the query?
        match: is there an item at all that does?
        no_match_below: an answer with a lower match probability says that there is none.
    """

    hit: LogisticModel
    match: LogisticModel
    no_match_below: float


@dataclass(frozen=True, kw_only=True)
class DirectionCalibration:
    """The probabilities of one direction.

    Attributes:
        aligned: from both stages' scores.
        matching: from the first stage's alone, for answers that were not re-ranked.
    """

    aligned: ProbabilityModels
    matching: ProbabilityModels

    def judge(self, pool: CandidateScores, hits: CandidateScores) -> Judgement:
        """Say how likely an answer is right.

        Args:
            pool: the first stage's best for the query, in its order, as many as the calibration
                says; fewer where fewer items were searched.
            hits: any items, those of the pool included. Where they or the pool have no
                alignment scores, the matching scores alone decide.

        Returns:
            Probabilities; where nothing was searched, there is no match.
        """
        if len(pool.rows) == 0:
            return Judgement(0.0, no_match=True, probabilities=np.zeros(len(hits.rows)))
        models = self.aligned
        if pool.align is None or hits.align is None:
            models = self.matching
            pool, hits = pool.without_alignment(), hits.without_alignment()
        of_query, of_hits = judged_features(pool, hits)
        match_probability = float(models.match.probability(of_query)[0])
        return Judgement(
            match_probability,
            no_match=match_probability < models.no_match_below,
            probabilities=models.hit.probability(of_hits),
        )


@dataclass(frozen=True, kw_only=True)
class FittedOn:
    """What a calibration was fitted on.

    Attributes:
        data: name of the data set's file or folder.
        split: of it; None: all of it.
        photos: that asked, those with a caption.
        texts: that asked, their captions.
        searched: "split": its own photos and captions were searched; "index": an index's items.
        prior: share of queries that have a match, as assumed.
    """

    data: str
    split: str | None
    photos: int
    texts: int
    searched: Literal["split", "index"]
    prior: float


@dataclass(frozen=True, kw_only=True)
class Calibration:
    """The probabilities of both directions.

    Attributes:
        model_id: sha256 of the weights whose scores they are fitted to.
        text_to_image: of texts that ask for photos.
        image_to_text: of photos that ask for texts.
        pool: candidates of a query, the first stage's best, that its hits are judged against.
        fitted_on: where the numbers come from.
        figures: how far the probabilities can be believed.
    """

    __pydantic_config__: ClassVar[ConfigDict] = STRICT

    model_id: str
    text_to_image: DirectionCalibration
    image_to_text: DirectionCalibration
    pool: int
    fitted_on: FittedOn
    figures: CalibrationFigures

    def of(self, direction: Direction) -> DirectionCalibration:
        """Return what one direction is judged by."""
        return self.text_to_image if direction == "text_to_image" else self.image_to_text
