"""From items to encodings: each is read and decoded by itself, then encoded in a batch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

from aladin.encoding import Encoding
from aladin.images import ImageLimits, decode_image
from aladin.inference import encode_images, encode_texts, tokenize
from aladin.model import AladinModel
from index.building.source_items import ImageItem, TextItem
from index.settings import Target


class LeftOut(NamedTuple):
    """An item that cannot be used.

    Attributes:
        id: the user's own.
        reason: in words.
    """

    id: str
    reason: str


class Prepared(NamedTuple):
    """An item that is ready for the network.

    Attributes:
        row: of the item in the build's input.
        data: what the encoder's `encode` takes.
        size_px: width and height of an upright photo; None for a text.
    """

    row: int
    data: Any
    size_px: tuple[int, int] | None


class ItemEncoder(Protocol):
    """Encodes the items of one side; `read` and `decode` are called by several threads at once."""

    def read(self, item: Any) -> Any:
        """Read what the item names.

        Raises:
            InputError: it cannot be used.
        """
        ...

    def decode(self, row: int, item: Any, data: Any) -> Prepared:
        """Bring what was read into the network's form.

        Raises:
            InputError: it cannot be used.
        """
        ...

    def encode(self, batch: Sequence[Prepared]) -> Encoding:
        """Encode items of this encoder's `decode`; the result is in the processor's memory."""
        ...


class PhotoEncoder:
    """Reads, decodes and encodes photos."""

    def __init__(self, model: AladinModel, limits: ImageLimits) -> None:
        """Encode with `model`; photos over the limits are refused."""
        self._model = model
        self._limits = limits

    def read(self, item: ImageItem) -> bytes:
        """Read a photo's bytes."""
        return item.photo.read(self._limits.max_bytes)

    def decode(self, row: int, item: ImageItem, data: bytes) -> Prepared:
        """Bring a photo to the network's size; the photo itself is let go."""
        photo = decode_image(data, item.photo.source, self._limits)
        return Prepared(row, self._model.image.encoder.preprocess(photo), photo.size)

    def encode(self, batch: Sequence[Prepared]) -> Encoding:
        """Encode photos."""
        return encode_images(self._model, [prepared.data for prepared in batch]).to("cpu")


class SentenceEncoder:
    """Encodes texts."""

    def __init__(self, model: AladinModel) -> None:
        """Encode with `model`."""
        self._model = model

    def read(self, item: TextItem) -> str:
        """Return the text, which is there already."""
        return item.text

    def decode(self, row: int, item: TextItem, data: str) -> Prepared:  # noqa: ARG002
        """Refuse a text that is blank or too long for the network."""
        tokenize(self._model, [data])
        return Prepared(row, data, None)

    def encode(self, batch: Sequence[Prepared]) -> Encoding:
        """Encode texts."""
        return encode_texts(self._model, [prepared.data for prepared in batch]).to("cpu")


def encoder_of(target: Target, model: AladinModel, limits: ImageLimits) -> ItemEncoder:
    """Return the encoder of one side; photos over the limits are refused."""
    return PhotoEncoder(model, limits) if target == "images" else SentenceEncoder(model)
