import numpy as np
import torch
from torch.nn import functional as F

from aladin.progress import NullProgress
from index.ann import AnnIndex, build_ann
from index.ann_recall import ann_recall, calibrate


def unit_vectors(count: int, dim: int, seed: int = 0) -> np.ndarray:
    """Random directions, float32."""
    generator = torch.Generator().manual_seed(seed)
    return F.normalize(torch.randn(count, dim, generator=generator), dim=1).numpy()


VECTORS = unit_vectors(3000, 16)
QUERIES = unit_vectors(300, 16, seed=1)


def test_recall_is_the_share_found() -> None:
    ann = AnnIndex(build_ann("Flat", np.eye(4, dtype=np.float32), NullProgress()), None)
    queries = np.float32([[4, 3, 2, 1], [1, 2, 3, 4]])
    truth = [np.array([0, 1]), np.array([3, 0])]  # the second's true neighbours are 3 and 2
    assert ann_recall(ann, queries, truth) == 0.75


def test_an_exact_index_has_nothing_to_choose() -> None:
    ann = AnnIndex(build_ann("Flat", VECTORS, NullProgress()), None)
    assert calibrate(ann, VECTORS, QUERIES, 10) == (None, 1.0, 200)


def test_the_narrowest_search_that_finds_enough_is_chosen() -> None:
    ann = AnnIndex(build_ann("IVF64,Flat", VECTORS, NullProgress()), None)
    chosen = calibrate(ann, VECTORS, QUERIES, 10)
    assert chosen.recall >= 0.99
    assert chosen.search_width is not None
    assert 4 < chosen.search_width <= 64
    rows = np.sort(np.random.default_rng(0).permutation(300)[:200])
    exact = AnnIndex(build_ann("Flat", VECTORS, NullProgress()), None)
    truth = [exact.search(QUERIES[row], 10) for row in rows]
    assert ann_recall(ann, QUERIES[rows], truth, chosen.search_width // 2) < 0.99


def test_where_no_width_finds_enough_a_wide_one_without_gain_is_not_paid_for() -> None:
    ann = AnnIndex(build_ann("IVF64,PQ2x4", VECTORS, NullProgress()), None)
    chosen = calibrate(ann, VECTORS, QUERIES, 10)
    assert chosen.recall < 0.9
    assert chosen.search_width is not None
    assert chosen.search_width < 64
