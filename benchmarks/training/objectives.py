"""Milliseconds per training step by recipe, relative to a baseline.

    python -m benchmarks.training.objectives RECIPE... [--baseline NAME] [--rounds 30] [--set K=V]

The step of each recipe's final stage, with its batch, forward and backward pass and optimizer,
on real batches and random weights. Each recipe takes its steps in turn with the baseline's, so
that a neighbour on the machine slows both alike: the ratios hold even where the milliseconds do
not. The features of frozen encoders come from the cache; they are computed first if need be.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from aladin_training.comparison.plan import load_plan
from aladin_training.comparison.step_time import ROUNDS, StepTime, measure_step_times


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("recipes", nargs="+", type=Path, help="recipes, or folders of them")
    parser.add_argument("--baseline", help="name of a recipe; the first one")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", dest="changes")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    options = parser.parse_args()
    plan = load_plan(
        options.recipes, 1, Path(), baseline=options.baseline, overrides=options.changes
    )
    baseline = next(recipe for recipe in plan.recipes if recipe.name == plan.baseline)
    times = measure_step_times(plan.recipes, baseline, options.rounds)
    print(f"{options.rounds} steps each in turn with {baseline.name}, {threads(baseline.threads)}")
    print_table(times)


def threads(count: int | None) -> str:
    """Return a label for a number of threads."""
    return "torch's own number of threads" if count is None else f"{count} thread(s)"


def print_table(times: dict[str, StepTime]) -> None:
    """Print one line per recipe, in Markdown."""
    print("| recipe | ms a step | baseline's beside it | ratio |")
    print("| --- | ---: | ---: | ---: |")
    for name, time in times.items():
        print(f"| {name} | {time.ms:.2f} | {time.baseline_ms:.2f} | {time.ratio:.2f} |")


if __name__ == "__main__":
    main()
