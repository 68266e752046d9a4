"""Checkpoints: complete, exact, and strict about everything that is not as expected."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image
from safetensors.torch import load_file

from aladin_network.checkpoint import load_checkpoint, save_checkpoint
from aladin_network.checkpoint_files import CHECKPOINT_FILES, SCHEMA_VERSION, Provenance
from aladin_network.config import (
    AttentionHeadConfig,
    TextEncoderConfig,
)
from aladin_network.errors import CheckpointError
from aladin_network.model import AladinModel
from aladin_network.scoring.fusion import DirectionFusion, Fusion
from tests.tensors import encode_photos, encode_texts

TEXTS = ["a red circle", "two dogs run on the green grass"]


def edit_config(folder: Path, change: Callable[[dict[str, Any]], object]) -> None:
    config = json.loads((folder / "config.json").read_text())
    change(config)
    (folder / "config.json").write_text(json.dumps(config))


def test_a_loaded_checkpoint_computes_the_same_to_the_bit(
    build_tiny: Callable[..., AladinModel], tmp_path: Path
) -> None:
    model = build_tiny()
    fusion = Fusion(image_to_text=DirectionFusion(weight=0.35, align_mean=1.0, match_std=0.1))
    provenance = Provenance(
        commit="abc", recipe="name = 'x'", stage="teacher", step=7, validation={"rsum": 281.5}
    )
    save_checkpoint(tmp_path / "c", model, fusion, provenance)
    loaded = load_checkpoint(tmp_path / "c")
    assert loaded.fusion == fusion
    assert loaded.provenance == provenance
    assert not loaded.model.training
    weights = (tmp_path / "c" / "model.safetensors").read_bytes()
    assert loaded.model_id == hashlib.sha256(weights).hexdigest()
    for name, value in model.state_dict().items():
        assert torch.equal(loaded.model.state_dict()[name], value), name
    photos = [Image.new("RGB", (50, 40), "red"), Image.new("RGB", (20, 90), "blue")]
    for ours, theirs in (
        (encode_photos(model, photos), encode_photos(loaded.model, photos)),
        (encode_texts(model, TEXTS), encode_texts(loaded.model, TEXTS)),
    ):
        for one, other in zip(ours, theirs, strict=True):
            assert torch.equal(one, other)
    assert loaded.model.text.encoder.spans(TEXTS[0]) == model.text.encoder.spans(TEXTS[0])


def test_recurrent_words_and_attention_are_loaded_whole(
    build_tiny: Callable[..., AladinModel], tmp_path: Path
) -> None:
    architecture = {"embedding_size": 5, "hidden_size": 6, "special_tokens_are_words": False}
    model = build_tiny(
        text_encoder=TextEncoderConfig(name="lstm", architecture=architecture),
        attention=AttentionHeadConfig(dim=5, form="paper"),
    )
    save_checkpoint(tmp_path / "c", model)
    loaded = load_checkpoint(tmp_path / "c").model
    assert loaded.config == model.config
    texts = [*TEXTS, "an unknown armadillo"]
    images = encode_photos(model, [Image.new("RGB", (50, 40), "red")])
    ours, theirs = encode_texts(model, texts), encode_texts(loaded, texts)
    assert torch.equal(ours.tokens, theirs.tokens)
    with torch.inference_mode():
        assert torch.equal(
            loaded.scores("attention", images, theirs), model.scores("attention", images, ours)
        )
    assert loaded.text.encoder.spans(texts[-1]) == model.text.encoder.spans(texts[-1])
    save_checkpoint(tmp_path / "again", loaded)
    for name in CHECKPOINT_FILES:
        assert (tmp_path / "again" / name).read_bytes() == (tmp_path / "c" / name).read_bytes()


def test_weights_that_float16_holds_exactly_are_stored_so(
    build_tiny: Callable[..., AladinModel], tmp_path: Path
) -> None:
    model = build_tiny()
    with torch.no_grad():
        for parameter in model.image.encoder.parameters():
            parameter.copy_(parameter.half().float())
    save_checkpoint(tmp_path / "c", model)
    stored = load_file(tmp_path / "c" / "model.safetensors")
    loaded = load_checkpoint(tmp_path / "c").model.state_dict()
    for name, value in model.state_dict().items():
        half = name.startswith("image.encoder.")
        assert (stored[name].dtype == torch.float16) or not half, name
        assert torch.equal(loaded[name], value)


def test_an_older_checkpoint_is_replaced_whole(folder: Path) -> None:
    (folder / "stray").write_text("of another time")
    loaded = load_checkpoint(folder)
    save_checkpoint(folder, loaded.model)
    assert sorted(path.name for path in folder.iterdir()) == sorted(CHECKPOINT_FILES)
    assert [path.name for path in folder.parent.iterdir()] == [folder.name]


@pytest.mark.parametrize("name", ["config.json", "model.safetensors", "tokenizer.json"])
@pytest.mark.parametrize("share", [None, 0.0, 0.99])
def test_a_file_that_is_missing_or_cut_short_is_named(
    folder: Path, name: str, share: float | None
) -> None:
    data = (folder / name).read_bytes()
    (folder / name).unlink()
    if share is not None:
        (folder / name).write_bytes(data[: int(share * len(data))])
    with pytest.raises(CheckpointError, match=name):
        load_checkpoint(folder)


def test_weights_of_another_user_are_named_with_the_systems_reason(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened, path = Path.open, folder / "model.safetensors"

    def refused(self: Path, *args: Any, **options: Any) -> Any:
        if self == path:
            raise PermissionError(13, "Permission denied", str(self))
        return opened(self, *args, **options)

    monkeypatch.setattr(Path, "open", refused)
    with pytest.raises(CheckpointError) as caught:
        load_checkpoint(folder)
    assert str(caught.value) == f"{path}: cannot be read (Permission denied)"


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda c: c.update(schema_version=2), f"schema version 2, expected {SCHEMA_VERSION}"),
        (lambda c: c.pop("schema_version"), "schema version None"),
        (lambda c: c.update(extra=1), "extra: unknown key"),
        (lambda c: c["model"]["alignment"].update(dims=8), r"model\.alignment\.dims: unknown key"),
        (lambda c: c["model"].pop("text_encoder"), r"model\.text_encoder: "),
        (lambda c: c["model"]["alignment"].update(dim="8"), r"model\.alignment\.dim"),
        (lambda c: c["model"]["image_encoder"].update(name="vgg"), "unknown 'vgg'"),
        (lambda c: c["model"]["alignment"].update(dim=16), r"expected \(16.*, got \(8"),
        (lambda c: c["model"]["matching"].update(layers=2), "missing tensors"),
        (lambda c: c["model"].update(attention={}), r"missing tensors \['attention\.comparison"),
        (lambda c: c["model"]["text_encoder"].update(name="gru"), "architecture: .* unknown key"),
        (lambda c: c["model"]["matching"].update(layers=0), r"unknown \['matching\.stack"),
    ],
)
def test_a_config_of_another_network(
    folder: Path, change: Callable[[dict[str, Any]], object], reason: str
) -> None:
    edit_config(folder, change)
    with pytest.raises(CheckpointError, match=reason):
        load_checkpoint(folder)
