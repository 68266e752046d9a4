"""Pretrained dual encoders: without any training the matching score is their own similarity."""

from __future__ import annotations

import dataclasses
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image
from safetensors.torch import load_file, save_file
from transformers import CLIPTextConfig, CLIPTextModelWithProjection
from transformers.models.clip.image_processing_pil_clip import CLIPImageProcessorPil
from transformers.models.siglip.image_processing_pil_siglip import SiglipImageProcessorPil

from aladin_network.checkpoint import load_checkpoint, save_checkpoint
from aladin_network.config import (
    AlignmentHeadConfig,
    ImageEncoderConfig,
    ImagePreprocessing,
    MatchingHeadConfig,
    ModelConfig,
    TextEncoderConfig,
    TowerConfig,
)
from aladin_network.encoders.hf_text import HFTextEncoder, longest_text
from aladin_network.errors import CheckpointError
from aladin_network.graphs.network import query_network
from aladin_network.model import AladinModel
from aladin_network.scoring.scores import matching_scores
from tests.tensors import encode_photos, encode_texts

FAMILIES = [
    "clip",
    "metaclip_2",
    "chinese_clip",
    "siglip",
    "siglip2-fixed",
    "siglip2",
    "vit-xlm-roberta",
]
TEXTS = [
    "a small red circle",
    "Two dogs run on the green grass, don't they?",
    "公园里有两只狗",
    "ein Hund läuft " * 2,
]
BARE = TowerConfig(trunk=None)


def config(folder: Path, family: str, **changes: Any) -> ModelConfig:
    name = "naflex" if family == "siglip2" else "hf"
    image = changes.pop("image", {})
    return ModelConfig(
        image_encoder=ImageEncoderConfig(name=name, source=str(folder), pooled=True, **image),
        text_encoder=TextEncoderConfig(source=str(folder), pooled=True, max_tokens=48),
        image_tower=BARE,
        text_tower=BARE,
        matching=MatchingHeadConfig(layers=0, start="towers"),
        alignment=AlignmentHeadConfig(dim=8, start="towers"),
        **changes,
    )


def similarity(model: AladinModel, photos: list[Image.Image]) -> torch.Tensor:
    return matching_scores(encode_photos(model, photos), encode_texts(model, TEXTS))


@pytest.mark.parametrize("family", FAMILIES)
def test_the_untrained_matching_score_is_the_towers_own_similarity(
    dual_encoder: Callable[[str], Any], photos: list[Image.Image], family: str, tmp_path: Path
) -> None:
    saved = dual_encoder(family)
    folder = tmp_path / "source"
    shutil.copytree(saved.folder, folder)
    model = AladinModel.create(config(folder, family)).eval()
    shutil.rmtree(folder)
    expected = saved.similarity(photos, TEXTS)
    assert float(expected.std(dim=0).mean()) > 0.01, "photos differ"
    assert float(expected.std(dim=1).mean()) > 0.01, "texts differ"
    torch.testing.assert_close(similarity(model, photos), expected, atol=1e-4, rtol=0)
    # A checkpoint is complete: the source is gone.
    save_checkpoint(tmp_path / "checkpoint", model)
    loaded = load_checkpoint(tmp_path / "checkpoint").model
    torch.testing.assert_close(similarity(loaded, photos), expected, atol=1e-4, rtol=0)
    # Queries in bfloat16 stay near.
    half = query_network(loaded, "text", precision="bfloat16")
    texts = encode_texts(half, TEXTS)
    rounded = matching_scores(encode_photos(loaded, photos), texts)
    torch.testing.assert_close(rounded, expected, atol=0.05, rtol=0)


def test_a_tower_saved_alone_keeps_its_projection(
    dual_encoder: Callable[[str], Any], photos: list[Image.Image], tmp_path: Path
) -> None:
    """A text tower that was trained to fit a CLIP, e.g. for another language."""
    saved = dual_encoder("clip")
    alone = saved.model.config.text_config.to_dict() | {"projection_dim": 16}
    text = CLIPTextModelWithProjection(CLIPTextConfig(**alone)).eval()
    text.text_model.load_state_dict(saved.model.text_model.state_dict())
    text.text_projection.load_state_dict(saved.model.text_projection.state_dict())
    text.save_pretrained(tmp_path)
    saved.tokenizer.save_pretrained(tmp_path)
    own = config(saved.folder, "clip")
    other = dataclasses.replace(own.text_encoder, source=str(tmp_path))
    model = AladinModel.create(dataclasses.replace(own, text_encoder=other)).eval()
    torch.testing.assert_close(
        similarity(model, photos), saved.similarity(photos, TEXTS), atol=1e-4, rtol=0
    )


