"""The equations of the five papers, term by term, in float64: an independent reference.

Written from the equations (training/PAPERS.md has them in short), with loops over queries and
candidates, and without anything of `aladin_training.losses`. Values are sums of scalars, so that
their gradients are those of autograd through these loops; GOAL prescribes its gradient, which is
returned beside the value that is logged.

Scores are ``S[photo, caption]``, ``N[photo, caption]`` tells negatives, and `pairs` lists the
positive pairs. Every pair asks twice: its photo among captions, its caption among photos.
"""

# ruff: noqa: N803 - matrices have the papers' names.

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor

Cell = tuple[int, int]


class Query(NamedTuple):
    """One question: the cell of its answer, and the cells of its negatives."""

    own: Cell
    negatives: list[Cell]


def queries(N: Tensor, pairs: list[Cell]) -> Iterator[Query]:
    """Yield the queries that have a negative."""
    photos, captions = N.shape
    for i, t in pairs:
        of_photo = [(i, u) for u in range(captions) if N[i, u]]
        of_caption = [(j, t) for j in range(photos) if N[j, t]]
        yield from (Query((i, t), cells) for cells in (of_photo, of_caption) if cells)


def plus(x: Tensor) -> Tensor:
    """[x]+"""
    return x if x > 0 else torch.zeros((), dtype=torch.float64)


def total(terms: list[Tensor], like: Tensor) -> Tensor:
    """Add terms; without any, a zero that depends on the scores."""
    return sum(terms, start=0.0 * like.sum())


def triplet(
    S: Tensor, N: Tensor, pairs: list[Cell], margin: float = 0.2, hardest_negative: bool = True
) -> Tensor:
    """MH or SH."""
    terms: list[Tensor] = []
    for own, others in queries(N, pairs):
        hinges = [plus(margin + S[cell] - S[own]) for cell in others]
        terms += [max(hinges)] if hardest_negative else hinges
    return total(terms, S)


def listnet(S: Tensor, A: Tensor, temperature: float = 6.0, teacher_scale: float = 1.0) -> Tensor:
    """ALADIN eqs 5 to 7: P of the teacher A, Q of the student S."""

    def direction(lists: list[list[Cell]]) -> Tensor:
        terms: list[Tensor] = []
        for cells in lists:
            p_sum = sum(math.exp(teacher_scale * A[cell].item()) for cell in cells)
            q_sum = sum((temperature * S[cell]).exp() for cell in cells)
            for cell in cells:
                p = math.exp(teacher_scale * A[cell].item()) / p_sum
                terms.append(-p * (temperature * S[cell] - torch.as_tensor(q_sum).log()))
        return sum(terms, start=torch.zeros((), dtype=torch.float64)) / len(lists)

    photos, captions = S.shape
    rows = [[(i, t) for t in range(captions)] for i in range(photos)]
    columns = [[(i, t) for i in range(photos)] for t in range(captions)]
    return direction(rows) + direction(columns)


def boosting(
    S: Tensor,
    A: Tensor,
    N: Tensor,
    pairs: list[Cell],
    form: str = "relative",
    hardest_negative: bool = True,
    soft: bool = False,
    margin: float = 0.2,
    alpha: float = 0.5,
    selection: str = "gap",
) -> Tensor:
    """DBL eqs 7 to 10, with the soft margins of eqs 14 to 20."""
    gamma, gamma_1, gamma_2 = margin, alpha * margin, margin - alpha * margin
    a = A.tolist()

    def shrunk(full: float, epsilon_argument: float) -> float:
        """2 g / (1 + exp(2 / g (x - d))) - g, the form of eqs 14 to 17."""
        if not soft or full == 0:
            return full
        exponent = 2 / full * epsilon_argument
        return 2 * full / (1 + math.exp(exponent)) - full if exponent < 700 else -full

    terms: list[Tensor] = []
    for own, others in queries(N, pairs):
        a_own = a[own[0]][own[1]]
        costs: list[Tensor] = []
        hardness: list[float] = []
        brackets: list[float] = []
        for cell in others:
            a_other = a[cell[0]][cell[1]]
            if form == "relative":
                x = a_own - a_other
                bracket = shrunk(gamma, x - 2) + x - (S[own] - S[cell])
                costs.append(plus(bracket))
            else:
                positive = plus(shrunk(gamma_1, a_own - 1) + a_own - S[own])
                bracket = shrunk(gamma_2, -(a_other + 1)) + S[cell] - a_other
                costs.append(positive + plus(bracket))
            hardness.append(S[cell].item() - a_other)
            brackets.append(bracket.item())
        if hardest_negative:
            by = hardness if selection == "gap" else brackets
            costs = [costs[by.index(max(by))]]
        terms += costs
    return total(terms, S)


class Offline(NamedTuple):
    """AOQ's scores of each pair with its offline negatives; cross scores may be missing."""

    text: Tensor
    image: Tensor
    cross_text: Tensor
    cross_image: Tensor


