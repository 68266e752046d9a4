"""An item's encoding and a pair's score do not depend on what else is in the batch."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import numpy as np
import pytest
import torch
from PIL import Image

from aladin_network.config import (
    AlignmentHeadConfig,
    AttentionHeadConfig,
    MatchingHeadConfig,
    TextEncoderConfig,
    TowerConfig,
    TrunkConfig,
)
from aladin_network.encoders.tokenization import similar_lengths
from aladin_network.errors import InputError, TextTooLongError
from aladin_network.model import AladinModel
from tests.tensors import encode_documents, encode_photos, encode_texts

TEXTS = [
    "a dog",
    "a small red circle above a striped blue square",
    "red",
    "a man rides a motorcycle in the street left of two dogs on the green grass",
]
TRUNK = TrunkConfig(width=16, layers=2, heads=2, feedforward=32)
RECURRENT = TextEncoderConfig(name="gru", architecture={"embedding_size": 6, "hidden_size": 10})
VARIANTS: dict[str, dict[str, object]] = {
    "default": {},
    "pre-norm, mean and maximum": {
        "image_tower": TowerConfig(trunk=TrunkConfig(width=16, layers=1, heads=2, norm="pre")),
        "text_tower": TowerConfig(trunk=TRUNK, aggregate="mean"),
        "matching": MatchingHeadConfig(layers=1, heads=2, pooling=("mean", "max"), dim=8),
    },
    "the official code's options": {
        "image_tower": TowerConfig(trunk=TRUNK, aggregate="mean", positions=True),
        "alignment": AlignmentHeadConfig(dim=None, official_trim=True, empty_fill="zero"),
    },
    "recurrent words compared by attention": {
        "text_encoder": RECURRENT,
        "attention": AttentionHeadConfig(dim=8),
    },
}


@pytest.fixture(scope="module")
def photos() -> list[Image.Image]:
    """Photos of different sizes."""
    rng = np.random.default_rng(0)
    return [
        Image.fromarray(rng.integers(0, 256, (height, width, 3), dtype=np.uint8))
        for height, width in ((32, 32), (50, 80), (100, 30), (7, 9))
    ]


@pytest.mark.parametrize("variant", VARIANTS)
def test_a_pair_scores_the_same_alone_and_in_any_batch(
    build_tiny: Callable[..., AladinModel], photos: list[Image.Image], variant: str
) -> None:
    model = build_tiny(**VARIANTS[variant])
    images, texts = encode_photos(model, photos), encode_texts(model, TEXTS)
    with torch.inference_mode():
        together = {name: model.scores(name, images, texts) for name in model.score_names}
        for row, photo in enumerate(photos):
            for column, text in enumerate(TEXTS):
                image, one_text = encode_photos(model, [photo]), encode_texts(model, [text])
                for name, scores in together.items():
                    alone = model.scores(name, image, one_text)
                    assert alone.item() == pytest.approx(scores[row, column].item(), abs=1e-5)


@pytest.mark.parametrize("text_encoder", [None, RECURRENT])
def test_encodings_have_unit_length_and_the_right_number_of_tokens(
    build_tiny: Callable[..., AladinModel],
    photos: list[Image.Image],
    text_encoder: TextEncoderConfig | None,
) -> None:
    model = build_tiny(**{"text_encoder": text_encoder} if text_encoder else {})
    images, texts = encode_photos(model, photos), encode_texts(model, TEXTS)
    for encoding in (images, texts):
        torch.testing.assert_close(encoding.embedding.norm(dim=1), torch.ones(4))
        lengths = encoding.tokens[encoding.mask].norm(dim=1)
        torch.testing.assert_close(lengths, torch.ones(len(lengths)))
    assert images.mask.sum(dim=1).tolist() == [16] * 4
    spans = [len(model.text.encoder.spans(text)) for text in TEXTS]
    assert texts.mask.sum(dim=1).tolist() == spans
    assert model.image.encoder.region_boxes(80, 50).shape == (16, 4)


@pytest.mark.parametrize("pad_to", [None, 32])
def test_documents_of_any_lengths_encode_as_each_alone(
    build_tiny: Callable[..., AladinModel], pad_to: int | None
) -> None:
    """They are encoded in the order of their lengths, and returned in their own."""
    encoder = dataclasses.replace(build_tiny().text.encoder.config, pad_to=pad_to)
    model = build_tiny(text_encoder=encoder)
    texts = ["red " * count for count in (9, 1, 4, 28, 1, 12, 4)]
    found = encode_documents(model, texts)
    for row, text in enumerate(texts):
        alone = encode_texts(model, [text])
        torch.testing.assert_close(found.embedding[row], alone.embedding[0], atol=1e-5, rtol=0)
        torch.testing.assert_close(found.item_tokens(row), alone.item_tokens(0), atol=1e-5, rtol=0)


def test_texts_of_similar_length_are_grouped() -> None:
    assert similar_lengths([7]) == [[0]]
    assert similar_lengths([5, 5, 5]) == [[0, 1, 2]]
    # Two tokens of padding for one text of three are less than another call, 17 for a text are not.
    assert similar_lengths([5, 22, 3]) == [[2, 0], [1]]
    # Eight texts of 2 tokens beside one of 4 are 16 tokens of padding, the most there may be.
    assert similar_lengths([4, *[2] * 8]) == [[*range(1, 9), 0]]
    assert similar_lengths([4, *[2] * 9]) == [[*range(1, 10)], [0]]
    long = similar_lengths([512] * 9)
    assert [len(group) for group in long] == [4, 4, 1]
    lengths = np.random.default_rng(0).integers(2, 60, 500).tolist()
    groups = similar_lengths(lengths)
    assert sorted(row for group in groups for row in group) == list(range(500))
    padded = sum(len(group) * max(lengths[row] for row in group) for group in groups)
    assert padded - sum(lengths) <= 16 * len(groups)


@pytest.mark.parametrize("text", ["", "   ", "\n\t", "\u00a0\u2003"])
def test_a_blank_text(build_tiny: Callable[..., AladinModel], text: str) -> None:
    with pytest.raises(InputError, match="the text is empty"):
        encode_texts(build_tiny(), ["a dog", text])


@pytest.mark.parametrize("changes", [{}, {"text_encoder": RECURRENT}])
def test_a_text_of_which_the_tokenizer_keeps_nothing(
    build_tiny: Callable[..., AladinModel], changes: dict[str, object]
) -> None:
    with pytest.raises(InputError, match="no word that the tokenizer"):
        encode_texts(build_tiny(**changes), ["\u200b\u0000"])


def test_a_text_that_is_too_long(build_tiny: Callable[..., AladinModel]) -> None:
    model, text = build_tiny(), "red " * 100_000
    with pytest.raises(TextTooLongError, match="100002 tokens, at most 32"):
        encode_texts(model, ["a dog", text])
    assert int(encode_texts(model, [text], truncate=True).mask.sum()) == 30
