"""Filters through the whole search: as many hits as there can be, and the right ones."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from aladin_index.encode.encoded import ItemBatch
from aladin_index.generations.reader import open_index
from aladin_index.items.tables import StoredItem
from aladin_index.search.searcher import TwoStageSearcher
from aladin_index.settings import BuildSettings
from aladin_network.scoring.encoding import Encoding
from tests.index.searching import run_search
from tests.index.written import write_index

COUNT, DIM, TOKEN_DIM, QUERIES = 3000, 16, 8, 3
FACTORIES = ["exact", "HNSW16,Flat", "IVF32,SQ8"]


def metadata(number: int) -> dict[str, Any]:
    return {
        "number": number,
        "half": number % 2,
        "thousandth": number % 1000,
        "labels": ["all", f"label {number % 7}"],
    }


# What a filter lets through, next to itself.
FILTERS: list[tuple[dict[str, Any], Any]] = [
    ({"half": 1}, lambda n: n % 2 == 1),
    ({"labels": {"in": ["label 1", "label 5"]}}, lambda n: n % 7 in (1, 5)),
    ({"thousandth": 17}, lambda n: n % 1000 == 17),
    ({"number": 1234}, lambda n: n == 1234),
    ({"number": {"gt": COUNT}}, lambda n: n > COUNT),
    ({"labels": "all"}, lambda n: n >= 0),
    ({"not": {"thousandth": {"lt": 900}}, "half": 0}, lambda n: n % 1000 >= 900 and n % 2 == 0),
    ({"or": [{"thousandth": 3}, {"number": {"gte": 2990}}]}, lambda n: n % 1000 == 3 or n >= 2990),
]


def clustered(count: int, dim: int, random: np.random.Generator) -> NDArray[np.float32]:
    centres = random.standard_normal((40, dim))
    points = centres[random.integers(0, 40, count)] + 0.7 * random.standard_normal((count, dim))
    return (points / np.linalg.norm(points, axis=1, keepdims=True)).astype(np.float32)


class Collection:
    """An index of random photos in clusters, and the photos."""

    def __init__(self, searcher: TwoStageSearcher, embeddings: NDArray[np.float32]) -> None:
        self.searcher = searcher
        self.embeddings = embeddings
        self.queries = clustered(QUERIES, DIM, np.random.default_rng(1))

    def search(self, query: int, **options: Any) -> list[int]:
        """Return the numbers of the photos found."""
        words = np.full((3, TOKEN_DIM), TOKEN_DIM**-0.5, dtype=np.float32)
        encoding = Encoding.of_item(self.queries[query], words)
        hits = run_search(self.searcher, encoding, "text", "images", **options).hits
        assert [hit.rank for hit in hits] == [
            options.get("offset", 0) + n + 1 for n in range(len(hits))
        ]
        return [int(hit.metadata["number"]) for hit in hits]

    def nearest(self, query: int, passing: list[int]) -> list[int]:
        """Order photos by brute force."""
        scores = self.embeddings[passing] @ self.queries[query]
        return [passing[place] for place in np.argsort(-scores, kind="stable")]


@pytest.fixture(scope="module", params=FACTORIES)
def collection(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, tiny_checkpoint: Path
) -> Iterator[Collection]:
    random = np.random.default_rng(0)
    embeddings = clustered(COUNT, DIM, random)
    tokens = clustered(2 * COUNT, TOKEN_DIM, random)
    items = [
        StoredItem(row, f"photo {row}", None, None, None, None, None, None, metadata(row))
        for row in range(COUNT)
    ]
    photos = ItemBatch(items, embeddings, tokens, np.full(COUNT, 2, dtype=np.int64))
    root = tmp_path_factory.mktemp("filtered") / "index"
    # One field has an index, the others are read through.
    settings = BuildSettings(ann=request.param, ann_recall=0.9, filter_fields=("number", "half"))
    write_index(root, tiny_checkpoint, {"images": photos}, "int8", settings)
    with open_index(root) as index:
        yield Collection(TwoStageSearcher(index), embeddings)


@pytest.fixture(params=[True, False], ids=["few are searched exactly", "through the ANN"])
def few(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Whether what passes is few enough to be searched exactly."""
    if not request.param:
        monkeypatch.setattr("aladin_index.ann.first_stage.EXACT_UP_TO", 0)
    return request.param


@pytest.mark.parametrize(("spec", "rule"), FILTERS, ids=[str(spec) for spec, _ in FILTERS])
def test_k_results_come_back_whenever_k_exist(
    collection: Collection, few: bool, spec: dict[str, Any], rule: Any
) -> None:
    passing = [number for number in range(COUNT) if rule(number)]
    shares: list[float] = []
    for query in range(QUERIES):
        found = collection.search(query, k=10, candidates=20, rerank=False, filter=spec)
        expected = collection.nearest(query, passing)[:10]
        assert len(found) == len(set(found)) == min(10, len(passing))
        assert set(found) <= set(passing)
        if few or len(passing) <= 20:
            assert found == expected
        else:
            shares.append(len(set(found) & set(expected)) / len(expected))
    assert np.mean(shares or [1.0]) >= 0.8


@pytest.mark.parametrize("rerank", [True, False])
@pytest.mark.parametrize(("spec", "rule"), FILTERS, ids=[str(spec) for spec, _ in FILTERS])
def test_pages_of_a_filtered_search_neither_repeat_nor_skip(
    collection: Collection,
    spec: dict[str, Any],
    rule: Any,
    rerank: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("aladin_index.ann.first_stage.EXACT_UP_TO", 0)
    passing = [number for number in range(COUNT) if rule(number)]
    options: dict[str, Any] = {"candidates": 30, "rerank": rerank, "filter": spec}
    pages: list[int] = []
    for offset in range(0, 150, 25):
        pages += collection.search(2, k=25, offset=offset, **options)
    assert pages == collection.search(2, k=150, **options)
    assert len(pages) == len(set(pages)) == min(150, len(passing))
    assert set(pages) <= set(passing)
    if rerank and len(passing) <= 30:
        assert sorted(pages) == passing
