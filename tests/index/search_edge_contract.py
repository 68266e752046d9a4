"""Searches with items of the index as the query or its terms, or whose filter nothing passes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from aladin_index.search.options import SearchOptions
from aladin_index.search.results import Role
from aladin_index.search.searcher import TwoStageSearcher
from aladin_network.types import Target
from tests.index.contract_items import ODD_IDS, KnownItems, made_up_query
from tests.index.search_contract import DIRECTIONS, SearchContract
from tests.index.searching import run_search


class SearchEdgeContract(SearchContract):
    """Further tests of an open index of photos and texts."""

    @pytest.mark.parametrize(
        ("target", "own_id"), [("images", "photo 30"), ("images", ODD_IDS[0]), ("texts", "text 5")]
    )
    @pytest.mark.parametrize("candidates", [1, 6, 100])
    def test_an_item_is_not_among_its_own_hits(
        self, searcher: TwoStageSearcher, target: Target, own_id: str, candidates: int
    ) -> None:
        query, modality = searcher.stored_query(own_id)[:2]
        options: dict[str, Any] = {"candidates": candidates}
        everything = run_search(searcher, query, modality, target, k=99, **options).hits
        assert own_id in [hit.id for hit in everything]
        others = [hit.id for hit in everything if hit.id != own_id]
        pages: list[str] = []
        for offset in range(0, len(everything), 7):
            page = run_search(
                searcher, query, modality, target, k=7, offset=offset, own_id=own_id, **options
            ).hits
            assert [hit.rank for hit in page] == list(range(offset + 1, offset + 1 + len(page)))
            assert len(page) == min(7, len(others) - offset)
            pages += [hit.id for hit in page]
        assert pages == others

    def test_an_item_is_left_out_of_its_own_kind_alone_and_whatever_the_filter(
        self, searcher: TwoStageSearcher
    ) -> None:
        query, _ = searcher.stored_query("photo 30")[:2]
        own = searcher.index.collection("images").items.by_id("photo 30")
        assert own is not None
        among: list[dict[str, Any]] = [
            {"target": "texts"},  # where the id is none, or another's
            {"target": "images", "filter": {"number": {"gt": own.metadata["number"]}}},
        ]
        for options in among:
            target = options.pop("target")
            as_a_photo = run_search(searcher, query, "image", target, k=9, **options)
            as_an_item = run_search(
                searcher, query, "image", target, k=9, own_id="photo 30", **options
            )
            assert as_an_item.hits == as_a_photo.hits
        itself = {"number": own.metadata["number"]}
        alone = run_search(
            searcher, query, "image", "images", k=9, own_id="photo 30", filter=itself
        )
        assert (alone.hits, alone.unknown_fields) == ([], [])

    def test_where_nothing_passes_a_filter_the_fields_that_no_item_has_are_named(
        self, searcher: TwoStageSearcher
    ) -> None:
        query = made_up_query(np.random.default_rng(11))
        for spec, unknown in (
            ({"number": -1}, []),
            ({"wheels": 4}, ["wheels"]),
            ({"or": [{"wheels": 4}, {"number": -1}, {"doors": 2}]}, ["wheels", "doors"]),
            ({"not": {"wheels": 4}}, []),  # everything passes
        ):
            for modality, target in DIRECTIONS:
                result = run_search(searcher, query, modality, target, k=3, filter=spec)
                assert result.unknown_fields == unknown
                late = run_search(searcher, query, modality, target, k=3, offset=99, filter=spec)
                assert (late.hits, late.unknown_fields) == ([], unknown)

    def test_a_query_of_several_terms(
        self, searcher: TwoStageSearcher, items: Mapping[Target, KnownItems]
    ) -> None:
        asked: list[tuple[Role, str]] = [("all", "text 5"), ("not", "text 7"), ("like", "photo 30")]
        stored = {name: searcher.stored_query(name) for _, name in asked}
        query = tuple(stored[name]._replace(role=role) for role, name in asked)
        result = searcher.search(query, "images", SearchOptions(k=12, candidates=20))
        assert (result.reranked, result.degraded, result.candidates) == (True, [], 20)
        assert (len(result.hits), result.unreliable_because) == (12, "several_terms")
        assert "photo 30" not in [hit.id for hit in result.hits]
        for hit in result.hits:
            known = items["images"][hit.id]
            assert hit.score == pytest.approx(sum(each.score for each in hit.terms or ()), abs=1e-4)
            for (role, name), term in zip(asked, hit.terms or (), strict=True):
                encoding = stored[name].encoding
                cosine = float(known.embedding @ encoding.embedding[0])
                assert term.match == pytest.approx(cosine, abs=self.tolerance)
                if name.startswith("text"):
                    words = encoding.item_tokens(0)
                    if role == "all":  # each is moved towards its best region of the example
                        regions = items["images"]["photo 30"].tokens
                        nearest = [max(regions, key=lambda region: region @ word) for word in words]
                        words = words + 0.5 * np.array(nearest)
                        words /= np.linalg.norm(words, axis=1, keepdims=True)
                    best = (words @ known.tokens.T).max(axis=1).sum()
                    assert term.align == pytest.approx(float(best), abs=10 * self.tolerance)
                else:
                    assert term.align is None
        scores = [hit.score for hit in result.hits]
        assert scores == sorted(scores, reverse=True)
