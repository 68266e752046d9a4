"""Encoders from frozen to tuned and back: what learns, what stays, and at which rate."""

from __future__ import annotations

import copy
import dataclasses
import re
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from aladin_network.config import TowerConfig, TrunkConfig
from aladin_network.encoders.base import digest_of
from aladin_network.errors import ConfigError
from aladin_network.model import AladinModel
from aladin_training.adapters.parts import (
    check_fine_tuning,
    end_fine_tuning,
    merge_fine_tuned,
    set_trained_parts,
    set_training_mode,
    start_fine_tuning,
)
from aladin_training.config.stage import StageConfig, TaskConfig
from aladin_training.config.tune import EncoderPart, TuneConfig
from aladin_training.optimization import build_optimizer
from aladin_training.step import check_no_batch_statistics
from aladin_training.tasks.joint import JointTask

TEXTS = ["two dogs", "a man rides a motorcycle in the street"]
CONVOLUTIONAL = {
    "model_type": "resnet",
    "embedding_size": 4,
    "hidden_sizes": [4, 8],
    "depths": [1, 1],
    "layer_type": "basic",
}


@pytest.fixture
def build_frozen(build_tiny: Callable[..., AladinModel]) -> Callable[..., AladinModel]:
    """A network with two frozen encoders; the text encoder has three layers."""

    def build(image: dict[str, Any] | None = None, **text: Any) -> AladinModel:
        config = build_tiny().config
        image_encoder = dataclasses.replace(config.image_encoder, frozen=True)
        changes: dict[str, Any] = {}
        if image is not None:
            image_encoder = dataclasses.replace(image_encoder, architecture=image)
            trunk = TrunkConfig(width=16, layers=0)
            changes["image_tower"] = TowerConfig(trunk=trunk, aggregate="mean")
        architecture = dict(config.text_encoder.architecture or {}) | text
        text_encoder = dataclasses.replace(
            config.text_encoder,
            frozen=True,
            architecture=architecture | {"num_hidden_layers": 3},
        )
        return build_tiny(image_encoder=image_encoder, text_encoder=text_encoder, **changes)

    return build


def stage(tune: dict[EncoderPart, TuneConfig], **changes: Any) -> StageConfig:
    return StageConfig(
        name="s", tasks={"matching": TaskConfig(loss="triplet")}, tune=tune, **changes
    )


def trained(model: nn.Module) -> set[str]:
    return {name for name, value in model.named_parameters() if value.requires_grad}


@pytest.mark.parametrize("mode", ["full", "last", "lora"])
def test_the_mode_decides_what_learns_and_the_end_freezes_it(
    mode: Any, build_frozen: Callable[..., AladinModel]
) -> None:
    model = build_frozen()
    before = copy.deepcopy(model.state_dict())
    layer = "text.encoder.model.encoder.layer."
    in_text = {name for name, _ in model.named_parameters() if name.startswith("text.encoder.")}
    tune: dict[EncoderPart, TuneConfig] = {
        "text_encoder": TuneConfig(mode=mode, layers=2 if mode == "last" else None)
    }
    start_fine_tuning(model, tune)
    set_trained_parts(model, None, tune)
    learning = {name for name in trained(model) if name.startswith("text.encoder.")}
    last = {name for name in in_text if name.startswith((f"{layer}1.", f"{layer}2."))}
    assert mode == "lora" or learning == (in_text if mode == "full" else last)
    if mode == "lora":  # of all six matrices of each of three layers
        places = {re.sub(r"\d+", "n", name) for name in learning}
        assert (len(learning), len(places)) == (3 * 6 * 2, 6 * 2)
        assert all(re.search(r"\.lora_[AB]\.default\.weight$", name) for name in places)
    assert not any(name.startswith("image.encoder.") for name in trained(model))
    assert {"text.trunk.projection.weight", "image.trunk.projection.weight"} <= trained(model)
    set_training_mode(model)
    # Dropout of layers that do not learn stays off, lest their outputs vary for nothing.
    first_layer = model.get_submodule(f"{layer}0.output.dropout")
    assert first_layer.training == (mode != "last")
    merge_fine_tuned(model, tune)
    end_fine_tuning(model, tune)
    assert model.text.encoder.frozen
    set_trained_parts(model, None)
    assert not any(name.startswith("text.encoder.") for name in trained(model))
    assert not any(module.training for module in model.text.encoder.modules())
    after = model.state_dict()
    assert after.keys() == before.keys()
    assert all(torch.equal(value, before[name]) for name, value in after.items())


def test_layers_learn_at_their_own_rates(build_frozen: Callable[..., AladinModel]) -> None:
    model = build_frozen()
    tune: dict[EncoderPart, TuneConfig] = {"text_encoder": TuneConfig(lr_decay=0.5)}
    start_fine_tuning(model, tune)
    config = stage(tune, lr=0.1, lr_scale={"text_encoder": 0.2})
    task = JointTask(model, config)
    names = {id(value): name for name, value in task.named_parameters()}
    rates = {
        names[id(value)].removeprefix("model.text.encoder.model."): group["lr"]
        for group in build_optimizer(task, config).param_groups
        for value in group["params"]
    }
    expected = {
        "encoder.layer.2.output.dense.weight": 0.02,
        "encoder.layer.1.output.dense.weight": 0.01,
        "encoder.layer.0.output.LayerNorm.bias": 0.005,
        "embeddings.word_embeddings.weight": 0.0025,
        "model.text.trunk.projection.weight": 0.1,
        "model.matching.projection.weight": 0.1,
    }
    assert {name: rates[name] for name in expected if name in rates} == pytest.approx(
        {name: rate for name, rate in expected.items() if name in rates}
    )
    assert len(expected.keys() & rates.keys()) >= 5


