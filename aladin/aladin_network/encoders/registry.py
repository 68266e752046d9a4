"""Registries of the encoders, by their names in a checkpoint's configuration."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib import import_module
from typing import TypeVar

from aladin_network.config import ModelConfig
from aladin_network.encoders.base import ImageEncoder
from aladin_network.encoders.tokenized_text import TokenizedTextEncoder
from aladin_network.errors import ConfigError

T = TypeVar("T")


class EncoderClasses(Mapping[str, type[T]]):
    """Classes by name, each imported when it is looked up.

    The transformers library takes seconds to import, and many processes that import this package
    never build an encoder.
    """

    def __init__(self, kind: type[T], places: Mapping[str, str]) -> None:
        """Register classes by place, "module:Class"; all are subclasses of `kind`."""
        self._kind = kind
        self._places = dict(places)

    def __getitem__(self, name: str) -> type[T]:
        """Import the class of an encoder."""
        module, _, attribute = self._places[name].partition(":")
        found: object = getattr(import_module(module), attribute)
        if not (isinstance(found, type) and issubclass(found, self._kind)):
            raise TypeError(f"{self._places[name]} is no {self._kind.__name__}")
        return found

    def __contains__(self, name: object) -> bool:
        """Tell whether an encoder has this name, without importing its class."""
        return name in self._places

    def __iter__(self) -> Iterator[str]:
        """Iterate over the names."""
        return iter(self._places)

    def __len__(self) -> int:
        """Return the number of encoders."""
        return len(self._places)


IMAGE_ENCODERS = EncoderClasses(
    ImageEncoder,
    {
        "hf": "aladin_network.encoders.hf_image:HFImageEncoder",
        "naflex": "aladin_network.encoders.naflex:NaFlexImageEncoder",
        "regions": "aladin_network.encoders.regions:RegionsImageEncoder",
    },
)
TEXT_ENCODERS = EncoderClasses(
    TokenizedTextEncoder,
    {
        "hf": "aladin_network.encoders.hf_text:HFTextEncoder",
        "gru": "aladin_network.encoders.recurrent_text:GRUTextEncoder",
        "lstm": "aladin_network.encoders.recurrent_text:LSTMTextEncoder",
    },
)


def image_encoder_class(config: ModelConfig) -> type[ImageEncoder]:
    """Look an image encoder up by its configured name."""
    return _look_up(IMAGE_ENCODERS, config.image_encoder.name, "image_encoder")


def text_encoder_class(config: ModelConfig) -> type[TokenizedTextEncoder]:
    """Look a text encoder up by its configured name."""
    return _look_up(TEXT_ENCODERS, config.text_encoder.name, "text_encoder")


def _look_up(registry: Mapping[str, type[T]], name: str, where: str) -> type[T]:
    if name not in registry:
        raise ConfigError(f"{where}.name: unknown {name!r}, known are {sorted(registry)}")
    return registry[name]
