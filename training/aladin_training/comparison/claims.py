"""What the papers claim, and what a comparison says of it.

`training/recipes/papers/_claims.toml` lists the claims: this recipe is ahead of that one, by the
measure and the size that the paper has, written down before any run.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import ClassVar, NamedTuple

from aladin_network.config import STRICT, parse_config
from aladin_network.errors import ConfigError
from aladin_network.scoring.bootstrap import (
    Interval,
    ResampledDifference,
    SimultaneousInterval,
    simultaneous_intervals,
)
from aladin_training.comparison.budget import as_long, steps_beyond_start
from aladin_training.comparison.evaluation import RunEvaluation
from aladin_training.comparison.measures import Measure, decimals
from aladin_training.comparison.summary import (
    Comparison,
    RecipeSummary,
    difference,
    evaluations_with,
)
from aladin_training.config.rules import check
from aladin_training.config.shipped import recipes_folder

# With fewer runs, their variance is too uncertain for a verdict.
LEAST_RUNS = 3

_FILE = "_claims.toml"


@dataclass(frozen=True)
class Claim:
    """A claim of a paper: one recipe is ahead of another by a measure of a score.

    `size` is by how much in the paper, in the measure's unit; where it is not known, `unknown` says
    why. Primary claims are those of the comparison with folds. Without a score, it is that which
    the final stage trains.
    """

    __pydantic_config__: ClassVar = STRICT

    paper: str
    source: str
    text: str
    better: str
    than: str
    score: str | None = None
    than_score: str | None = None
    measure: Measure = "rsum"
    size: float | None = None
    unknown: str | None = None
    primary: bool = False

    def __post_init__(self) -> None:
        named = f"claim {self.better} over {self.than}: "
        either = "expected either a size above 0 or why it is unknown"
        check(named, [((self.size is None) != (self.unknown is None), either)])
        check(named, [(self.size is None or self.size > 0, f"{either}, got {self.size}")])


@dataclass(frozen=True)
class _ClaimFile:
    __pydantic_config__: ClassVar = STRICT

    claim: tuple[Claim, ...]


class Verdict(StrEnum):
    """Where the interval of a claim's difference lies; intervals hold for all claims together."""

    CONFIRMED = "confirmed"  # above 0
    REFUTED = "refuted"  # below 0
    EXCLUDED = "excludes the paper's size"  # around 0, and below what the paper found
    NOT_SHOWN = "not shown"  # around 0
    OPEN = "open"  # too few runs are finished on both sides
    UNEQUAL = "not judged"  # unequal steps, and no control


class Steps(NamedTuple):
    """The steps of both sides of a claim beyond their common start."""

    better: int
    than: int

    @property
    def unequal(self) -> bool:
        """Whether the side that is said to be ahead takes more."""
        return self.better > self.than


@dataclass(frozen=True)
class JudgedClaim:
    """A claim beside what a comparison found, of the runs that both sides finished.

    Attributes:
        claim: The claim.
        than: The claim's other recipe, or its control of as many steps.
        steps: Steps of both, None before any run is finished.
        runs: Number of runs that both have finished.
        found: The difference, None without a common run.
        without_control: Where a control stands in, the difference to the claim's own other recipe:
            at equal steps of the target alone, if what takes more are its anchors or its miner.
    """

    claim: Claim
    than: str
    steps: Steps | None
    runs: int
    found: SimultaneousInterval | None
    without_control: Interval | None = None

    @property
    def verdict(self) -> Verdict:
        """What the difference says of the claim."""
        if self.steps is not None and self.steps.unequal:
            return Verdict.UNEQUAL
        if self.found is None or self.runs < LEAST_RUNS:
            return Verdict.OPEN
        low, high = self.found.interval[1:]
        if low > 0:
            return Verdict.CONFIRMED
        if high < 0:
            return Verdict.REFUTED
        size = self.claim.size
        return Verdict.EXCLUDED if size is not None and high < size else Verdict.NOT_SHOWN

    def describe(self) -> str:
        """Return the verdict with what it needs to be understood."""
        verdict, digits = self.verdict, decimals(self.claim.measure)
        if verdict is Verdict.UNEQUAL:
            return f"{verdict} (unequal steps and no control: see --controls)"
        if verdict is Verdict.OPEN:
            return f"{verdict} ({self.runs} of at least {LEAST_RUNS} runs)"
        assert self.found is not None
        if verdict in (Verdict.NOT_SHOWN, Verdict.EXCLUDED):
            shown = "not shown, " if verdict is Verdict.EXCLUDED else ""
            return f"{shown}{verdict} (smallest effect {self.found.smallest_effect:.{digits}f})"
        size = self.claim.size
        smaller = size is not None and 0 < self.found.interval.high < size
        return f"{verdict}, smaller than the paper's size" if smaller else str(verdict)


