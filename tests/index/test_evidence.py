"""The best region of each word, by hand."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from aladin.errors import InputError
from index.evidence import region_boxes, word_evidence

# (words, regions): of (1, 0) and (0.6, 0.8) with (0, 1), (0.8, 0.6) and (-1, 0).
COSINES = np.array([[0.0, 0.8, -1.0], [0.8, 0.96, -0.6]], dtype=np.float32)
BOXES = [(0.0, 0.0, 0.5, 1.0), (0.5, 0.0, 1.0, 1.0), (0.0, 0.0, 1.0, 1.0)]


def test_each_word_finds_its_best_region() -> None:
    evidence = word_evidence(COSINES, "red star", [(0, 3), (4, 8)], BOXES)
    assert [entry[:5] for entry in evidence] == [
        ("red", 0, 3, 1, BOXES[1]),
        ("star", 4, 8, 1, BOXES[1]),
    ]
    assert [entry.score for entry in evidence] == pytest.approx([0.8, 0.96])
    assert [entry.share for entry in evidence] == pytest.approx([0.8 / 1.76, 0.96 / 1.76])


def test_a_trimmed_last_word_has_no_evidence() -> None:
    evidence = word_evidence(COSINES, "red star.", [(0, 3), (4, 8), (8, 9)], BOXES)
    assert [entry.token for entry in evidence] == ["red", "star"]


def test_without_the_size_of_the_photo_there_are_no_boxes() -> None:
    evidence = word_evidence(COSINES, "ab", [(0, 1), (1, 2)], None)
    assert [entry.box for entry in evidence] == [None, None]


def test_nothing_to_align_has_no_evidence() -> None:
    spans = [(0, 1), (1, 2)]
    assert word_evidence(COSINES[:0], "ab", spans, None) == []
    assert word_evidence(COSINES[:, :0], "ab", spans, []) == []


def test_another_text_is_refused() -> None:
    spans = [(place, place + 1) for place in range(4)]
    with pytest.raises(InputError, match="the query has 2 words, its text 4: 'abcd'"):
        word_evidence(COSINES, "abcd", spans, BOXES)


def test_boxes_are_those_of_the_last_cells_where_the_first_is_the_aggregate() -> None:
    edges = torch.arange(5) / 4
    columns = torch.stack([edges[:-1], torch.zeros(4), edges[1:], torch.ones(4)], dim=1)
    encoder = SimpleNamespace(region_boxes=lambda *_: columns)
    model: Any = SimpleNamespace(image=SimpleNamespace(encoder=encoder))
    assert region_boxes(model, 3, (9, 9)) == [(0.25, 0, 0.5, 1), (0.5, 0, 0.75, 1), (0.75, 0, 1, 1)]
