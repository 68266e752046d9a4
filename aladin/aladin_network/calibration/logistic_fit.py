"""Fitting of logistic regressions to queries with and without their right answers.

The features and the penalty are chosen by cross-validation over photos.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from aladin_network.calibration.features import (
    FEATURE_SETS,
    POOL,
    CandidateScores,
    Feature,
    Features,
    LogisticModel,
    Term,
    hit_features,
    query_features,
)
from aladin_network.calibration.measures import log_loss
from aladin_network.errors import InputError
from aladin_network.scoring.fusion import DirectionFusion

# Number of hits of a query that are judged: the first page.
PAGE = 10

# Values of scikit-learn's C; the data decide between hardly any penalty and a strong one.
_INVERSE_PENALTIES = (0.01, 0.1, 1.0)


class AskedQuery(NamedTuple):
    """A query with the candidates that the first stage finds for it.

    Attributes:
        photo: Number of the photo that is the query, or whose caption is.
        candidates: The first stage's best candidates by falling cosine, as many as
            `candidates_kept` returns.
        right: (candidates,) bool; whether each belongs together with the query.
        has_match: Whether any item belongs together with it, among the candidates or not.
    """

    photo: int
    candidates: CandidateScores
    right: NDArray[np.bool_]
    has_match: bool = True


def candidates_kept(num_candidates: int, right: int) -> int:
    """Return how many candidates are needed to judge a query without its right answers.

    Args:
        num_candidates: Number of candidates that a search passes to its second stage.
        right: Number of right answers.
    """
    return max(num_candidates, POOL) + right


@dataclass(frozen=True, kw_only=True)
class Examples:
    """Cases of one question with their answers.

    Attributes:
        features: (n,) values by name.
        right: (n,) bool, the answer.
        photos: (n,) int64; cases of one photo are never told apart by a fold.
        weights: (n,) float64; those of queries with a match have the prior's share of the sum.
    """

    features: Features
    right: NDArray[np.bool_]
    photos: NDArray[np.int64]
    weights: NDArray[np.float64]

    def take(self, places: NDArray[np.int64] | NDArray[np.bool_]) -> Examples:
        """Return some of the cases."""
        return Examples(
            features={name: values[places] for name, values in self.features.items()},
            right=self.right[places],
            photos=self.photos[places],
            weights=self.weights[places],
        )


@dataclass(frozen=True, kw_only=True)
class StageExamples:
    """The cases of both questions, of one direction and one way of ranking.

    Attributes:
        hits: Cases of first pages, each asking whether the hit belongs together with the query.
        first: (hits,) bool, marks each page's first hit.
        match: Cases of queries, each asking whether a right answer is among the items.
        thresholds: (queries,) scores of a query's best candidate, by the threshold's name.
    """

    hits: Examples
    first: NDArray[np.bool_]
    match: Examples
    thresholds: dict[str, NDArray[np.float64]]


def make_examples(
    queries: Iterable[AskedQuery],
    num_candidates: int,
    prior: float,
    fusion: DirectionFusion | None,
) -> StageExamples:
    """Use every query twice: with all items, and with its right answers removed.

    A query without a right answer is used once.

    Args:
        queries: Queries of one direction, at least one.
        num_candidates: Number of the first stage's candidates that are passed to the second.
        prior: Share of queries that have a match, between 0 and 1.
        fusion: Orders the candidates, or None for the first stage's order and its scores alone.
    """
    hits: list[Features] = []
    hits_right: list[NDArray[np.bool_]] = []
    match: list[Features] = []
    thresholds: list[dict[str, float]] = []
    photos: list[int] = []
    has_match: list[bool] = []
    for query in queries:
        for present in (True, False) if query.has_match else (False,):
            kept = np.flatnonzero(np.full(len(query.right), present) | ~query.right)
            if not len(kept):
                continue
            asked, right = query.candidates.take(kept), query.right[kept]
            if fusion is None:
                asked = asked.without_alignment()
            found, pool = asked.take(slice(num_candidates)), asked.take(slice(POOL))
            page = _page(found, fusion)
            hits.append(hit_features(pool, found.take(page)))
            hits_right.append(right[page])
            match.append(query_features(pool))
            thresholds.append(_thresholds(found))
            photos.append(query.photo)
            has_match.append(present)
    lengths = [len(right) for right in hits_right]
    of_queries = np.array(photos, dtype=np.int64)
    answered = np.array(has_match, dtype=np.bool_)
    with_match = max(1, int(answered.sum()))
    without = max(1, len(answered) - with_match)
    weights = len(answered) * np.where(answered, prior / with_match, (1 - prior) / without)
    starts = np.cumsum([0, *lengths[:-1]])
    first = np.zeros(sum(lengths), dtype=np.bool_)
    first[starts] = True
    return StageExamples(
        hits=Examples(
            features=_joined(hits),
            right=np.concatenate(hits_right),
            photos=np.repeat(of_queries, lengths),
            weights=np.repeat(weights, lengths),
        ),
        first=first,
        match=Examples(features=_joined(match), right=answered, photos=of_queries, weights=weights),
        thresholds={name: np.array([each[name] for each in thresholds]) for name in thresholds[0]},
    )


def _page(found: CandidateScores, fusion: DirectionFusion | None) -> NDArray[np.int64]:
    """Return the positions of the first page's hits, in its order."""
    if fusion is None or found.align is None:
        return np.arange(min(PAGE, len(found.rows)), dtype=np.int64)
    align, match = torch.from_numpy(found.align), torch.from_numpy(found.match)
    return np.argsort(-fusion.combine(align, match).numpy(), kind="stable")[:PAGE]


