"""What is drawn: which recipes share a panel, the mean curve over seeds, bars of ranks."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from aladin_training.comparison.drawing import panels
from aladin_training.comparison.evaluation import RunEvaluation, save_evaluation
from aladin_training.comparison.figures import draw_cross_ranks
from aladin_training.comparison.plan import ComparisonPlan
from aladin_training.comparison.summary import mean_curve, summarize_plan


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        ("", []),
        ("a-1 a-2 b c-1", ["a-1 a-2 b", "c-1"]),
        ("a b-1 b-2 b-3 c", ["a", "b-1 b-2 b-3", "c"]),
        ("a-1 a-2 a-3 a-4 b", ["a-1 a-2", "a-3 a-4 b"]),
        ("a-1 a-2 a-3 a-4 a-5 a-6 a-7", ["a-1 a-2 a-3", "a-4 a-5 a-6", "a-7"]),
    ],
)
def test_names_with_the_same_first_word_share_a_panel(names: str, expected: list[str]) -> None:
    assert panels(names.split(), size=3) == [panel.split() for panel in expected]


def test_a_curve_is_the_mean_where_all_seeds_were_validated(
    plan: ComparisonPlan, finish_run: Callable[..., RunEvaluation]
) -> None:
    recipe = plan.recipes[0]
    finish_run(plan.run(recipe, 0), [0] * 8, [0] * 4, curve=(100.0, 200.0, 300.0))
    finish_run(plan.run(recipe, 1), [0] * 8, [0] * 4, curve=(200.0, 200.0))
    summary = summarize_plan(plan, {}, {}).summaries[0]
    curves = [run.curve for run in summary.runs.values()]
    assert mean_curve(curves) == [(2, 150.0, pytest.approx(100 / 2**0.5)), (4, 200.0, 0.0)]


def test_bars_of_cross_ranks_reach_from_a_rank_to_its_double(
    plan: ComparisonPlan,
    finish_run: Callable[..., RunEvaluation],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    base, long, _ = plan.recipes
    for recipe, of_pairs in ((base, [1, 1, 1, 1, 2, 3, 4, 7]), (long, [1, 2, 3, 3, 7, 8, 8, 9])):
        run = plan.run(recipe, 0)
        evaluation = finish_run(run, [0] * 8, [0] * 4)
        of_score = dict.fromkeys(("matching", "alignment"), torch.tensor(of_pairs))
        save_evaluation(run.folder, dataclasses.replace(evaluation, cross_ranks=of_score))
    drawn: list[Any] = []
    monkeypatch.setattr(
        "aladin_training.comparison.figures.save_figure", lambda figure, _: drawn.append(figure)
    )
    assert draw_cross_ranks(summarize_plan(plan, {}, {}), tmp_path / "cross_ranks.png")
    (axes,) = drawn[0].axes
    assert axes.get_title() == "long\nmedian rank 5"  # between 3 and 7
    of_long, of_base = (bars.get_data() for bars in axes.patches)
    assert list(of_long.edges) == list(of_base.edges) == [1, 2, 4, 8, 16]
    assert list(of_long.values) == [12.5, 37.5, 12.5, 37.5]
    assert list(of_base.values) == [50, 25, 25, 0]
