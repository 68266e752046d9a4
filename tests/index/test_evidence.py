from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from aladin.errors import InputError
from index.evidence import word_evidence

# (words, regions): of (1, 0) and (0.6, 0.8) with (0, 1), (0.8, 0.6) and (-1, 0).
COSINES = np.array([[0.0, 0.8, -1.0], [0.8, 0.96, -0.6]], dtype=np.float32)


def network(spans: list[tuple[int, int]], cells: int) -> Any:
    """An encoder pair that cuts photos into columns."""
    edges = torch.arange(cells + 1) / cells
    boxes = torch.stack([edges[:-1], torch.zeros(cells), edges[1:], torch.ones(cells)], dim=1)
    return SimpleNamespace(
        text=SimpleNamespace(encoder=SimpleNamespace(spans=lambda _: spans)),
        image=SimpleNamespace(encoder=SimpleNamespace(region_boxes=lambda *_: boxes)),
    )


def test_each_word_finds_its_best_region() -> None:
    evidence = word_evidence(network([(0, 3), (4, 8)], 3), COSINES, "red star", (9, 9))
    assert [entry[:4] for entry in evidence] == [("red", 0, 3, 1), ("star", 4, 8, 1)]
    assert [entry.score for entry in evidence] == pytest.approx([0.8, 0.96])
    assert evidence[0].box == pytest.approx((1 / 3, 0, 2 / 3, 1))


def test_a_trimmed_last_word_has_no_evidence() -> None:
    model = network([(0, 3), (4, 8), (8, 9)], 3)
    evidence = word_evidence(model, COSINES, "red star.", (9, 9))
    assert [entry.token for entry in evidence] == ["red", "star"]


def test_boxes_are_those_of_the_last_cells_where_the_first_is_the_aggregate() -> None:
    evidence = word_evidence(network([(0, 1), (1, 2)], 4), COSINES, "ab", (9, 9))
    assert evidence[0].region == 1
    assert evidence[0].box == pytest.approx((0.5, 0, 0.75, 1))


def test_without_the_size_of_the_photo_there_are_no_boxes() -> None:
    evidence = word_evidence(network([(0, 1), (1, 2)], 3), COSINES, "ab", None)
    assert [entry.box for entry in evidence] == [None, None]


def test_nothing_to_align_has_no_evidence() -> None:
    model = network([(0, 1), (1, 2)], 3)
    assert word_evidence(model, COSINES[:0], "ab", None) == []
    assert word_evidence(model, COSINES[:, :0], "ab", None) == []


def test_another_text_is_refused() -> None:
    with pytest.raises(InputError, match="the query has 2 words, its text 4: 'abcd'"):
        word_evidence(network([(place, place + 1) for place in range(4)], 3), COSINES, "abcd", None)
