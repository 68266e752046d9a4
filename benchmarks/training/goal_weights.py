"""GOAL's weights as functions of the scores: its figures 2 and 3, drawn from the loss itself.

    python -m benchmarks.training.goal_weights --out goal-weights.png

The upper row has the weight T of a triplet over the score p of the positive pair and the score q of
the hardest negative; the lower row has the weights P+ over p and P- over q. A value is a gradient
of `GradientObjective`, of a batch in which one image is the only query: -dL/dp is T P+, and dL/dq
is T P-. With the pair weight con, P+ and P- are 1; with the triplet weight con without its gate, T
is 1. The forms with other pairs (lin_ms, sig_ms) are drawn with one more positive pair of score
0.5, and one more negative of score 0.4, at which the hardest negative begins.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple, get_args

import torch
from torch import Tensor

from aladin_training.comparison.drawing import COLOURS, save_figure, small_panels
from aladin_training.losses.gradient import GradientObjective, PairWeight, TripletWeight
from benchmarks.lib.output import figures_parser, print_json

# The official code's variants, beside the paper's own.
TRIPLETS: dict[str, GradientObjective] = {
    **{name: GradientObjective(name) for name in get_args(TripletWeight)},
    "cir, official circle": GradientObjective("cir", circle_offset=0.5),
}
PAIRS: dict[str, GradientObjective] = {
    name: GradientObjective("con", name, gate=False) for name in get_args(PairWeight)
}
OTHER_POSITIVE, OTHER_NEGATIVE = 0.5, 0.4
# A positive pair and a negative that leave the sets of others as they are.
_POSITIVE, _NEGATIVE = 0.45, 0.6


class Weights(NamedTuple):
    """What one query adds to the gradient.

    Attributes:
        pull: T P+, the weight of its positive pair.
        push: T P-, the weight of its hardest negative.
    """

    pull: float
    push: float


def weights_of_query(objective: GradientObjective, p: float, q: float) -> Weights:
    """Return the weights of a query by backpropagation.

    Args:
        objective: Objective whose gradient is taken.
        p: Score of the query's positive pair.
        q: Score of its hardest negative. With q of at least 0.4 it has one more negative.
    """
    others = [OTHER_NEGATIVE] if q >= OTHER_NEGATIVE else []
    scores = torch.zeros(2, 3 + len(others), dtype=torch.float64)
    # Row 0 is the query: its own text, the other image's text, its negatives.
    scores[0] = torch.tensor([p, -1.0, q, *others], dtype=torch.float64)
    scores[1, 1] = OTHER_POSITIVE
    negatives = torch.zeros_like(scores, dtype=torch.bool)
    negatives[0, 2:] = True
    scores.requires_grad_()
    loss = objective(scores, negatives, torch.tensor([[0, 0], [1, 1]]))
    (gradient,) = torch.autograd.grad(loss, scores)
    return Weights(-float(gradient[0, 0]), float(gradient[0, 2]))


def triplet_weights(objective: GradientObjective, values: Sequence[float]) -> Tensor:
    """Return T for all p and q among some scores, ``T[q, p]``."""
    rows = [[weights_of_query(objective, p, q).pull for p in values] for q in values]
    return torch.tensor(rows, dtype=torch.float64)


def draw(file: Path, steps: int) -> None:
    """Draw both figures as one picture.

    Args:
        file: PNG file to write.
        steps: Number of values of p and of q from 0 to 1.
    """
    values = torch.linspace(0, 1, steps).tolist()
    figure, grid = small_panels(2 * len(TRIPLETS), width_in=3.6, height_in=3.1)  # two rows
    for axes, (name, objective) in zip(grid, TRIPLETS.items(), strict=False):
        _draw_triplet_weight(figure, axes, name, objective, values)
    for axes, (of_positives, with_others) in zip(
        grid[len(TRIPLETS) :], product((True, False), (False, True)), strict=True
    ):
        _draw_pair_weights(axes, values, of_positives=of_positives, with_others=with_others)
    save_figure(figure, file)


def _draw_triplet_weight(
    figure: Any, axes: Any, name: str, objective: GradientObjective, values: Sequence[float]
) -> None:
    weights = triplet_weights(objective, values).numpy()
    image = axes.imshow(
        weights, origin="lower", extent=(0, 1, 0, 1), vmin=0, vmax=1, cmap="cividis"
    )
    if name != "con":  # which is a step
        axes.contour(values, values, weights, levels=[0.5], colors="white", linewidths=1)
    axes.set_title(f"T, {name}", fontsize=10)
    axes.set_xlabel("p", fontsize=9)
    axes.set_ylabel("q", fontsize=9)
    figure.colorbar(image, ax=axes, shrink=0.8)


def _draw_pair_weights(
    axes: Any, values: Sequence[float], *, of_positives: bool, with_others: bool
) -> None:
    """Draw P+ over p, or P- over q, of the forms without or with other pairs."""
    shown = [name for name in PAIRS if name.endswith("_ms") == with_others]
    if with_others and not of_positives:
        values = [q for q in values if q >= OTHER_NEGATIVE]
        axes.set_yscale("log")  # sig_ms reaches a hundred
    for name, colour in zip(shown, COLOURS, strict=False):
        if of_positives:
            weights = [weights_of_query(PAIRS[name], p, _NEGATIVE).pull for p in values]
        else:
            weights = [weights_of_query(PAIRS[name], _POSITIVE, q).push for q in values]
        axes.plot(values, weights, color=colour, label=name)
    sign, over = ("+", "p") if of_positives else ("-", "q")
    axes.set_title(f"P{sign}, with other pairs" if with_others else f"P{sign}", fontsize=10)
    axes.set_xlabel(over, fontsize=9)
    axes.grid(alpha=0.25)
    axes.legend(frameon=False, fontsize=8)


def main() -> None:
    """Write the picture, or print the weights of a few queries as JSON."""
    parser = figures_parser(__doc__)
    parser.add_argument("--out", type=Path, default=Path("goal-weights.png"), help="PNG file")
    parser.add_argument("--steps", type=int, default=61, help="values of p and of q")
    options = parser.parse_args()
    if options.json:
        values = [0.0, 0.25, 0.5, 0.75, 1.0]
        print_json(
            {
                name: [
                    {"p": p, "q": q} | weights_of_query(objective, p, q)._asdict()
                    for p in values
                    for q in values
                ]
                for name, objective in (TRIPLETS | PAIRS).items()
            }
        )
        return
    draw(options.out, options.steps)
    print(options.out)


if __name__ == "__main__":
    main()