def _thresholds(found: CandidateScores) -> dict[str, float]:
    """Return the best score of each kind among the candidates."""
    best = {"cosine": float(found.match.max())}
    if found.align is not None:
        best["alignment"] = float(found.align.max())
        best["alignment_per_word"] = float((found.align / np.maximum(found.words, 1)).max())
    return best


def _joined(parts: Sequence[Features]) -> Features:
    names: list[Feature] = list(parts[0])
    return {name: np.concatenate([part[name] for part in parts]) for name in names}


# Number of folds of the cross-validation that chooses a model, and of the outer one that judges.
# Models of the outer one should be as good as the model that is fitted to all photos.
CHOOSING_FOLDS, JUDGING_FOLDS = 5, 10
# Two photos to judge in each fold: fewer are not informative.
LEAST_PHOTOS = 2 * JUDGING_FOLDS


def fit_logistic(examples: Examples, what: str) -> LogisticModel:
    """Fit the model with the features and penalty of the best cross-validated log loss.

    Args:
        examples: Cases to fit to; features that they lack are not used.
        what: Name of the examples in the error message.

    Raises:
        InputError: If there are too few photos, or a fold leaves no right or no wrong case.
    """
    names: list[Feature] = list(examples.features)
    values = np.stack([examples.features[name] for name in names], axis=1)  # (n, features)
    # Without alignment scores, some sets are equal.
    sets: dict[tuple[Feature, ...], None] = dict.fromkeys(
        tuple(name for name in each if name in names) for each in FEATURE_SETS
    )
    choices = [
        [_Choice([names.index(name) for name in chosen], penalty) for penalty in _INVERSE_PENALTIES]
        for chosen in sets
    ]
    losses = np.empty((len(choices), len(_INVERSE_PENALTIES), CHOOSING_FOLDS))
    for fold, (train, test) in enumerate(photo_folds(examples, CHOOSING_FOLDS, what)):
        scaler = _scaler(values[train])
        seen: NDArray[np.float64] = scaler.transform(values[train])
        unseen: NDArray[np.float64] = scaler.transform(values[test])
        of_train, of_test = examples.take(train), examples.take(test)
        for place in np.ndindex(losses.shape[:2]):
            choice = choices[place[0]][place[1]]
            fitted = _fit(seen, of_train, choice)
            judged = fitted.predict_proba(unseen[:, choice.columns])[:, 1]
            losses[(*place, fold)] = log_loss(judged, of_test.right, of_test.weights)
    choice = _chosen(choices, losses)
    scaler = _scaler(values)
    fitted = _fit(scaler.transform(values), examples, choice)
    return LogisticModel(
        intercept=float(fitted.intercept_[0]),
        terms=[
            Term(
                feature=names[column],
                mean=float(scaler.mean_[column]),
                deviation=float(scaler.scale_[column]),
                weight=float(weight),
            )
            for column, weight in zip(choice.columns, fitted.coef_[0], strict=True)
        ],
    )


