"""What is drawn: which recipes share a panel, and the mean curve over seeds."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from aladin_training.comparison.drawing import panels
from aladin_training.comparison.evaluation import RunEvaluation
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
