"""Queries are encoded in the way that was chosen for their index, where a service follows it."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from aladin_index.build.builder import build_index
from aladin_index.format.query_encoding import MeasuredWay, QueryEncoding
from aladin_index.generations.published import publish_entries, rollback_index
from aladin_index.generations.reader import open_index
from aladin_index.search.searcher import TwoStageSearcher
from aladin_network.graphs import ways
from aladin_network.graphs.ways import computed_in, query_network
from aladin_network.inference import Network, QueryNetworks
from aladin_network.types import Modality, QueryPrecisionSetting, Way
from aladin_service.item_sources import image_items, text_items
from aladin_service.search.encoder import QueryEncoder
from aladin_service.search.job import PhotoQuery, TextQuery
from aladin_service.settings import QueryLimits, ServiceSettings
from aladin_service.work.worker import WorkerPlan
from tests.processor import MULTIPLIES_BFLOAT16, pretend_bfloat16

EXACT, REDUCED = Way("onnxruntime", "float32"), Way("openvino", "bfloat16")


def chosen(way: Way) -> QueryEncoding:
    measured = [
        MeasuredWay(way=each, alone_ms=1.0, batch_ms=None, overlap=1.0, difference=0.0)
        for each in (EXACT, REDUCED)
    ]
    return QueryEncoding(chosen=way, overlap_wanted=0.9, at=10, queries=5, measured=measured)


@pytest.fixture
def tuned(
    exported_checkpoint: Path, data_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Path:
    """An index that was tuned for texts and photos in bfloat16 on a processor that has it."""
    monkeypatch.delenv("ALADIN_RUNTIME", raising=False)
    pretend_bfloat16(monkeypatch)
    root = tmp_path / "index"
    build_index(
        exported_checkpoint, root, image_items(data_file, None), text_items(data_file, None)
    )
    with open_index(root) as index:
        both: dict[Modality, QueryEncoding] = {"text": chosen(REDUCED), "image": chosen(REDUCED)}
        publish_entries(root, index.manifest, {}, "tune", encoding=both)
    return root


def embeddings(encoder: QueryEncoder, root: Path, photo: bytes) -> list[np.ndarray]:
    """Return the embeddings of a text and of a photo."""
    with open_index(root) as index, closing(encoder):
        searcher = TwoStageSearcher(index)
        encoder.warm_up(index)
        asked = TextQuery("a dog"), PhotoQuery(photo, "it")
        return [encoder.encode_one(searcher, each).encoding.embedding for each in asked]


def as_tuned() -> QueryNetworks:
    return QueryNetworks(partial(query_network, as_tuned=True))


def away(one: np.ndarray, other: np.ndarray) -> float:
    return float(abs(one - other).max())


def test_texts_and_photos_follow_the_index(
    tuned: Path, encoded: Callable[..., bytes], query_photo: Image.Image
) -> None:
    photo = encoded(query_photo)
    exact = embeddings(QueryEncoder(QueryLimits()), tuned, photo)
    followed = embeddings(QueryEncoder(QueryLimits(), networks=as_tuned()), tuned, photo)
    for ours, theirs in zip(followed, exact, strict=True):
        assert 0 < away(ours, theirs) < 0.05  # another package, at least
        assert (away(ours, theirs) > 1e-4) == MULTIPLIES_BFLOAT16
    rollback_index(tuned, 1)
    before = embeddings(QueryEncoder(QueryLimits(), networks=as_tuned()), tuned, photo)
    for ours, theirs in zip(before, exact, strict=True):
        np.testing.assert_array_equal(ours, theirs)


@pytest.mark.parametrize(("setting", "follows"), [("auto", True), ("float32", False)])
def test_a_setting_of_the_service_wins(
    tuned: Path, setting: QueryPrecisionSetting, follows: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    ways_taken: list[Way] = []

    def noted(model: Network, way: Way) -> Network:
        ways_taken.append(way)
        return computed_in(model, way)

    monkeypatch.setattr(ways, "computed_in", noted)
    settings = ServiceSettings(query_precision=setting)
    worker = WorkerPlan(index=tuned, settings=settings).make()
    try:
        worker.live.open()
    finally:
        worker.close()
    assert ways_taken == ([REDUCED, REDUCED] if follows else [])
