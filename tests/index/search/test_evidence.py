"""The best region of each word, by hand."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from aladin_index.search.evidence import ComparedPair, region_boxes, word_evidence, word_maps
from aladin_network.errors import InputError

# (words, regions): of (1, 0) and (0.6, 0.8) with (0, 1), (0.8, 0.6) and (-1, 0).
COSINES = np.array([[0.0, 0.8, -1.0], [0.8, 0.96, -0.6]], dtype=np.float32)
BOXES = [(0.0, 0.0, 0.5, 1.0), (0.5, 0.0, 1.0, 1.0), (0.0, 0.0, 1.0, 1.0)]


def test_each_word_finds_its_best_region() -> None:
    evidence = word_evidence(COSINES, "red star", [(0, 3), (4, 8)], BOXES)
    assert [(each.token, each.start, each.end, each.region, each.box) for each in evidence] == [
        ("red", 0, 3, 1, BOXES[1]),
        ("star", 4, 8, 1, BOXES[1]),
    ]
    assert [entry.score for entry in evidence] == pytest.approx([0.8, 0.96])
    assert [entry.share for entry in evidence] == pytest.approx([0.8 / 1.76, 0.96 / 1.76])


def test_a_trimmed_last_word_has_no_evidence() -> None:
    evidence = word_evidence(COSINES, "red star.", [(0, 3), (4, 8), (8, 9)], BOXES)
    assert [entry.token for entry in evidence] == ["red", "star"]


def test_without_the_size_of_the_photo_there_are_no_boxes() -> None:
    evidence = word_evidence(COSINES, "ab", [(0, 1), (1, 2)], [])
    assert [entry.box for entry in evidence] == [None, None]


def test_nothing_to_align_has_no_evidence() -> None:
    spans = [(0, 1), (1, 2)]
    assert word_evidence(COSINES[:0], "ab", spans, []) == []
    assert word_evidence(COSINES[:, :0], "ab", spans, []) == []


def test_another_text_is_refused() -> None:
    spans = [(place, place + 1) for place in range(4)]
    with pytest.raises(InputError, match="the query has 2 words, its text 4: 'abcd'"):
        word_evidence(COSINES, "abcd", spans, BOXES)


def network(reads: str, zero_tokens: int) -> Any:
    edges = np.arange(5) / 4
    columns = np.stack([edges[:-1], np.zeros(4), edges[1:], np.ones(4)], axis=1)
    encoder = SimpleNamespace(region_boxes=lambda *_: columns, reads=reads)
    return SimpleNamespace(image=SimpleNamespace(encoder=encoder), zero_tokens=zero_tokens)


@pytest.mark.parametrize("zero_tokens", [0, 1])
def test_boxes_are_those_of_the_last_cells_where_the_first_is_the_aggregate(
    zero_tokens: int,
) -> None:
    found = region_boxes(network("photo", zero_tokens), 3 + zero_tokens, (9, 9))
    assert found == [(0.25, 0, 0.5, 1), (0.5, 0, 0.75, 1), (0.75, 0, 1, 1)]
    assert region_boxes(network("photo", zero_tokens), 3 + zero_tokens, None) == []


@pytest.mark.parametrize("zero_tokens", [0, 1])
def test_regions_bring_their_own_boxes(zero_tokens: int) -> None:
    model, own = network("regions", zero_tokens), np.array(BOXES, dtype=np.float32)
    assert region_boxes(model, 3 + zero_tokens, (9, 9), own) == BOXES
    assert region_boxes(model, 2 + zero_tokens, None, own) == BOXES[1:]
    assert region_boxes(model, 3 + zero_tokens, (9, 9)) == []


def test_a_region_beyond_the_boxes_has_no_place() -> None:
    evidence = word_evidence(COSINES, "ab", [(0, 1), (1, 2)], BOXES[:1])
    assert [(entry.region, entry.box) for entry in evidence] == [(1, None), (1, None)]
    evidence = word_evidence(COSINES[:, ::2], "ab", [(0, 1), (1, 2)], BOXES[:1])
    assert [(entry.region, entry.box) for entry in evidence] == [(0, BOXES[0])] * 2


def test_the_tokens_of_a_word_are_added_up() -> None:
    cosines = np.array([[0.1, 0.5, 0.2], [0.6, 0.1, 0.4], [0.0, 0.3, 0.5]], dtype=np.float32)
    pair = ComparedPair(cosines, "a star", [(0, 1), (2, 4), (4, 6)], BOXES)
    one, star = word_maps(pair)
    assert (one.start, one.end, one.region, star.start, star.end, star.region) == (0, 1, 1, 2, 6, 2)
    assert star.cosines == pytest.approx([0.6, 0.4, 0.9])
    # Each token has its own best region, as in the score.
    assert star.score == pytest.approx(0.6 + 0.5)
    assert one.score + star.score == pytest.approx(cosines.max(axis=1).sum())
    assert star.share == pytest.approx(1.1 / 1.6)
    assert word_maps(pair._replace(cosines=cosines[:, :0])) == []
    with pytest.raises(InputError, match="the query has 3 words, its text 5"):
        word_maps(pair._replace(spans=[(n, n + 1) for n in range(5)]))
