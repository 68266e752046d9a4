"""OSCAR's folders: configuration, vocabulary and network are those of the reference."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.nn import functional as F

from aladin_network.checkpoint import load_checkpoint
from aladin_network.conversion.oscar import (
    RegionsOptions,
    convert_oscar,
    read_oscar_config,
    read_oscar_tokenizer,
)
from aladin_network.errors import CheckpointError
from aladin_network.model import AladinModel
from aladin_network.photos.regions import RegionSet
from tests.aladin.conversion.official import CAPTIONS, Official, make_official, photos
from tests.tensors import encode_images, encode_texts

OPTIONS = RegionsOptions(max_tokens=12, max_regions=5)


@pytest.fixture(scope="module")
def converted(tmp_path_factory: pytest.TempPathFactory) -> AladinModel:
    """The network of a folder, by the paper's rules."""
    folder = tmp_path_factory.mktemp("oscar")
    convert_oscar(make_official().write_oscar(folder / "oscar"), folder / "out", OPTIONS)
    return load_checkpoint(folder / "out").model


def test_the_text_pass_is_oscars(converted: AladinModel) -> None:
    encoded = encode_texts(converted, CAPTIONS, truncate=True)
    states, lengths = make_official().text_states(CAPTIONS)
    for row, length in enumerate(lengths):
        expected = F.normalize(states[row, 1 : length - 1], dim=1)
        torch.testing.assert_close(encoded.item_tokens(row), expected, atol=1e-5, rtol=0)


def test_the_image_pass_is_oscars(converted: AladinModel) -> None:
    """By the paper's rules: position 0 is the CLS, and every region is aligned."""
    encoder = converted.image.encoder
    inputs = [
        encoder.preprocess(RegionSet(image.vectors.numpy(), labels=tuple(image.labels)))
        for image in photos()
    ]
    with torch.inference_mode():
        features = converted.image(encoder.collate(inputs))
    encoded = encode_images(converted, inputs)

    states, counts = make_official().image_states(photos(), "[CLS]", whole=True)
    torch.testing.assert_close(features.states[:, 0], states[:, 0], atol=1e-5, rtol=0)
    for row, count in enumerate(counts):
        expected = F.normalize(states[row, 12 : 12 + count], dim=1)
        torch.testing.assert_close(encoded.item_tokens(row), expected, atol=1e-5, rtol=0)


@pytest.fixture
def official() -> Official:
    return make_official()


def convert(official: Official, place: Path, **files: object) -> Any:
    return convert_oscar(official.write_oscar(place / "oscar", **files), place / "out", OPTIONS)


def test_a_tensor_that_does_not_fit_leaves_nothing_behind(
    official: Official, tmp_path: Path
) -> None:
    official.oscar["bert.img_embeddings.bias"] = official.oscar.pop("bert.img_embedding.bias")
    complaint = (
        "missing tensors: bert.img_embedding.bias; unknown tensors: bert.img_embeddings.bias"
    )
    with pytest.raises(CheckpointError, match=rf"pytorch_model\.bin: {complaint}$"):
        convert(official, tmp_path)
    assert not (tmp_path / "out").exists()


def test_heads_of_every_training_may_stay_behind(official: Official, tmp_path: Path) -> None:
    others = [
        "bert.embeddings.position_ids",
        "classifier.0.weight",
        "classifier.2.bias",
        "cls.predictions.bias",
        "cls.predictions.decoder.weight",
        "cls.predictions.transform.dense.weight",
        "cls.predictions.transform.LayerNorm.gamma",
        "cls.seq_relationship.bias",
    ]
    official.oscar |= dict.fromkeys(others, torch.zeros(1))
    report = convert(official, tmp_path)
    left = {each.source: each.reason for each in report.left}
    assert set(left) >= set(others) and all(left.values())
    assert {each.source for each in report.taken} == set(official.oscar) - set(left)


def test_old_names_of_layer_norms_give_the_same_network(official: Official, tmp_path: Path) -> None:
    renamed = {
        name.replace("LayerNorm.weight", "LayerNorm.gamma").replace(
            "LayerNorm.bias", "LayerNorm.beta"
        ): value
        for name, value in official.oscar.items()
    }
    assert renamed.keys() != official.oscar.keys()
    convert(official, tmp_path / "new")
    convert(official, tmp_path / "old", tensors=renamed)
    new, old = (load_checkpoint(tmp_path / name / "out").model_id for name in ("new", "old"))
    assert new == old


def test_regions_without_a_layer_norm(official: Official, tmp_path: Path) -> None:
    official.config["use_img_layernorm"] = 0
    unknown = "unknown tensors: bert.LayerNorm.bias, bert.LayerNorm.weight"
    with pytest.raises(CheckpointError, match=rf"{unknown}$"):
        convert(official, tmp_path)
    for name in ("weight", "bias"):
        del official.oscar[f"bert.LayerNorm.{name}"]
    convert(official, tmp_path)
    encoder = load_checkpoint(tmp_path / "out").model.image.encoder
    assert sorted(encoder.state_dict()) == ["embedding.bias", "embedding.weight"]


