"""Ways to compute a network, and the one that queries are encoded in."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path

import pytest
from PIL import Image

from aladin_network.graphs import runtimes
from aladin_network.graphs.loading import load_graphs
from aladin_network.graphs.network import GraphNetwork
from aladin_network.graphs.runtimes import Graph
from aladin_network.graphs.ways import computed_in, query_network, ways_of
from aladin_network.inference import Network, encode_photos, encode_texts
from aladin_network.model import AladinModel
from aladin_network.types import GraphRuntime, Precision, Way
from tests.processor import MULTIPLIES_BFLOAT16, pretend_bfloat16

TUNED = Way("openvino", "bfloat16")
OWN = Way("onnxruntime", "float32")


@pytest.fixture
def model(exported_checkpoint: Path, monkeypatch: pytest.MonkeyPatch) -> Network:
    """A network of graphs by ONNX Runtime, on a processor that multiplies bfloat16."""
    monkeypatch.delenv("ALADIN_RUNTIME", raising=False)
    pretend_bfloat16(monkeypatch)
    return load_graphs(exported_checkpoint, "onnxruntime").model


def without_openvino(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the package openvino be missing."""
    monkeypatch.setattr(
        runtimes, "find_spec", lambda name: None if name == "openvino" else runtimes
    )


def test_the_ways_of_graphs(model: Network, monkeypatch: pytest.MonkeyPatch) -> None:
    both = [OWN, Way("openvino", "float32"), TUNED]
    assert ways_of(model, "text") == ways_of(model, "image") == both
    pretend_bfloat16(monkeypatch, multiplied=False)
    assert ways_of(model, "text") == ways_of(model, "image") == both[:2]
    pretend_bfloat16(monkeypatch)
    monkeypatch.setenv("ALADIN_RUNTIME", "onnxruntime")
    assert ways_of(model, "text") == [OWN]
    monkeypatch.delenv("ALADIN_RUNTIME")
    without_openvino(monkeypatch)
    assert ways_of(model, "image") == [OWN]


def test_the_ways_of_torch(
    build_tiny: Callable[..., AladinModel], monkeypatch: pytest.MonkeyPatch
) -> None:
    model = build_tiny()
    pretend_bfloat16(monkeypatch)
    exact, reduced = Way("torch", "float32"), Way("torch", "bfloat16")
    assert ways_of(model, "text") == [exact, reduced]
    assert ways_of(model, "image") == [exact]
    pretend_bfloat16(monkeypatch, multiplied=False)
    assert ways_of(model, "text") == [exact]
    pretend_bfloat16(monkeypatch)
    assert computed_in(model, exact) is model
    assert query_network(model, "text", reduced, as_tuned=True) is not model
    # A tuned index takes precedence over what the processor can do.
    assert query_network(model, "text", exact, precision="bfloat16", as_tuned=True) is model


def is_in_bfloat16(found: Network, exact: Network) -> bool:
    """Tell a network in bfloat16 from one in float32, by its numbers where they show it."""
    assert isinstance(found, GraphNetwork)
    ours, theirs = encode_texts(found, ["two dogs run"]), encode_texts(exact, ["two dogs run"])
    away = abs(ours.embedding - theirs.embedding).max()
    claimed = found.way.precision == "bfloat16"
    assert away < 0.05
    assert (away > 1e-4) == (claimed and MULTIPLIES_BFLOAT16)
    return claimed


def test_queries_are_encoded_as_tuned(
    model: Network, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = query_network(model, "text", TUNED, as_tuned=True)
    assert isinstance(found, GraphNetwork)
    assert found.way == TUNED
    assert is_in_bfloat16(found, model)
    assert query_network(model, "image", OWN, as_tuned=True) is model
    assert query_network(model, "image", None, as_tuned=True) is model
    assert query_network(model, "text", TUNED) is model  # where tunings are not followed
    monkeypatch.setenv("ALADIN_RUNTIME", "onnxruntime")
    assert query_network(model, "text", TUNED, as_tuned=True) is model
    assert caplog.messages == []


@pytest.mark.parametrize("missing", ["package", "instructions"])
def test_what_is_missing_here_is_said_once(
    model: Network, missing: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    if missing == "package":
        without_openvino(monkeypatch)
    else:
        pretend_bfloat16(monkeypatch, multiplied=False)
    with caplog.at_level(logging.WARNING):
        assert query_network(model, "image", TUNED, as_tuned=True) is model
    (message,) = caplog.messages
    assert message.startswith("image queries are encoded by onnxruntime: the index was tuned for ")
    assert "openvino in bfloat16" in message


@pytest.mark.parametrize(
    ("precision", "as_tuned", "reduced"),
    [("bfloat16", False, True), ("bfloat16", True, False), ("float32", False, False)],
)
def test_bfloat16_that_was_asked_for_takes_another_runtime(
    model: Network, precision: Precision, as_tuned: bool, reduced: bool
) -> None:
    found = query_network(model, "text", precision=precision, as_tuned=as_tuned)
    assert is_in_bfloat16(found, model) == reduced
    assert query_network(model, "image", precision=precision, as_tuned=as_tuned) is model


@pytest.mark.parametrize("missing", ["package", "instructions"])
def test_bfloat16_that_cannot_be_had_is_said(
    model: Network, missing: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    if missing == "package":
        without_openvino(monkeypatch)
    else:
        pretend_bfloat16(monkeypatch, multiplied=False)
    assert query_network(model, "text", precision="bfloat16") is model
    assert caplog.messages == [
        "texts are encoded in float32: bfloat16 needs OpenVINO and a processor that multiplies it"
    ]


def test_another_runtime_has_the_same_photos(model: Network) -> None:
    other = computed_in(model, Way("openvino", "float32"))
    assert other is not model
    photo = Image.linear_gradient("L").convert("RGB")
    ours, theirs = encode_photos(other, [photo]), encode_photos(model, [photo])
    assert abs(ours.embedding - theirs.embedding).max() < 1e-5


def test_a_network_does_not_claim_a_precision_that_it_has_not(
    model: Network, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert isinstance(model, GraphNetwork)
    assert model.with_texts_in_bfloat16() is model  # ONNX Runtime has none
    assert model.computed_in("openvino", "bfloat16").way == TUNED
    pretend_bfloat16(monkeypatch, multiplied=False)
    assert model.computed_in("openvino", "bfloat16").way == Way("openvino", "float32")


def test_a_query_photo_has_its_own_number_of_threads(
    model: Network, build_tiny: Callable[..., AladinModel], monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[tuple[str, int]] = []
    open_graph = runtimes.open_graph

    def noted(path: Path, runtime: GraphRuntime, threads: int, precision: Precision) -> Graph:
        opened.append((path.stem, threads))
        return open_graph(path, runtime, threads, precision)

    monkeypatch.setattr(runtimes, "open_graph", noted)
    photos = query_network(model, "image", photo_threads=2)
    texts = query_network(model, "text", photo_threads=2)
    photo = Image.linear_gradient("L").convert("RGB")
    found = encode_photos(photos, [photo])
    encode_texts(texts, ["two dogs run"])
    assert opened == [("image", 2), ("text", 1)]
    expected = encode_photos(model, [photo])
    assert abs(found.embedding - expected.embedding).max() < 1e-5
    tuned = query_network(model, "image", TUNED, as_tuned=True, photo_threads=2)
    assert isinstance(tuned, GraphNetwork)
    assert tuned.way == TUNED
    assert query_network(model, "image", photo_threads=1) is model
    by_torch = build_tiny()  # whose threads are those of the process
    assert query_network(by_torch, "image", photo_threads=2) is by_torch
