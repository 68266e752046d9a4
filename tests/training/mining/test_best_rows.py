"""The best rows of a matrix seen block by block, against sorting each row of it."""

from __future__ import annotations

import itertools

import pytest
import torch
from torch import Tensor

from aladin_training.mining.sweep import BestRows


def slow_best(scores: Tensor, excluded: Tensor, k: int) -> list[list[int]]:
    """Sort every query's rows by score, then by number."""
    lists: list[list[int]] = []
    for values, out in zip(scores.tolist(), excluded.tolist(), strict=True):
        rows = [row for row in range(len(values)) if not out[row]]
        rows.sort(key=lambda row: (-values[row], row))
        lists.append((rows + [-1] * k)[:k])
    return lists


def blocks(total: int, size: int) -> list[slice]:
    return [slice(start, min(total, start + size)) for start in range(0, total, size)]


@pytest.mark.parametrize(("queries", "rows", "k"), [(7, 23, 5), (3, 4, 9), (1, 1, 1)])
@pytest.mark.parametrize("size", [1, 4, 100])
def test_equals_sorting_whatever_the_blocks_and_their_order(
    queries: int, rows: int, k: int, size: int
) -> None:
    generator = torch.Generator().manual_seed(queries)
    # Few different values, both signs and both zeros: most of them are ties.
    scores = torch.randint(-3, 4, (queries, rows), generator=generator) / 4
    scores[scores == 0] *= torch.randint(0, 2, scores[scores == 0].shape, generator=generator) - 0.5
    excluded = torch.rand(queries, rows, generator=generator) < 0.2
    best = BestRows(queries, k)
    for own, other in reversed(list(itertools.product(blocks(queries, size), blocks(rows, size)))):
        best.add(own, other.start, scores[own, other], excluded[own, other])
    assert best.rows().tolist() == slow_best(scores, excluded, k)
    assert best.rows().dtype == torch.int32


def test_every_float_takes_its_place() -> None:
    tiny, huge = torch.finfo(torch.float32).tiny, torch.finfo(torch.float32).max
    values = [0.5, -huge, tiny, float("inf"), -0.5, 0.0, float("-inf"), -tiny, huge, 0.5000001]
    best = BestRows(1, len(values))
    best.add(slice(0, 1), 0, torch.tensor([values]), torch.zeros(1, len(values), dtype=torch.bool))
    assert best.rows().tolist() == [[3, 8, 9, 0, 2, 5, 7, 4, 1, 6]]


def test_rows_far_down_a_large_data_set_keep_their_number() -> None:
    best = BestRows(1, 3)
    free = torch.zeros(1, 2, dtype=torch.bool)
    best.add(slice(0, 1), 2**31 - 2, torch.tensor([[-0.25, -0.25]]), free)
    best.add(slice(0, 1), 0, torch.tensor([[-0.25, -0.5]]), free)
    assert best.rows().tolist() == [[0, 2**31 - 2, 2**31 - 1]]
