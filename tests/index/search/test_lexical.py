"""Searches by words as well, on random encodings, where only the words tell an item."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from aladin_index.changes.encoded import ItemBatch
from aladin_index.changes.writer import ChangesWriter
from aladin_index.generations.compact import compact_index
from aladin_index.generations.reader import open_index
from aladin_index.search.options import SearchOptions
from aladin_index.search.query import Term
from aladin_index.search.searcher import TwoStageSearcher
from aladin_network.errors import InputError

PHOTOS = 300
PLACES = ["Zanzibar" if n == 250 else "Pisa" if n % 2 else "Rome" for n in range(PHOTOS)]
WORDS = SearchOptions(k=20, candidates=20, lexical=1.0)
MakeItems = Callable[..., ItemBatch]


@pytest.fixture
def root(tmp_path: Path, write_made_up: Callable[..., int], made_up: MakeItems) -> Path:
    """An index of photos, one of which has a place of its own, and texts."""
    photos, texts = [f"p{n}" for n in range(PHOTOS)], [f"t{n}" for n in range(5)]
    collections = {"images": made_up(photos, place=PLACES), "texts": made_up(texts)}
    write_made_up(tmp_path / "index", **collections)
    return tmp_path / "index"


@pytest.fixture
def searcher(root: Path) -> Iterator[TwoStageSearcher]:
    with open_index(root) as index:
        yield TwoStageSearcher(index)


def asked(searcher: TwoStageSearcher, text: str) -> Term:
    """A query with the encoding of a stored text, and other words."""
    return searcher.stored_query("t1")._replace(text=text, own_id=None)


def ids(searcher: TwoStageSearcher, text: str, options: SearchOptions) -> list[str]:
    return [hit.id for hit in searcher.search(asked(searcher, text), "images", options).hits]


@pytest.mark.parametrize("fusion", [None, 0.5, 1.0])
@pytest.mark.parametrize("rerank", [True, False])
def test_an_item_that_alone_has_a_word_is_first(
    searcher: TwoStageSearcher, fusion: float | None, rerank: bool
) -> None:
    plain = SearchOptions(k=20, candidates=20, fusion=fusion, rerank=rerank)
    without = ids(searcher, "a photo in zánzibar", plain)
    assert "p250" not in without
    options = SearchOptions(k=20, candidates=20, fusion=fusion, rerank=rerank, lexical=1.0)
    answer = searcher.search(asked(searcher, "a photo in zánzibar"), "images", options)
    assert [hit.id for hit in answer.hits] == ["p250", *without[:19]]
    first, second = answer.hits[0].stages.lexical, answer.hits[1].stages.lexical
    assert first is not None
    assert [(each.field, each.words) for each in first] == [("metadata.place", ["zanzibar"])]
    assert second == []
    assert answer.degraded == []


def test_frequent_and_unknown_words_change_nothing(searcher: TwoStageSearcher) -> None:
    text = "Pisa or Rome at Timbuktu"
    plain = searcher.search(asked(searcher, text), "images", SearchOptions(k=50, candidates=20))
    options = SearchOptions(k=50, candidates=20, lexical=1.0)
    answer = searcher.search(asked(searcher, text), "images", options)
    assert [hit.id for hit in answer.hits] == [hit.id for hit in plain.hits]
    assert [hit.score for hit in answer.hits] == pytest.approx([hit.score for hit in plain.hits])
    assert plain.hits[0].stages.lexical is None


def test_a_smaller_weight_adds_less(searcher: TwoStageSearcher) -> None:
    options = [
        SearchOptions(k=PHOTOS, candidates=PHOTOS, lexical=weight) for weight in (0.0, 0.2, 0.6)
    ]
    scores = [
        {hit.id: hit.score for hit in searcher.search(query, "images", each).hits}
        for each in options
        for query in [asked(searcher, "Zanzibar")]
    ]
    gains = [each["p250"] - scores[0]["p250"] for each in scores]
    assert gains[2] == pytest.approx(3 * gains[1], rel=1e-4)
    assert gains[1] > 0
    assert scores[2]["p9"] == pytest.approx(scores[0]["p9"], abs=1e-5)


@pytest.mark.parametrize("rerank", [True, False])
def test_pages_join_without_a_gap_and_without_a_repeated_item(
    searcher: TwoStageSearcher, rerank: bool
) -> None:
    whole = SearchOptions(k=PHOTOS, candidates=20, rerank=rerank, lexical=1.0)
    every = ids(searcher, "Zanzibar", whole)
    assert sorted(every) == sorted(f"p{n}" for n in range(PHOTOS))
    pages: list[str] = []
    for offset in range(0, PHOTOS, 7):
        page = SearchOptions(k=7, offset=offset, candidates=20, rerank=rerank, lexical=1.0)
        pages += ids(searcher, "Zanzibar", page)
    assert pages == every


def test_a_filter_applies_to_items_found_by_words(searcher: TwoStageSearcher) -> None:
    options = SearchOptions(k=20, candidates=20, lexical=1.0, filter={"place": "Pisa"})
    assert "p250" not in ids(searcher, "Zanzibar", options)


def test_changes_and_compaction_are_followed(root: Path, made_up: MakeItems) -> None:
    with open_index(root) as index:
        searcher = TwoStageSearcher(index)
        assert ids(searcher, "Zanzibar", WORDS)[0] == "p250"
        with closing(ChangesWriter(root, index.checkpoint.model_id)) as writer:
            writer.delete("images", ["p250"])
            assert "p250" not in ids(searcher, "Zanzibar", WORDS)
            new = made_up(["new", "p8"], seed=4, place=["Quito", "Lhasa"])
            writer.add("images", new, "replace")
        assert ids(searcher, "Quito", WORDS)[0] == "new"
        assert ids(searcher, "Lhasa", WORDS)[0] == "p8"
    compact_index(root)
    with open_index(root) as index:
        searcher = TwoStageSearcher(index)
        assert [ids(searcher, place, WORDS)[0] for place in ("Quito", "Lhasa")] == ["new", "p8"]


def test_all_items_as_candidates(searcher: TwoStageSearcher) -> None:
    plain = ids(searcher, "Zanzibar", SearchOptions(k=20, candidates="exhaustive"))
    found = ids(searcher, "Zanzibar", SearchOptions(k=20, candidates="exhaustive", lexical=1.0))
    assert found == ["p250", *(each for each in plain if each != "p250")][:20]


def test_a_query_without_a_text_of_its_own_is_refused(searcher: TwoStageSearcher) -> None:
    with pytest.raises(InputError, match="lexical: expected a query of one text, got none"):
        searcher.search(searcher.stored_query("p1"), "texts", WORDS)
    terms = (asked(searcher, "a dog")._replace(role="all"),)
    with pytest.raises(InputError, match="lexical: expected a query of one text, got several"):
        searcher.search(terms, "images", WORDS)
