"""``aladin convert towers``: from a folder of the hub to an index that answers."""

from __future__ import annotations

import json
from pathlib import Path
from string import ascii_lowercase
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from transformers import (
    AutoConfig,
    AutoModel,
    PreTrainedModel,
    PreTrainedTokenizerFast,
    Siglip2Tokenizer,
    ViTImageProcessor,
)
from transformers.models.siglip2.image_processing_pil_siglip2 import Siglip2ImageProcessorPil

from aladin_network.checkpoint import load_checkpoint
from aladin_network.encoders.vocabulary import train_tokenizer
from tests.service.commands.conftest import aladin, aladin_json

CAPTIONS = ["a red dog runs", "two men ride a motorcycle", "a blue square above a circle"]
SIZES = [(96, 64), (64, 96), (80, 80), (120, 40)]
LAYERS = {"num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
VISION = {"hidden_size": 12, "patch_size": 8, **LAYERS}


def letters() -> Siglip2Tokenizer:
    special = ["<pad>", "<eos>", "<bos>", "<unk>", "<mask>", "▁"]
    vocabulary = {token: number for number, token in enumerate([*special, *ascii_lowercase])}
    return Siglip2Tokenizer(
        vocab=vocabulary,
        merges=[],
        add_bos_token=False,
        add_eos_token=True,
        padding_side="right",
        model_input_names=["input_ids"],
    )


def widened(model: PreTrainedModel) -> PreTrainedModel:
    """Give random weights a spread that tells photos and texts apart."""
    generator = torch.Generator().manual_seed(4)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.3 * torch.randn(parameter.shape, generator=generator))
    return model.eval()


@pytest.fixture
def naflex(tmp_path: Path) -> PreTrainedModel:
    """A small SigLIP 2 for photos of any shape, in ``tmp_path / "source"``."""
    tokenizer = letters()
    config = AutoConfig.for_model(
        "siglip2",
        vision_config=VISION | {"num_patches": 16},
        text_config=LAYERS
        | {"hidden_size": 10, "vocab_size": len(tokenizer), "projection_size": 12}
        | {"pad_token_id": 0, "bos_token_id": 2, "eos_token_id": 1},
    )
    model = widened(AutoModel.from_config(config))
    model.save_pretrained(tmp_path / "source")
    tokenizer.save_pretrained(tmp_path / "source")
    processor = Siglip2ImageProcessorPil(patch_size=8, max_num_patches=24)
    processor.save_pretrained(tmp_path / "source")
    return model


@pytest.fixture
def photos(tmp_path: Path) -> list[Path]:
    rng = np.random.default_rng(1)
    folder = tmp_path / "photos"
    folder.mkdir()
    files = [folder / f"photo-{number}.png" for number in range(len(SIZES))]
    for file, size in zip(files, SIZES, strict=True):
        coarse = Image.fromarray(rng.integers(0, 256, (5, 5, 3), dtype=np.uint8))
        coarse.resize(size, Image.Resampling.BICUBIC).save(file)
    return files


def own_similarity(model: PreTrainedModel, photos: list[Path], text: str) -> list[float]:
    processor = Siglip2ImageProcessorPil(patch_size=8, max_num_patches=24)
    pictures = [Image.open(file).convert("RGB") for file in photos]
    with torch.inference_mode():
        pixels: Any = processor(pictures, return_tensors="pt")
        tokens: Any = letters()([text], padding="max_length", max_length=64, return_tensors="pt")
        images: Any = model.get_image_features(**pixels)
        texts: Any = model.get_text_features(input_ids=tokens["input_ids"])
    return torch.cosine_similarity(images.pooler_output, texts.pooler_output).tolist()


