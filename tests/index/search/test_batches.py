"""Searches of a batch share the calls of their stages, and fail each by itself."""

from __future__ import annotations

from typing import Any

import pytest

from aladin_index.search.file_collection import FileCollection
from aladin_index.search.options import AskedSearch, SearchOptions
from aladin_index.search.searcher import TwoStageSearcher
from aladin_network.errors import IndexCorruptError, InputError


def asked(searcher: TwoStageSearcher, text: int, **options: Any) -> AskedSearch:
    query = searcher.stored_query(f"text {text}")
    return AskedSearch(query, "images", SearchOptions(candidates=15, **options))


def test_searches_of_a_collection_share_a_call_of_each_stage(
    searcher: TwoStageSearcher, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[tuple[str, int]] = []
    for name in ("order_all", "align_all"):
        real = getattr(FileCollection, name)

        def note(
            self: FileCollection, first: Any, *rest: Any, name: str = name, real: Any = real
        ) -> Any:
            calls.append((name, len(first)))
            return real(self, first, *rest)

        monkeypatch.setattr(FileCollection, name, note)
    plain, filtered = asked(searcher, 1), asked(searcher, 1, filter={"number": {"lt": 9}})
    searcher.search_all([plain, filtered, plain, plain, filtered])
    assert calls == [("order_all", 3), ("order_all", 2), ("align_all", 3), ("align_all", 2)]


def test_an_error_concerns_its_own_search_alone(
    searcher: TwoStageSearcher, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, broken = FileCollection.align_all, asked(searcher, 0)  # the longest text but one

    def fail(self: FileCollection, queries: Any, modality: Any, rows: Any) -> Any:
        if any(len(query) == len(broken.query.encoding.item_tokens(0)) for query in queries):
            raise IndexCorruptError("tokens.npy", "cut short")
        return real(self, queries, modality, rows)

    batch = [asked(searcher, text) for text in (1, 2, 3)]
    expected = [[hit.id for hit in searcher.search(*each).hits] for each in batch]
    monkeypatch.setattr(FileCollection, "align_all", fail)
    first, *others, wrong = searcher.search_all([broken, *batch, asked(searcher, 0, k=0)])
    assert isinstance(first, IndexCorruptError)
    assert isinstance(wrong, InputError)
    assert [[hit.id for hit in each.hits] for each in others] == expected
