"""What every encoder offers, and what travels from it to the trunk and the heads."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol, runtime_checkable

from jaxtyping import Bool, Float, Int
from PIL import Image
from torch import Tensor


class Features(NamedTuple):
    """A batch of token sequences inside the network.

    Attributes:
        states: hidden states; after a tower, element 0 is the aggregate (CLS).
        mask: True at real tokens.
        content: True at tokens that take part in the alignment: no CLS, no SEP, no padding.
    """

    states: Float[Tensor, "batch tokens dim"]
    mask: Bool[Tensor, "batch tokens"]
    content: Bool[Tensor, "batch tokens"]


class TextBatch(NamedTuple):
    """Tokenised texts.

    Attributes:
        ids: vocabulary ids.
        mask: True at real tokens, special tokens included.
        content: True at word pieces.
    """

    ids: Int[Tensor, "batch tokens"]
    mask: Bool[Tensor, "batch tokens"]
    content: Bool[Tensor, "batch tokens"]


@runtime_checkable
class ImageEncoder(Protocol):
    """Turns preprocessed photos into region features."""

    dim: int
    frozen: bool
    num_tokens: int

    def preprocess(self, photo: Image.Image) -> Float[Tensor, "3 height width"]:
        """Turn an RGB photo into the network's input."""
        ...

    def __call__(self, pixels: Float[Tensor, "batch 3 height width"]) -> Features:
        """Encode preprocessed photos."""
        ...

    def region_boxes(self, width_px: int, height_px: int) -> Float[Tensor, "regions 4"]:
        """Return where each content token of a photo of this size looks.

        Returns:
            (x0, y0, x1, y1) in fractions of the photo's width and height.
        """
        ...


@runtime_checkable
class TextEncoder(Protocol):
    """Turns texts into word features."""

    dim: int
    frozen: bool

    def preprocess(self, texts: Sequence[str], *, truncate: bool = False) -> TextBatch:
        """Tokenise.

        Raises:
            TextTooLongError: a text has too many tokens and `truncate` is off.
        """
        ...

    def __call__(self, batch: TextBatch) -> Features:
        """Encode tokenised texts."""
        ...

    def spans(self, text: str) -> list[tuple[int, int]]:
        """Return the characters [start, end) of each content token."""
        ...
