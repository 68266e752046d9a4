"""Half widths of the primary claims' intervals, drawn before any run.

    python -m benchmarks.training.half_widths

Experiments are made up in which no recipe is better than another: gains vary with the photos and
with the seeds of both recipes, of which the baseline is common to most claims. Their intervals are
the project's own, of all primary claims together. The deviations are those of the earlier
comparison in training/LOG.md, for rsum. R@1 varied .16 times as much there (the adaptive quintuplet
beside MH: 1.55 and 9.9); R@1 + R@5, four of the six recalls, is taken to vary two thirds
as much.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from aladin_network.scoring.bootstrap import (
    GainsOfPhotos,
    QueryGains,
    ResampledDifference,
    resample_gains,
    simultaneous_intervals,
)
from aladin_training.comparison.claims import Claim, read_claims
from aladin_training.comparison.measures import TITLES, Measure
from benchmarks.lib.output import figures_parser, print_json, print_rows

# Standard error of a difference that is due to 1,000 photos, and its deviation from seed to seed.
PHOTO_ERROR, SEED_DEVIATION = 1.4, 3.0
# ALADIN's heads vary more from run to run.
ALADIN_DEVIATION = 5.0
SCALES: dict[Measure, float] = {"rsum": 1.0, "r1_r5": 2 / 3, "r1": 0.157}
# As many as the resamples need; each varies so much more that their mean has the error of 1,000.
_PHOTOS, _RESAMPLES = 50, 400


class Design(NamedTuple):
    """Folds of as many photos, and runs in each."""

    folds: int
    runs: int


DESIGNS = (Design(1, 3), Design(7, 1), Design(7, 2))


class Widths(NamedTuple):
    """Mean half width and smallest effect of a claim's interval, in the claim's unit."""

    half: float
    smallest_effect: float


def made_up_differences(
    claims: Sequence[Claim], design: Design, generator: torch.Generator
) -> list[ResampledDifference]:
    """Draw one experiment; a recipe that several claims name has the same runs in all of them."""
    answers: dict[str, list[list[Tensor]]] = {}
    for claim in claims:
        deviation = ALADIN_DEVIATION if claim.paper == "ALADIN" else SEED_DEVIATION
        for name in (claim.better, claim.than):
            if name not in answers:
                folds = range(design.folds)
                answers[name] = [_runs(design.runs, deviation, generator) for _ in folds]
    rows = torch.arange(_PHOTOS)
    differences: list[ResampledDifference] = []
    for claim in claims:
        scale = SCALES[claim.measure] / 2  # for each direction
        pairs = zip(answers[claim.better], answers[claim.than], strict=True)
        gains = [
            [scale * (ours - theirs) for ours, theirs in zip(*of_fold, strict=True)]
            for of_fold in pairs
        ]
        folds = [GainsOfPhotos([QueryGains(each, each) for each in runs], rows) for runs in gains]
        differences.append(resample_gains(folds, _RESAMPLES))
    return differences


def widths_of(
    claims: Sequence[Claim], design: Design, experiments: int, seed: int = 0
) -> list[Widths]:
    """Average the widths of the claims' intervals over some experiments."""
    generator = torch.Generator().manual_seed(seed)
    measures = [claim.measure for claim in claims]
    drawn = [
        simultaneous_intervals(made_up_differences(claims, design, generator), measures)
        for _ in range(experiments)
    ]
    return [
        Widths(
            statistics.fmean(each.interval.high - each.interval.difference for each in of_claim),
            statistics.fmean(each.smallest_effect for each in of_claim),
        )
        for of_claim in zip(*drawn, strict=True)
    ]


def main() -> None:
    parser = figures_parser(__doc__)
    parser.add_argument("--experiments", type=int, default=40, help="experiments of each design")
    options = parser.parse_args()
    claims = [claim for claim in read_claims() if claim.primary]
    found = {design: widths_of(claims, design, options.experiments) for design in DESIGNS}
    if options.json:
        print_json([{**design._asdict(), "widths": found[design]} for design in DESIGNS])
        return
    rows = [
        [
            f"{claim.better} over {claim.than}, by {TITLES[claim.measure]}",
            *(f"{each.half:.1f} ({each.smallest_effect:.1f})" for each in of_claim),
        ]
        for claim, *of_claim in zip(claims, *found.values(), strict=True)
    ]
    designs = [f"{design.folds} x {design.runs}" for design in DESIGNS]
    print_rows(["half width (smallest effect) by folds x runs", *designs], rows)


def _runs(count: int, deviation: float, generator: torch.Generator) -> list[Tensor]:
    """Draw what runs answer to the photos of a fold: the photos' own part is the same for all."""
    photos = torch.randn(_PHOTOS, generator=generator, dtype=torch.float64)
    runs = torch.randn(count, generator=generator, dtype=torch.float64) * deviation
    # Half of the variances of a difference are the other recipe's.
    return [(PHOTO_ERROR * _PHOTOS**0.5 * photos + run) / 2**0.5 for run in runs]


if __name__ == "__main__":
    main()
