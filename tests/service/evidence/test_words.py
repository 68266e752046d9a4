from __future__ import annotations

from collections.abc import Callable

import pytest

from aladin_index.search.results import Evidence
from aladin_service.evidence.drawing import PALETTE
from aladin_service.evidence.png import ExplainedPair
from aladin_service.evidence.words import MAX_PLAIN_CHARS, text_pieces

MakePair = Callable[..., ExplainedPair]


def test_pieces_are_the_text_and_carry_its_evidence(make_pair: MakePair) -> None:
    pair = make_pair(" two red  dogs!", [3, 1, 3], [0.5, -0.2, 0.3])
    pieces, regions = text_pieces(pair.text, pair.evidence)
    assert "".join(piece.text for piece in pieces) == pair.text
    assert [piece.text for piece in pieces if piece.region] == ["two", "red", "dogs!"]
    words = [piece for piece in pieces if piece.region]
    assert [word.score for word in words] == [0.5, -0.2, 0.3]
    assert [word.share for word in words] == pytest.approx([0.5, -0.2, 0.3])
    assert [word.strength for word in words] == pytest.approx([1, 0.4, 0.6])
    # Regions are named in the order of their first word, and told once.
    assert [(each.letter, each.number, each.tokens) for each in regions] == [
        ("A", 3, ("two", "dogs!")),
        ("B", 1, ("red",)),
    ]
    assert [each.colour for each in regions] == list(PALETTE[:2])
    assert words[0].region is words[2].region is regions[0]


def test_tokens_of_the_same_characters_are_one_word(make_pair: MakePair) -> None:
    # As a tokenizer of bytes cuts one character into three.
    spans = [(0, 1), (2, 3), (2, 3), (2, 3), (4, 4)]
    pair = make_pair("a 狗 b", [0, 1, 2, 1, 0], [0.1, 0.2, 0.6, -0.3, 0.0], spans=spans)
    pieces, regions = text_pieces(pair.text, pair.evidence)
    words = [piece for piece in pieces if piece.region]
    assert [word.text for word in words] == ["a", "狗", ""]
    assert words[1].score == pytest.approx(0.5)  # so that the numbers still add up
    assert words[1].region.number == 2  # where the largest of them is
    assert [each.number for each in regions] == [0, 2]


def test_pieces_of_a_word_are_one_word(make_pair: MakePair) -> None:
    spans = [(0, 1), (2, 3), (3, 6), (6, 11), (11, 12)]
    pair = make_pair("a dalmatian!", [0, 2, 1, 2, 0], [0.1, 0.2, 0.3, 0.15, 0.0], spans=spans)
    words = [piece for piece in text_pieces(pair.text, pair.evidence)[0] if piece.region]
    assert [word.text for word in words] == ["a", "dalmatian", "!"]
    assert words[1].score == pytest.approx(0.65)
    assert words[1].region is not None
    assert words[1].region.number == 1


def test_many_regions_have_letters_of_their_own() -> None:
    entries = [
        Evidence(token="a", start=2 * n, end=2 * n + 1, region=n, box=None, score=0.1, share=0.01)
        for n in range(60)
    ]
    _, regions = text_pieces("a " * 60, entries)
    letters = [each.letter for each in regions]
    assert letters[:2] + letters[25:28] + letters[51:54] == [
        "A", "B", "Z", "AA", "AB", "AZ", "BA", "BB",
    ]  # fmt: skip
    assert len(set(letters)) == 60


def test_what_no_word_covers_is_kept_and_cut(make_pair: MakePair) -> None:
    pair = make_pair("dog " + "x" * 10_000, [1], [0.5])
    pieces, _ = text_pieces(pair.text, pair.evidence)
    assert pieces[1].text == " " + "x" * (MAX_PLAIN_CHARS - 1) + " …"
    assert text_pieces("no evidence", []) == ([("no evidence", None, 0.0, 0.0, 0.0)], [])


def test_shares_of_nothing_have_no_strength(make_pair: MakePair) -> None:
    pair = make_pair("red dog", [0, 1], [0.0, 0.0])
    pieces, _ = text_pieces(pair.text, pair.evidence)
    assert [piece.strength for piece in pieces] == [0.0, 0.0, 0.0]
