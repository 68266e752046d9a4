"""Verdicts on claims, each worked out by hand on four photos."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from aladin_network.errors import ConfigError
from aladin_training.comparison.claims import Claim, JudgedClaim, Verdict, judge, read_claims
from aladin_training.comparison.evaluation import RunEvaluation
from aladin_training.comparison.plan import ComparisonPlan
from aladin_training.comparison.report import write_report
from aladin_training.comparison.summary import summarize_plan
from aladin_training.comparison.tables import claims_table
from aladin_training.config.recipe import Recipe

FinishRun = Callable[..., RunEvaluation]

FOUND, LOST = [0] * 8, [50] * 8
# Captions 0 to 3 are of photos 0 and 1, captions 4 to 7 of photos 2 and 3.
FIRST_HALF, SECOND_HALF = [0] * 4 + [50] * 4, [50] * 4 + [0] * 4


@pytest.fixture
def finished(plan: ComparisonPlan, finish_run: FinishRun) -> ComparisonPlan:
    """Three seeds: the baseline finds the first half of the photos, "third" the other half.

    "long" finds everything; two of its seeds are finished only where a test asks for them.
    """
    plan = dataclasses.replace(plan, seeds=(0, 1, 2))
    base, _, third = plan.recipes
    for seed in plan.seeds:
        finish_run(plan.run(base, seed), FIRST_HALF, LOST[:4])
        finish_run(plan.run(third, seed), SECOND_HALF, LOST[:4])
    return plan


def claimed(better: str, than: str, **scores: Any) -> Claim:
    return Claim("A PAPER", "Table 1", "it helps", better, than, **scores)


def judged(plan: ComparisonPlan, *claims: Claim) -> list[JudgedClaim]:
    return judge(claims, summarize_plan(plan, {}, {}))


def finish_long(plan: ComparisonPlan, finish_run: FinishRun, seeds: int, steps: int = 4) -> None:
    for seed in plan.seeds[:seeds]:
        finish_run(plan.run(plan.recipes[1], seed), FOUND, FOUND[:4], final_steps=steps)


def test_the_same_gain_on_every_photo_confirms_and_refutes(
    finished: ComparisonPlan, finish_run: FinishRun
) -> None:
    """By the alignment, whose ranks are all 20, nobody finds anything: 600 points in all draws."""
    finish_long(finished, finish_run, 3)
    for_it, against_it = judged(
        finished,
        claimed("long", "third", than_score="alignment"),
        claimed("third", "long", score="alignment"),
    )
    assert for_it.found is not None
    assert for_it.found.interval == pytest.approx((600, 600, 600))
    assert for_it.verdict is Verdict.CONFIRMED
    assert against_it.found is not None
    assert against_it.found.interval == pytest.approx((-600, -600, -600))
    assert against_it.verdict is Verdict.REFUTED
    assert (for_it.describe(), against_it.describe()) == ("confirmed", "refuted")


def test_a_difference_that_depends_on_the_photos_is_not_shown(finished: ComparisonPlan) -> None:
    """Each photo is worth +300 or -300 points; the mean of four draws is at an end 2 times in 16.

    So 95 % of draws are within 300 points of 0, and the standard error is 300 / sqrt(4) = 150.
    """
    (only,) = judged(finished, claimed("third", "base"))
    assert only.verdict is Verdict.NOT_SHOWN
    assert only.found is not None
    assert only.found.interval == pytest.approx((0, -300, 300))
    assert only.found.smallest_effect == pytest.approx(300 + 0.8416 * 150, rel=0.03)
    assert only.describe() == f"not shown (smallest effect {only.found.smallest_effect:.1f})"


def test_intervals_hold_for_all_claims_together(
    finished: ComparisonPlan, finish_run: FinishRun
) -> None:
    """Texts found by "long" alone: +300 on every photo of one half, 0 on the others."""
    finish_long(finished, finish_run, 3)
    (alone,) = judged(finished, claimed("long", "base"))
    together, _ = judged(finished, claimed("long", "base"), claimed("third", "base"))
    assert alone.found is not None
    assert together.found is not None
    assert together.found.interval.low <= alone.found.interval.low


def test_a_claim_about_r1_takes_no_notice_of_lower_ranks(
    finished: ComparisonPlan, finish_run: FinishRun
) -> None:
    """With "long" captions find their photos as 4th: five of six recalls, but not R@1, see it."""
    long = finished.recipes[1]
    for seed in finished.seeds:
        finish_run(finished.run(long, seed), [3] * 8, [0] * 4)
    by_all, by_first = judged(
        finished, claimed("long", "base"), claimed("long", "base", measure="r1")
    )
    assert by_all.found is not None
    assert by_first.found is not None
    # Captions gain 0 at R@1 and 100 at R@5 and R@10 on the half that the baseline loses, and lose
    # 100 at R@1 on the other half; photos gain 100 at each of the three.
    assert by_all.found.interval.difference == pytest.approx(-50 + 50 + 50 + 300)
    assert by_first.found.interval.difference == pytest.approx((-50 + 100) / 2)


@pytest.mark.parametrize("measure", ["md", "margin"])
def test_separation_is_judged_by_the_scores(
    measure: str, finished: ComparisonPlan, finish_run: FinishRun
) -> None:
    """The scores of "third" are the baseline's, but .5 more for positive pairs; its ranks worse."""
    third = finished.recipes[2]
    for seed in finished.seeds:
        finish_run(finished.run(third, seed), LOST, LOST[:4], ahead=2.5)
    by_ranks, apart, not_apart = judged(
        finished,
        claimed("third", "base"),
        claimed("third", "base", measure=measure),
        claimed("base", "third", measure=measure),
    )
    assert by_ranks.found is not None
    assert by_ranks.found.interval.difference < 0
    assert apart.found is not None
    assert apart.found.interval == pytest.approx((0.5, 0.5, 0.5), abs=1e-6)
    assert (apart.verdict, not_apart.verdict) == (Verdict.CONFIRMED, Verdict.REFUTED)