def out_of_fold(examples: Examples, what: str) -> NDArray[np.float64]:
    """Judge each photo's cases by a model that was chosen and fitted without them.

    Args:
        examples: Cases to fit to and to judge.
        what: Name of the examples in the error message.

    Returns:
        (n,) probabilities.

    Raises:
        InputError: If fitting is impossible; see `fit_logistic`.
    """
    probabilities = np.empty(len(examples.right))
    for train, test in photo_folds(examples, JUDGING_FOLDS, what):
        model = fit_logistic(examples.take(train), what)
        probabilities[test] = model.probability(examples.take(test).features)
    return probabilities


def photo_folds(
    examples: Examples, count: int, what: str
) -> Iterator[tuple[NDArray[np.int64], NDArray[np.int64]]]:
    """Yield each fold's training and test positions; all cases of a photo are in one fold.

    Args:
        examples: Cases to divide.
        count: Number of folds.
        what: Name of the examples in the error message.

    Raises:
        InputError: If there are fewer photos than folds, or if the training cases are all right or
            all wrong.
    """
    from sklearn.model_selection import GroupKFold

    photos = len(np.unique(examples.photos))
    if photos < count:
        raise InputError(f"{what}: expected at least {count} photos, found {photos}")
    # Shuffled, because neighbours in a data set are often alike.
    folds = GroupKFold(count, shuffle=True, random_state=0)
    for train, test in folds.split(examples.right, groups=examples.photos):
        right = int(examples.right[train].sum())
        if right in (0, len(train)):
            raise InputError(
                f"{what}: expected right and wrong ones in every fold, found {right} right of "
                f"{len(train)}; more photos are needed"
            )
        yield train, test


class _Choice(NamedTuple):
    """A candidate of cross-validation: columns of the features, and scikit-learn's C."""

    columns: list[int]
    inverse_penalty: float


def _chosen(choices: list[list[_Choice]], losses: NDArray[np.float64]) -> _Choice:
    """Choose the smallest feature set whose loss is not clearly above the lowest.

    Clearly is more than one standard error of the difference: what a larger set seems to gain
    below that may be the luck of these photos.

    Args:
        choices: Choices by feature set and penalty.
        losses: (sets, penalties, folds) of these.
    """
    penalties = losses.mean(axis=2).argmin(axis=1)  # (sets,)
    of_sets = losses[np.arange(len(losses)), penalties]  # (sets, folds)
    more = of_sets - of_sets[of_sets.mean(axis=1).argmin()]
    within = more.mean(axis=1) <= more.std(axis=1, ddof=1) / np.sqrt(CHOOSING_FOLDS)
    smallest = int(np.flatnonzero(within)[0])
    return choices[smallest][penalties[smallest]]


def _scaler(values: NDArray[np.float64]) -> Any:
    from sklearn.preprocessing import StandardScaler

    return StandardScaler().fit(values)


def _fit(scaled: NDArray[np.float64], examples: Examples, choice: _Choice) -> Any:
    from sklearn.linear_model import LogisticRegression

    # This solver is made for few features, many cases and collinear features.
    regression = LogisticRegression(
        C=choice.inverse_penalty, solver="newton-cholesky", max_iter=1000
    )
    return regression.fit(scaled[:, choice.columns], examples.right, examples.weights)
