from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from aladin_network.checkpoint import load_checkpoint
from aladin_network.conversion.aladin_release import LEFT, RENAMES, convert_aladin
from aladin_network.errors import CheckpointError, ConfigError
from aladin_network.model import AladinModel
from aladin_network.photos.regions import RegionSet
from tests.aladin.conversion.official import CAPTIONS, make_official, named, photos
from tests.tensors import encode_images, encode_texts


def scores(model: AladinModel) -> tuple[Tensor, Tensor]:
    """Score as indexing and serving do: each photo and each text alone."""
    encoder = model.image.encoder
    inputs = [
        encoder.preprocess(RegionSet(image.vectors.numpy(), labels=tuple(image.labels)))
        for image in photos()
    ]
    encoded = encode_images(model, inputs)
    texts = encode_texts(model, CAPTIONS, truncate=True)
    return model.scores("matching", encoded, texts), model.scores("alignment", encoded, texts)


@pytest.fixture
def convert(tmp_path: Path) -> Callable[..., AladinModel]:
    """Converts a release whose saved parts are changed as told."""

    def run(**parts: object) -> AladinModel:
        official = make_official()
        folder = official.write_oscar(tmp_path / "oscar")
        (folder / "pytorch_model.bin").unlink()  # not needed
        file = official.write_release(tmp_path / "release.pth.tar", **parts)
        convert_aladin(file, folder, tmp_path / "out")
        return load_checkpoint(tmp_path / "out").model

    return run


@pytest.fixture(scope="module")
def converted(tmp_path_factory: pytest.TempPathFactory) -> AladinModel:
    """The network of a release in the format of torch 1.2, with which the authors worked."""
    official, folder = make_official(), tmp_path_factory.mktemp("release")
    file = official.write_release(folder / "release.pth.tar", zipped=False)
    convert_aladin(file, official.write_oscar(folder / "oscar"), folder / "out")
    return load_checkpoint(folder / "out").model


def test_scores_are_those_of_the_authors_evaluation(converted: AladinModel) -> None:
    matching, alignment = scores(converted)
    expected_matching, expected_alignment = make_official().scores(photos(), CAPTIONS)
    torch.testing.assert_close(matching, expected_matching, atol=1e-5, rtol=0)
    torch.testing.assert_close(alignment, expected_alignment, atol=1e-5, rtol=0)


def test_the_scores_cover_what_the_published_code_does_oddly() -> None:
    """The comparison above would not notice a wrong option if these cases were not in it."""
    official = make_official()
    _, alignment = official.scores(photos(), CAPTIONS)
    assert [len(image.vectors) for image in photos()] == [2, 1, 7, 4]  # of 5 that are read
    assert bool((alignment[1] == 0).all())  # its only region plays the CLS
    assert bool((alignment[:, 2] == 0).all())  # its only word piece is dropped
    # For some words the zeros of the padding beat all regions, for most they do not.
    (regions, _), (words, lengths) = (
        official.image_states(photos(), "[UNK]"),
        (official.text_states(CAPTIONS)),
    )
    best = [
        (image[1:count] @ text[1 : length - 2].T).amax(dim=0)
        for image, count in ((regions[0], 2), (regions[2], 5), (regions[3], 4))
        for text, length in zip(words, lengths, strict=True)
    ]
    assert 0 < int((torch.cat(best) < 0).sum()) < torch.cat(best).numel() / 2
    # The start token matters.
    other = official.image_states(photos(), "[CLS]")[0]
    assert float((regions - other).abs().max()) > 1e-3


def test_every_tensor_that_does_not_fit_is_named(converted: AladinModel) -> None:
    named(make_official().state, converted.state_dict(), RENAMES, LEFT)


