"""What the papers claim, and what a comparison says of it.

`training/recipes/papers/_claims.toml` lists the claims: this recipe is better than that one, by
rsum or by what the paper claims it of.
"""

from __future__ import annotations

import tomllib
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, ClassVar

from aladin_network.config import STRICT, parse_config
from aladin_network.errors import ConfigError
from aladin_network.files import write_json
from aladin_network.scoring.bootstrap import (
    ResampledDifference,
    SimultaneousInterval,
    simultaneous_intervals,
)
from aladin_training.comparison.measures import Measure, decimals
from aladin_training.comparison.summary import (
    Comparison,
    RecipeSummary,
    difference,
    runs_with_score,
)
from aladin_training.config.shipped import recipes_folder

# With fewer runs, their variance is too uncertain for a verdict.
LEAST_SEEDS = 3

_FILE = "_claims.toml"


@dataclass(frozen=True)
class Claim:
    """A claim of a paper: one recipe is better than another by a measure of a score.

    Against the baseline, its control of as many steps is meant, where there is one. Without
    a score, it is that which the final stage trains.
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


@dataclass(frozen=True)
class _ClaimFile:
    __pydantic_config__: ClassVar = STRICT

    claim: tuple[Claim, ...]


class Verdict(StrEnum):
    """Where the interval of a claim's difference lies: above 0, below it, around it, or unknown.

    Intervals hold for all claims together; OPEN: too few seeds are finished on both sides.
    """

    CONFIRMED = "confirmed"
    REFUTED = "refuted"
    NOT_SHOWN = "not shown"
    OPEN = "open"


@dataclass(frozen=True)
class JudgedClaim:
    """A claim beside what a comparison found of the seeds that both sides finished.

    `than` is the claim's other recipe, or its control; `found` is None without a common seed.
    """

    claim: Claim
    than: str
    seeds: int
    found: SimultaneousInterval | None

    @property
    def verdict(self) -> Verdict:
        """What the difference says of the claim."""
        if self.found is None or self.seeds < LEAST_SEEDS:
            return Verdict.OPEN
        if self.found.interval.low > 0:
            return Verdict.CONFIRMED
        return Verdict.REFUTED if self.found.interval.high < 0 else Verdict.NOT_SHOWN

    def describe(self) -> str:
        """Return the verdict with what it needs to be understood."""
        if self.verdict is Verdict.OPEN:
            return f"open ({self.seeds} of at least {LEAST_SEEDS} seeds)"
        if self.verdict is Verdict.NOT_SHOWN:
            assert self.found is not None
            digits = decimals(self.claim.measure)
            return f"not shown (smallest effect {self.found.smallest_effect:.{digits}f})"
        return str(self.verdict)


def read_claims(path: Path | None = None) -> tuple[Claim, ...]:
    """Read a file of claims."""
    path = path or recipes_folder() / "papers" / _FILE
    try:
        data = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise ConfigError(f"{path}: no file of claims ({error})") from error
    return parse_config(_ClaimFile, data, str(path)).claim


def judge(claims: Sequence[Claim], comparison: Comparison) -> list[JudgedClaim]:
    """Judge the claims whose two recipes a comparison has."""
    summaries = {each.recipe.name: each for each in comparison.summaries}
    sides: list[tuple[Claim, RecipeSummary, int]] = []
    drawn: dict[int, ResampledDifference] = {}
    for claim in claims:
        ours, theirs = summaries.get(claim.better), summaries.get(claim.than)
        if ours is None or theirs is None:
            continue
        theirs = _of_equal_steps(comparison, ours, theirs)
        score, than_score = claim.score or ours.score, claim.than_score or theirs.score
        runs = runs_with_score(ours.runs, score, claim.measure)
        their_runs = runs_with_score(theirs.runs, than_score, claim.measure)
        found = difference(runs, score, their_runs, than_score, claim.measure)
        if found is not None:
            drawn[len(sides)] = found
        seeds = 0 if found is None else len(runs.keys() & their_runs.keys())
        sides.append((claim, theirs, seeds))
    measures = [sides[number][0].measure for number in drawn]
    together = simultaneous_intervals(list(drawn.values()), measures) if drawn else []
    intervals = dict(zip(drawn, together, strict=True))
    return [
        JudgedClaim(claim, theirs.recipe.name, seeds, intervals.get(number))
        for number, (claim, theirs, seeds) in enumerate(sides)
    ]


def _of_equal_steps(
    comparison: Comparison, ours: RecipeSummary, theirs: RecipeSummary
) -> RecipeSummary:
    """Return the control that takes as many steps as a recipe, if the baseline takes fewer."""
    if theirs is not comparison.baseline or not ours.runs or not theirs.runs:
        return theirs
    steps = comparison.extra_steps(ours)
    if steps <= comparison.extra_steps(theirs):
        return theirs
    enough = {
        comparison.extra_steps(each): each
        for each in comparison.summaries
        if each.recipe.name in comparison.plan.controls and each.runs
    }
    return min(
        (item for item in enough.items() if item[0] >= steps),
        key=lambda item: item[0],
        default=(0, theirs),
    )[1]


def save_claims(file: Path, judged: Sequence[JudgedClaim]) -> None:
    """Write judged claims as JSON, for programs."""
    entries: list[dict[str, Any]] = []
    for each in judged:
        entry = asdict(each.claim) | {
            "compared_with": each.than,
            "seeds": each.seeds,
            "verdict": each.verdict.value,
        }
        if each.found is not None:
            entry |= each.found.interval._asdict()
            entry["smallest_effect"] = each.found.smallest_effect
        entries.append(entry)
    write_json(file, {"schema_version": 1, "claims": entries})
