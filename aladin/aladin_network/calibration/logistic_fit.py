"""Fitting of logistic regressions to queries with and without their right answers.

The features and the penalty are chosen by cross-validation over photos.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from aladin_network.calibration.examples import KINDS, Examples
from aladin_network.calibration.features import (
    FEATURE_SETS,
    NOVELTY_SETS,
    Feature,
    LogisticModel,
    Term,
    probability_of_all,
)
from aladin_network.calibration.measures import NoMatchKind, log_loss
from aladin_network.errors import InputError

# Values of scikit-learn's C; the data decide between hardly any penalty and a strong one.
_INVERSE_PENALTIES = (0.01, 0.1, 1.0)


# Number of folds of the cross-validation that chooses a model, and of the outer one that judges.
# Models of the outer one should be as good as the model that is fitted to all photos.
CHOOSING_FOLDS, JUDGING_FOLDS = 5, 10
# Two photos to judge in each fold: fewer are not informative.
LEAST_PHOTOS = 2 * JUDGING_FOLDS


def fit_logistic(
    examples: Examples, what: str, feature_sets: Sequence[Sequence[Feature]] = FEATURE_SETS
) -> LogisticModel:
    """Fit the model with the features and penalty of the best cross-validated log loss.

    Args:
        examples: Cases to fit to; features that they lack are not used.
        what: Name of the examples in the error message.
        feature_sets: Sets of features to choose from, smallest first.

    Raises:
        InputError: If there are too few photos, or a fold leaves no right or no wrong case.
    """
    names: list[Feature] = list(examples.features)
    values = np.stack([examples.features[name] for name in names], axis=1)  # (n, features)
    # Without alignment scores, some sets are equal.
    sets: dict[tuple[Feature, ...], None] = dict.fromkeys(
        tuple(name for name in each if name in names) for each in feature_sets
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


def fit_kinds(examples: Examples, what: str) -> dict[NoMatchKind, LogisticModel]:
    """Fit a model for each kind of queries without a match, against those with one.

    One model for all kinds would be wrong: the log-odds against a mixture of kinds are not linear
    in the signals, even if those against each kind are.

    Args:
        examples: Cases of queries, see `StageExamples`.
        what: Name of the examples in the error message.

    Returns:
        By kind, "hard" first.

    Raises:
        InputError: If fitting is impossible; see `fit_logistic`.
    """
    models: dict[NoMatchKind, LogisticModel] = {}
    for kind in KINDS:
        if kind == "hard" or examples.has(kind):
            sets = FEATURE_SETS if kind == "hard" else NOVELTY_SETS
            models[kind] = fit_logistic(examples.of_kind(kind), f"{what}, {kind}", sets)
    return models


def out_of_fold(
    examples: Examples, what: str, fit: Callable[[Examples, str], Sequence[LogisticModel]]
) -> NDArray[np.float64]:
    """Judge each photo's cases by models that were chosen and fitted without them.

    Args:
        examples: Cases to fit to and to judge.
        what: Name of the examples in the error message.
        fit: Fits the models, whose alternatives are equally likely.

    Returns:
        (n,) probabilities.

    Raises:
        InputError: If fitting is impossible; see `fit_logistic`.
    """
    probabilities = np.empty(len(examples.right))
    for train, test in photo_folds(examples, JUDGING_FOLDS, what):
        models = fit(examples.take(train), what)
        probabilities[test] = probability_of_all(models, examples.take(test).features)
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
