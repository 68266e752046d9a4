"""Ways to compute a network, and the one that queries are encoded in."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path

import pytest
from PIL import Image

from aladin_network.graphs import runtimes, ways
from aladin_network.graphs.loading import load_graphs
from aladin_network.graphs.network import GraphNetwork
from aladin_network.graphs.ways import computed_in, query_network, ways_of
from aladin_network.inference import Network, encode_photos, encode_texts
from aladin_network.model import AladinModel
from aladin_network.types import Precision, Way

TUNED = Way("openvino", "bfloat16")
OWN = Way("onnxruntime", "float32")


@pytest.fixture
def model(exported_checkpoint: Path, monkeypatch: pytest.MonkeyPatch) -> Network:
    """A network of graphs by ONNX Runtime, on a processor that multiplies bfloat16."""
    monkeypatch.delenv("ALADIN_RUNTIME", raising=False)
    monkeypatch.setattr(ways, "multiplies_bfloat16", lambda: True)
    return load_graphs(exported_checkpoint, "onnxruntime").model


def without_openvino(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the package openvino be missing."""
    monkeypatch.setattr(
        runtimes, "find_spec", lambda name: None if name == "openvino" else runtimes
    )


def test_the_ways_of_graphs(model: Network, monkeypatch: pytest.MonkeyPatch) -> None:
    both = [OWN, Way("openvino", "float32"), TUNED]
    assert ways_of(model, "text") == ways_of(model, "image") == both
    monkeypatch.setattr(ways, "multiplies_bfloat16", lambda: False)
    assert ways_of(model, "text") == both[:2]
    monkeypatch.setattr(ways, "multiplies_bfloat16", lambda: True)
    monkeypatch.setenv("ALADIN_RUNTIME", "onnxruntime")
    assert ways_of(model, "text") == [OWN]
    monkeypatch.delenv("ALADIN_RUNTIME")
    without_openvino(monkeypatch)
    assert ways_of(model, "image") == [OWN]


def test_the_ways_of_torch(
    build_tiny: Callable[..., AladinModel], monkeypatch: pytest.MonkeyPatch
) -> None:
    model = build_tiny()
    monkeypatch.setattr(ways, "multiplies_bfloat16", lambda: True)
    exact, reduced = Way("torch", "float32"), Way("torch", "bfloat16")
    assert ways_of(model, "text") == [exact, reduced]
    assert ways_of(model, "image") == [exact]
    assert computed_in(model, exact) is model
    assert query_network(model, "text", reduced, as_tuned=True) is not model
    # A tuned index takes precedence over what the processor can do.
    assert query_network(model, "text", exact, precision="bfloat16", as_tuned=True) is model


def is_in_bfloat16(found: Network, exact: Network) -> bool:
    """Tell a network in bfloat16 from one in float32, which differs in the last digits alone."""
    ours, theirs = encode_texts(found, ["two dogs run"]), encode_texts(exact, ["two dogs run"])
    away = abs(ours.embedding - theirs.embedding).max()
    assert away < 0.05
    return bool(away > 1e-4)


def test_queries_are_encoded_as_tuned(
    model: Network, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = query_network(model, "text", TUNED, as_tuned=True)
    assert isinstance(found, GraphNetwork)
    assert found.runtime == "openvino"
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
        monkeypatch.setattr(ways, "multiplies_bfloat16", lambda: False)
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


def test_bfloat16_that_cannot_be_had_is_said(
    model: Network, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    without_openvino(monkeypatch)
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
