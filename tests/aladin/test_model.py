"""The whole network: its scores by name, and the networks of the papers as configurations."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from aladin_network.config import (
    AlignmentHeadConfig,
    AttentionHeadConfig,
    ImageEncoderConfig,
    ImagePreprocessing,
    MatchingHeadConfig,
    TextEncoderConfig,
    TowerConfig,
    TrunkConfig,
)
from aladin_network.errors import ConfigError, ShapeError
from aladin_network.model import AladinModel
from aladin_network.scoring.scores import EncodedBatch, matching_scores
from aladin_network.types import ScoreName

Build = Callable[..., AladinModel]
NAMES: tuple[ScoreName, ...] = ("matching", "alignment", "attention")
TEXTS = ["a small red circle", "two dogs run on the green grass", "a giraffe"]
WIDTH = 12


def grid(*pyramid: int) -> ImageEncoderConfig:
    """A convolutional network with a 4 x 4 map on 64 x 64 px, averaged to coarser grids."""
    return ImageEncoderConfig(
        architecture={
            "model_type": "resnet",
            "embedding_size": 8,
            "hidden_sizes": [8, 20],
            "depths": [1, 1],
            "layer_type": "basic",
            "downsample_in_first_stage": True,
        },
        preprocessing=ImagePreprocessing(height_px=64, width_px=64),
        pyramid=pyramid,
    )


def words(kind: str, **options: object) -> TextEncoderConfig:
    architecture = {"embedding_size": 6, "hidden_size": WIDTH, **options}
    return TextEncoderConfig(name=kind, architecture=architecture)


def photos(model: AladinModel) -> Tensor:
    side_px = model.image.encoder.preprocessing.height_px
    return torch.randn(3, 3, side_px, side_px, generator=torch.Generator().manual_seed(1))


def encode(model: AladinModel) -> tuple[EncodedBatch, EncodedBatch]:
    with torch.no_grad():
        texts = model.encode_texts(model.text.encoder.preprocess(TEXTS))
        return model.encode_images(photos(model)), texts


def single_branch(build_tiny: Build, input_norm: str = "none") -> AladinModel:
    """DBL's: linear regions, BiGRU words, both of unit length, compared by attention."""
    image = TrunkConfig(width=WIDTH, layers=0, dropout=0.0, input_norm=input_norm)  # type: ignore[arg-type]
    return build_tiny(
        image_encoder=grid(4, 1),
        text_encoder=words("gru"),
        image_tower=TowerConfig(trunk=image, aggregate="mean"),
        text_tower=TowerConfig(trunk=None),
        alignment=AlignmentHeadConfig(dim=None),
        matching=MatchingHeadConfig(layers=0),
        attention=AttentionHeadConfig(dim=5),
    )


def test_every_score_by_its_name(build_tiny: Build) -> None:
    model = build_tiny(attention=AttentionHeadConfig(dim=5))
    assert model.score_names == NAMES
    images, texts = encode(model)
    assert model.attention is not None
    expected = {
        "matching": matching_scores(images, texts),
        "alignment": model.scores("alignment", images, texts),
        "attention": model.attention(images, texts),
    }
    for name in NAMES:
        assert torch.equal(model.scores(name, images, texts), expected[name])
        torch.testing.assert_close(
            model.paired_scores(name, images, texts), expected[name].diagonal()
        )
        with pytest.raises(ShapeError, match="3 texts, one for each image, got 2"):
            model.paired_scores(name, images, texts.rows(slice(2)))


def test_zero_fill_is_a_floor_for_every_word(build_tiny: Build) -> None:
    """As in the official code (A-5), and whatever the batch."""
    model = build_tiny(alignment=AlignmentHeadConfig(dim=8, empty_fill="zero"))
    images, texts = encode(model)
    plain_images, plain_texts = encode(build_tiny())
    cosines = torch.einsum("ird,twd->itwr", plain_images.tokens, plain_texts.tokens)
    best = cosines.amax(dim=-1)
    assert bool((best < 0).any())
    expected = (best.clamp_min(0) * plain_texts.mask).sum(dim=-1)
    torch.testing.assert_close(model.scores("alignment", images, texts), expected)
    pairs = model.paired_scores("alignment", images, texts)
    torch.testing.assert_close(pairs, expected.diagonal())


