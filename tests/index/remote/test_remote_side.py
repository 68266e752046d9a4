"""Searches of an index in an engine against those of the files that it was pushed from."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from aladin.encoding import Encoding
from aladin.inference import encode_texts
from index.modality import Modality
from index.reader import SearchIndex
from index.remote.push import PushReport
from index.remote.remote_index import RemoteIndex, open_remote_index
from index.results import SearchResult
from index.searcher import TwoStageSearcher
from index.settings import Target
from tests.index.remote.memory_engine import MemoryEngine, MemoryServer

TEXT = "two dogs run on the green grass"


@pytest.fixture
def remote(
    push: Callable[..., PushReport],
    published: Path,
    server: MemoryServer,
    tmp_path: Path,
    search_index: SearchIndex,
) -> RemoteIndex:
    """`published` in an engine."""
    push(published)
    server.calls.clear()
    client = MemoryEngine(server)
    return open_remote_index(tmp_path / "remote", client, checkpoint=search_index.checkpoint)


@pytest.fixture(scope="module")
def query(search_index: SearchIndex) -> Encoding:
    return encode_texts(search_index.checkpoint.model, [TEXT])


def assert_same(actual: SearchResult, expected: SearchResult, align_error: float) -> None:
    """Compare two answers; cosines may be added up in another order."""
    assert replace(actual, hits=[], took_ms=expected.took_ms) == replace(expected, hits=[])
    assert [hit.id for hit in actual.hits] == [hit.id for hit in expected.hits]
    for ours, theirs in zip(actual.hits, expected.hits, strict=True):
        assert ours.stages.match.score == pytest.approx(theirs.stages.match.score, abs=1e-6)
        assert ours.stages.match.rank == theirs.stages.match.rank
        assert (ours.stages.align is None) == (theirs.stages.align is None)
        if ours.stages.align is not None and theirs.stages.align is not None:
            assert ours.stages.align.score == pytest.approx(
                theirs.stages.align.score, abs=align_error
            )
        assert replace(ours, score=0, per_word=0, stages=theirs.stages) == replace(
            theirs, score=0, per_word=0
        )


@pytest.mark.parametrize(
    ("modality", "target"),
    [("text", "images"), ("image", "texts"), ("text", "texts"), ("image", "images")],
)
@pytest.mark.parametrize("scores_words", [False, True])
def test_hits_scores_and_evidence_are_those_of_the_files(
    remote: RemoteIndex,
    searcher: TwoStageSearcher,
    query: Encoding,
    modality: Modality,
    target: Target,
    scores_words: bool,
) -> None:
    remote.client.scores_words = scores_words  # type: ignore[attr-defined]
    if modality == "image":
        query = searcher.encode_item("photo 3")[0]
    for filter in ({}, {"parity": "odd"}, {"number": {"gte": 3, "lt": 17}}, {"none": 1}):
        for offset, top_k, num_candidates in ((0, 4, 5), (3, 9, 5), (0, 50, 100), (40, 5, 10)):
            expected, actual = (
                each.search(
                    query,
                    modality,
                    target,
                    top_k=top_k,
                    offset=offset,
                    num_candidates=num_candidates,
                    filter=filter,
                    explain=modality == "text",
                    query_text=TEXT,
                )
                for each in (searcher, TwoStageSearcher(remote))
            )
            assert_same(actual, expected, align_error=1e-5 if scores_words else 0)