def read_claims(path: Path | None = None) -> tuple[Claim, ...]:
    """Read a file of claims."""
    path = path or recipes_folder() / "papers" / _FILE
    try:
        data = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise ConfigError(f"{path}: no file of claims ({error})") from error
    return parse_config(_ClaimFile, data, str(path)).claim


class Sides(NamedTuple):
    """The two sides of a claim: what their runs answered by seed, and their scores.

    `own` are the runs of the claim's other recipe, where `theirs` are those of its control.
    """

    claim: Claim
    than: str
    steps: Steps | None
    scores: tuple[str, str]
    ours: Mapping[int, RunEvaluation]
    theirs: Mapping[int, RunEvaluation]
    own: Mapping[int, RunEvaluation] | None = None


def sides_of(claims: Iterable[Claim], comparison: Comparison) -> list[Sides]:
    """Find the two sides of the claims whose two recipes a comparison has.

    With folds, only primary claims are judged: each more makes the intervals of all wider.
    """
    summaries = {each.recipe.name: each for each in comparison.summaries}
    found: list[Sides] = []
    for claim in claims:
        ours, theirs = summaries.get(claim.better), summaries.get(claim.than)
        if ours is None or theirs is None or (comparison.plan.cross > 1 and not claim.primary):
            continue
        other, steps = _of_as_many_steps(comparison, ours, theirs)
        scores = claim.score or ours.score, claim.than_score or theirs.score
        of_recipe = [
            evaluations_with(each.runs, score, claim.measure)
            for each, score in ((ours, scores[0]), (other, scores[1]), (theirs, scores[1]))
        ]
        own = None if other is theirs else of_recipe[2]
        name = other.recipe.name
        found.append(Sides(claim, name, steps, scores, of_recipe[0], of_recipe[1], own))
    return found


def judge(sides: Sequence[Sides]) -> list[JudgedClaim]:
    """Judge claims together; those at unequal steps widen no interval."""
    drawn: dict[int, ResampledDifference] = {}
    beside: dict[int, Interval] = {}
    for number, (claim, _, steps, scores, ours, theirs, own) in enumerate(sides):
        if steps is not None and steps.unequal:
            continue
        found = difference(ours, scores[0], theirs, scores[1], claim.measure)
        if found is not None:
            drawn[number] = found
        if own is not None:
            direct = difference(ours, scores[0], own, scores[1], claim.measure)
            if direct is not None:
                beside[number] = direct.interval
    measures = [sides[number].claim.measure for number in drawn]
    together = simultaneous_intervals(list(drawn.values()), measures) if drawn else []
    intervals = dict(zip(drawn, together, strict=True))
    return [
        JudgedClaim(
            claim=each.claim,
            than=each.than,
            steps=each.steps,
            runs=drawn[number].runs if number in drawn else 0,
            found=intervals.get(number),
            without_control=beside.get(number),
        )
        for number, each in enumerate(sides)
    ]


def _of_as_many_steps(
    comparison: Comparison, ours: RecipeSummary, theirs: RecipeSummary
) -> tuple[RecipeSummary, Steps | None]:
    """Return the other recipe, or its control of as many steps, and the steps of both."""
    if not (ours.runs and theirs.runs):
        return theirs, None
    finished = {each.recipe.name: each for each in comparison.summaries if each.runs}
    controls = [
        finished[name].recipe
        for name, of in comparison.plan.controls.items()
        if of == theirs.recipe.name and name in finished
    ]
    found = as_long(ours.recipe, theirs.recipe, controls, comparison.steps) or theirs.recipe
    steps = steps_beyond_start((ours.recipe, found), comparison.steps)
    return finished[found.name], Steps(*steps)
