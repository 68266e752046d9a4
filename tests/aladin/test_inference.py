"""An item's encoding and a pair's score do not depend on what else is in the batch."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from functools import partial
from pathlib import Path

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
from aladin_network.errors import InputError
from aladin_network.graphs.network import query_network
from aladin_network.inference import QueryNetworks, choose_precision
from aladin_network.model import AladinModel
from aladin_network.scoring.scores import EncodedBatch
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
        alone = [encode_photos(model, [photo]) for photo in photos]
        texts_alone = [encode_texts(model, [text]) for text in TEXTS]
        for name, scores in together.items():
            for row, image in enumerate(alone):
                for column, text in enumerate(texts_alone):
                    score = model.scores(name, image, text).item()
                    assert score == pytest.approx(scores[row, column].item(), abs=1e-5)


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


@pytest.mark.parametrize(
    ("text", "recurrent", "says"),
    [
        ("", False, "the text is empty"),
        ("\n\t\u00a0\u2003", False, "the text is empty"),
        ("\u200b\u0000", False, "no word that the tokenizer"),
        ("\u200b\u0000", True, "no word that the tokenizer"),
        ("red " * 100_000, False, "100002 tokens, at most 32"),
    ],
    ids=["empty", "blank", "invisible", "invisible, by words", "long"],
)
def test_texts_that_cannot_be_read_are_refused(
    build_tiny: Callable[..., AladinModel], text: str, recurrent: bool, says: str
) -> None:
    model = build_tiny(**({"text_encoder": RECURRENT} if recurrent else {}))
    with pytest.raises(InputError, match=says):
        encode_texts(model, ["a dog", text])
    if len(text) > 32:
        assert int(encode_texts(model, [text], truncate=True).mask.sum()) == 30


def assert_close(found: EncodedBatch, exact: EncodedBatch) -> None:
    """Expect the same items with directions that differ by what 8 bits leave out."""
    assert found.embedding.dtype == found.tokens.dtype == torch.float32
    assert torch.equal(found.mask, exact.mask)
    for values, others in ((found.embedding, exact.embedding), (found.tokens, exact.tokens)):
        torch.testing.assert_close(values.norm(dim=-1), torch.ones(values.shape[:-1]))
        cosines = (values * others).sum(-1)
        assert cosines.min() > 0.999
        assert not torch.equal(values, others)  # it was another precision indeed


@pytest.mark.parametrize("changes", [{}, {"text_encoder": RECURRENT}], ids=["bert", "gru"])
def test_texts_in_bfloat16_are_close_and_float32(
    build_tiny: Callable[..., AladinModel], changes: dict[str, object]
) -> None:
    model = build_tiny(**changes)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    assert query_network(model, "text", precision="float32") is model
    reduced = query_network(model, "text", precision="bfloat16")
    assert_close(encode_texts(reduced, TEXTS), encode_texts(model, TEXTS))
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


def test_a_network_is_converted_once(build_tiny: Callable[..., AladinModel]) -> None:
    networks = QueryNetworks(partial(query_network, precision="bfloat16"))
    model, other = build_tiny(), build_tiny()
    assert networks.of(model, "text") is networks.of(model, "text")
    assert networks.of(model, "text") is not networks.of(other, "text")


@pytest.mark.parametrize(
    ("flags", "device", "expected"),
    [
        ("fpu avx512_bf16 sse", "cpu", "bfloat16"),
        ("amx_bf16", "cpu", "bfloat16"),
        ("fpu avx512f", "cpu", "float32"),
        ("", "cpu", "float32"),
        ("avx512_bf16", "cuda", "float32"),
    ],
)
def test_auto_goes_by_the_processor(
    monkeypatch: pytest.MonkeyPatch, flags: str, device: str, expected: str
) -> None:
    info = f"processor\t: 0\nflags\t\t: {flags}\nbugs\t\t: amx_bf16\n"
    monkeypatch.setattr(Path, "read_text", lambda *_args, **_kwargs: info)
    assert choose_precision("auto", device) == expected
    for name in ("float32", "bfloat16"):
        assert choose_precision(name, device) == name
