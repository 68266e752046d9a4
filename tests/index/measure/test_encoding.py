"""The measured ways to encode queries, and what of them an index keeps."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from aladin_index.build.builder import build_index
from aladin_index.changes.writer import ChangesWriter
from aladin_index.encode.source_items import ImageItem, TextItem
from aladin_index.format.query_encoding import choose_way
from aladin_index.generations.compact import compact_index
from aladin_index.generations.reader import SearchIndex, open_index
from aladin_index.measure.encoding import EncodingMeasurement
from aladin_index.measure.tune import tune_index
from aladin_index.measure.tune_options import TuneOptions
from aladin_index.search.backend import EncodedQuery
from aladin_index.search.options import SearchOptions
from aladin_index.search.searcher import TwoStageSearcher
from aladin_network.graphs.ways import computed_in
from aladin_network.inference import Network, encode_texts
from aladin_network.types import Way
from tests.processor import MULTIPLIES_BFLOAT16, pretend_bfloat16

OPTIONS = TuneOptions(fidelity=0.5, at=3, num_queries=8, max_candidates=23)
WAYS = [
    Way("onnxruntime", "float32"),
    Way("openvino", "float32"),
    Way("openvino", "bfloat16"),
]


@pytest.fixture
def graph_index(
    exported_checkpoint: Path,
    images: list[ImageItem],
    texts: list[TextItem],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Path:
    """An index of a network of graphs, on a processor that multiplies bfloat16."""
    monkeypatch.delenv("ALADIN_RUNTIME", raising=False)
    pretend_bfloat16(monkeypatch)
    build_index(exported_checkpoint, tmp_path / "index", images, texts)
    return tmp_path / "index"


def hits(index: SearchIndex, network: Network, text: str) -> dict[str, float]:
    query = EncodedQuery(encode_texts(network, [text]), "text")
    answer = TwoStageSearcher(index).search(query, "images", SearchOptions(k=3))
    return {hit.id: hit.score for hit in answer.hits}


def test_every_way_is_measured_and_one_is_kept(graph_index: Path) -> None:
    report = tune_index(graph_index, OPTIONS)
    assert report.warnings == []
    assert set(report.encoding) == {"text", "image"}
    for modality, tuned in report.encoding.items():
        assert [each.way for each in tuned.measured] == WAYS
        assert (tuned.queries, tuned.at, tuned.overlap_wanted) == (8, 3, 0.97)
        assert tuned.chosen == choose_way(tuned.measured, 0.97)
        first, other, reduced = tuned.measured
        assert (first.overlap, first.difference) == (1.0, 0.0)
        assert other.difference < 1e-4
        assert reduced.difference < 0.5
        assert (reduced.difference > 1e-4) == MULTIPLIES_BFLOAT16
        for each in tuned.measured:
            assert each.alone_ms > 0
            assert (each.batch_ms is None) == (modality == "image")
    with open_index(graph_index) as index:
        assert index.generation == report.generation == 2
        assert index.manifest.encoding == report.encoding
    # A compaction keeps them.
    with closing(ChangesWriter(graph_index, index.manifest.model.id)) as writer:
        writer.delete("images", ["photo 3"])
    assert compact_index(graph_index).generation == 3
    with open_index(graph_index) as index:
        assert index.manifest.encoding == report.encoding


def test_overlap_and_difference_are_those_of_the_answers(graph_index: Path) -> None:
    asked = ["two dogs run", "a man", "the yellow star is left of a white triangle"]
    with open_index(graph_index) as index:
        found, warnings = EncodingMeasurement(index, 3, 0.97).run({"text": asked}, 5)
        assert warnings == []
        assert found["image"].queries == 5  # from the index
        exact, *others = (computed_in(index.checkpoint.model, way) for way in WAYS)
        for measured, network in zip(found["text"].measured[1:], others, strict=True):
            shares: list[float] = []
            away = 0.0
            for text in asked:
                ours, theirs = hits(index, network, text), hits(index, exact, text)
                kept = ours.keys() & theirs.keys()
                shares.append(len(kept) / 3)
                away = max(away, *(abs(ours[each] - theirs[each]) for each in kept))
            assert measured.overlap == pytest.approx(np.mean(shares))
            assert measured.difference == pytest.approx(away)


def test_the_captions_of_photos_are_asked_with_where_there_are_no_texts(
    exported_checkpoint: Path, graph_index: Path, images: list[ImageItem]
) -> None:
    build_index(exported_checkpoint, graph_index, images, None)
    with open_index(graph_index) as index:
        found, _ = EncodingMeasurement(index, 3, 0.97).run({}, 50)
    assert found["text"].queries == sum(item.text is not None for item in images)


@pytest.fixture
def without_photos(graph_index: Path, images: list[ImageItem]) -> Iterator[Path]:
    """The index after its photos were moved away."""
    folder = images[0].path.parent
    moved = folder.rename(folder.with_name("elsewhere"))
    yield graph_index
    moved.rename(folder)


def test_photos_that_were_moved_cannot_be_asked_with(without_photos: Path) -> None:
    report = tune_index(without_photos, OPTIONS)
    assert set(report.encoding) == {"text"}
    assert report.warnings == [
        "image queries: their encoding was not measured, for the index has none to ask with; give "
        "--queries"
    ]


def test_where_there_is_no_choice_nothing_is_measured(
    graph_index: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ALADIN_RUNTIME", "onnxruntime")
    report = tune_index(graph_index, OPTIONS)
    assert (report.encoding, report.warnings) == ({}, [])