def test_a_convolutional_encoders_norms_stay_on_their_running_statistics(
    build_frozen: Callable[..., AladinModel],
) -> None:
    model = build_frozen(CONVOLUTIONAL)
    tune: dict[EncoderPart, TuneConfig] = {"image_encoder": TuneConfig()}
    start_fine_tuning(model, tune)
    task = JointTask(model, stage(tune, frozen_dropout=True))
    check_no_batch_statistics(task)
    pixels = torch.randn(4, 3, 32, 32)
    for frozen_dropout in (True, False):
        task.stage = stage(tune, frozen_dropout=frozen_dropout)
        task.train()
        assert model.image.encoder.training
        before = dict(copy.deepcopy(model.image.encoder).named_buffers())
        alone = model.image.encoder(pixels[:1]).states
        together = model.image.encoder(pixels).states
        together.square().sum().backward()
        torch.testing.assert_close(together[:1], alone, atol=1e-5, rtol=1e-5)
        for name, value in model.image.encoder.named_buffers():
            assert torch.equal(value, before[name]), name
    norm = next(name for name in trained(model) if "normalization.weight" in name)
    assert model.get_parameter(norm).grad is not None
    end_fine_tuning(model, tune)
    assert not model.image.encoder.fixed_statistics


def test_checkpointed_gradients_are_the_same(build_frozen: Callable[..., AladinModel]) -> None:
    found: list[dict[str, torch.Tensor]] = []
    for checkpointing in (False, True):
        model = build_frozen(hidden_dropout_prob=0.3)
        tune: dict[EncoderPart, TuneConfig] = {
            "text_encoder": TuneConfig(checkpointing=checkpointing),
            "image_encoder": TuneConfig(mode="last", layers=1, checkpointing=checkpointing),
        }
        start_fine_tuning(model, tune)
        task = JointTask(model, stage(tune))
        task.train()
        torch.manual_seed(3)
        kept: list[torch.Size] = []
        with torch.autograd.graph.saved_tensors_hooks(
            lambda value, kept=kept: kept.append(value.shape) or value, lambda value: value
        ):
            texts = model.encode_texts(model.text.encoder.preprocess(TEXTS))
            images = model.encode_images(torch.randn(2, 3, 32, 32))
        (texts.embedding.sum() + images.tokens.square().sum()).backward()
        found.append(
            {name: value.grad for name, value in model.named_parameters() if value.grad is not None}
            | {"kept": torch.tensor(float(sum(shape.numel() for shape in kept)))}
        )
        end_fine_tuning(model, tune)
    plain, again = found
    assert again.pop("kept") < 0.8 * plain.pop("kept")
    assert plain.keys() == again.keys()
    assert any(name.startswith("text.encoder.model.encoder.layer.0.") for name in plain)
    for name, gradient in plain.items():
        torch.testing.assert_close(again[name], gradient, atol=1e-6, rtol=1e-5)


MOBILENET = {
    "model_type": "mobilenet_v2",
    "depth_multiplier": 0.1,
    "min_depth": 4,
    "image_size": 32,
}
CACHED = TuneConfig(mode="last", layers=1, cached=True)


@pytest.mark.parametrize(
    ("architecture", "config", "message"),
    [
        (CONVOLUTIONAL, {"mode": "last", "layers": 3}, "layers is 3, the encoder has 2"),
        (CONVOLUTIONAL, {"mode": "lora", "targets": ("nowhere",)}, "no matrix is named 'nowhere'"),
        (MOBILENET, {"checkpointing": True}, "no gradient checkpointing"),
        (CONVOLUTIONAL, {"mode": "last", "layers": 2, "cached": True}, "more than 2 layers"),
    ],
)
def test_an_impossible_tuning_is_refused_before_the_encoder_changes(
    architecture: dict[str, Any],
    config: dict[str, Any],
    message: str,
    build_frozen: Callable[..., AladinModel],
) -> None:
    model = build_frozen(architecture)
    with pytest.raises(ConfigError, match=message):
        check_fine_tuning(model, {"image_encoder": TuneConfig(**config)})
    with pytest.raises(ConfigError, match=r"tune\.text_encoder: cached: .* image encoders only"):
        check_fine_tuning(model, {"text_encoder": CACHED})
    assert model.image.encoder.frozen and model.text.encoder.frozen


def test_an_encoder_is_divided_while_the_states_of_its_last_layers_are_kept(
    build_frozen: Callable[..., AladinModel],
) -> None:
    model = build_frozen(CONVOLUTIONAL)
    tune: dict[EncoderPart, TuneConfig] = {"image_encoder": CACHED}
    check_fine_tuning(model, tune)
    start_fine_tuning(model, tune)
    assert model.image.encoder.last_layers == 1
    end_fine_tuning(model, tune)
    assert model.image.encoder.last_layers is None


@pytest.mark.parametrize("ask_between", [False, True])
def test_a_digest_is_that_of_the_tuned_weights(
    build_frozen: Callable[..., AladinModel], ask_between: bool
) -> None:
    """An optimizer may change weights in place without raising their version."""
    model = build_frozen()
    tune: dict[EncoderPart, TuneConfig] = {"text_encoder": TuneConfig()}
    encoder = model.text.encoder
    before = encoder.weights_digest()
    start_fine_tuning(model, tune)
    if ask_between:
        assert encoder.weights_digest() == before
    parameters = list(encoder.parameters())
    for parameter in parameters:
        parameter.grad = torch.ones_like(parameter)
    torch.optim.AdamW(parameters, lr=0.1, fused=True).step()
    merge_fine_tuned(model, tune)
    end_fine_tuning(model, tune)
    assert encoder.weights_digest() == digest_of(encoder.state_dict()) != before
