"""Bases of the encoders of networks that encode both sides of a search.

The text encoder owns such a network, and the encoder of photos or documents shares it. Both come
from converted checkpoints: a recipe cannot build them from a pretrained tower.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from typing import ClassVar, Generic, NoReturn, TypeVar

from tokenizers import Tokenizer

from aladin_network.config import ImageEncoderConfig, TextEncoderConfig
from aladin_network.encoders.base import ImageEncoder, TextEncoder
from aladin_network.encoders.tokenized_text import TokenizedTextEncoder
from aladin_network.errors import ConfigError

_NO_SOURCE = (
    "recipes cannot build encoders that share one network; start from a checkpoint of "
    "`aladin convert multivector`"
)


class OwningTextEncoder(TokenizedTextEncoder):
    """Text encoder that owns the network of both sides.

    Attributes:
        name: Name of both encoders in a checkpoint's configuration.
    """

    name: ClassVar[str]

    @classmethod
    def from_source(
        cls,
        config: TextEncoderConfig,  # noqa: ARG003
        tokenizer: Tokenizer | None,  # noqa: ARG003
    ) -> NoReturn:
        """Refuse: a recipe starts from a converted checkpoint."""
        raise ConfigError(_NO_SOURCE)

    @staticmethod
    def learn_tokenizer(
        texts: Iterable[str],  # noqa: ARG004
        vocabulary_size: int,  # noqa: ARG004
    ) -> NoReturn:
        """Refuse: the tokenizer is the source's."""
        raise ConfigError(_NO_SOURCE)


T = TypeVar("T", bound=OwningTextEncoder)


class SharingEncoder(ImageEncoder, Generic[T]):
    """Encoder of photos or documents by the network of a text encoder.

    Attributes:
        owner: Class of the text encoder.
    """

    owner: ClassVar[type[OwningTextEncoder]]

    def __init__(self, config: ImageEncoderConfig, text_encoder: TextEncoder | None = None) -> None:
        """Share the network of a text encoder.

        Args:
            config: Configuration of this encoder.
            text_encoder: Text encoder, an `owner`.

        Raises:
            ConfigError: If the text encoder is of another kind.
        """
        if not isinstance(text_encoder, self.owner):
            name = self.owner.name
            raise ConfigError(f"image_encoder: {name} needs a text encoder named {name}")
        # A tuple: a module in an attribute would become a submodule of this one.
        self._shared = (text_encoder,)
        super().__init__(config, text_encoder)
        self.config = config
        self.dim, self.num_tokens = text_encoder.dim, None

    @classmethod
    def from_source(
        cls,
        config: ImageEncoderConfig,  # noqa: ARG003
        text_encoder: TextEncoder | None = None,  # noqa: ARG003
    ) -> NoReturn:
        """Refuse: a recipe starts from a converted checkpoint."""
        raise ConfigError(_NO_SOURCE)

    @property
    def text_encoder(self) -> T:
        """Text encoder that owns the network."""
        return self._shared[0]  # pyright: ignore[reportReturnType]  # an `owner`, checked above

    @property
    def frozen(self) -> bool:  # pyright: ignore[reportIncompatibleVariableOverride]
        """Whether the network is frozen."""
        return self.text_encoder.frozen

    @frozen.setter
    def frozen(self, value: bool) -> None:
        """Ignore the configuration: the text encoder decides."""

    def weights_digest(self) -> str:
        """Return the sha256 of everything that affects the output: network and configuration."""
        shared = self.text_encoder
        parts = [
            shared.weights_digest(),
            json.dumps(shared.config.architecture, sort_keys=True),
            json.dumps(self.config.architecture, sort_keys=True),
            shared.tokenizer.to_str(),
        ]
        return hashlib.sha256("\n".join(parts).encode()).hexdigest()
