"""The first-stage head against loops, and in a checkpoint."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from aladin_network.checkpoint import load_checkpoint, read_tensors, save_checkpoint, write_tensors
from aladin_network.checkpoint_files import CONFIG, WEIGHTS, read_first_stage
from aladin_network.config import FirstStageHeadConfig
from aladin_network.errors import CheckpointError, ConfigError, ShapeError
from aladin_network.heads.first_stage import FirstStageHead
from aladin_network.model import AladinModel
from aladin_network.scoring.learned_stage import LearnedStage
from aladin_network.scoring.scores import EncodedBatch

TOKEN_DIM, SIZES = 5, FirstStageHeadConfig(dim=3, hidden=7, bank=6)
Build = Callable[..., AladinModel]


def parameters(bank: int = 6, token_dim: int = TOKEN_DIM) -> LearnedStage:
    """Random parameters of `SIZES`."""
    random = np.random.default_rng(0)

    def normal(*shape: int) -> np.ndarray:
        return random.standard_normal(shape).astype(np.float32)

    return LearnedStage(
        directions=normal(token_dim, 7),
        shift=normal(7),
        reduction=normal(token_dim + 1 + 7, 3),
        words=normal(bank, token_dim),
        factors=normal(3, bank),
        centre=normal(3),
    )


def encoded(lengths: list[int], seed: int) -> EncodedBatch:
    """Random tokens; padding is 9, which no result may show."""
    generator = torch.Generator().manual_seed(seed)
    tokens = torch.randn(len(lengths), max(lengths), TOKEN_DIM, generator=generator)
    mask = torch.arange(max(lengths)) < torch.tensor(lengths)[:, None]
    return EncodedBatch(torch.zeros(len(lengths), 2), tokens.masked_fill(~mask[..., None], 9), mask)


def by_loops(stage: LearnedStage, images: EncodedBatch, texts: EncodedBatch) -> list[list[float]]:
    vectors = []
    for text in range(texts.size):
        total = np.zeros(3)
        for word in texts.item_tokens(text).numpy():
            units = [max(0, word @ stage.directions[:, n] - stage.shift[n]) for n in range(7)]
            total += np.array([*word, 1, *units]) @ stage.reduction
        vectors.append(total)
    rows = []
    for image in range(images.size):
        regions = images.item_tokens(image).numpy()
        best = [max((float(word @ each) for each in regions), default=0) for word in stage.words]
        vector = stage.factors @ np.array(best) - stage.centre
        rows.append([float(vector @ text) for text in vectors])
    return rows


@pytest.fixture
def head() -> FirstStageHead:
    made = FirstStageHead(SIZES, TOKEN_DIM)
    assert made.is_empty
    made.load(parameters())
    assert not made.is_empty
    return made


def test_scores_are_those_of_loops_and_padding_is_never_read(head: FirstStageHead) -> None:
    images, texts = encoded([4, 1, 0, 2], seed=1), encoded([2, 3, 1, 1], seed=2)
    expected = torch.tensor(by_loops(parameters(), images, texts))
    torch.testing.assert_close(head(images, texts), expected, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(
        head.paired(images, texts), expected.diagonal(), rtol=1e-4, atol=1e-4
    )
    with pytest.raises(ShapeError, match="4 texts, one for each image, got 2"):
        head.paired(images, texts.rows(slice(2)))


def test_its_arrays_are_those_that_were_loaded_and_a_small_bank_is_filled_up(
    head: FirstStageHead,
) -> None:
    for name, values in vars(head.stage()).items():
        np.testing.assert_array_equal(values, getattr(parameters(), name))
    images, texts = encoded([4, 1, 3], seed=1), encoded([2, 3], seed=2)
    small = parameters(bank=4)
    head.load(small)
    assert head.stage().words.shape == (6, TOKEN_DIM)
    assert not head.stage().words[4:].any()
    expected = torch.tensor(by_loops(small, images, texts))
    torch.testing.assert_close(head(images, texts), expected, rtol=1e-4, atol=1e-4)


def test_every_parameter_learns_and_an_empty_head_scores_0(head: FirstStageHead) -> None:
    images, texts = encoded([4, 1, 3], seed=1), encoded([2, 3], seed=2)
    head(images, texts).square().sum().backward()
    for name, value in head.named_parameters():
        assert isinstance(value.grad, Tensor), name
        assert bool(value.grad.any()), name
    head.reset_parameters()
    assert head.is_empty
    assert not bool(head(images, texts).any())


def test_sizes_below_1_are_refused() -> None:
    with pytest.raises(ConfigError, match="first_stage: bank: expected at least 1, got 0"):
        FirstStageHead(FirstStageHeadConfig(bank=0), 4)


def with_head(model: AladinModel) -> AladinModel:
    model.add_first_stage(SIZES)
    assert model.first_stage is not None
    model.first_stage.load(parameters(token_dim=8))
    return model


def test_a_checkpoint_keeps_the_head_and_it_is_read_without_the_network(
    build_tiny: Build, tmp_path: Path
) -> None:
    model = with_head(build_tiny())
    assert model.score_names == ("matching", "alignment", "first_stage")
    save_checkpoint(tmp_path / "with", model)
    loaded = load_checkpoint(tmp_path / "with").model
    assert loaded.config.first_stage == SIZES
    read = read_first_stage(tmp_path / "with")
    assert read is not None
    assert loaded.first_stage is not None
    for name, values in vars(parameters(token_dim=8)).items():
        np.testing.assert_array_equal(getattr(read, name), values)
        np.testing.assert_array_equal(getattr(loaded.first_stage.stage(), name), values)


def test_a_network_without_the_head_is_stored_as_ever(build_tiny: Build, tmp_path: Path) -> None:
    model = build_tiny()
    save_checkpoint(tmp_path / "without", model)
    assert "first_stage" not in json.loads((tmp_path / "without" / CONFIG).read_text())["model"]
    assert load_checkpoint(tmp_path / "without").model.first_stage is None
    assert read_first_stage(tmp_path / "without") is None
    batch = encoded([1], seed=0)
    for score in (model.scores, model.paired_scores):
        with pytest.raises(ConfigError, match="first_stage: this network has no such head"):
            score("first_stage", batch, batch)
    model.add_first_stage(SIZES)  # which nothing has trained
    save_checkpoint(tmp_path / "empty", model)
    assert load_checkpoint(tmp_path / "empty").model.config.first_stage == SIZES
    assert read_first_stage(tmp_path / "empty") is None


def test_a_damaged_head_is_refused(build_tiny: Build, tmp_path: Path) -> None:
    save_checkpoint(tmp_path / "made", with_head(build_tiny()))
    weights = tmp_path / "made" / WEIGHTS
    tensors = read_tensors(weights)
    write_tensors(weights, tensors | {"first_stage.directions": torch.zeros(4, 7)})
    with pytest.raises(
        CheckpointError, match=r"first_stage.directions: expected \(8, 7\), got \(4"
    ):
        load_checkpoint(tmp_path / "made")
    del tensors["first_stage.words"]
    write_tensors(weights, tensors)
    with pytest.raises(CheckpointError, match="cannot be read"):
        read_first_stage(tmp_path / "made")
    weights.unlink()
    with pytest.raises(CheckpointError, match="cannot be read"):
        read_first_stage(tmp_path / "made")
