"""Late-interaction networks of transformers: the same tokens and scores after the conversion."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from transformers import BertConfig, BertModel

from aladin_network.checkpoint import load_checkpoint, save_checkpoint
from aladin_network.conversion.multivector import (
    LibraryOptions,
    convert_multivector,
    read_library_options,
)
from aladin_network.errors import CheckpointError, ConfigError, ImageError, TextTooLongError
from aladin_network.model import AladinModel
from aladin_network.scoring.scores import alignment_scores, matching_scores
from tests.aladin.conversion.late_interaction import FAMILIES, load_source, tokenizer_of
from tests.tensors import encode_photos, encode_texts

TEXTS = ["a red dog", "two green dogs run on the grass", "the star"]
SIZES = [(60, 40), (30, 70), (20, 20), (96, 24)]  # width and height

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")


def photos() -> list[Image.Image]:
    random = np.random.default_rng(0)
    return [
        Image.fromarray(random.integers(0, 256, (height, width, 3), dtype=np.uint8))
        for width, height in SIZES
    ]


@pytest.fixture(scope="module", params=list(FAMILIES))
def kind(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture(scope="module")
def source(kind: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp(kind) / "source"
    FAMILIES[kind](folder)
    return folder


@pytest.fixture(scope="module")
def converted(source: Path) -> Path:
    out = source.parent / "converted"
    convert_multivector(str(source), out)
    return out


@pytest.fixture(scope="module")
def model(converted: Path) -> AladinModel:
    return load_checkpoint(converted).model


@torch.no_grad()
def test_tokens_and_scores_are_the_sources_own(kind: str, source: Path, model: AladinModel) -> None:
    network, processor = load_source(kind, source)
    regions = [network(**processor.process_images([each])).embeddings[0] for each in photos()]
    words = [network(**processor.process_queries([each])).embeddings[0] for each in TEXTS]
    images, texts = encode_photos(model, photos()), encode_texts(model, TEXTS)
    for row, tokens in enumerate(regions):
        torch.testing.assert_close(images.item_tokens(row), tokens, atol=1e-5, rtol=0)
    for row, tokens in enumerate(words):
        torch.testing.assert_close(texts.item_tokens(row), tokens, atol=1e-5, rtol=0)
    # Passages of different lengths would be padded with zeros, which can win a maximum.
    scores = torch.cat([processor.score_retrieval(words, [each]) for each in regions], dim=1)
    torch.testing.assert_close(alignment_scores(images, texts).T, scores, atol=1e-5, rtol=0)
    # The first stage compares the means of the tokens.
    means = [torch.stack([each.mean(0) for each in side]) for side in (regions, words)]
    cosines = torch.nn.functional.cosine_similarity(means[0].unsqueeze(1), means[1], dim=2)
    torch.testing.assert_close(matching_scores(images, texts), cosines, atol=1e-5, rtol=0)


def test_the_order_of_a_batch_does_not_matter(model: AladinModel) -> None:
    together = encode_texts(model, TEXTS)
    for row, text in enumerate(TEXTS):
        alone = encode_texts(model, [text])
        torch.testing.assert_close(
            together.item_tokens(row), alone.item_tokens(0), atol=1e-6, rtol=0
        )


def test_every_token_has_a_box(kind: str, model: AladinModel) -> None:
    images = encode_photos(model, photos())
    for row, size in enumerate(SIZES):
        boxes = model.image.encoder.region_boxes(*size)
        assert boxes.shape == (len(images.item_tokens(row)), 4)
        areas = (boxes[:, 2] - boxes[:, 0]) * (boxes[:, 3] - boxes[:, 1])
        cells = boxes[areas < 0.999]
        times = {"colpali": 1, "colqwen2": 1}.get(kind)
        covered = float(areas[areas < 0.999].sum())
        if times is None:  # tiles, where the photo is large enough, and the whole once more
            assert covered == pytest.approx(round(covered)) and covered in (1, 2)
        else:
            assert covered == pytest.approx(times, abs=1e-4)
        assert float(cells.min()) >= 0 and float(cells.max()) <= 1 + 1e-6


@pytest.mark.parametrize("size", [(1, 1), (300, 1), (3, 500)])
def test_photos_of_extreme_shapes(kind: str, model: AladinModel, size: tuple[int, int]) -> None:
    photo = Image.new("RGB", size)
    if kind == "colqwen2" and max(size) > 200 * min(size):
        with pytest.raises(ImageError, match="takes no photo of 300 x 1 pixels"):
            encode_photos(model, [photo])
        return
    tokens = encode_photos(model, [photo]).item_tokens(0)
    assert len(tokens) == len(model.image.encoder.region_boxes(*size))
    assert bool(tokens.isfinite().all())


def test_a_text_may_contain_the_name_of_an_image_token(model: AladinModel) -> None:
    for token in ("<image>", "<|image_pad|>"):
        encoding = encode_texts(model, [f"a red {token} dog"])
        assert bool(encoding.tokens.isfinite().all())
        assert len(model.text.encoder.spans(f"a red {token} dog")) == encoding.tokens.shape[1]


def test_spans_are_those_of_the_text(model: AladinModel) -> None:
    text = "a red dog."
    spans = model.text.encoder.spans(text)
    assert len(spans) == len(encode_texts(model, [text]).item_tokens(0))
    assert [text[start:end] for start, end in spans if start < end] == ["a", "red", "dog", "."]
    assert spans == sorted(spans)


def test_long_texts_are_cut_at_their_end_not_at_the_prompts(source: Path, tmp_path: Path) -> None:
    whole = convert_multivector(str(source), tmp_path / "whole").max_tokens
    assert whole == 512
    prompt = len(load_checkpoint(tmp_path / "whole").model.text.encoder.spans(""))
    convert_multivector(str(source), tmp_path / "short", max_tokens=prompt + 3)
    model = load_checkpoint(tmp_path / "short").model
    with pytest.raises(TextTooLongError, match=str(prompt + 5)):
        encode_texts(model, ["a red dog and grass"])
    cut = encode_texts(model, ["a red dog and grass"], truncate=True)
    torch.testing.assert_close(cut.tokens, encode_texts(model, ["a red dog"]).tokens)
    assert len(model.text.encoder.spans("a red dog and grass")) == prompt + 3
    with pytest.raises(ConfigError, match=f"the prompt alone has {prompt} tokens"):
        convert_multivector(str(source), tmp_path / "none", max_tokens=prompt)


def test_the_checkpoint_is_the_same_when_saved_again(
    converted: Path, model: AladinModel, tmp_path: Path
) -> None:
    first = load_checkpoint(converted)
    assert first.alignment_trained
    save_checkpoint(tmp_path / "again", model)
    again = load_checkpoint(tmp_path / "again")
    assert again.model_id == first.model_id
    assert again.model.config == model.config
    # The network is stored once, and frozen.
    assert not any(each.requires_grad for each in again.model.text.encoder.parameters())
    assert not list(again.model.image.encoder.parameters())
    assert again.model.image.encoder.weights_digest() == model.image.encoder.weights_digest()


def test_other_networks_are_refused_in_one_line(tmp_path: Path) -> None:
    bert = BertConfig(
        hidden_size=8, num_hidden_layers=1, num_attention_heads=2, intermediate_size=8
    )
    BertModel(bert).save_pretrained(tmp_path / "bert")
    known = (
        "expected a network of type colmodernvbert, colpali, colqwen2, or a folder of a ColBERT or "
        "PyLate network for texts, got one of type 'bert'"
    )
    with pytest.raises(CheckpointError) as plain:
        convert_multivector(str(tmp_path / "bert"), tmp_path / "out")
    assert str(plain.value) == f"{tmp_path / 'bert'}: {known}"
    (tmp_path / "adapter").mkdir()
    (tmp_path / "adapter" / "adapter_config.json").write_text("{}")
    with pytest.raises(CheckpointError, match="merge it into its base model first"):
        convert_multivector(str(tmp_path / "adapter"), tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_modules_that_change_tokens_are_refused(tmp_path: Path) -> None:
    tokenizer = tokenizer_of({"unk_token": "<unk>", "pad_token": "<pad>"}, [])
    library = "sentence_transformers.multi_vector_encoder.modules"
    modules = [
        {"path": "", "type": "sentence_transformers.base.modules.transformer.Transformer"},
        {"path": "1_Mask", "type": f"{library}.multi_vector_mask.MultiVectorMask"},
    ]
    (tmp_path / "modules.json").write_text(json.dumps(modules))
    assert read_library_options(str(tmp_path), tokenizer) == LibraryOptions()
    assert read_library_options("someone/model", tokenizer) == LibraryOptions()
    mask = {"skiplist_words": ["dog", "unheard"], "keep_only_token_ids": [1, 2]}
    (tmp_path / "1_Mask").mkdir()
    (tmp_path / "1_Mask" / "config.json").write_text(json.dumps(mask))
    dog = tokenizer.convert_tokens_to_ids("dog")
    expected = LibraryOptions(kept=[1, 2], dropped=[dog])
    assert read_library_options(str(tmp_path), tokenizer) == expected
    mask = {"skiplist_words": ["dog"], "skiplist_tasks": ["query", "document"]}
    (tmp_path / "1_Mask" / "config.json").write_text(json.dumps(mask))
    with pytest.raises(CheckpointError, match="it drops words of queries"):
        read_library_options(str(tmp_path), tokenizer)
    modules.append({"path": "2_Pool", "type": f"{library}.token_pooling.HierarchicalTokenPooling"})
    (tmp_path / "1_Mask" / "config.json").unlink()
    (tmp_path / "modules.json").write_text(json.dumps(modules))
    with pytest.raises(CheckpointError, match=r"expected no modules but .*, got Hierarchical"):
        read_library_options(str(tmp_path), tokenizer)
