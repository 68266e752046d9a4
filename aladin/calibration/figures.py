"""How far probabilities can be believed, as it is reported and stored."""

from __future__ import annotations

from dataclasses import dataclass

from aladin.fusion import Direction


@dataclass(frozen=True, kw_only=True)
class ReliabilityBin:
    """Answers of similar probability.

    Attributes:
        predicted: mean probability.
        observed: share that was right.
        weight: share of all answers.
    """

    predicted: float
    observed: float
    weight: float


@dataclass(frozen=True, kw_only=True)
class Reliability:
    """Predicted probabilities against what was right.

    Attributes:
        ece: expected calibration error, over bins of equal mass.
        ece_equal_width: the same over bins of equal width.
        brier: mean squared error of the probability.
        log_loss: mean negative log-likelihood, in nats.
        base_rate: share that was right.
        bins: of equal mass, ascending.
    """

    ece: float
    ece_equal_width: float
    brier: float
    log_loss: float
    base_rate: float
    bins: list[ReliabilityBin]


@dataclass(frozen=True, kw_only=True)
class Estimate:
    """A number with its 95 % bootstrap interval, photos drawn with replacement."""

    value: float
    low: float
    high: float


@dataclass(frozen=True, kw_only=True)
class NoMatchFigures:
    """How often answers say that there is no match.

    Attributes:
        below: the match probability below which they do.
        false_alarms: share of the queries with a match whose answer says so all the same.
        detected: share of the queries without one whose answer says so.
    """

    below: float
    false_alarms: float
    detected: float


@dataclass(frozen=True, kw_only=True)
class ProbabilityFigures:
    """Figures of one pair of models.

    Attributes:
        hits: of the first page.
        best_hit: of its first hit alone.
        match: whether there is a match at all.
        no_match: what is said of that.
        auroc: of telling queries that have a match from those that have none, by what tells
            them: "probability", and thresholds on the best "cosine", "alignment" and
            "alignment_per_word".
        auroc_gain: that of the probability minus that of each threshold.
    """

    hits: Reliability
    best_hit: Reliability
    match: Reliability
    no_match: NoMatchFigures
    auroc: dict[str, Estimate]
    auroc_gain: dict[str, Estimate]


@dataclass(frozen=True, kw_only=True)
class DirectionFigures:
    """Figures of one direction.

    Attributes:
        aligned: of the probabilities from both stages' scores.
        matching: of those from the first stage's alone.
    """

    aligned: ProbabilityFigures
    matching: ProbabilityFigures


@dataclass(frozen=True, kw_only=True)
class CalibrationFigures:
    """Figures of both directions, on photos that the models which they tell of never saw.

    Attributes:
        measured_on: "out of fold", each photo judged by models fitted without it; or the name of
            another split.
        photos: whose queries were judged.
        auroc: mean of both directions, from both stages' scores; see `ProbabilityFigures`.
        auroc_gain: likewise.
        text_to_image: of texts that ask for photos.
        image_to_text: of photos that ask for texts.
    """

    measured_on: str
    photos: int
    auroc: dict[str, Estimate]
    auroc_gain: dict[str, Estimate]
    text_to_image: DirectionFigures
    image_to_text: DirectionFigures

    def of(self, direction: Direction) -> DirectionFigures:
        """Return the figures of one direction."""
        return self.text_to_image if direction == "text_to_image" else self.image_to_text