def test_skipped_tensors_are_listed_with_their_reason(tmp_path: Path) -> None:
    official = make_official()
    official.state["distillation_loss.wb"] = torch.ones(2)
    folder = official.write_oscar(tmp_path / "oscar")
    file = official.write_release(tmp_path / "release.pth.tar")
    report = convert_aladin(file, folder, tmp_path / "out")

    left = {each.source: each.reason for each in report.left}
    oscar = "img_txt_enc.oscar_model"
    assert set(left) == {
        *(f"{oscar}.{name}" for name in ("bert.pooler.dense.weight", "bert.pooler.dense.bias")),
        *(f"{oscar}.classifier.{name}" for name in ("weight", "bias")),
        *(
            f"img_txt_enc.{side}_proj.{name}"
            for side in ("img", "cap")
            for name in ("weight", "bias")
        ),
        "distillation_loss.wb",
        *("epoch", "Eiters", "optimizer", "scheduler", "opt", "config"),
    }
    assert "never uses it" in left["img_txt_enc.img_proj.weight"]
    assert report.new == []
    assert {each.source for each in report.taken} | set(left) >= set(official.state)


def test_lengths_are_those_of_the_training(tmp_path: Path) -> None:
    official = make_official()
    folder = official.write_oscar(tmp_path / "oscar")
    file = official.write_release(tmp_path / "release.pth.tar")
    convert_aladin(file, folder, tmp_path / "own")
    convert_aladin(file, folder, tmp_path / "given", max_tokens=8, max_regions=3)
    for name, tokens, regions in (("own", 12, 5), ("given", 8, 3)):
        model = load_checkpoint(tmp_path / name).model
        many = photos()[2]
        inputs = model.image.encoder.preprocess(
            RegionSet(many.vectors.numpy(), labels=tuple(many.labels))
        )
        assert len(inputs.vectors) == regions
        assert len(inputs.label_ids) == tokens
        assert model.config.text_encoder.max_tokens == tokens


@pytest.mark.parametrize(
    ("parts", "complaint"),
    [
        *(
            ({"config": {section: {key: value}}}, f"config {section}.{key}: .*, found {value!r}")
            for section, key, value in (
                ("model", "teran-layers", 2),
                ("model", "depth-aggregation-matching", "gated"),
                ("model", "depth-aggregation", "mean"),
                ("model", "exclude-stopwords", True),
                ("training", "alignment-mode", "MrAVGw"),
                ("model", "embed-size", 32),
            )
        ),
        ({"model": None}, r"it lacks \['model'\]"),
        ({"config": None}, r"it lacks \['config'\]"),
        ({"teacher": {}}, r"has \['teacher'\]"),
        ({"config": {"model": {}}}, "expected a section 'training'"),
        ({"model": [1]}, "model: expected tensors by name, found list"),
        ({"opt": {"att_mask_type": "CR"}}, r"opt\.att_mask_type: expected 'CLR', .*, found 'CR'"),
        ({"opt": {"max_seq_length": "12"}}, r"opt\.max_seq_length: .* number, found '12'"),
        ({"opt": {"max_img_seq_length": 0}}, r"opt\.max_img_seq_length: .* found 0"),
    ],
)
def test_a_file_or_a_network_of_another_kind_is_refused(
    convert: Callable[..., AladinModel], tmp_path: Path, parts: dict[str, Any], complaint: str
) -> None:
    if "opt" in parts:
        parts = {"opt": argparse.Namespace(**parts["opt"])}
    config = parts.get("config") or {}
    if any(config.values()):  # one setting of the paper's is changed
        recipe = make_official().recipe
        for section, settings in config.items():
            recipe[section] |= settings
        parts = {"config": recipe}
    with pytest.raises(CheckpointError, match=complaint):
        convert(**parts)
    assert not (tmp_path / "out").exists()


def test_without_a_command_line_lengths_are_the_readmes(
    convert: Callable[..., AladinModel],
) -> None:
    with pytest.raises(ConfigError, match="max_tokens 50: this network has 20 positions"):
        convert(opt=None)


def test_a_checkpoint_says_where_it_comes_from_and_replaces_nothing(
    convert: Callable[..., AladinModel], tmp_path: Path
) -> None:
    convert(optimizer=None, scheduler=None, epoch=None, Eiters=None)
    provenance = load_checkpoint(tmp_path / "out").provenance
    assert provenance.stage == "convert"
    assert json.loads(provenance.recipe)["converted_from"]["file"] == "release.pth.tar"
    with pytest.raises(ConfigError, match="oscar: there is something already"):
        convert_aladin(tmp_path / "release.pth.tar", tmp_path / "oscar", tmp_path / "oscar")
    assert (tmp_path / "oscar" / "vocab.txt").exists()
