"""Exported graphs encode as torch does, and are refused where they do not belong."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from aladin_network import errors
from aladin_network.checkpoint import load_checkpoint
from aladin_network.errors import CheckpointError, ConfigError
from aladin_network.graphs import onnx_runtime
from aladin_network.graphs.export import TOLERANCE
from aladin_network.graphs.files import check_graphs, read_graphs
from aladin_network.graphs.loading import load_for_inference, load_graphs
from aladin_network.graphs.network import GraphNetwork, query_network
from aladin_network.graphs.onnx_runtime import Graph
from aladin_network.inference import PHOTOS_AT_A_TIME
from aladin_network.model import AladinModel
from tests.tensors import assert_near, encode_photos, encode_texts, random_photos

TEXTS = ["two dogs run on the green grass", "a man", "a small red circle above a blue square"]


@pytest.fixture(autouse=True)
def _no_setting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ALADIN_RUNTIME", raising=False)


@pytest.fixture
def damaged(exported_checkpoint: Path, tmp_path: Path) -> Path:
    """A copy of the exported checkpoint, to be changed."""
    return Path(shutil.copytree(exported_checkpoint, tmp_path / "checkpoint"))


def test_graphs_encode_any_number_of_items_as_torch_does(
    exported_checkpoint: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ALADIN_RUNTIME", "onnxruntime")
    ours, theirs = (
        load_for_inference(exported_checkpoint).model,
        load_checkpoint(exported_checkpoint).model,
    )
    assert isinstance(ours, GraphNetwork)
    for texts in (TEXTS, TEXTS[1:2], TEXTS[:2]):
        assert_near(encode_texts(ours, texts), encode_texts(theirs, texts), TOLERANCE)
    for count in (1, 2, 3):
        assert_near(
            encode_photos(ours, random_photos(count)),
            encode_photos(theirs, random_photos(count)),
            TOLERANCE,
        )


def test_many_callers_get_the_numbers_of_one(
    exported_checkpoint: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("aladin_network.graphs.network.compute_threads", lambda: 2)
    opened: list[Path] = []

    def counted(path: Path, threads: int) -> Graph:
        opened.append(path)
        return Graph(path, threads)

    monkeypatch.setattr(onnx_runtime, "Graph", counted)
    model = load_graphs(exported_checkpoint).model
    network, callers, photos_a_call, _ = model.throughput()
    assert (callers, photos_a_call) == (2, 1)
    expected = [encode_photos(model, [photo]) for photo in random_photos(4)]
    with ThreadPoolExecutor(callers) as pool:
        found = pool.map(lambda photo: encode_photos(network, [photo]), random_photos(4))
    for ours, theirs in zip(found, expected, strict=True):
        assert_near(ours, theirs, TOLERANCE)
    again = model.throughput().network
    assert_near(encode_photos(again, random_photos(1)), expected[0], TOLERANCE)
    assert len(opened) == 2  # for one thread and for two
    by_torch = load_checkpoint(exported_checkpoint).model
    assert by_torch.throughput() == (by_torch, 1, PHOTOS_AT_A_TIME, None)


def test_a_graph_model_knows_what_its_network_knows(exported_checkpoint: Path) -> None:
    ours, theirs = load_for_inference(exported_checkpoint), load_checkpoint(exported_checkpoint)
    assert isinstance(ours.model, GraphNetwork)
    assert (ours.model_id, ours.fusion) == (theirs.model_id, theirs.fusion)
    one, other = ours.model.image.encoder, theirs.model.image.encoder
    np.testing.assert_array_equal(one.region_boxes(70, 30), other.region_boxes(70, 30))
    assert (one.num_tokens, one.reads) == (other.num_tokens, other.reads)
    spans = theirs.model.text.encoder.spans(TEXTS[0])
    assert ours.model.text.encoder.spans(TEXTS[0]) == spans
    assert ours.model.embedding_dim == theirs.model.matching.dim
    assert ours.model.token_dim == theirs.model.alignment.dim


@pytest.mark.parametrize(
    ("runtime", "device", "error", "message"),
    [
        ("tensorrt", "cpu", ConfigError, "auto, torch, onnxruntime, got 'tensorrt'"),
        ("onnxruntime", "cuda:0", ConfigError, "it computes on the CPU, not cuda:0"),
        ("onnxruntime without graphs", "cpu", CheckpointError, "aladin export onnx"),
        ("onnxruntime not installed", "cpu", ConfigError, r"pip install aladin-search$"),
    ],
)
def test_a_runtime_that_cannot_be_is_named_and_others_fall_back_on_torch(
    exported_checkpoint: Path,
    tiny_checkpoint: Path,
    monkeypatch: pytest.MonkeyPatch,
    runtime: str,
    device: str,
    error: type[Exception],
    message: str,
) -> None:
    folder = tiny_checkpoint if "without" in runtime else exported_checkpoint
    monkeypatch.setenv("ALADIN_RUNTIME", runtime.split()[0])
    if "not installed" in runtime:
        monkeypatch.setattr(errors, "find_spec", lambda _: None)
    with pytest.raises(error, match=message):
        load_for_inference(folder, device)
    monkeypatch.setenv(
        "ALADIN_RUNTIME",
        "torch" if folder is exported_checkpoint and "not" not in runtime else "auto",
    )
    assert isinstance(load_for_inference(folder).model, AladinModel)


def test_damage_is_found(damaged: Path) -> None:
    manifest = read_graphs(damaged, load_checkpoint(damaged).model_id)
    assert manifest is not None
    check_graphs(damaged, manifest)
    path = damaged / "onnx" / "text.onnx"
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    with pytest.raises(CheckpointError, match=r"text\.onnx: damaged"):
        check_graphs(damaged, manifest)
    path.write_bytes(data[:-1])
    with pytest.raises(CheckpointError, match=f"expected {len(data)} bytes, got {len(data) - 1}"):
        load_for_inference(damaged)
    manifest_path = path.with_name("manifest.json")
    content = json.loads(manifest_path.read_text())
    manifest_path.write_text(json.dumps(content | {"schema_version": 9}))
    with pytest.raises(CheckpointError, match="schema version 9, expected 2"):
        load_for_inference(damaged)


def test_a_query_photo_has_its_own_number_of_threads(
    exported_checkpoint: Path,
    build_tiny: Callable[..., AladinModel],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    opened: list[tuple[str, int]] = []

    def noted(path: Path, threads: int) -> Graph:
        opened.append((path.stem, threads))
        return Graph(path, threads)

    monkeypatch.setattr("aladin_network.graphs.network.compute_threads", lambda: 1)
    monkeypatch.setattr(onnx_runtime, "Graph", noted)
    model = load_graphs(exported_checkpoint).model
    asking = query_network(model, "image", photo_threads=2)
    texts = query_network(model, "text", photo_threads=2)
    found = encode_photos(asking, random_photos(1))
    encode_texts(texts, TEXTS)
    assert opened == [("image", 2), ("text", 1)]
    assert_near(found, encode_photos(model, random_photos(1)), TOLERANCE)
    assert query_network(model, "image", photo_threads=1) is model
    assert query_network(model, "text", "bfloat16") is model  # texts of queries are in float32
    by_torch = build_tiny()  # whose threads are those of the process
    assert query_network(by_torch, "image", photo_threads=2) is by_torch
