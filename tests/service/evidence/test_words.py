from __future__ import annotations

from collections.abc import Callable

import pytest

from aladin_index.search.results import Evidence
from aladin_service.evidence.drawing import PALETTE
from aladin_service.evidence.png import ExplainedPair
from aladin_service.evidence.words import MAX_PLAIN_CHARS, Piece, text_pieces

MakePair = Callable[..., ExplainedPair]


def test_pieces_are_the_text_and_carry_its_evidence(make_pair: MakePair) -> None:
    pair = make_pair(" two red  dogs!", [3, 1, 3], [0.5, -0.2, 0.3])
    pieces, regions = text_pieces(pair.text, pair.evidence)
    assert "".join(piece.text for piece in pieces) == pair.text
    words = [piece for piece in pieces if piece.region]
    assert [piece.text for piece in words] == ["two", "red", "dogs!"]
    assert [piece.word for piece in words] == pair.evidence
    assert [piece.strength for piece in words] == pytest.approx([1, 0.4, 0.6])
    # Regions are named in the order of their first word, each once.
    assert [(each.letter, each.number, each.tokens) for each in regions] == [
        ("A", 3, ("two", "dogs!")),
        ("B", 1, ("red",)),
    ]
    assert [each.colour for each in regions] == list(PALETTE[:2])
    assert words[0].region is words[2].region is regions[0]


def test_sixty_regions_have_sixty_letters() -> None:
    entries = [
        Evidence(token="a", start=2 * n, end=2 * n + 1, region=n, box=None, score=0.1, share=0.01)
        for n in range(60)
    ]
    letters = [each.letter for each in text_pieces("a " * 60, entries)[1]]
    assert letters[:2] + letters[25:28] + letters[51:54] == [
        "A", "B", "Z", "AA", "AB", "AZ", "BA", "BB",
    ]  # fmt: skip
    assert len(set(letters)) == 60


def test_text_without_evidence_is_kept_and_cut(make_pair: MakePair) -> None:
    pair = make_pair("dog " + "x" * 10_000, [1], [0.5])
    pieces, _ = text_pieces(pair.text, pair.evidence)
    assert pieces[1].text == " " + "x" * (MAX_PLAIN_CHARS - 1) + " …"
    assert text_pieces("no evidence", []) == ([Piece("no evidence")], [])


def test_shares_of_nothing_have_no_strength(make_pair: MakePair) -> None:
    pair = make_pair("red dog", [0, 1], [0.0, 0.0])
    pieces, _ = text_pieces(pair.text, pair.evidence)
    assert [piece.strength for piece in pieces] == [0.0, 0.0, 0.0]
