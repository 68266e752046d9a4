"""The best region of each word, and tokens joined to words, by hand."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from aladin_index.search.evidence import ComparedPair, region_boxes, word_evidence, word_maps
from aladin_index.search.results import Evidence
from aladin_index.search.whole_words import join_evidence, whole_words
from aladin_network.errors import InputError

# (words, regions): of (1, 0) and (0.6, 0.8) with (0, 1), (0.8, 0.6) and (-1, 0).
COSINES = np.array([[0.0, 0.8, -1.0], [0.8, 0.96, -0.6]], dtype=np.float32)
BOXES = [(0.0, 0.0, 0.5, 1.0), (0.5, 0.0, 1.0, 1.0), (0.0, 0.0, 1.0, 1.0)]


@pytest.mark.parametrize(
    ("cosines", "spans", "boxes", "expected"),
    [
        (COSINES, [(0, 3), (4, 8)], BOXES, [("red", 1, BOXES[1]), ("star", 1, BOXES[1])]),
        # The last word piece of the text was dropped.
        (COSINES, [(0, 3), (4, 8), (8, 9)], BOXES, [("red", 1, BOXES[1]), ("star", 1, BOXES[1])]),
        # Without the size of the photo, and for a region beyond the boxes, there is no box.
        (COSINES, [(0, 3), (4, 8)], [], [("red", 1, None), ("star", 1, None)]),
        (COSINES, [(0, 3), (4, 8)], BOXES[:1], [("red", 1, None), ("star", 1, None)]),
        (COSINES[:, ::2], [(0, 3), (4, 8)], BOXES, [("red", 0, BOXES[0]), ("star", 0, BOXES[0])]),
        (COSINES[:0], [(0, 3), (4, 8)], BOXES, []),
        (COSINES[:, :0], [(0, 3), (4, 8)], BOXES, []),
    ],
)
def test_each_word_finds_its_best_region(
    cosines: Any, spans: Any, boxes: Any, expected: list[Any]
) -> None:
    evidence = word_evidence(ComparedPair(cosines, "red star.", spans, boxes))
    assert [(each.token, each.region, each.box) for each in evidence] == expected
    assert [(each.start, each.end) for each in evidence] == spans[: len(evidence)]
    scores = cosines.max(axis=1).tolist() if expected else []
    assert [each.score for each in evidence] == pytest.approx(scores)
    assert [each.share for each in evidence] == pytest.approx(
        [each / sum(scores) for each in scores]
    )


def test_another_text_is_refused() -> None:
    spans = [(place, place + 1) for place in range(4)]
    with pytest.raises(InputError, match="the query has 2 words, its text 4: 'abcd'"):
        word_evidence(ComparedPair(COSINES, "abcd", spans, BOXES))


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


@pytest.mark.parametrize(
    ("tokens", "words"),
    [
        (["a", " dog"], ["a", " dog"]),
        (["d", "alm", "atian", " runs"], ["dalmatian", " runs"]),
        (["rock", "-", "climb", "er", "."], ["rock", "-", "climber", "."]),
        (["don", "'", "t"], ["don", "'", "t"]),
        (["20", "24"], ["2024"]),
        (["כל", "בים"], ["כלבים"]),
        (["हि", "न्दी"], ["हिन्दी"]),
        (["狗", "在", "跑"], ["狗", "在", "跑"]),
        (["สุนัข", "วิ่ง"], ["สุนัข", "วิ่ง"]),
        ([], []),
    ],
)
def test_tokens_that_touch_are_one_word(tokens: list[str], words: list[str]) -> None:
    text, spans = "", []
    for token in tokens:
        text += token
        spans.append((len(text) - len(token.lstrip()), len(text)))
    found = whole_words(text, spans)
    assert ["".join(tokens[token] for token in word) for word in found] == words


def test_tokens_of_the_same_character_belong_together() -> None:
    assert whole_words("狗 b", [(0, 1), (0, 1), (0, 1), (2, 3)]) == [range(0, 3), range(3, 4)]


def test_evidence_of_a_word_is_that_of_its_tokens() -> None:
    tokens = [("a", 0, 1, 4, 0.5), ("dal", 2, 5, 1, 0.25), ("matian", 5, 11, 2, -0.75)]
    evidence = [
        Evidence(
            token=token,
            start=start,
            end=end,
            region=region,
            box=(0.0, 0.0, region / 4, 1.0),
            score=score,
            share=score / 2,
        )
        for token, start, end, region, score in tokens
    ]
    first, second = join_evidence("a dalmatian", evidence)
    assert first == evidence[0]
    assert (second.token, second.start, second.end) == ("dalmatian", 2, 11)
    assert (second.region, second.box) == (2, (0.0, 0.0, 0.5, 1.0))
    assert (second.score, second.share) == (-0.5, -0.25)
    assert join_evidence("a dalmatian", []) == []
