"""Exported graphs encode as torch does, and are refused where they do not belong."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from aladin_network.checkpoint import load_checkpoint, save_checkpoint
from aladin_network.config import TextEncoderConfig, TowerConfig
from aladin_network.errors import CheckpointError, ConfigError
from aladin_network.graphs import runtimes
from aladin_network.graphs.export import TOLERANCE, export_graphs
from aladin_network.graphs.files import GRAPHS, check_graphs, graph_path, read_graphs
from aladin_network.graphs.loading import load_for_inference, load_graphs
from aladin_network.graphs.network import GraphNetwork, for_throughput
from aladin_network.graphs.runtimes import Graph, open_graph
from aladin_network.graphs.ways import query_network
from aladin_network.inference import PHOTOS_AT_A_TIME
from aladin_network.model import AladinModel
from aladin_network.scoring.scores import EncodedBatch
from aladin_network.types import RUNTIMES
from tests.processor import pretend_bfloat16
from tests.tensors import encode_photos, encode_texts

TEXTS = ["two dogs run on the green grass", "a man", "a small red circle above a blue square"]


@pytest.fixture(autouse=True)
def _no_setting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ALADIN_RUNTIME", raising=False)


@pytest.fixture
def damaged(exported_checkpoint: Path, tmp_path: Path) -> Iterator[Path]:
    """A copy of the exported checkpoint, to be changed."""
    folder = tmp_path / "checkpoint"
    shutil.copytree(exported_checkpoint, folder)
    yield folder


def photos(count: int) -> list[Image.Image]:
    random = np.random.default_rng(1)
    sizes = [(40 + 9 * number, 64, 3) for number in range(count)]
    return [Image.fromarray(random.integers(0, 256, size, dtype=np.uint8)) for size in sizes]


def assert_same(found: EncodedBatch, expected: EncodedBatch) -> None:
    assert torch.equal(found.mask, expected.mask)
    assert (found.embedding - expected.embedding).abs().max() <= TOLERANCE
    mask = expected.mask
    assert (found.tokens[mask] - expected.tokens[mask]).abs().max() <= TOLERANCE


@pytest.mark.parametrize("runtime", RUNTIMES)
def test_graphs_encode_any_number_of_items_as_torch_does(
    exported_checkpoint: Path, monkeypatch: pytest.MonkeyPatch, runtime: str
) -> None:
    monkeypatch.setenv("ALADIN_RUNTIME", runtime)
    ours, theirs = (
        load_for_inference(exported_checkpoint).model,
        load_checkpoint(exported_checkpoint).model,
    )
    assert isinstance(ours, GraphNetwork)
    for texts in (TEXTS, TEXTS[1:2], TEXTS[:2]):
        assert_same(encode_texts(ours, texts), encode_texts(theirs, texts))
    for count in (1, 2, 3):
        assert_same(encode_photos(ours, photos(count)), encode_photos(theirs, photos(count)))


def test_many_callers_get_the_numbers_of_one(
    exported_checkpoint: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("aladin_network.graphs.network.compute_threads", lambda: 2)
    opened: list[Path] = []

    def counted(path: Path, *options: Any) -> Graph:
        opened.append(path)
        return open_graph(path, *options)

    monkeypatch.setattr(runtimes, "open_graph", counted)
    model = load_graphs(exported_checkpoint, "onnxruntime").model
    network, callers, photos_a_call = for_throughput(model)
    assert (callers, photos_a_call) == (2, 1)
    expected = [encode_photos(model, [photo]) for photo in photos(4)]
    with ThreadPoolExecutor(callers) as pool:
        found = pool.map(lambda photo: encode_photos(network, [photo]), photos(4))
    for ours, theirs in zip(found, expected, strict=True):
        assert_same(ours, theirs)
    again = for_throughput(model).network
    assert_same(encode_photos(again, photos(1)), expected[0])
    assert len(opened) == 2  # for one thread and for two
    by_torch = load_checkpoint(exported_checkpoint).model
    assert for_throughput(by_torch) == (by_torch, 1, PHOTOS_AT_A_TIME)


def test_queries_in_bfloat16_are_near_those_in_float32(
    exported_checkpoint: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pretend_bfloat16(monkeypatch)
    model = load_graphs(exported_checkpoint, "openvino").model
    queries = query_network(model, "text", precision="bfloat16")
    assert isinstance(queries, GraphNetwork)
    assert queries is not model
    found, expected = encode_texts(queries, TEXTS), encode_texts(model, TEXTS)
    assert found.embedding.dtype == torch.float32
    assert torch.equal(found.mask, expected.mask)
    assert torch.cosine_similarity(found.embedding, expected.embedding).min() > 0.99


def test_texts_meet_openvino_in_few_shapes(
    exported_checkpoint: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shapes: set[tuple[int, ...]] = set()
    run = runtimes.OpenVinoGraph.run

    def noted(graph: runtimes.OpenVinoGraph, inputs: runtimes.Arrays) -> Any:
        shapes.add(inputs["ids"].shape)
        return run(graph, inputs)

    monkeypatch.setattr(runtimes.OpenVinoGraph, "run", noted)
    ours, theirs = (load_graphs(exported_checkpoint, name).model for name in RUNTIMES[::-1])
    most = ours.config.text_encoder.max_tokens
    texts = [" ".join(["a dog"] * words) for words in (1, 2, 6, 1, 3, 1, 1, 2, 1)]
    texts.append(" ".join(["a"] * (most - 2)))
    for count in (1, 2, 3, 5, 8, 9, 10):
        some = texts[-count:]
        assert_same(encode_texts(ours, some), encode_texts(theirs, some))
    assert len(theirs.text.encoder.tokenize(texts, truncate=False).ids[0]) == most
    assert {rows for rows, _ in shapes} == {1, 2, 4, 8, 12}
    assert {length for _, length in shapes} == {most}
    for count in range(1, 10):
        assert_same(encode_texts(ours, texts[:count]), encode_texts(theirs, texts[:count]))
    assert all(length % 4 == 0 for _, length in shapes)


def test_the_items_of_a_build_in_bfloat16(
    exported_checkpoint: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pretend_bfloat16(monkeypatch)
    exact = load_graphs(exported_checkpoint, "openvino").model
    found = load_for_inference(exported_checkpoint, precision="bfloat16").model
    assert isinstance(found, GraphNetwork)
    for ours, theirs in (
        (encode_texts(found, TEXTS), encode_texts(exact, TEXTS)),
        (encode_photos(found, photos(3)), encode_photos(exact, photos(3))),
    ):
        assert ours.mask.equal(theirs.mask)
        assert torch.cosine_similarity(ours.embedding, theirs.embedding).min() > 0.99
    monkeypatch.setenv("ALADIN_RUNTIME", "onnxruntime")
    with pytest.raises(ConfigError, match="openvino computes it, got ALADIN_RUNTIME=onnxruntime"):
        load_for_inference(exported_checkpoint, precision="bfloat16")
    monkeypatch.delenv("ALADIN_RUNTIME")
    pretend_bfloat16(monkeypatch, multiplied=False)
    with pytest.raises(ConfigError, match="this processor does not multiply it"):
        load_for_inference(exported_checkpoint, precision="bfloat16")
    monkeypatch.setattr(runtimes, "find_spec", lambda _: None)
    with pytest.raises(ConfigError, match=r"pip install 'aladin-search\[openvino\]'"):
        load_for_inference(exported_checkpoint, precision="bfloat16")


def test_a_graph_model_knows_what_its_network_knows(exported_checkpoint: Path) -> None:
    ours, theirs = load_for_inference(exported_checkpoint), load_checkpoint(exported_checkpoint)
    assert isinstance(ours.model, GraphNetwork)
    assert (ours.model_id, ours.fusion) == (theirs.model_id, theirs.fusion)
    one, other = ours.model.image.encoder, theirs.model.image.encoder
    np.testing.assert_array_equal(one.region_boxes(70, 30), other.region_boxes(70, 30))
    assert (one.dim, one.num_tokens, one.reads) == (other.dim, other.num_tokens, other.reads)
    spans = theirs.model.text.encoder.spans(TEXTS[0])
    assert ours.model.text.encoder.spans(TEXTS[0]) == spans
    assert ours.model.embedding_dim == theirs.model.matching.dim
    assert ours.model.token_dim == theirs.model.alignment.dim


@pytest.mark.slow
@pytest.mark.parametrize("bidirectional", [True, False])
def test_a_recurrent_network_with_padded_texts(
    build_tiny: Callable[..., AladinModel], tmp_path: Path, bidirectional: bool
) -> None:
    architecture = {"embedding_size": 6, "hidden_size": 10, "bidirectional": bidirectional}
    encoder = TextEncoderConfig(
        name="gru" if bidirectional else "lstm", architecture=architecture | {"layers": 2}
    )
    tower = TowerConfig(aggregate="encoder")
    model = build_tiny(
        text_encoder=encoder, text_tower=tower, image_tower=TowerConfig(aggregate="mean")
    )
    save_checkpoint(tmp_path / "checkpoint", model)
    export_graphs(tmp_path / "checkpoint")
    ours = load_for_inference(tmp_path / "checkpoint").model
    assert isinstance(ours, GraphNetwork)
    assert_same(encode_texts(ours, TEXTS), encode_texts(model, TEXTS))
    assert ours.text.encoder.spans(TEXTS[0]) == model.text.encoder.spans(TEXTS[0])


def test_without_an_export_torch_encodes(
    tiny_checkpoint: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert not isinstance(load_for_inference(tiny_checkpoint).model, GraphNetwork)
    monkeypatch.setenv("ALADIN_RUNTIME", "openvino")
    with pytest.raises(CheckpointError, match="aladin export onnx"):
        load_for_inference(tiny_checkpoint)


def test_torch_and_unknown_runtimes_by_the_variable(
    exported_checkpoint: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ALADIN_RUNTIME", "torch")
    assert not isinstance(load_for_inference(exported_checkpoint).model, GraphNetwork)
    monkeypatch.setenv("ALADIN_RUNTIME", "tensorrt")
    with pytest.raises(ConfigError, match="auto, torch, onnxruntime, openvino, got 'tensorrt'"):
        load_for_inference(exported_checkpoint)


def test_graphs_of_other_weights_are_refused(
    build_tiny: Callable[..., AladinModel], damaged: Path, tmp_path: Path
) -> None:
    model = build_tiny()
    with torch.no_grad():
        next(model.parameters()).add_(1)
    save_checkpoint(tmp_path / "other", model)
    shutil.copytree(damaged / GRAPHS, tmp_path / "other" / GRAPHS)
    with pytest.raises(CheckpointError, match=r"exported from weights .*, the checkpoint has"):
        load_for_inference(tmp_path / "other")


def test_damage_is_found(damaged: Path) -> None:
    manifest = read_graphs(damaged, load_checkpoint(damaged).model_id)
    assert manifest is not None
    check_graphs(damaged, manifest)
    path = graph_path(damaged, "text")
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
    with pytest.raises(CheckpointError, match="schema version 9, expected 1"):
        load_for_inference(damaged)


def test_signals_are_handled_after_openvino_has_let_go_of_its_graphs(
    exported_checkpoint: Path,
) -> None:
    graph = graph_path(exported_checkpoint, "text")
    script = f"""
import gc, signal
from pathlib import Path
from aladin_network.graphs.runtimes import OpenVinoGraph
first, second = (OpenVinoGraph(Path({str(graph)!r}), 1, "float32") for _ in range(2))
del first
gc.collect()
del second
gc.collect()
signal.signal(signal.SIGTERM, lambda *_: print("handled"))
signal.raise_signal(signal.SIGTERM)
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "handled\n"), done.stderr