def test_separation_is_written_in_the_scores_unit(
    finished: ComparisonPlan, finish_run: FinishRun
) -> None:
    third = finished.recipes[2]
    for seed in finished.seeds:
        finish_run(finished.run(third, seed), FOUND, FOUND[:4], ahead=2.0 + 0.001 * (seed - 1))
    (only,) = judged(finished, claimed("third", "base", measure="md"))
    assert only.verdict is Verdict.NOT_SHOWN
    assert only.found is not None
    assert 0.0005 < only.found.smallest_effect < 0.01
    assert only.describe() == f"not shown (smallest effect {only.found.smallest_effect:.3f})"
    row = claims_table([only]).rows[0]
    assert row[3:6] == [
        "MD",
        "3",
        f"+0.000 (-{(high := only.found.interval.high):.3f} to +{high:.3f})",
    ]


@pytest.mark.parametrize("seeds", [0, 2])
def test_two_seeds_are_no_verdict(
    seeds: int, finished: ComparisonPlan, finish_run: FinishRun
) -> None:
    finish_long(finished, finish_run, seeds)
    (only,) = judged(finished, claimed("long", "third", than_score="alignment"))
    assert only.verdict is Verdict.OPEN
    assert only.describe() == f"open ({seeds} of at least 3 seeds)"
    assert (only.found is None) == (seeds == 0)


def test_claims_of_other_recipes_are_left_out(finished: ComparisonPlan) -> None:
    found = judged(finished, claimed("third", "elsewhere"), claimed("third", "base"))
    assert [each.claim.than for each in found] == ["base"]


def test_a_control_of_as_many_steps_stands_in_for_the_baseline(
    finished: ComparisonPlan, finish_run: FinishRun, variant: Callable[..., Recipe]
) -> None:
    controls = [variant(f"base-{steps}-steps", "stage.student.epochs=5") for steps in (8, 10, 20)]
    plan = dataclasses.replace(
        finished,
        recipes=(*finished.recipes, *controls),
        controls=tuple(control.name for control in controls),
    )
    finish_long(plan, finish_run, 3, steps=10)
    claims = [claimed("long", "base"), claimed("third", "base")]
    # None of them is finished yet.
    assert [each.than for each in judged(plan, *claims)] == ["base", "base"]
    for control, steps in zip(controls, (8, 10, 20), strict=True):
        for seed in plan.seeds:
            finish_run(plan.run(control, seed), FOUND, FOUND[:4], final_steps=steps)
    longer, as_long = judged(plan, *claims)
    assert (longer.than, as_long.than) == ("base-10-steps", "base")
    assert longer.found is not None
    assert longer.found.interval == (0, 0, 0)


def test_the_report_has_the_verdicts(
    finished: ComparisonPlan, monkeypatch: pytest.MonkeyPatch
) -> None:
    comparison = summarize_plan(finished, {}, {})
    markdown, _ = write_report(comparison)
    assert "Claims of the papers" not in markdown.read_text()
    claims = (claimed("third", "base"), claimed("long", "base", score="two_stage"))
    monkeypatch.setattr("aladin_training.comparison.report.read_claims", lambda: claims)
    write_report(comparison)
    report = markdown.read_text()
    assert (
        "| A PAPER, Table 1: it helps | third | base | rsum | 3 | +0.0 (-300.0 to +300.0) |"
        in report
    )
    assert "| long by two-stage | base | rsum | 0 | - | open (0 of at least 3 seeds) |" in report
    first, second = json.loads((finished.out / "claims.json").read_text())["claims"]
    assert (first["verdict"], first["compared_with"], first["low"]) == ("not shown", "base", -300)
    assert (second["verdict"], second["seeds"], "low" in second) == ("open", 0, False)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("[[claim]]\npaper = 'A'", "claim.0.source"),
        ("[[claim]]\nbest = 'A'", "claim.0.best"),
        (
            "[[claim]]\n"
            + "\n".join(f"{key} = 'A'" for key in ("paper", "source", "text", "better", "than"))
            + "\nmeasure = 'mrr'",
            "claim.0.measure",
        ),
        ("[[claim", "no file of claims"),
        (None, "no file of claims"),
    ],
)
def test_faulty_files_of_claims(text: str | None, says: str, tmp_path: Path) -> None:
    file = tmp_path / "claims.toml"
    if text is not None:
        file.write_text(text, encoding="utf-8")
    with pytest.raises(ConfigError, match=says):
        read_claims(file)
