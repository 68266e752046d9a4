import numpy as np
import pytest

from aladin_index.search.rerank import rank_by_match, rank_in_blocks
from aladin_network.scoring.fusion import DirectionFusion

ROWS = np.array([4, 7, 2])
MATCH = np.float32([0.9, 0.5, 0.1])
ALIGN = {4: 1.0, 7: 3.0, 2: 3.0}
FUSION = DirectionFusion(weight=0.25, align_mean=2.0, align_std=2.0, match_mean=0.5, match_std=0.4)


def align(rows: np.ndarray) -> np.ndarray:
    return np.float32([ALIGN[row] for row in rows])


def test_the_first_stage_keeps_its_order_and_shows_the_other_score() -> None:
    ranking = rank_by_match(ROWS, MATCH, 11, align)
    assert ranking.rows.tolist() == [4, 7, 2]
    assert ranking.scores.tolist() == MATCH.tolist()
    assert ranking.match_ranks.tolist() == [11, 12, 13]
    assert ranking.align is not None and ranking.align_ranks is not None
    assert ranking.align.tolist() == [1, 3, 3]
    assert ranking.align_ranks.tolist() == [13, 11, 12]
    assert rank_by_match(ROWS, MATCH, 1, None).align is None


@pytest.mark.parametrize(
    ("weight", "rows", "scores"),
    [
        # z(align) is -0.5, 0.5, 0.5 and z(match) 1, 0, -1
        (0.25, [4, 7, 2], [0.625, 0.125, -0.625]),
        (0.0, [4, 7, 2], [1, 0, -1]),
        (0.9, [7, 2, 4], [0.45, 0.35, -0.35]),
        (1.0, [7, 2, 4], [3, 3, 1]),  # the alignment score itself; equal ones keep their order
    ],
)
def test_the_second_stage_orders_by_the_fused_score(
    weight: float, rows: list[int], scores: list[float]
) -> None:
    ranking = rank_in_blocks(ROWS, MATCH, 1, align(ROWS), FUSION, weight, 3)
    assert ranking.rows.tolist() == rows
    assert ranking.scores.tolist() == pytest.approx(scores)
    by_row = dict(zip(rows, ranking.match_ranks.tolist(), strict=True))
    assert by_row == {4: 1, 7: 2, 2: 3}
    assert ranking.align_ranks is not None
    by_row = dict(zip(rows, ranking.align_ranks.tolist(), strict=True))
    assert by_row == {4: 3, 7: 1, 2: 2}


def test_blocks_follow_each_other() -> None:
    both = rank_in_blocks(ROWS, MATCH, 5, align(ROWS), FUSION, 1.0, 2)
    assert both.rows.tolist() == [7, 4, 2]
    assert both.scores.tolist() == [3, 1, 3]
    assert both.match_ranks.tolist() == [6, 5, 7]
    assert both.align_ranks is not None
    assert both.align_ranks.tolist() == [5, 6, 7]
    page = rank_in_blocks(ROWS, MATCH, 5, align(ROWS), FUSION, 1.0, 2, slice(1, 3))
    assert page.rows.tolist() == [4, 2]
    assert page.align_ranks is not None
    assert page.align_ranks.tolist() == [6, 7]
