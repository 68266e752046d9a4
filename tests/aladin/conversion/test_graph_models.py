"""Models of other projects that have graphs: opened without torch, and their numbers."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from aladin_network.checkpoint import load_checkpoint
from aladin_network.checkpoint_files import read_model_id
from aladin_network.conversion.named_models import named_model
from aladin_network.errors import CheckpointError, ConfigError
from aladin_network.graphs.loading import load_for_inference
from aladin_network.inference import encode_documents, encode_photos, encode_texts
from tests.graph_models import FAMILIES, TEXTS, make_graph_model

ASKED = [*TEXTS, "  A_RED   circle! ", "x"]


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    """Folder of the converted models, which does not exist yet."""
    return tmp_path / "models"


@pytest.fixture(autouse=True)
def runtime(monkeypatch: pytest.MonkeyPatch) -> None:
    """Graphs are computed, as they are by default; other tests use torch."""
    monkeypatch.setenv("ALADIN_RUNTIME", "auto")


def photos() -> list[Image.Image]:
    """Photos whose crops begin at whole and half pixels, higher and wider ones."""
    random = np.random.default_rng(3)
    sizes = [(32, 32), (61, 40), (40, 67), (33, 32), (35, 32), (37, 32), (32, 39), (200, 90)]
    return [
        Image.fromarray(random.integers(0, 256, (height, width, 3), dtype=np.uint8))
        for width, height in sizes
    ]


@pytest.mark.parametrize("kind", FAMILIES)
def test_photos_and_texts_get_the_embeddings_of_a_reference_by_hand(
    kind: str, cache: Path, tmp_path: Path
) -> None:
    made = make_graph_model(tmp_path / kind, kind)
    found = load_for_inference(named_model(str(made.folder), lambda: cache))
    assert not found.alignment_trained
    images = encode_photos(found.model, photos())
    expected = [made.photo_embedding(photo) for photo in photos()]
    np.testing.assert_allclose(images.embedding, expected, atol=2e-6)
    texts = encode_texts(found.model, ASKED)
    wanted = [made.text_embedding(text) for text in ASKED]
    np.testing.assert_allclose(texts.embedding, wanted, atol=2e-6)
    together = encode_documents(found.model, ASKED)
    np.testing.assert_allclose(together.embedding, wanted, atol=2e-6)
    for encoding in (images, texts, together):
        assert encoding.tokens.shape[1] == encoding.mask.shape[1] == 0
    assert found.model.embedding_dim == images.embedding.shape[1] == 16


def test_weights_lie_on_the_disk_once_and_their_content_is_the_model(
    cache: Path, tmp_path: Path
) -> None:
    first = make_graph_model(tmp_path / "one", "js-clip", ["", "quantized"]).folder
    big = first / "onnx" / "vision_model.onnx_data"
    big.write_bytes(b"x" * 2**20)
    found = named_model(str(first), lambda: cache)
    linked = found / "onnx" / "image" / "vision_model.onnx_data"
    assert linked.stat().st_ino == big.stat().st_ino
    assert sorted(path.name for path in (found / "onnx" / "image").iterdir()) == [
        "vision_model.onnx",
        "vision_model.onnx_data",
    ]
    moved = first.rename(tmp_path / "two")
    assert read_model_id(named_model(str(moved), lambda: cache)) == read_model_id(found)
    described = moved / "preprocessor_config.json"
    data = json.loads(described.read_text())
    described.write_text(json.dumps(data | {"image_mean": [0.1, 0.2, 0.3]}))
    other = named_model(str(moved), lambda: cache)
    assert read_model_id(other) != read_model_id(found)


def test_a_variant_is_named_behind_a_colon(cache: Path, tmp_path: Path) -> None:
    folder = make_graph_model(tmp_path / "clip", "js-clip", ["quantized", "fp16"]).folder
    found = named_model(f"{folder}:quantized", lambda: cache)
    assert (found / "onnx" / "text" / "text_model_quantized.onnx").exists()
    config = load_for_inference(found).config.model
    assert config.text_encoder.source == f"{folder}:quantized"
    assert named_model(f"{folder}:fp16", lambda: cache) != found
    for asked in ("", ":q4"):
        with pytest.raises(CheckpointError, match="one of its variants fp16, quantized behind a"):
            named_model(f"{folder}{asked}", lambda: cache)
    with pytest.raises(CheckpointError, match="at most one variant and one language"):
        named_model(f"{folder}:quantized:fp16", lambda: cache)


def test_a_language_is_put_before_each_text(cache: Path, tmp_path: Path) -> None:
    made = make_graph_model(tmp_path / "nllb", "immich-nllb")
    for code in ("deu_Latn", "eng_Latn"):
        found = load_for_inference(named_model(f"{made.folder}:{code}", lambda: cache))
        embedding = encode_texts(found.model, ["ein Hund"]).embedding[0]
        expected = made.text_embedding("ein Hund", code)
        np.testing.assert_allclose(embedding, expected, atol=2e-6)
    with pytest.raises(CheckpointError, match="has no language fra_Latn"):
        named_model(f"{made.folder}:fra_Latn", lambda: cache)


def test_what_is_missing_damaged_or_unknown_is_named_and_leaves_nothing(
    cache: Path, tmp_path: Path
) -> None:
    faults = {
        "textual/tokenizer.json": (None, "tokenizer.json cannot be read"),
        "visual/preprocess_cfg.json": ('{"size": 32}', "its preprocessing is not known"),
        "visual/model.onnx": ("{}", "onnxruntime cannot load it"),
        "config.json": ("[]", "config.json: expected an object, got list"),
    }
    for number, (name, (content, reason)) in enumerate(faults.items()):
        folder = make_graph_model(tmp_path / str(number), "immich-openai").folder
        (folder / name).unlink()
        if content is not None:
            (folder / name).write_text(content)
        with pytest.raises(CheckpointError, match=reason) as caught:
            named_model(str(folder), lambda: cache)
        assert str(caught.value).startswith(str(folder))
    assert [path for path in cache.iterdir() if path.suffix != ".lock"] == []


@pytest.mark.parametrize(
    ("photo", "text", "reason"),
    [
        ("js-clip", "immich-openai", "expected inputs among image, pixel_values, got text"),
        ("text", "js-clip", "expected inputs among image, pixel_values, got input_ids"),
    ],
)
def test_graphs_of_something_else_are_refused(
    photo: str, text: str, reason: str, cache: Path, tmp_path: Path
) -> None:
    folder = make_graph_model(tmp_path / "model", "js-clip").folder / "onnx"
    if photo == "text":
        (folder / "vision_model.onnx").write_bytes((folder / "text_model.onnx").read_bytes())
    else:
        other = make_graph_model(tmp_path / "other", text).folder / "textual" / "model.onnx"
        (folder / "vision_model.onnx").write_bytes(other.read_bytes())
    with pytest.raises(CheckpointError, match=reason):
        named_model(str(folder.parent), lambda: cache)


def test_torch_is_refused_with_what_it_needs_and_other_devices_are_not_used(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    folder = make_graph_model(tmp_path / "clip", "js-clip").folder
    found = named_model(str(folder), lambda: cache)
    with pytest.raises(CheckpointError, match=r"has graphs alone, .* training, needs weights"):
        load_checkpoint(found)
    assert load_for_inference(found, "cuda").model.embedding_dim == 16
    assert "encode on the CPU, not on cuda" in caplog.text
    monkeypatch.setenv("ALADIN_RUNTIME", "torch")
    with pytest.raises(ConfigError, match="must not be torch, got torch"):
        load_for_inference(found)


def test_neither_torch_nor_transformers_is_imported(cache: Path, tmp_path: Path) -> None:
    folder = make_graph_model(tmp_path / "clip", "immich-siglip2").folder
    program = f"""
import sys
from pathlib import Path
for name in ("torch", "transformers", "onnx", "huggingface_hub"):
    sys.modules[name] = None
from aladin_network.conversion.named_models import named_model
from aladin_network.graphs.loading import load_for_inference
from aladin_network.inference import encode_texts
found = load_for_inference(named_model({str(folder)!r}, lambda: Path({str(cache)!r})))
print(encode_texts(found.model, ["a dog"]).embedding.shape)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert (done.stdout, done.returncode) == ("(1, 16)\n", 0), done.stderr
