"""What indexing and serving need of the encoders: preparing inputs, without computing anything.

The encoders of the network and those of its graphs have these interfaces. Neither torch nor the
network is imported here.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, Literal, NamedTuple, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from aladin_network.config import ImageEncoderConfig, TextEncoderConfig
from aladin_network.photos.regions import RegionSet

# What an image encoder reads.
Reads = Literal["photo", "regions"]

# One photo as returned by `PhotoReader.preprocess`, in the encoder's own form.
PhotoInput = Any


class TokenizedTexts(NamedTuple):
    """Tokenised texts.

    Attributes:
        ids: (texts, tokens) int64, vocabulary ids.
        mask: (texts, tokens) bool, True at real tokens, special tokens included.
        content: (texts, tokens) bool, True at word pieces.
    """

    ids: NDArray[np.int64]
    mask: NDArray[np.bool_]
    content: NDArray[np.bool_]


@runtime_checkable
class PhotoReader(Protocol):
    """Prepares photos or their regions for the network.

    Attributes:
        reads: Kind of input of `preprocess`.
        num_tokens: Number of tokens of every photo, or None if it differs from photo to photo.
    """

    reads: ClassVar[Reads]
    num_tokens: int | None

    @property
    def config(self) -> ImageEncoderConfig:
        """Configuration of the encoder."""
        ...

    def preprocess(self, photo: Image.Image | RegionSet) -> PhotoInput:
        """Convert an RGB photo, or its regions, to the network's input.

        Raises:
            InputError: If this encoder reads the other kind of input.
        """
        ...

    def collate(self, inputs: Sequence[Any]) -> Any:
        """Join results of `preprocess` for at least one photo."""
        ...

    def region_boxes(self, width_px: int, height_px: int) -> NDArray[np.float32]:
        """Return the box of each content token for a photo of this size.

        Returns:
            (regions, 4): (x0, y0, x1, y1) in fractions of the photo's width and height.

        Raises:
            InputError: If this encoder reads regions, which have their own boxes.
        """
        ...


@runtime_checkable
class TextReader(Protocol):
    """Prepares texts for the network."""

    @property
    def config(self) -> TextEncoderConfig:
        """Configuration of the encoder."""
        ...

    def tokenize(self, texts: Sequence[str], *, truncate: bool = False) -> TokenizedTexts:
        """Tokenise and pad texts.

        Args:
            texts: Texts, at least one.
            truncate: Whether to truncate long texts instead of rejecting them.

        Raises:
            TextTooLongError: If a text has too many tokens and `truncate` is off.
        """
        ...

    def knows_letters(self, text: str) -> bool:
        """Return whether the vocabulary has most letters of a text, other than as bytes."""
        ...

    def spans(self, text: str) -> list[tuple[int, int]]:
        """Return the characters [start, end) of each content token."""
        ...

    def shortened(self, text: str, max_tokens: int) -> str:
        """Return the beginning of a text that has no more than a number of tokens."""
        ...