def test_the_matching_head_is_new_and_drawn_with_the_seed(
    official: Official, tmp_path: Path
) -> None:
    folder = official.write_oscar(tmp_path / "oscar")
    before = torch.get_rng_state()
    reports = [
        convert_oscar(folder, tmp_path / name, RegionsOptions(max_tokens=12, seed=seed))
        for name, seed in (("a", 0), ("b", 0), ("c", 1))
    ]
    assert torch.equal(torch.get_rng_state(), before)
    assert {name.split(".")[0] for name in reports[0].new} == {"matching"}
    assert reports[2].seed == 1
    ids = [load_checkpoint(report.out).model_id for report in reports]
    assert ids[0] == ids[1] != ids[2]
    assert not load_checkpoint(tmp_path / "a").model.alignment.state_dict()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return make_official().write_oscar(tmp_path / "oscar")


def change_config(folder: Path, **changes: object) -> None:
    path = folder / "config.json"
    values = json.loads(path.read_text()) | changes
    path.write_text(json.dumps({key: each for key, each in values.items() if each is not ...}))


def test_the_configuration_is_berts(folder: Path) -> None:
    change_config(folder, hidden_act="relu", hidden_dropout_prob=0.3, layer_norm_eps=...)
    config = read_oscar_config(folder)
    bert = config.bert()
    assert (bert["model_type"], bert["hidden_size"], bert["num_hidden_layers"]) == ("bert", 24, 2)
    assert (bert["hidden_act"], bert["hidden_dropout_prob"]) == ("relu", 0.3)
    assert bert["layer_norm_eps"] == 1e-12  # which early files lack
    assert (config.img_feature_dim, config.use_img_layernorm) == (10, 1)


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"hidden_size": ...}, "hidden_size"),
        ({"img_feature_dim": ...}, "img_feature_dim"),
        ({"img_feature_dim": 0}, "reads no regions"),
        ({"img_feature_type": "dis_code_t"}, "this network reads codes"),
        ({"pruned_heads": {"1": [0]}}, "pruned_heads"),
        ({"num_hidden_layers": "two"}, "num_hidden_layers"),
        (None, "cannot be read"),
        ("{", "cannot be read"),
        ("[]", "expected an object"),
    ],
)
def test_a_configuration_of_another_kind_is_refused(
    folder: Path, changes: dict[str, object] | str | None, complaint: str
) -> None:
    path = folder / "config.json"
    if isinstance(changes, dict):
        change_config(folder, **changes)
    else:
        path.unlink() if changes is None else path.write_text(changes)
    with pytest.raises(CheckpointError, match=f"config.json: .*{complaint}"):
        read_oscar_config(folder)


def test_the_tokenizer_splits_as_the_reference(folder: Path) -> None:
    vocabulary = make_official().vocabulary
    tokenizer = read_oscar_tokenizer(folder, len(vocabulary))
    for caption in CAPTIONS[:3]:
        assert tokenizer.encode(caption).ids == make_official().ids(caption, "[CLS]")
    pieces = tokenizer.encode("The motorcycle, dogs").tokens
    assert pieces == ["[CLS]", "the", "motor", "##cycle", ",", "dogs", "[SEP]"]
    # Words of a caption are never special tokens.
    assert tokenizer.encode("dog [SEP]").tokens.count("[SEP]") == 1


def test_case_is_kept_where_the_folder_says_so(folder: Path) -> None:
    (folder / "tokenizer_config.json").write_text('{"do_lower_case": false}')
    tokens = read_oscar_tokenizer(folder, 100).encode("Dog dog").tokens
    assert tokens == ["[CLS]", "[UNK]", "dog", "[SEP]"]
    (folder / "tokenizer_config.json").write_text('{"model_max_length": 512}')
    assert read_oscar_tokenizer(folder, 100).encode("Dog").tokens == ["[CLS]", "dog", "[SEP]"]
    (folder / "tokenizer_config.json").write_text('{"do_lower_case": "no"}')
    with pytest.raises(CheckpointError, match="do_lower_case: expected true or false, got 'no'"):
        read_oscar_tokenizer(folder, 100)


def test_a_vocabulary_keeps_its_order_through_odd_entries(folder: Path) -> None:
    # U+2028 ends a line for Python's splitlines, and is an entry of BERT's own vocabulary's kind.
    entries = ["[PAD]", "\u2028", "[UNK]", "[CLS]", "[SEP]", "dog"]
    (folder / "vocab.txt").write_bytes("\r\n".join(entries).encode() + b"\r\n")
    assert read_oscar_tokenizer(folder, 6).encode("dog").ids == [3, 5, 4]


@pytest.mark.parametrize(
    ("entries", "complaint"),
    [
        (None, "cannot be read"),
        (["[PAD]", "[UNK]", "[CLS]", "dog"], r"it has no \[SEP\]"),
        (["[PAD]", "[UNK]", "[CLS]", "[SEP]", *map(str, range(9))], "13 entries, .* vocab_size 12"),
    ],
)
def test_a_vocabulary_that_does_not_fit_is_refused(
    folder: Path, entries: list[str] | None, complaint: str
) -> None:
    (folder / "vocab.txt").unlink()
    if entries is not None:
        (folder / "vocab.txt").write_text("\n".join(entries) + "\n")
    with pytest.raises(CheckpointError, match=f"vocab.txt: .*{complaint}"):
        read_oscar_tokenizer(folder, 12)


def test_tokens_beside_the_vocabulary_are_refused(folder: Path) -> None:
    (folder / "added_tokens.json").write_text("{}")
    read_oscar_tokenizer(folder, 100)
    (folder / "added_tokens.json").write_text('{"[IMG]": 100}')
    with pytest.raises(CheckpointError, match=r"added_tokens\.json: "):
        read_oscar_tokenizer(folder, 100)
