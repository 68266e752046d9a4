from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.nn import functional as F

from aladin_network.checkpoint import load_checkpoint
from aladin_network.conversion.oscar import RegionsOptions, convert_oscar
from aladin_network.errors import CheckpointError
from aladin_network.model import AladinModel
from aladin_network.photos.regions import RegionSet
from tests.tensors import encode_images, encode_texts

OPTIONS = RegionsOptions(max_tokens=12, max_regions=5)


@pytest.fixture(scope="module")
def converted(
    make_official: Callable[[], Any], tmp_path_factory: pytest.TempPathFactory
) -> AladinModel:
    """The network of a folder, by the paper's rules."""
    folder = tmp_path_factory.mktemp("oscar")
    convert_oscar(make_official().write_oscar(folder / "oscar"), folder / "out", OPTIONS)
    return load_checkpoint(folder / "out").model


def test_the_text_pass_is_oscars(
    converted: AladinModel, make_official: Callable[[], Any], captions: list[str]
) -> None:
    encoded = encode_texts(converted, captions, truncate=True)
    states, lengths = make_official().text_states(captions)
    for row, length in enumerate(lengths):
        expected = F.normalize(states[row, 1 : length - 1], dim=1)
        torch.testing.assert_close(encoded.item_tokens(row), expected, atol=1e-5, rtol=0)


def test_the_image_pass_is_oscars(
    converted: AladinModel, make_official: Callable[[], Any], images: list[Any]
) -> None:
    """By the paper's rules: position 0 is the CLS, and every region is aligned."""
    encoder = converted.image.encoder
    inputs = [
        encoder.preprocess(RegionSet(image.vectors.numpy(), labels=tuple(image.labels)))
        for image in images
    ]
    with torch.inference_mode():
        features = converted.image(encoder.collate(inputs))
    encoded = encode_images(converted, inputs)

    states, counts = make_official().image_states(images, "[CLS]", whole=True)
    torch.testing.assert_close(features.states[:, 0], states[:, 0], atol=1e-5, rtol=0)
    for row, count in enumerate(counts):
        expected = F.normalize(states[row, 12 : 12 + count], dim=1)
        torch.testing.assert_close(encoded.item_tokens(row), expected, atol=1e-5, rtol=0)


def test_a_tensor_that_does_not_fit_leaves_nothing_behind(
    make_official: Callable[[], Any], tmp_path: Path
) -> None:
    official = make_official()
    official.oscar["bert.img_embeddings.bias"] = official.oscar.pop("bert.img_embedding.bias")
    complaint = (
        "missing tensors: bert.img_embedding.bias; unknown tensors: bert.img_embeddings.bias"
    )
    with pytest.raises(CheckpointError, match=rf"pytorch_model\.bin: {complaint}$"):
        convert_oscar(official.write_oscar(tmp_path / "oscar"), tmp_path / "out", OPTIONS)
    assert not (tmp_path / "out").exists()


def test_heads_of_every_training_may_stay_behind(
    make_official: Callable[[], Any], tmp_path: Path
) -> None:
    official = make_official()
    one = torch.zeros(1)
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
    official.oscar |= dict.fromkeys(others, one)
    report = convert_oscar(official.write_oscar(tmp_path / "oscar"), tmp_path / "out", OPTIONS)
    left = {each.source: each.reason for each in report.left}
    assert set(left) >= set(others)
    assert all(left.values())
    assert {each.source for each in report.taken} == set(official.oscar) - set(left)


def test_old_names_of_layer_norms_give_the_same_network(
    make_official: Callable[[], Any], tmp_path: Path
) -> None:
    official = make_official()
    renamed = {
        name.replace("LayerNorm.weight", "LayerNorm.gamma").replace(
            "LayerNorm.bias", "LayerNorm.beta"
        ): value
        for name, value in official.oscar.items()
    }
    assert renamed.keys() != official.oscar.keys()
    convert_oscar(official.write_oscar(tmp_path / "oscar"), tmp_path / "new", OPTIONS)
    convert_oscar(
        official.write_oscar(tmp_path / "oscar", tensors=renamed), tmp_path / "old", OPTIONS
    )
    new, old = (load_checkpoint(tmp_path / name).model_id for name in ("new", "old"))
    assert new == old


def test_regions_without_a_layer_norm(make_official: Callable[[], Any], tmp_path: Path) -> None:
    official = make_official()
    official.config["use_img_layernorm"] = 0
    unknown = "unknown tensors: bert.LayerNorm.bias, bert.LayerNorm.weight"
    with pytest.raises(CheckpointError, match=rf"{unknown}$"):
        convert_oscar(official.write_oscar(tmp_path / "oscar"), tmp_path / "out", OPTIONS)

    for name in ("weight", "bias"):
        del official.oscar[f"bert.LayerNorm.{name}"]
    convert_oscar(official.write_oscar(tmp_path / "oscar"), tmp_path / "out", OPTIONS)
    encoder = load_checkpoint(tmp_path / "out").model.image.encoder
    assert sorted(encoder.state_dict()) == ["embedding.bias", "embedding.weight"]


def test_the_matching_head_is_new_and_drawn_with_the_seed(
    make_official: Callable[[], Any], tmp_path: Path
) -> None:
    folder = make_official().write_oscar(tmp_path / "oscar")
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
