"""Verdicts on claims, each worked out by hand on four photos."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from aladin_network.errors import ConfigError, DataError
from aladin_training.comparison.claims import (
    Claim,
    JudgedClaim,
    Verdict,
    judge,
    read_claims,
    sides_of,
)
from aladin_training.comparison.kept import keep, load_sides
from aladin_training.comparison.plan import ComparisonPlan
from aladin_training.comparison.summary import summarize_plan
from aladin_training.config.recipe import Recipe
from benchmarks.training import verdicts as verdicts_command
from tests.training.comparison.conftest import FinishRun

FOUND, LOST = [0] * 8, [50] * 8
ALL_FOUND = {"text_ranks": FOUND, "image_ranks": FOUND[:4]}
# Captions 0 to 3 are of photos 0 and 1, captions 4 to 7 of photos 2 and 3.
FIRST_HALF, SECOND_HALF = [0] * 4 + [50] * 4, [50] * 4 + [0] * 4
WORSE_BUT_APART = {"text_ranks": LOST, "image_ranks": LOST[:4], "ahead": 2.5}
FOURTH = {"text_ranks": [3] * 8, "image_ranks": FOUND[:4]}


@pytest.fixture
def finished(plan: ComparisonPlan, finish_run: FinishRun) -> ComparisonPlan:
    """Three seeds: the baseline finds the first half of the photos, "third" the other half.

    Each test finishes the runs of "long" that it needs.
    """
    plan = dataclasses.replace(plan, seeds=(0, 1, 2))
    base, _, third = plan.recipes
    for seed in plan.seeds:
        finish_run(plan.run(base, seed), FIRST_HALF, LOST[:4])
        finish_run(plan.run(third, seed), SECOND_HALF, LOST[:4])
    return plan


def claimed(better: str, than: str, **more: Any) -> Claim:
    given = more if "size" in more else {"unknown": "made up", **more}
    return Claim("A PAPER", "Table 1", "it helps", better, than, **given)


def judged(plan: ComparisonPlan, *claims: Claim) -> list[JudgedClaim]:
    return judge(sides_of(claims, summarize_plan(plan, {}, {})))


# By the alignment, whose ranks are all 20, nobody finds anything: 600 points in all draws. Between
# the two halves each photo is worth +300 or -300 points: the mean of four draws is at an end 2
# times in 16. Where "long" finds every photo and, as the 4th, every caption, captions gain 100 at
# R@5 and R@10 on one half and lose 100 at R@1 on the other; photos gain 100 at each of the three.
@pytest.mark.parametrize(
    ("long", "claim", "verdict", "interval"),
    [
        (ALL_FOUND, claimed("long", "third", than_score="alignment"), "confirmed", (600,) * 3),
        (ALL_FOUND, claimed("third", "long", score="alignment"), "refuted", (-600,) * 3),
        (ALL_FOUND, claimed("third", "base"), "not shown", (0, -300, 300)),
        (ALL_FOUND, claimed("third", "base", size=299.0), "not shown", (0, -300, 300)),
        (ALL_FOUND, claimed("third", "base", size=301.0), Verdict.EXCLUDED, (0, -300, 300)),
        (FOURTH, claimed("long", "base"), "confirmed", (-50 + 50 + 50 + 300, 200, 500)),
        (FOURTH, claimed("long", "base", measure="r1"), "not shown", ((-50 + 100) / 2, 0, 50)),
        (FOURTH, claimed("long", "base", measure="r1_r5"), "confirmed", (-50 + 50 + 200, 100, 300)),
        (WORSE_BUT_APART, claimed("long", "base"), "not shown", (-150, -300, 0)),
        (WORSE_BUT_APART, claimed("long", "base", measure="md"), "confirmed", (0.5,) * 3),
        (WORSE_BUT_APART, claimed("base", "long", measure="md"), "refuted", (-0.5,) * 3),
    ],
)
def test_the_verdict_on_a_claim_of_three_seeds(
    long: dict[str, Any],
    claim: Claim,
    verdict: str,
    interval: tuple[float, ...],
    finished: ComparisonPlan,
    finish_run: FinishRun,
) -> None:
    for seed in finished.seeds:
        finish_run(finished.run(finished.recipes[1], seed), **long)
    (only,) = judged(finished, claim)
    assert only.found is not None
    assert only.found.interval == pytest.approx(interval, abs=1e-6)
    assert only.verdict == verdict


@pytest.mark.parametrize(
    ("size", "says"),
    [
        (599.0, "confirmed"),
        (601.0, "confirmed, smaller than the paper's size"),
    ],
)
def test_a_confirmed_claim_may_be_smaller_than_the_paper_s(
    size: float, says: str, finished: ComparisonPlan, finish_run: FinishRun
) -> None:
    for seed in finished.seeds:
        finish_run(finished.run(finished.recipes[1], seed), **ALL_FOUND)
    (only,) = judged(finished, claimed("long", "third", than_score="alignment", size=size))
    assert only.describe() == says


def test_intervals_hold_for_all_claims_together(
    finished: ComparisonPlan, finish_run: FinishRun
) -> None:
    for seed in finished.seeds:
        finish_run(finished.run(finished.recipes[1], seed), **ALL_FOUND)
    (alone,) = judged(finished, claimed("long", "base"))
    elsewhere = claimed("third", "elsewhere")
    several = judged(finished, elsewhere, claimed("long", "base"), claimed("third", "base"))
    assert [each.claim.better for each in several] == ["long", "third"]
    assert alone.found is not None
    assert several[0].found is not None
    assert several[0].found.interval.low <= alone.found.interval.low


@pytest.mark.parametrize("seeds", [0, 2])
def test_two_seeds_are_no_verdict(
    seeds: int, finished: ComparisonPlan, finish_run: FinishRun
) -> None:
    for seed in range(seeds):
        finish_run(finished.run(finished.recipes[1], seed), **ALL_FOUND)
    (only,) = judged(finished, claimed("long", "third", than_score="alignment"))
    assert (only.verdict, only.found is None) == (Verdict.OPEN, seeds == 0)


def test_a_control_of_as_many_steps_stands_in_for_the_other_recipe(
    finished: ComparisonPlan, finish_run: FinishRun, variant: Callable[..., Recipe]
) -> None:
    controls = {n: variant(f"base-{n}-steps", "stage.student.epochs=5") for n in (8, 10, 20)}
    names = {control.name: "base" for control in controls.values()}
    recipes = (*finished.recipes, *controls.values())
    plan = dataclasses.replace(finished, recipes=recipes, controls=names)
    claims = [claimed("long", "base"), claimed("third", "base")]

    def finish(recipe: Recipe, steps: int) -> None:
        for seed in plan.seeds:
            finish_run(plan.run(recipe, seed), **ALL_FOUND, final_steps=steps)

    assert [each.steps for each in judged(plan, *claims)] == [None, (4, 4)]  # "long" is not there
    finish(plan.recipes[1], 10)
    unequal, equal = judged(plan, *claims)  # no control is finished
    assert (unequal.than, unequal.steps, unequal.verdict) == ("base", (10, 4), Verdict.UNEQUAL)
    assert "unequal steps and no control" in unequal.describe()
    assert unequal.found is None
    assert equal.verdict == Verdict.NOT_SHOWN
    finish(controls[8], 8)
    assert judged(plan, *claims)[0].verdict == Verdict.UNEQUAL
    for steps in (20, 10):
        finish(controls[steps], steps)
    longer, as_long = judged(plan, *claims)
    assert (longer.than, as_long.than) == ("base-10-steps", "base")
    assert longer.steps == (10, 10)
    assert longer.found is not None
    assert longer.found.interval == (0, 0, 0)
    assert longer.without_control is not None
    assert longer.without_control.difference == 450  # what it finds more than the baseline itself
    assert as_long.without_control is None
    # A control of another recipe is none.
    plan = dataclasses.replace(plan, controls=dict.fromkeys(names, "third"))
    assert judged(plan, *claims)[0].verdict == Verdict.UNEQUAL


def test_folds_are_judged_by_primary_claims_alone_and_each_by_its_own_photos(
    plan: ComparisonPlan, finish_run: FinishRun, variant: Callable[..., Recipe]
) -> None:
    """Two folds of two runs: one finds the first half of its photos more, the other all of them."""
    recipes = tuple(variant(name, "data.selection=0.4") for name in ("base", "long"))
    plan = dataclasses.replace(plan, recipes=recipes, seeds=(0, 1, 2, 3), cross=2)
    for seed in plan.seeds:
        fold, found = f"fold {seed % 2}", 2 + 2 * (seed % 2)
        finish_run(plan.run(recipes[0], seed), LOST, LOST[:4], queries=fold)
        of_photos = FOUND[:found] + LOST[found:4]
        finish_run(plan.run(recipes[1], seed), LOST, of_photos, queries=fold)
    claims = [claimed("long", "base"), claimed("long", "base", primary=True)]
    (only,) = judged(plan, *claims)
    assert only.claim.primary
    assert only.runs == 4
    assert only.found is not None
    assert only.found.interval.difference == pytest.approx((150 + 300) / 2)


def test_kept_ranks_have_the_verdicts(
    finished: ComparisonPlan,
    finish_run: FinishRun,
    variant: Callable[..., Recipe],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    control = variant("base-10-steps", "stage.student.epochs=5")
    recipes = (*finished.recipes, control)
    plan = dataclasses.replace(finished, recipes=recipes, controls={control.name: "base"})
    for seed in plan.seeds:
        finish_run(plan.run(recipes[1], seed), **FOURTH, final_steps=10)
        finish_run(plan.run(control, seed), FIRST_HALF, LOST[:4], final_steps=10)
    claims = [
        claimed("long", "base", size=600.0),
        claimed("third", "long", measure="r1"),
        claimed("third", "base", measure="md"),
        claimed("long", "third", than_score="alignment", measure="r1_r5"),
    ]
    sides = sides_of(claims, summarize_plan(plan, {}, {}))
    before = judge(sides)
    keep(tmp_path, sides, before)
    loaded, verdicts = load_sides(tmp_path)
    of_ranks = [before[0], before[1], before[3]]
    assert judge(loaded[:1]) == judge(sides[:1])
    again = judge(loaded)
    assert [each.claim for each in again] == [claims[0], claims[1], claims[3]]
    assert [each.verdict for each in again] == verdicts == [each.verdict for each in of_ranks]
    assert [each.without_control for each in again] == [each.without_control for each in of_ranks]
    kept = json.loads((tmp_path / "claims.json").read_text())
    assert kept["claims"][0]["compared_with"] == "base-10-steps"
    assert kept["claims"][0]["steps"] == [10, 10]
    with np.load(tmp_path / "ranks.npz") as file:
        assert {file[name].dtype for name in file.files} == {np.dtype(np.int16)}
    # The command ends well, unless a verdict is not that of the ranks.
    monkeypatch.setattr("sys.argv", ["verdicts", str(tmp_path)])
    verdicts_command.main()
    assert len(json.loads(capsys.readouterr().out)["claims"]) == 3
    kept["claims"][1]["verdict"] = "confirmed"
    (tmp_path / "claims.json").write_text(json.dumps(kept))
    with pytest.raises(SystemExit, match=r"kept are .*confirmed"):
        verdicts_command.main()
    (tmp_path / "ranks.npz").unlink()
    with pytest.raises(DataError, match="holds no kept comparison"):
        load_sides(tmp_path)


def test_kept_runs_of_several_machines_are_judged_together(
    finished: ComparisonPlan,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    claims = [claimed("third", "base"), claimed("base", "third", measure="r1")]
    whole, *parts = (tmp_path / name for name in ("whole", "first", "last"))
    for folder, seeds in ((whole, (0, 1, 2)), (parts[0], (0,)), (parts[1], (1, 2))):
        folder.mkdir()
        plan = dataclasses.replace(finished, seeds=seeds)
        sides = sides_of(claims, summarize_plan(plan, {}, {}))
        keep(folder, sides, judge(sides))
    assert load_sides(parts[0])[1] == ["open"] * 2
    joined = tmp_path / "joined"
    monkeypatch.setattr("sys.argv", ["verdicts", *map(str, parts), "--out", str(joined)])
    verdicts_command.main()
    assert [each["runs"] for each in json.loads(capsys.readouterr().out)["claims"]] == [3, 3]
    assert judge(load_sides(joined)[0]) == judge(load_sides(whole)[0])
    kept = [json.loads((folder / "claims.json").read_text()) for folder in (joined, whole)]
    assert kept[0]["claims"] == kept[1]["claims"]
    with pytest.raises(DataError, match="third has seed 1 in another folder, too"):
        load_sides(parts[1], whole)


BARE = "[[claim]]\npaper = 'A'\nsource = 'A'\ntext = 'A'\nbetter = 'A'\nthan = 'A'\n"
WHOLE = f"{BARE}unknown = 'A'\n"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("[[claim]]\npaper = 'A'", "claim.0.source"),
        (f"{WHOLE}best = 'A'", "claim.0.best"),
        (f"{WHOLE}measure = 'mrr'", "claim.0.measure"),
        (BARE, "either a size above 0 or why it is unknown"),
        (f"{WHOLE}size = 1.0", "either a size above 0 or why it is unknown"),
        (f"{BARE}size = -1.0", "either a size above 0 .* got -1.0"),
        ("[[claim", "no file of claims"),
        (None, "no file of claims"),
    ],
)
def test_faulty_files_of_claims_are_refused(text: str | None, says: str, tmp_path: Path) -> None:
    file = tmp_path / "claims.toml"
    if text is not None:
        file.write_text(text, encoding="utf-8")
    with pytest.raises(ConfigError, match=says):
        read_claims(file)
