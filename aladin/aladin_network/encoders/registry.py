"""Registries of the encoders, by their names in a checkpoint's configuration.

A class is imported when it is looked up: the transformers library takes seconds to import, and many
processes that import this package never build an encoder.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import TypeVar

from aladin_network.config import ModelConfig
from aladin_network.encoders.base import ImageEncoder, TextEncoder
from aladin_network.errors import ConfigError

T = TypeVar("T")

# Module and class of each encoder.
IMAGE_ENCODERS = {
    "hf": "aladin_network.encoders.hf_image:HFImageEncoder",
    "naflex": "aladin_network.encoders.naflex:NaFlexImageEncoder",
    "regions": "aladin_network.encoders.regions:RegionsImageEncoder",
}
TEXT_ENCODERS = {
    "hf": "aladin_network.encoders.hf_text:HFTextEncoder",
    "gru": "aladin_network.encoders.recurrent_text:GRUTextEncoder",
    "lstm": "aladin_network.encoders.recurrent_text:LSTMTextEncoder",
}


def image_encoder_class(config: ModelConfig) -> type[ImageEncoder]:
    """Look an image encoder up by its configured name."""
    return look_up(IMAGE_ENCODERS, config.image_encoder.name, ImageEncoder, "image_encoder")


def text_encoder_class(config: ModelConfig) -> type[TextEncoder]:
    """Look a text encoder up by its configured name."""
    return look_up(TEXT_ENCODERS, config.text_encoder.name, TextEncoder, "text_encoder")


def look_up(registry: Mapping[str, str], name: str, kind: type[T], where: str) -> type[T]:
    """Import a registered class, which is a subclass of `kind`; `where` names its setting."""
    if name not in registry:
        raise ConfigError(f"{where}.name: unknown {name!r}, known are {sorted(registry)}")
    module, _, attribute = registry[name].partition(":")
    found: object = getattr(import_module(module), attribute)
    if not (isinstance(found, type) and issubclass(found, kind)):
        raise TypeError(f"{registry[name]} is no {kind.__name__}")
    return found