def test_an_index_of_photos_of_any_shape_searches_by_the_towers_own_similarity(
    naflex: PreTrainedModel, photos: list[Path], tmp_path: Path
) -> None:
    checkpoint, index = tmp_path / "checkpoint", tmp_path / "index"
    made = aladin("convert", "towers", tmp_path / "source", "--out", checkpoint)
    assert made.stdout == f"{checkpoint}\n"
    assert "the towers' own similarity: 12 numbers an embedding" in made.stderr
    build = ["index", "build", "--images", photos[0].parent, "--model", checkpoint, "--out"]
    aladin(*build, index)

    text = "a red dog rides"
    hits = aladin_json("search", index, text, "--explain")["hits"]
    scores = {hit["id"]: hit["stages"]["match"]["score"] for hit in hits}
    for file, expected in zip(photos, own_similarity(naflex, photos, text), strict=True):
        assert scores[file.name] == pytest.approx(expected, abs=1e-4)
    assert all(hit["stages"]["align"] is None and hit["evidence"] is None for hit in hits)
    found = aladin_json("search", index, "--image", photos[3], "--target", "images")
    assert found["hits"][0]["id"] == "photo-3.png"

    config = json.loads((checkpoint / "config.json").read_text())
    assert config["alignment_trained"] is False
    # As if a recipe had trained it, since there is no evidence otherwise.
    (checkpoint / "config.json").write_text(json.dumps(config | {"alignment_trained": True}))
    aladin(*build, tmp_path / "aligned")
    hits = aladin_json("search", tmp_path / "aligned", text, "--explain")["hits"]
    # The second stage keeps the order of the first: its weight is 0.
    assert [hit["stages"]["match"]["rank"] for hit in hits] == [1, 2, 3, 4]
    for hit in hits:
        width, height = SIZES[int(hit["id"][6])]
        for word in hit["evidence"]:
            x0, y0, x1, y1 = word["box"]
            # Whole patches of this photo's own grid, which are about squares.
            assert (x1 - x0) * width == pytest.approx((y1 - y0) * height, rel=0.35)


@pytest.mark.usefixtures("naflex")
def test_options_of_the_towers_reach_the_checkpoint(tmp_path: Path, exports: list[Path]) -> None:
    source, checkpoint = tmp_path / "source", tmp_path / "checkpoint"
    convert = ["convert", "towers", source, "--out"]
    options = ["--pyramid", 2, "--pyramid", 1, "--max-patches", 12, "--align-dim", 6]
    report = aladin_json(*convert, checkpoint, *options)
    assert report["zero_shot"] is True
    assert exports == [checkpoint]
    assert (report["dim"], report["regions"], report["max_tokens"]) == (12, 5, 64)
    model = load_checkpoint(checkpoint).model
    assert model.config.image_encoder.preprocessing is not None
    assert model.config.image_encoder.preprocessing.max_patches == 12
    assert model.image.encoder.frozen and model.text.encoder.frozen
    assert model.alignment.dim == 6
    refused = aladin(*convert, tmp_path / "new", "--size", "64", code=2)
    assert "takes photos of any shape: give max_patches, not a size" in refused.stderr
    assert not (tmp_path / "new").exists()


def test_towers_that_do_not_belong_together_get_new_heads(
    tmp_path: Path, exports: list[Path]
) -> None:
    vision, text, out = (tmp_path / name for name in ("vision", "text", "checkpoint"))
    dino = AutoConfig.for_model("dinov2", image_size=32, **VISION)
    AutoModel.from_config(dino).save_pretrained(vision)
    ViTImageProcessor(size={"height": 32, "width": 32}).save_pretrained(vision)
    special = {"pad_token": "[PAD]", "cls_token": "[CLS]", "sep_token": "[SEP]"}
    vocabulary = train_tokenizer(CAPTIONS, 150)
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=vocabulary, **special)
    bert = AutoConfig.for_model("bert", hidden_size=10, vocab_size=len(tokenizer), **LAYERS)
    AutoModel.from_config(bert).save_pretrained(text)
    tokenizer.save_pretrained(text)
    made = aladin("convert", "towers", vision, "--text", text, "--out", out, "--size", 48)
    assert "the heads are new, train them before searching" in made.stderr
    assert "regions a photo: 36, texts of up to 128 tokens" in made.stderr
    assert exports == []
    checkpoint = load_checkpoint(out)
    assert checkpoint.model.config.matching.start == "random"
    assert checkpoint.fusion.text_to_image.weight == 0
