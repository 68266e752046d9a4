"""Depths, chosen weights and rates of every family of encoders, by name, worked by hand."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import pytest
from torch import nn

from aladin_network.encoders.divided_tower import LayerStack, find_layers
from aladin_network.encoders.pretrained import build_tower
from aladin_network.errors import ConfigError
from aladin_training.adapters.layers import (
    fine_tuned_names,
    lr_factors,
    parameter_depths,
)
from aladin_training.config.tune import TuneConfig

_SIZES = {
    "hidden_size": 8,
    "num_attention_heads": 2,
    "intermediate_size": 8,
    "num_hidden_layers": 3,
}
_PATCHES = {**_SIZES, "image_size": 8, "patch_size": 4}
_WORDS = {**_SIZES, "vocab_size": 20}
_RESNET = {
    "embedding_size": 4,
    "hidden_sizes": [4, 8],
    "depths": [1, 2],
    "layer_type": "basic",
}
# Of each family: where its layers are; and parameters in front of, in and behind them.
FAMILIES: dict[str, tuple[dict[str, Any], LayerStack, dict[str, int]]] = {
    "bert": (
        _WORDS,
        LayerStack("encoder.layer.", 3),
        {
            "embeddings.word_embeddings.weight": 0,
            "embeddings.LayerNorm.bias": 0,
            "encoder.layer.0.attention.self.query.weight": 1,
            "encoder.layer.2.output.dense.bias": 3,
        },
    ),
    "vit": (
        _PATCHES,
        LayerStack("layers.", 3),
        {
            "embeddings.cls_token": 0,
            "embeddings.patch_embeddings.projection.weight": 0,
            "layers.1.layernorm_before.weight": 2,
            "layernorm.weight": 4,
        },
    ),
    "clip_text_model": (
        _WORDS,
        LayerStack("encoder.layers.", 3),
        {"embeddings.token_embedding.weight": 0, "final_layer_norm.weight": 4},
    ),
    "clip_vision_model": (
        _PATCHES,
        LayerStack("encoder.layers.", 3),
        {
            "embeddings.class_embedding": 0,
            "pre_layrnorm.weight": 0,
            "encoder.layers.0.self_attn.k_proj.bias": 1,
            "post_layernorm.weight": 4,
        },
    ),
    "siglip_vision_model": (
        _PATCHES,
        LayerStack("encoder.layers.", 3),
        {"embeddings.position_embedding.weight": 0, "post_layernorm.weight": 4, "head.probe": 4},
    ),
    "mobilenet_v2": (
        {"depth_multiplier": 0.1, "min_depth": 4},
        LayerStack("layer.", 16),
        {
            "conv_stem.first_conv.convolution.weight": 0,
            "layer.0.conv_3x3.convolution.weight": 1,
            "layer.15.reduce_1x1.normalization.bias": 16,
            "conv_1x1.convolution.weight": 17,
        },
    ),
    "resnet": (
        _RESNET,
        LayerStack("encoder.stages.", 2),
        {
            "embedder.embedder.convolution.weight": 0,
            "encoder.stages.0.layers.0.layer.0.convolution.weight": 1,
            "encoder.stages.1.layers.1.layer.0.normalization.weight": 2,
        },
    ),
}


@functools.cache
def tower(name: str) -> nn.Module:
    return build_tower({"model_type": name, **FAMILIES[name][0]})


@pytest.mark.parametrize("name", FAMILIES)
def test_layers_of_every_family_are_found(name: str) -> None:
    encoder = tower(name)
    _, stack, expected = FAMILIES[name]
    assert find_layers(encoder) == stack
    depths = parameter_depths(encoder)
    assert depths.keys() == dict(encoder.named_parameters()).keys()
    assert {key: depths[key] for key in expected} == expected
    assert set(depths.values()) >= set(range(stack.depth + 1))
    assert max(depths.values()) <= stack.depth + 1


def test_the_last_layers_and_what_follows_them_are_tuned() -> None:
    encoder = tower("clip_vision_model")
    chosen = fine_tuned_names(encoder, TuneConfig(mode="last", layers=2))
    expected = {
        name
        for name, _ in encoder.named_parameters()
        if name.startswith(("encoder.layers.1.", "encoder.layers.2.", "post_layernorm."))
    }
    assert chosen == expected
    assert len(chosen) == 2 * 16 + 2  # two layers of 8 modules with weight and bias, and a norm
    everything = fine_tuned_names(encoder, TuneConfig())
    assert everything == dict(encoder.named_parameters()).keys()


def test_rates_fall_from_the_last_layer_to_the_embeddings() -> None:
    found = lr_factors(tower("clip_vision_model"), TuneConfig(lr_decay=0.5))
    shown = {
        "post_layernorm.weight": 1.0,
        "encoder.layers.2.mlp.fc1.weight": 1.0,
        "encoder.layers.1.mlp.fc1.weight": 0.5,
        "encoder.layers.0.mlp.fc1.weight": 0.25,
        "pre_layrnorm.weight": 0.125,
        "embeddings.patch_embedding.weight": 0.125,
    }
    assert {name: found[name] for name in shown} == shown
    assert set(lr_factors(tower("resnet"), TuneConfig()).values()) == {1.0}


def test_of_several_lists_the_largest_outermost_one_counts() -> None:
    block = nn.ModuleDict({"inner": nn.ModuleList([nn.Linear(9, 9), nn.Linear(9, 9)])})
    encoder = nn.ModuleDict(
        {"small": nn.ModuleList([nn.Linear(2, 2)] * 5), "blocks": nn.ModuleList([block])}
    )
    assert find_layers(encoder) == LayerStack("blocks.", 1)


GRU = nn.GRU(2, 2)


@pytest.mark.parametrize(
    ("ask", "says"),
    [
        (
            lambda: fine_tuned_names(tower("bert"), TuneConfig(mode="last", layers=4)),
            "layers is 4, the encoder has 3",
        ),
        (lambda: fine_tuned_names(GRU, TuneConfig(mode="last", layers=1)), "no list of layers"),
        (lambda: lr_factors(GRU, TuneConfig(lr_decay=0.9)), "no list of layers"),
    ],
)
def test_layers_that_are_not_there_are_refused(ask: Callable[[], object], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        ask()
