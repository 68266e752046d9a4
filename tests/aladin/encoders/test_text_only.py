"""BERT and CLIP without the transformers library encode texts exactly as that library does."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from aladin_network.checkpoint import load_checkpoint, load_text_checkpoint, save_checkpoint
from aladin_network.config import TextEncoderConfig
from aladin_network.conversion.towers import TowersOptions, convert_towers
from aladin_network.encoders.bert_text import BertTextEncoder
from aladin_network.encoders.clip_text import ClipTextEncoder
from aladin_network.encoders.hf_text import HFTextEncoder
from aladin_network.encoders.text_only import AbsentImageEncoder, TextOnlyEncoder
from aladin_network.errors import CheckpointError, ConfigError
from aladin_network.model import AladinModel
from tests.tensors import encode_texts

TEXTS = ["two dogs run on the green grass", "a red star"]  # of two lengths, so one is padded


def changed(model: AladinModel, **settings: Any) -> TextEncoderConfig:
    """The text encoder's configuration with another architecture."""
    config = model.config.text_encoder
    return replace(config, architecture={**(config.architecture or {}), **settings})


def assert_encodings_agree(checkpoint: Path, encoder: type[TextOnlyEncoder]) -> None:
    """Both ways of loading give the same encodings, of texts alone and padded."""
    whole, quick = (load(checkpoint) for load in (load_checkpoint, load_text_checkpoint))
    assert isinstance(whole.model.text.encoder, HFTextEncoder)
    assert isinstance(quick.model.text.encoder, encoder)
    assert (quick.model_id, quick.fusion) == (whole.model_id, whole.fusion)
    for texts in (TEXTS, TEXTS[:1]):
        for expected, found in zip(
            encode_texts(whole.model, texts), encode_texts(quick.model, texts), strict=True
        ):
            torch.testing.assert_close(found, expected, rtol=0, atol=1e-6)


@pytest.mark.parametrize("attention", ["eager", "sdpa"])
def test_encodings_of_bert_are_those_of_the_library(
    build_tiny: Callable[..., AladinModel], tmp_path: Path, attention: str
) -> None:
    config = changed(build_tiny(), attn_implementation=attention, num_hidden_layers=2)
    model = build_tiny(text_encoder=config)
    save_checkpoint(tmp_path / "checkpoint", model)
    assert_encodings_agree(tmp_path / "checkpoint", BertTextEncoder)


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"attn_implementation": "eager"},
        {"hidden_act": "gelu"},
        {"eos_token_id": 2},  # the wrong number of the first releases
    ],
)
def test_encodings_of_clip_are_those_of_the_library(
    dual_encoder: Callable[[str], Any], tmp_path: Path, settings: dict[str, Any]
) -> None:
    checkpoint = tmp_path / "checkpoint"
    convert_towers(str(dual_encoder("clip").folder), checkpoint, TowersOptions())
    path = checkpoint / "config.json"
    config = json.loads(path.read_text())
    config["model"]["text_encoder"]["architecture"] |= settings
    path.write_text(json.dumps(config))
    assert_encodings_agree(checkpoint, ClipTextEncoder)


def test_settings_of_clip_that_are_unknown_are_left_to_the_library() -> None:
    plain: dict[str, Any] = {"model_type": "clip_text_model"}
    pooled = TextEncoderConfig(architecture=plain, pooled=True)
    assert ClipTextEncoder.reads(pooled)
    assert not ClipTextEncoder.reads(replace(pooled, pooled=False))
    for other in ({"hidden_act": "relu"}, {"eos_token_id": [3, 4]}, {"something_new": 1}):
        assert not ClipTextEncoder.reads(replace(pooled, architecture=plain | other))


def test_the_image_encoder_is_absent_and_says_so(tiny_checkpoint: Path) -> None:
    encoder = load_text_checkpoint(tiny_checkpoint).model.image.encoder
    assert isinstance(encoder, AbsentImageEncoder)
    assert next(encoder.parameters(), None) is None
    with pytest.raises(ConfigError, match="without its image encoder"):
        encoder.region_boxes(10, 10)


@pytest.mark.parametrize(
    "settings",
    [
        {"model_type": "roberta"},
        {"hidden_act": "relu"},
        {"is_decoder": True},
        {"attn_implementation": "flex_attention"},
        {"something_new": 1},
    ],
)
def test_unknown_settings_are_left_to_the_library(
    build_tiny: Callable[..., AladinModel], settings: dict[str, Any]
) -> None:
    model = build_tiny()
    assert BertTextEncoder.reads(changed(model))
    assert not BertTextEncoder.reads(changed(model, **settings))


def test_other_networks_are_loaded_whole(
    build_tiny: Callable[..., AladinModel], tmp_path: Path
) -> None:
    config = changed(build_tiny(), hidden_act="relu")
    save_checkpoint(tmp_path / "checkpoint", build_tiny(text_encoder=config))
    loaded = load_text_checkpoint(tmp_path / "checkpoint").model
    assert isinstance(loaded.text.encoder, HFTextEncoder)
    assert not isinstance(loaded.image.encoder, AbsentImageEncoder)


def test_what_is_wrong_with_a_checkpoint_is_told(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="not a checkpoint"):
        load_text_checkpoint(tmp_path)


def test_the_library_is_not_imported(tiny_checkpoint: Path) -> None:
    script = f"""
import sys
from pathlib import Path
from aladin_network.checkpoint import load_text_checkpoint
from tests.tensors import encode_texts
encode_texts(load_text_checkpoint(Path({str(tiny_checkpoint)!r})).model, ["a red dog"])
assert "transformers" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", script], check=True)