def test_a_network_without_attention(build_tiny: Build) -> None:
    model = build_tiny()
    images, texts = encode(model)
    assert model.score_names == ("matching", "alignment")
    for score in (model.scores, model.paired_scores):
        with pytest.raises(ConfigError, match="this network has no such head"):
            score("attention", images, texts)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {
                "alignment": AlignmentHeadConfig(normalize=False),
                "attention": AttentionHeadConfig(dim=5),
            },
            r"set alignment\.normalize",
        ),
        (
            {
                "alignment": AlignmentHeadConfig(empty_fill="zero"),
                "attention": AttentionHeadConfig(dim=5),
            },
            r"it would attend to zeros; set alignment\.empty_fill",
        ),
        (
            {"text_encoder": TextEncoderConfig(name="rnn")},
            r"unknown 'rnn', known are \['gru', 'hf'",
        ),
        ({"image_encoder": ImageEncoderConfig(name="vgg")}, "unknown 'vgg', known are .*'naflex'"),
        ({"text_tower": TowerConfig(positions=True)}, "positions are for image grids only"),
    ],
)
def test_impossible_networks_are_refused(
    build_tiny: Build, changes: dict[str, object], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        build_tiny(**changes)


def test_the_single_branch_of_dbl(build_tiny: Build) -> None:
    model = single_branch(build_tiny)
    images, texts = encode(model)
    batch = model.text.encoder.preprocess(TEXTS)
    with torch.no_grad():
        read = model.text.encoder(batch).states[:, 1:]
    torch.testing.assert_close(texts.tokens[batch.mask], F.normalize(read[batch.mask], dim=-1))
    assert texts.mask.sum(dim=1).tolist() == [6, 9, 4]  # with <start> and <end>
    assert images.mask.sum(dim=1).tolist() == [17] * 3
    with torch.no_grad():
        cells = model.image.encoder(photos(model)).states
        assert model.image.trunk is not None
        linear = model.image.trunk.projection(cells)
    torch.testing.assert_close(images.tokens, F.normalize(linear, dim=-1))
    assert model.scores("attention", images, texts).shape == (3, 3)


@pytest.mark.parametrize("kind", ["gru", "lstm"])
def test_the_pair_of_imc_and_vse(build_tiny: Build, kind: str) -> None:
    """One linear map of the pooled photo's unit vector; the last state of the words."""
    image = TrunkConfig(width=WIDTH, layers=0, dropout=0.0, input_norm="l2")
    model = build_tiny(
        image_encoder=grid(1),
        text_encoder=words(kind),
        image_tower=TowerConfig(trunk=image, aggregate="mean"),
        text_tower=TowerConfig(trunk=None),
        alignment=AlignmentHeadConfig(dim=None),
        matching=MatchingHeadConfig(layers=0),
    )
    images, texts = encode(model)
    assert not list(model.matching.parameters())
    with torch.no_grad():
        pooled = model.image.encoder(photos(model)).states[:, 0]
        assert model.image.trunk is not None
        linear = model.image.trunk.projection(F.normalize(pooled, dim=-1))
        for row, text in enumerate(TEXTS):
            alone = model.text.encoder(model.text.encoder.preprocess([text])).states[0]
            torch.testing.assert_close(
                texts.embedding[row], F.normalize(alone[-1], dim=-1), atol=1e-6, rtol=1e-5
            )
    torch.testing.assert_close(images.embedding, F.normalize(linear, dim=-1))


def test_a_card_encodes_photos_in_half_precision_within_its_range(
    build_tiny: Build, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = build_tiny()
    pixels = (photos(model) * 40 + 128).clamp(0, 255).to(torch.uint8)
    exact = model.infer_images(pixels)
    monkeypatch.setattr("aladin_network.model.HALF_ON", {"cpu"})
    half = model.infer_images(pixels)
    assert half.embedding.dtype == np.float32
    for ours, theirs in ((half.embedding, exact.embedding), (half.tokens, exact.tokens)):
        assert 1e-6 < np.abs(ours - theirs).max() < 1e-2
    with torch.no_grad():  # what leaves a layer is beyond 65,504, and a norm divides by it
        model.image.trunk.projection.weight *= 1e7  # type: ignore[union-attr]
    large = model.infer_images(pixels)
    monkeypatch.undo()
    np.testing.assert_array_equal(large.embedding, model.infer_images(pixels).embedding)
    assert np.isfinite(large.embedding).all()
