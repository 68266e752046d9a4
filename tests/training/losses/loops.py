"""The losses beside the five papers' equations, as loops over single scores in float64.

Written from their definitions, without anything of `aladin_training.losses`; gradients are those of
autograd through the loops. ``S[photo, caption]`` are scores, ``T`` those of a teacher, and
``N[photo, caption]`` tells negatives.
"""

# ruff: noqa: N803 - matrices have the papers' names.

from __future__ import annotations

import torch
from torch import Tensor


def both_ways(S: Tensor, T: Tensor) -> list[tuple[Tensor, Tensor, int]]:
    """List each query's scores and the teacher's of it, with the number of its kind."""
    rows = [(s, t, len(S)) for s, t in zip(S, T, strict=True)]
    return rows + [(s, t, len(S.T)) for s, t in zip(S.T, T.T, strict=True)]


def infonce(S: Tensor, N: Tensor, pairs: list[tuple[int, int]], temperature: float) -> Tensor:
    """-log of the share of each positive in the softmax of itself and its negatives."""
    photos, captions = S.shape
    total = S.new_zeros(())
    for i, t in pairs:
        for others in (
            [S[i, u] for u in range(captions) if N[i, u]],
            [S[j, t] for j in range(photos) if N[j, t]],
        ):
            exponentials = [torch.exp(x / temperature) for x in (S[i, t], *others)]
            total = total - torch.log(exponentials[0] / torch.stack(exponentials).sum())
    return total / (2 * len(pairs))


def polynomial(S: Tensor, N: Tensor, margin: float) -> Tensor:
    """The default polynomials of each positive and of its hardest negative within the margin."""
    size = len(S)
    total = 0.0 * S.sum()
    for n in range(size):
        p = S[n, n]
        for negatives in (
            [S[n, u] for u in range(size) if N[n, u]],
            [S[j, n] for j in range(size) if N[j, n]],
        ):
            near = [q for q in negatives if q + margin > p]
            if not near or p >= 1 - 1e-5:
                continue
            q = max(near)
            for value in (0.5 - 0.7 * p + 0.2 * p**2, 0.03 - 0.4 * q + 0.9 * q**2):
                total = total + (value / size if value > 0 else 0.0)
    return total


def projection_matching(S: Tensor, N: Tensor, temperature: float, epsilon: float) -> Tensor:
    """CMPM: the divergence of each query's softmax from the even shares of its matches."""
    total = S.new_zeros(())
    for scores, negatives, size in both_ways(S, N):
        exponentials = torch.exp(temperature * scores)
        matching = int((~negatives).sum())
        for exponential, negative in zip(exponentials, negatives, strict=True):
            p = exponential / exponentials.sum()
            share = 0.0 if negative else 1 / matching
            total = total + p * torch.log(p / (share + epsilon)) / size
    return total


def dark_rank(
    S: Tensor, T: Tensor, alpha: float, beta: float, length: int, of_score: bool
) -> Tensor:
    """The negative log-likelihood of the teacher's order of places 2 to 1 + `length`."""

    def negated(score: Tensor) -> Tensor:
        return -alpha * (score if of_score else 1 - score) ** beta

    total = S.new_zeros(())
    for own, others, size in both_ways(S, T):
        ranked = sorted(range(len(own)), key=lambda c: -negated(others[c]).item())
        chosen = [negated(own[c]) for c in ranked[1 : length + 1]]
        for place, x in enumerate(chosen):
            below = torch.stack([each.exp() for each in chosen[place:]]).sum()
            total = total - (x - below.log()) / size
    return total


def regression(S: Tensor, T: Tensor, threshold: float) -> Tensor:
    """Huber's mean."""
    total = S.new_zeros(())
    for s, t in zip(S.flatten(), T.flatten(), strict=True):
        d = (s - t.detach()).abs()
        total = total + (d * d / (2 * threshold) if d < threshold else d - threshold / 2)
    return total / S.numel()


def divergence(S: Tensor, T: Tensor, temperature: float, reverse: bool) -> Tensor:
    """KL(Q || P) of the student's Q from the teacher's P if `reverse`, else KL(P || Q)."""
    total = S.new_zeros(())
    for own, others, size in both_ways(S, T.detach()):
        q, p = (
            torch.exp(temperature * x) / torch.exp(temperature * x).sum() for x in (own, others)
        )
        for a, b in zip(*((q, p) if reverse else (p, q)), strict=True):
            total = total + a * torch.log(a / b) / size
    return total


def entropy(T: Tensor, temperature: float) -> Tensor:
    """The entropies of a teacher's distributions."""
    total = T.new_zeros(())
    for others, _, size in both_ways(T, T):
        p = torch.exp(temperature * others) / torch.exp(temperature * others).sum()
        total = total - sum(b * torch.log(b) for b in p) / size
    return total
