"""What a searcher answers where the engine that keeps an index goes away in the middle."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from aladin_index.format.disk import only_builder
from aladin_index.generations.published import publish_entries
from aladin_index.generations.reader import SearchIndex, open_index
from aladin_index.items.filters import Filter
from aladin_index.search.collection import Collection, FirstStageQuery, Ordered
from aladin_index.search.file_collection import FileCollection
from aladin_index.search.results import SearchAnswer
from aladin_index.search.searcher import TwoStageSearcher
from aladin_network.calibration.calibration import Calibration
from aladin_network.errors import EngineUnavailableError
from aladin_network.types import Target
from tests.index.searching import run_search

TEXT = "the yellow star is left of a white triangle"


def _no_answer(method: str, *_: Any) -> None:
    raise EngineUnavailableError("test", f"{method}: no answer")


class SlowCollection:
    """A collection whose methods ask an engine first."""

    def __init__(self, collection: FileCollection, down: set[str], asked: list[Any]) -> None:
        self._collection = collection
        self._down = down
        self._asked = asked

    is_shared = False

    def order_all(self, queries: Sequence[FirstStageQuery]) -> list[Ordered]:
        self._asked += [query.second_stage for query in queries]
        return [self.order(query) for query in queries]

    def __getattr__(self, name: str) -> Any:
        return partial(_no_answer, name) if name in self._down else getattr(self._collection, name)


class EngineIndex:
    """An index whose collections ask an engine, of whose methods some find none."""

    def __init__(self, index: SearchIndex) -> None:
        self.down: set[str] = set()
        self.asked: list[Any] = []
        self._index = index

    def collection(self, target: Target, filter: Filter | None = None) -> Collection:
        collection = self._index.collection(target, filter)
        return SlowCollection(collection, self.down, self.asked)  # type: ignore[return-value]

    def __getattr__(self, name: str) -> Any:
        return getattr(self._index, name)


@pytest.fixture(scope="module")
def calibrated(
    published: Path,
    tmp_path_factory: pytest.TempPathFactory,
    make_calibration: Callable[..., Calibration],
) -> Iterator[SearchIndex]:
    """23 photos and 16 texts with made-up probabilities."""
    root = tmp_path_factory.mktemp("engine") / "index"
    shutil.copytree(published, root)
    with only_builder(root), open_index(root) as index:
        calibration = make_calibration(index.manifest.model.id)
        publish_entries(root, index.manifest, {}, "calibrate", calibration)
    with open_index(root) as index:
        yield index


@pytest.fixture
def index(calibrated: SearchIndex) -> EngineIndex:
    return EngineIndex(calibrated)


def ask(index: EngineIndex | SearchIndex, target: Target, **options: Any) -> SearchAnswer:
    """Ask for photos with a text, or for texts with a photo."""
    searcher = TwoStageSearcher(index)  # type: ignore[arg-type]
    query, modality = searcher.stored_query("text 4" if target == "images" else "photo 3")[:2]
    return run_search(searcher, query, modality, target, k=5, explain=True, text=TEXT, **options)


def test_without_the_first_stage_there_is_no_answer(index: EngineIndex) -> None:
    assert ask(index, "images").hits == ask(index._index, "images").hits
    index.down = {"order"}
    with pytest.raises(EngineUnavailableError, match="order: no answer"):
        ask(index, "images")


@pytest.mark.parametrize("rerank", [True, False])
@pytest.mark.parametrize("offset", [0, 4])
@pytest.mark.parametrize("target", ["images", "texts"])
def test_without_tokens_the_first_stage_decides_and_the_answer_says_so(
    index: EngineIndex, target: Target, offset: int, rerank: bool
) -> None:
    options: dict[str, Any] = {"offset": offset, "candidates": 3}
    plain = ask(index, target, rerank=False, **options)
    index.down = {"align", "similarities", "lengths"}
    degraded = ask(index, target, rerank=rerank, **options)
    assert degraded.degraded == ["rerank_unavailable"]
    assert (degraded.reranked, degraded.fusion) == (False, None)
    assert [(hit.id, hit.rank, hit.score) for hit in degraded.hits] == [
        (hit.id, hit.rank, hit.score) for hit in plain.hits
    ]
    for hit in degraded.hits:
        assert (hit.stages.align, hit.per_word, hit.evidence) == (None, None, None)
        assert hit.probability is None
    assert (degraded.no_match, degraded.unreliable_because) == (None, "no_alignment")


def test_without_the_tokens_of_the_hits_there_is_an_order_and_no_evidence(
    index: EngineIndex,
) -> None:
    plain = ask(index, "images")
    index.down = {"similarities"}  # an engine may have scored the words itself
    degraded = ask(index, "images")
    assert degraded.degraded == ["evidence_unavailable"]
    assert degraded.reranked
    assert all(hit.evidence is None for hit in degraded.hits)
    assert [hit.score for hit in degraded.hits] == [hit.score for hit in plain.hits]
    assert [hit.probability for hit in degraded.hits] == [hit.probability for hit in plain.hits]


def test_the_first_stage_knows_what_the_second_will_be_asked(index: EngineIndex) -> None:
    """So that one call of an engine brings what both need; two of one modality have no second."""
    searcher = TwoStageSearcher(index)  # type: ignore[arg-type]
    text, photo = (searcher.stored_query(each).encoding for each in ("text 4", "photo 3"))
    for query, modality in ((text, "text"), (photo, "image")):
        for target in ("images", "texts"):
            run_search(searcher, query, modality, target, k=3)
    of_text, *none, of_photo = index.asked
    assert (of_text.modality, of_photo.modality, none) == ("text", "image", [None, None])
    np.testing.assert_array_equal(of_text.tokens, text.item_tokens(0))
    np.testing.assert_array_equal(of_photo.tokens, photo.item_tokens(0))
