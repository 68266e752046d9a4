"""The regions encoder against a plain forward pass, and what it shares with the text encoder."""

from __future__ import annotations

import copy
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from aladin_network.checkpoint import load_checkpoint, save_checkpoint
from aladin_network.config import TextEncoderConfig, TowerConfig
from aladin_network.encoders.base import Features, concatenate_features
from aladin_network.encoders.regions import RegionsImageEncoder
from aladin_network.encoders.vocabulary import train_tokenizer
from aladin_network.errors import RegionError
from aladin_network.model import AladinModel
from aladin_network.photos.regions import RegionSet, with_geometry
from aladin_training.batches.feature_cache import FeatureCache
from tests.aladin.encoders.conftest import BERT, region_model, region_sets, save
from tests.tensors import encode_images

DIM, HEADS = BERT["hidden_size"], BERT["num_attention_heads"]
TEXTS = ["a dog", "a small red circle above a striped blue square", "the yellow star"]


def encoder_of(model: AladinModel) -> RegionsImageEncoder:
    encoder = model.image.encoder
    assert isinstance(encoder, RegionsImageEncoder)
    return encoder


def encoded(model: AladinModel, photos: list[RegionSet]) -> Features:
    encoder = encoder_of(model)
    with torch.inference_mode():
        return encoder(encoder.collate([encoder.preprocess(photo) for photo in photos]))


def plain_pass(model: AladinModel, photo: RegionSet) -> list[Tensor]:
    """One photo, one token and one head at a time: [CLS, region 1, region 2, ...]."""
    tokenizer = model.text.encoder.tokenizer
    architecture = encoder_of(model).architecture
    start = {"cls": "[CLS]", "unk": "[UNK]"}[architecture.start_token]
    pieces: list[str] = []
    for label in photo.labels if architecture.labels else ():
        pieces += tokenizer.encode(label, add_special_tokens=False).tokens
    pieces = [start, *pieces[: architecture.max_label_tokens - 2], "[SEP]"]

    w = {name: value.detach() for name, value in model.state_dict().items()}
    table = "text.encoder.model.embeddings."

    def linear(value: Tensor, name: str) -> Tensor:
        return w[f"{name}.weight"] @ value + w[f"{name}.bias"]

    def norm(value: Tensor, name: str) -> Tensor:
        centred = value - value.mean()
        unit = centred / torch.sqrt((centred**2).mean() + 1e-12)
        return unit * w[f"{name}.weight"] + w[f"{name}.bias"]

    states: list[Tensor] = []
    for place, piece in enumerate(pieces):
        number = tokenizer.token_to_id(piece)
        total = w[f"{table}word_embeddings.weight"][number]
        total = total + w[f"{table}position_embeddings.weight"][place]
        total = total + w[f"{table}token_type_embeddings.weight"][min(place, 1)]
        states.append(norm(total, f"{table}LayerNorm"))
    for vector in torch.from_numpy(photo.vectors)[: architecture.max_regions]:
        value = linear(vector, "image.encoder.embedding")
        states.append(norm(value, "image.encoder.norm") if architecture.norm else value)

    size = DIM // HEADS
    for layer in range(BERT["num_hidden_layers"]):
        name = f"text.encoder.model.encoder.layer.{layer}."
        queries, keys, values = (
            [linear(state, f"{name}attention.self.{part}") for state in states]
            for part in ("query", "key", "value")
        )
        after: list[Tensor] = []
        for state, query in zip(states, queries, strict=True):
            heads: list[Tensor] = []
            for head in range(HEADS):
                own = slice(head * size, (head + 1) * size)
                likeness = [float(query[own] @ key[own]) / math.sqrt(size) for key in keys]
                weights = torch.tensor(likeness).softmax(0)
                heads.append(sum(weight * value[own] for weight, value in zip(weights, values)))  # type: ignore[arg-type] # noqa: B905
            attended = linear(torch.cat(heads), f"{name}attention.output.dense")
            attended = norm(attended + state, f"{name}attention.output.LayerNorm")
            inner = torch.nn.functional.gelu(linear(attended, f"{name}intermediate.dense"))
            outer = linear(inner, f"{name}output.dense")
            after.append(norm(outer + attended, f"{name}output.LayerNorm"))
        states = after
    return [states[0], *states[len(pieces) :]]


@pytest.mark.parametrize(
    "architecture",
    [{}, {"start_token": "unk"}, {"labels": False}, {"norm": False}],
    ids=["paper", "A-2", "no labels", "no norm"],
)
def test_the_pass_is_that_of_a_plain_bert(architecture: dict[str, Any]) -> None:
    model = region_model(architecture=architecture)
    photos = region_sets()
    states, mask, content = encoded(model, photos)
    assert mask.sum(dim=1).tolist() == [4, 3, 2, 7]  # the CLS, and at most six regions
    assert content.sum(dim=1).tolist() == [3, 2, 1, 6]
    assert not bool(content[:, 0].any())
    for row, photo in enumerate(photos):
        expected = torch.stack(plain_pass(model, photo))
        torch.testing.assert_close(states[row][mask[row]], expected, atol=1e-5, rtol=1e-4)
    assert float(states[mask].std()) > 0.1


