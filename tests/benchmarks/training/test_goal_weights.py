"""The drawn weights are those of the formulas, at queries whose sets of others are known."""

from __future__ import annotations

import json
import math
import sys
from pathlib import Path

import pytest

from aladin_training.losses.gradient import GradientObjective
from benchmarks.training import goal_weights
from benchmarks.training.goal_weights import (
    OTHER_NEGATIVE,
    OTHER_POSITIVE,
    PAIRS,
    TRIPLETS,
    triplet_weights,
    weights_of_query,
)


def sigmoid(x: float) -> float:
    return 1 / (1 + math.exp(-x))


@pytest.mark.parametrize(("p", "q"), [(0.9, 0.1), (0.3, 0.6), (0.5, 0.45)])
def test_triplet_weights_are_equations_5_7_and_8(p: float, q: float) -> None:
    circle = p * (2 - p) - q * q
    expected = {
        "con": float(0.2 + q - p > 0),
        "nca": sigmoid(10 * (q - p)),
        "cir": sigmoid(-10 * circle),
        "cir, official circle": sigmoid(-10 * (circle - 0.5)),
    }
    assert expected.keys() == TRIPLETS.keys()
    for name, objective in TRIPLETS.items():
        assert weights_of_query(objective, p, q) == pytest.approx((expected[name],) * 2), name


@pytest.mark.parametrize(("p", "q"), [(0.45, 0.6), (0.3, 0.5), (0.2, 0.9)])
def test_pair_weights_are_equations_9_to_13(p: float, q: float) -> None:
    plus, minus = math.exp(2 * (p - 0.5)), math.exp(-10 * (q - 0.5))
    expected = {
        "con": (1, 1),
        "lin": (1 - p, q),
        "sig": (1 / (1 + plus), 1 / (1 + minus)),
        "lin_ms": (
            (1 - (p - OTHER_POSITIVE)) * (1 - p),
            (1 + (q - OTHER_NEGATIVE)) * q,
        ),
        "sig_ms": (
            1 / (math.exp(2 * (p - OTHER_POSITIVE)) + plus),
            1 / (math.exp(-10 * (q - OTHER_NEGATIVE)) + minus),
        ),
    }
    assert expected.keys() == PAIRS.keys()
    for name, objective in PAIRS.items():
        assert weights_of_query(objective, p, q) == pytest.approx(expected[name]), name


def test_rows_of_the_picture_are_negatives_and_columns_positives() -> None:
    weights = triplet_weights(GradientObjective("con"), [0.0, 0.5, 1.0])
    assert weights.tolist() == [[1, 0, 0], [1, 1, 0], [1, 1, 1]]


def test_the_picture_and_the_numbers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "weights.png"
    monkeypatch.setattr(sys, "argv", ["goal_weights", "--out", str(file), "--steps", "6"])
    goal_weights.main()
    assert file.read_bytes().startswith(b"\x89PNG")
    assert capsys.readouterr().out.strip() == str(file)
    monkeypatch.setattr(sys, "argv", ["goal_weights", "--json"])
    goal_weights.main()
    found = json.loads(capsys.readouterr().out)
    assert {"p": 0.25, "q": 0.5, "pull": 1.0, "push": 1.0} in found["con"]
