"""Strict configuration: every fault is named, nothing is converted or ignored."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

import pytest
from pydantic import ConfigDict

from aladin_network.config import (
    STRICT,
    ImageEncoderConfig,
    ImagePreprocessing,
    ModelConfig,
    dump_changes,
    dump_config,
    parse_config,
)
from aladin_network.errors import ConfigError


@dataclass(frozen=True, kw_only=True)
class Inner:
    """A nested schema."""

    size: int = 3
    kind: Literal["a", "b"] = "a"
    pair: tuple[float, float] = (0.0, 1.0)


@dataclass(frozen=True, kw_only=True)
class Outer:
    """A schema."""

    __pydantic_config__: ClassVar[ConfigDict] = STRICT

    name: str
    inner: Inner = field(default_factory=Inner)
    maybe: int | None = None


def test_defaults_and_nested_values() -> None:
    config = parse_config(Outer, {"name": "x", "inner": {"kind": "b", "pair": [1, 2]}}, "test")
    assert config == Outer(name="x", inner=Inner(kind="b", pair=(1.0, 2.0)))


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        ({}, "name: .*required"),
        ({"name": 3}, "name: .*valid string"),
        ({"name": "x", "nmae": "y"}, "nmae: unknown key"),
        ({"name": "x", "inner": {"sise": 3}}, r"inner\.sise: unknown key"),
        ({"name": "x", "inner": {"size": "3"}}, r"inner\.size: .*valid integer"),
        ({"name": "x", "inner": {"size": 3.5}}, r"inner\.size: .*valid integer"),
        ({"name": "x", "inner": {"size": True}}, r"inner\.size: .*valid integer"),
        ({"name": "x", "inner": {"kind": "c"}}, r"inner\.kind: .*'a' or 'b'"),
        ({"name": "x", "inner": {"pair": [1]}}, r"inner\.pair"),
        ({"name": "x", "inner": None}, "inner: "),
        ({"name": object()}, "not JSON serializable"),
    ],
)
def test_faults_are_named_with_their_place(data: dict[str, Any], reason: str) -> None:
    with pytest.raises(ConfigError, match=f"recipe.toml: .*{reason}"):
        parse_config(Outer, data, "recipe.toml")


def test_all_faults_are_named_at_once() -> None:
    with pytest.raises(ConfigError) as caught:
        parse_config(Outer, {"nmae": "x", "inner": {"size": "3", "kind": "c"}}, "f")
    for place in ("nmae", "name", "inner.size", "inner.kind"):
        assert f"{place}: " in str(caught.value)


def test_the_networks_config_survives_a_round_trip() -> None:
    data: dict[str, Any] = {
        "image_encoder": {"architecture": {"model_type": "vit"}, "pyramid": [4, 1]},
        "text_encoder": {"source": "folder", "frozen": True},
        "matching": {"pooling": ["mean", "max"], "dim": 32},
        "text_tower": {"trunk": None},
    }
    config = parse_config(ModelConfig, data, "test")
    assert config.image_encoder.pyramid == (4, 1)
    assert config.text_tower.trunk is None
    assert parse_config(ModelConfig, dump_config(config), "test") == config


def test_changes_are_what_differs_from_the_defaults() -> None:
    assert dump_changes(Outer(name="x")) == {"name": "x"}
    changed = Outer(name="x", inner=Inner(kind="b"), maybe=0)
    assert dump_changes(changed) == {"name": "x", "inner": {"kind": "b"}, "maybe": 0}
    encoder = ImageEncoderConfig()
    assert dump_changes(encoder) == {}
    # A part that is there with its own defaults is not one that is absent.
    there = dataclasses.replace(encoder, preprocessing=ImagePreprocessing())
    assert dump_changes(there) == {"preprocessing": {}}