def test_the_first_region_may_play_the_cls() -> None:
    model = region_model(image_tower=TowerConfig(trunk=None, aggregate="first_region"))
    encoder, photos = encoder_of(model), region_sets()
    photos[0].vectors.flags.writeable = False  # as what a file is mapped to
    states, mask, content = encoded(model, photos)
    with torch.inference_mode():
        inputs = [encoder.preprocess(photo) for photo in photos]
        sequence = model.image(encoder.collate(inputs))
    assert torch.equal(sequence.states, states[:, 1:])
    assert torch.equal(sequence.mask, mask[:, 1:])
    assert torch.equal(sequence.content[:, 1:], content[:, 2:])
    assert not bool(sequence.content[:, 0].any())
    assert encode_images(model, inputs).mask.sum(dim=1).tolist() == [2, 1, 0, 5]


def test_a_checkpoint_and_a_copy_share_their_own_bert_once(tmp_path: Path) -> None:
    model = region_model()
    names = [name for name, _ in model.named_parameters() if name.startswith("image.")]
    parts = ("embedding.bias", "embedding.weight", "norm.bias", "norm.weight")
    assert sorted(names) == [f"image.encoder.{part}" for part in parts]
    before = encoded(model, region_sets()).states
    save_checkpoint(tmp_path / "saved", model)
    loaded = load_checkpoint(tmp_path / "saved").model
    assert torch.equal(encoded(loaded, region_sets()).states, before)
    assert encoder_of(loaded).weights_digest() == encoder_of(model).weights_digest()
    other = copy.deepcopy(model)
    assert encoder_of(other).text_encoder is other.text.encoder
    with torch.no_grad():
        for parameter in other.text.parameters():
            parameter.mul_(1.5)
    assert not torch.allclose(encoded(other, region_sets()).states, before)
    assert torch.equal(encoded(model, region_sets()).states, before)


def test_the_digest_is_of_the_bert_too() -> None:
    """Cached regions are those of one embedding, one BERT and one vocabulary."""
    model = region_model()
    before = encoder_of(model).weights_digest()
    digests = {before}
    for parameter in (encoder_of(model).embedding.bias, next(model.text.encoder.parameters())):
        with torch.no_grad():
            parameter.add_(1)
        digests.add(encoder_of(model).weights_digest())
    assert len(digests) == 3


def test_frozen_only_with_the_bert() -> None:
    model = region_model(frozen=True).train()
    encoder = encoder_of(model)
    assert encoder.frozen
    assert not encoder.dropout.training
    batch = encoder.collate([encoder.preprocess(photo) for photo in region_sets()])
    assert not encoder(batch).states.requires_grad
    model.text.encoder.frozen = False  # as a stage that tunes it does
    assert not encoder.frozen


def test_frozen_output_from_the_cache(tmp_path: Path) -> None:
    model = region_model(frozen=True)
    photos = region_sets()
    cache = FeatureCache(tmp_path, encoder_of(model).weights_digest())
    cache.add(["a", "b"], encoded(model, photos[:2]))
    cache.add(["c", "d"], concatenate_features([encoded(model, [each]) for each in photos[2:]]))
    with torch.inference_mode():
        cached = model.encode_images(cache.get(["d", "a", "c", "b"]))
        own = encode_images(
            model, [encoder_of(model).preprocess(photos[row]) for row in (3, 0, 2, 1)]
        )
    assert torch.equal(cached.mask, own.mask)
    torch.testing.assert_close(cached.embedding, own.embedding, atol=5e-3, rtol=0)


@pytest.mark.parametrize("kind", ["bert", "roberta"])
def test_from_a_pretrained_folder(tmp_path: Path, kind: str) -> None:
    torch.manual_seed(1)
    tokenizer = train_tokenizer(TEXTS, 100)
    settings = BERT | {"vocab_size": tokenizer.get_vocab_size()}
    settings.pop("model_type")
    if kind == "roberta":
        settings |= {"pad_token_id": 0, "type_vocab_size": 1}
    source = save(tmp_path, kind, tokenizer, **settings)
    text = TextEncoderConfig(source=str(tmp_path), max_tokens=16)
    model = region_model(text_encoder=text)
    word = source.embeddings.word_embeddings.weight
    assert torch.equal(model.text.encoder.model.embeddings.word_embeddings.weight, word)  # type: ignore[union-attr]
    photos = region_sets()
    together = encoded(model, photos)
    for row, photo in enumerate(photos):
        alone = encoded(model, [photo])
        torch.testing.assert_close(
            together.states[row][together.mask[row]], alone.states[0], atol=1e-5, rtol=1e-4
        )
    if kind == "bert":
        expected = torch.stack(plain_pass(model, photos[0]))
        torch.testing.assert_close(together.states[0, :4], expected, atol=1e-5, rtol=1e-4)


def test_a_geometry_that_is_missing_comes_from_the_boxes() -> None:
    encoder = encoder_of(region_model(architecture={"region_dim": 8}))
    boxes = np.array([[0, 0.5, 0.5, 1]], dtype=np.float32)
    appearance = np.array([[7, 8]], dtype=np.float32)
    with_boxes = encoder.preprocess(RegionSet(appearance, boxes)).vectors
    assert with_boxes.tolist() == [[7, 8, 0, 0.5, 0.5, 1, 0.5, 0.5]]
    whole = RegionSet(with_geometry(appearance, boxes), boxes)
    assert torch.equal(encoder.preprocess(whole).vectors, with_boxes)
    for wrong in (RegionSet(appearance), RegionSet(np.ones((1, 9), np.float32), boxes)):
        with pytest.raises(RegionError, match="expected 8 numbers a region, or 2 with boxes, got"):
            encoder.preprocess(wrong)