def test_photos_of_another_size_take_interpolated_positions(
    dual_encoder: Callable[[str], Any], photos: list[Image.Image]
) -> None:
    for family in ("clip", "siglip"):
        saved = dual_encoder(family)
        size = {"height": 48, "width": 40}
        if family == "clip":
            processor: Any = CLIPImageProcessorPil(size={"shortest_edge": 50}, crop_size=size)
        else:
            processor = SiglipImageProcessorPil(size=size)
        preprocessing = ImagePreprocessing(
            height_px=48,
            width_px=40,
            shortest_edge_px=50 if family == "clip" else None,
            mean=tuple(processor.image_mean),
            std=tuple(processor.image_std),
            resample="bicubic",
        )
        chosen = config(saved.folder, family, image={"preprocessing": preprocessing})
        model = AladinModel.create(chosen).eval()
        larger = saved._replace(processor=processor)
        expected = larger.similarity(photos, TEXTS, interpolate_pos_encoding=True)
        torch.testing.assert_close(similarity(model, photos), expected, atol=1e-4, rtol=0)
        assert model.image.encoder.region_boxes(480, 480).shape == (6 * 5, 4)


def test_sources_that_lack_something_are_refused(
    dual_encoder: Callable[[str], Any], tmp_path: Path
) -> None:
    source = tmp_path / "source"
    shutil.copytree(dual_encoder("clip").folder, source)
    settings = (source / "config.json").read_text()
    data = json.loads(settings)
    data["text_config"]["eos_token_id"] = 7
    (source / "config.json").write_text(json.dumps(data))
    with pytest.raises(CheckpointError, match="pools at token 7, its tokenizer ends texts with 1"):
        AladinModel.create(config(source, "clip"))
    (source / "config.json").write_text(settings)
    weights = load_file(source / "model.safetensors")
    del weights["visual_projection.weight"]
    save_file(weights, source / "model.safetensors", {"format": "pt"})
    with pytest.raises(CheckpointError, match=r"lacks 1 tensors: visual_projection\.weight"):
        AladinModel.create(config(source, "clip"))


def test_each_family_pads_as_it_was_trained(dual_encoder: Callable[[str], Any]) -> None:
    roberta, siglip = (
        HFTextEncoder.from_source(TextEncoderConfig(source=str(dual_encoder(each).folder)), None)
        for each in ("vit-xlm-roberta", "siglip")
    )
    # RoBERTa's positions count from its own padding: of 66 two belong to it.
    assert (roberta.config.pad_id, longest_text(roberta.model)) == (1, 64)
    batch = roberta.preprocess(TEXTS)
    assert bool((batch.ids[~batch.mask] == 1).all())
    # SigLIP reads padding and drops it afterwards.
    batch = siglip.preprocess(TEXTS)
    assert siglip.config.pad_to == batch.ids.shape[1] == 64
    features = siglip(batch)
    assert features.states.shape[1] == int(batch.mask.sum(dim=1).max()) < 64
    assert features.content.sum() == batch.content.sum()


@pytest.mark.parametrize(
    ("family", "dropped"),  # SigLIP's texts have no punctuation
    [
        ("clip", " "),
        ("siglip", " ,()"),
        *((each, " ") for each in ("siglip2", "siglip2-fixed", "vit-xlm-roberta")),
    ],
)
def test_words_are_spanned_in_the_text_as_it_was_given(
    dual_encoder: Callable[[str], Any], family: str, dropped: str
) -> None:
    source = str(dual_encoder(family).folder)
    encoder = HFTextEncoder.from_source(TextEncoderConfig(source=source), None)
    # The lower case of İ has two characters.
    text = "  İ İİ, (RED)  dogs ein Hund läuft "
    spans = encoder.spans(text)
    assert len(spans) == int(encoder.preprocess([text]).content.sum())
    pieces = [text[start:end] for start, end in spans]
    assert all(piece and piece == piece.strip() for piece in pieces)
    covered = {place for start, end in spans for place in range(start, end)}
    assert covered == {place for place, letter in enumerate(text) if letter not in dropped}