def quintuplet(
    S: Tensor,
    N: Tensor,
    offline: Offline,
    form: str = "triplet",
    online_margin: float = 0.2,
    offline_margin: float = 0.0,
    alpha: float = 0.3,
    beta: float = 1.5,
    weight_by: str = "offline",
) -> Tensor:
    """AOQ eqs 3 to 5, and OnlineQuin; row n and column n belong together."""
    terms: list[Tensor] = []
    for n in range(len(S)):
        p = S[n, n]
        captions = [u for u in range(len(S)) if N[n, u]]
        photos = [j for j in range(len(S)) if N[j, n]]
        t_on = max(captions, key=lambda u: S[n, u].item()) if captions else None
        i_on = max(photos, key=lambda j: S[j, n].item()) if photos else None
        lines = (
            (None if t_on is None else S[n, t_on], offline.text[n], offline.cross_text[n]),
            (None if i_on is None else S[i_on, n], offline.image[n], offline.cross_image[n]),
        )
        for line, (on, off, cross) in enumerate(lines):
            if on is not None:
                weight = 1.0
                if form == "adaptive":
                    weight = beta - ((p if weight_by == "positive" else off) - on) / alpha
                terms.append(weight * plus(online_margin - p + on))
            terms.append(plus(offline_margin - p + off))
            if form in ("quintuplet", "adaptive"):
                terms.append(plus(offline_margin - p + cross))
            if form == "online_quintuplet" and t_on is not None and i_on is not None:
                # Line 1: the photo i_on and the caption t_on; line 2: t_on's photo, i_on's caption.
                i, t = (i_on, t_on) if line == 0 else (t_on, i_on)
                if N[i, t]:
                    terms.append(plus(offline_margin - p + S[i, t]))
    return total(terms, S)


def goal(
    S: Tensor,
    N: Tensor,
    pairs: list[Cell],
    triplet_weight: str = "con",
    pair_weight: str = "con",
    margin: float = 0.2,
    tau: float = 10.0,
    alpha: float = 2.0,
    beta: float = 10.0,
    threshold: float = 0.5,
    epsilon: float = 0.1,
    gate: bool = True,
    circle_offset: float = 0.0,
    empty: float = 0.0,
) -> tuple[float, Tensor]:
    """GOAL eqs 5 to 13: the sum of q - p, and the prescribed dL/dS."""
    s = S.tolist()
    G = torch.zeros(S.shape, dtype=torch.float64)
    logged = 0.0
    positives = {pair: s[pair[0]][pair[1]] for pair in pairs}
    for own, others in queries(N, pairs):
        scored = {cell: s[cell[0]][cell[1]] for cell in others}
        hardest = max(scored, key=lambda cell: scored[cell])
        p, q = positives[own], scored.pop(hardest)
        logged += q - p
        if triplet_weight == "con":
            T = 1.0 if margin + q - p > 0 or not gate else 0.0
        elif triplet_weight == "nca":
            T = 1 / (1 + math.exp(tau * (p - q)))
        else:
            T = 1 / (1 + math.exp(tau * (p * (2 - p) - q * q - circle_offset)))
        P = [R for pair, R in positives.items() if pair != own and q + epsilon > R]
        M = [R for R in scored.values() if min(positives.values()) - epsilon < R]
        if pair_weight == "con":
            pull, push = 1.0, 1.0
        elif pair_weight == "lin":
            pull, push = 1 - p, q
        elif pair_weight == "lin_ms":
            m_plus = math.fsum(p - R for R in P) / len(P) if P else empty
            m_minus = math.fsum(q - R for R in M) / len(M) if M else empty
            pull, push = (1 - m_plus) * (1 - p), (1 + m_minus) * q
        else:
            m_plus = m_minus = 1.0
            if pair_weight == "sig_ms":
                m_plus = sum(math.exp(alpha * (p - R)) for R in P) / len(P) if P else empty
                m_minus = sum(math.exp(-beta * (q - R)) for R in M) / len(M) if M else empty
            pull = 1 / (m_plus + math.exp(alpha * (p - threshold)))
            push = 1 / (m_minus + math.exp(-beta * (q - threshold)))
        G[own] -= T * pull
        G[hardest] += T * push
    return logged, G


def intra_modal(
    V: Tensor,
    distance: str = "l1",
    lower: float = 0.05,
    upper: float = 0.5,
    weight: float = 1.0,
    mode: str = "official",
) -> Tensor:
    """IMC eqs 4 to 8 (paper), or what the authors' code computes (official)."""
    B = len(V)

    def apart(v: Tensor, w: Tensor) -> Tensor:
        if distance == "l1":
            return sum((x - y).abs() for x, y in zip(v, w, strict=True))  # type: ignore[return-value]
        if distance == "cos":  # eq 5 divides by both norms
            product = sum(x * y for x, y in zip(v, w, strict=True))
            norms = [sum(x * x for x in each) ** 0.5 for each in (v, w)]
            return 1 - product / (norms[0] * norms[1])
        squares = sum((x - y) * (x - y) for x, y in zip(v, w, strict=True))
        return squares if distance == "msd" else squares**0.5  # type: ignore[return-value]

    ordered = [(n, m) for n in range(B) for m in range(B) if n != m]
    terms: list[Tensor] = []
    if mode == "paper":
        for n, m in ordered:
            d = apart(V[n], V[m])
            if lower < d < upper:
                terms.append(weight * d)
        return total(terms, V)
    if distance == "cos":
        for n, m in ordered:
            s = sum(x * y for x, y in zip(V[n], V[m], strict=True))
            if upper < s < 1 - lower:
                terms.append(weight / B * s)  # type: ignore[operator]
        return total(terms, V)
    rows: list[list[Tensor]] = []
    for n in range(B):
        D = [
            apart(V[n], V[m]) if n != m else torch.zeros((), dtype=torch.float64) for m in range(B)
        ]
        norm = sum(d * d for d in D) ** 0.5
        rows.append([d / norm for d in D])
    first = sorted(d.item() for d in rows[0])
    lo, hi = (first[min(round(quantile * B), B - 1)] for quantile in (lower, upper))
    terms += [weight / B * d for row in rows for d in row if lo < d.item() < hi]
    return total(terms, V)
