"""Calibration of both search directions, and its file beside a checkpoint's weights.

What a calibration was fitted on is described in `aladin_network.calibration.fitted_on`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import ConfigDict

from aladin_network.calibration.density import QueryDensity
from aladin_network.calibration.features import (
    CandidateScores,
    Judgement,
    LogisticModel,
    judged_features,
    probability_of_all,
)
from aladin_network.calibration.fitted_on import FittedOn, TextLengths
from aladin_network.calibration.measures import (
    CalibrationFigures,
    DirectionFigures,
    NoMatchKind,
)
from aladin_network.checkpoint_files import read_model_id
from aladin_network.config import STRICT, dump_config, parse_config
from aladin_network.errors import CheckpointError, ConfigError
from aladin_network.files import read_json, write_json
from aladin_network.types import Direction

# Least held-out AUROC of "is there a match at all" at which answers are judged, for the kind of
# queries without a match that is detected best. At 0.75, of four pairs of a query with a match and
# one without, one is ordered wrongly.
LEAST_AUROC = 0.75

# Reasons not to rely on the probabilities of an answer: the calibration is of other data than most
# photos of the index; it hardly distinguishes queries with a match from those without; it does not
# record the lengths of its texts; or the text is shorter or longer than those.
Unreliable = Literal["other_photos", "weak_calibration", "unknown_text_lengths", "text_length"]

# Not a part of the checkpoint itself: an index copies its content, not the file.
CALIBRATION = "calibration.json"


@dataclass(frozen=True, kw_only=True)
class ProbabilityModels:
    """Models of the two questions, which use the same scores.

    Attributes:
        hit: Model of whether an item belongs together with the query.
        match: Model of whether there is any item that belongs together with the query, or whether
            those were taken out.
        no_match_below: Match probability below which an answer reports that there is no match.
        unlike: Models that tell queries with a match from further kinds of queries without one; in
            all, each kind is equally likely.
    """

    hit: LogisticModel
    match: LogisticModel
    no_match_below: float
    unlike: dict[NoMatchKind, LogisticModel] = field(
        default_factory=dict[NoMatchKind, LogisticModel]
    )

    @property
    def match_models(self) -> list[LogisticModel]:
        """Models of whether there is any match, one for each kind of queries without one."""
        return [self.match, *self.unlike.values()]


@dataclass(frozen=True, kw_only=True)
class DirectionCalibration:
    """The probabilities of one direction.

    Attributes:
        aligned: Models that use the scores of both stages.
        matching: Models that use the first stage's scores alone, for answers that were not
            re-ranked.
        density: Density of the queries with a match, or None if no model uses it.
    """

    aligned: ProbabilityModels
    matching: ProbabilityModels
    density: QueryDensity | None = None

    def judge(
        self,
        pool: CandidateScores,
        hits: CandidateScores,
        embedding: NDArray[np.float32] | None = None,
    ) -> Judgement:
        """Estimate how likely an answer is right.

        Args:
            pool: The first stage's best candidates for the query, in its order, as many as the
                calibration specifies; fewer if fewer items were searched.
            hits: Any items, including those of the pool. If they or the pool have no alignment
                scores, only the matching scores are used.
            embedding: (d_match,), of the query; a density needs it.

        Returns:
            Probabilities; where nothing was searched, there is no match.
        """
        if len(pool.rows) == 0:
            return Judgement(0.0, no_match=True, probabilities=np.zeros(len(hits.rows)))
        models = self.aligned
        if pool.align is None or hits.align is None:
            models = self.matching
            pool, hits = pool.without_alignment(), hits.without_alignment()
        novelty = None
        if self.density is not None and embedding is not None:
            novelty = float(self.density.novelty(embedding[np.newaxis])[0])
        of_query, of_hits = judged_features(pool, hits, novelty)
        match_probability = float(probability_of_all(models.match_models, of_query)[0])
        return Judgement(
            match_probability,
            no_match=match_probability < models.no_match_below,
            probabilities=probability_of_all([models.hit], of_hits),
        )


@dataclass(frozen=True, kw_only=True)
class ShortTexts:
    """Probabilities of short text queries, such as nouns and noun phrases.

    Attributes:
        lengths: Number of words, as they are typed, of the queries that these models judge in
            place of those for captions.
        texts: Number of queries that they were fitted to.
        text_to_image: The models.
        figures: Figures on how reliable they are, measured as those of the calibration.
    """

    lengths: TextLengths
    texts: int
    text_to_image: DirectionCalibration
    figures: DirectionFigures


@dataclass(frozen=True, kw_only=True)
class Calibration:
    """The probabilities of both directions.

    Attributes:
        model_id: SHA-256 of the weights whose scores the calibration is fitted to.
        text_to_image: Calibration of text queries that search photos.
        image_to_text: Calibration of photo queries that search texts.
        pool: Number of candidates of a query (the first stage's best) that its hits are judged
            against.
        fitted_on: Origin of the numbers.
        figures: Figures on how reliable the probabilities are.
        short_texts: Calibration of short text queries, or None if there is none.
        other_photos: Whether most photos of the index that holds the calibration are of other data
            than it was fitted on; it then judges nothing.
    """

    __pydantic_config__: ClassVar[ConfigDict] = STRICT

    model_id: str
    text_to_image: DirectionCalibration
    image_to_text: DirectionCalibration
    pool: int
    fitted_on: FittedOn
    figures: CalibrationFigures
    short_texts: ShortTexts | None = None
    other_photos: bool = False

    def of(self, direction: Direction, typed: int | None = None) -> DirectionCalibration:
        """Return the calibration of one direction.

        Args:
            direction: Direction of the query.
            typed: Number of words of a text query as it was typed, or None if unknown.
        """
        short = self.short_texts
        if direction == "image_to_text":
            return self.image_to_text
        if short is not None and typed is not None and typed in short.lengths:
            return short.text_to_image
        return self.text_to_image

    @property
    def unreliable(self) -> dict[Direction | Literal["captions", "short_texts"], Unreliable | None]:
        """Reasons why no two-stage answer of a direction is judged, or None if some are.

        For texts that search images also by kind: those as long as captions, and short ones.
        """
        captions = self.unreliable_because("text_to_image")
        short_texts: Unreliable | None = "text_length"
        if self.short_texts is not None:
            low = self.short_texts.lengths.low
            short_texts = self.unreliable_because("text_to_image", typed=low)
        return {
            "text_to_image": None if self.short_texts and not short_texts else captions,
            "image_to_text": self.unreliable_because("image_to_text"),
            "captions": captions,
            "short_texts": short_texts,
        }

    def unreliable_because(
        self,
        direction: Direction,
        *,
        aligned: bool = True,
        words: float | None = None,
        typed: int | None = None,
    ) -> Unreliable | None:
        """Return why the probabilities of an answer are unreliable, or None if they are reliable.

        Probabilities are hidden if the calibration cannot separate queries with a match from those
        without, and for queries unlike those that it was fitted on. A calibration that does not
        record the lengths of its texts judges none.

        Args:
            direction: Direction of the query.
            aligned: Whether the scores of both stages are judged, or those of the first stage
                alone.
            words: Length of the texts that are compared: that of the query, or, for a photo as the
                query, the median of its candidates. With None the length is not checked, which
                shows whether there is any caption or photo that the calibration may judge.
            typed: Number of words of a text query as it was typed, which tells whether it is a
                short text; or None if unknown.

        Returns:
            None if the probabilities are reliable.
        """
        if self.other_photos:
            return "other_photos"
        short = self.short_texts if direction == "text_to_image" else None
        is_short = short is not None and typed is not None and typed in short.lengths
        of_direction = short.figures if short and is_short else self.figures.of(direction)
        figures = of_direction.aligned if aligned else of_direction.matching
        told = figures.kinds or {"hard": figures.auroc["probability"]}
        if max(each.value for each in told.values()) < LEAST_AUROC:
            return "weak_calibration"
        lengths = self.fitted_on.text_lengths
        if is_short:
            return None
        if lengths is None:
            return "unknown_text_lengths"
        if words is not None and words not in lengths:
            return "text_length"
        return None


def write_calibration(folder: Path, calibration: Calibration) -> None:
    """Write a calibration into its checkpoint atomically; an older one is replaced.

    Args:
        folder: Checkpoint folder.
        calibration: Calibration fitted to the scores of the weights in the folder.

    Raises:
        CheckpointError: If it was fitted to other weights, or the folder cannot be written.
    """
    _check_model(folder / CALIBRATION, calibration, read_model_id(folder))
    try:
        write_json(folder / CALIBRATION, dump_config(calibration))
    except OSError as error:
        reason = f"cannot be written ({error.strerror})"
        raise CheckpointError(f"{folder / CALIBRATION}: {reason}") from error


def read_calibration(folder: Path, model_id: str) -> Calibration | None:
    """Read the calibration of a checkpoint.

    Args:
        folder: Checkpoint folder.
        model_id: Id of the checkpoint's weights.

    Returns:
        None where the checkpoint is not calibrated.

    Raises:
        CheckpointError: If the file is not a calibration, or belongs to other weights.
    """
    path = folder / CALIBRATION
    try:
        data: Any = read_json(path)
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise CheckpointError(f"{path}: cannot be read ({error})") from error
    if not isinstance(data, dict):
        raise CheckpointError(f"{path}: expected a calibration, found {type(data).__name__}")
    try:
        calibration = parse_config(Calibration, data, str(path))
    except ConfigError as error:
        raise CheckpointError(str(error)) from error
    _check_model(path, calibration, model_id)
    return calibration


def _check_model(path: Path, calibration: Calibration, model_id: str) -> None:
    if calibration.model_id != model_id:
        raise CheckpointError(
            f"{path}: expected a calibration of model {model_id}, found one of "
            f"{calibration.model_id}; fit it anew: aladin calibrate"
        )
