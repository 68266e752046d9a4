"""From items to encodings: photos and texts are prepared by threads, then encoded in batches."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, NamedTuple, Protocol

from jaxtyping import Float
from torch import Tensor

from aladin.encoding import Encoding
from aladin.errors import InputError
from aladin.images import ImageLimits, read_image
from aladin.inference import encode_pixels, encode_texts, tokenize
from aladin.model import AladinModel
from index.source_items import ImageItem, TextItem


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
    """Encodes the items of one side."""

    def prepare(self, row: int, item: Any) -> Prepared:
        """Read an item; called by several threads at once.

        Raises:
            InputError: it cannot be used.
        """
        ...

    def encode(self, batch: Sequence[Prepared]) -> Encoding:
        """Encode prepared items."""
        ...


class PhotoEncoder:
    """Reads, decodes and encodes photos."""

    def __init__(self, model: AladinModel, limits: ImageLimits) -> None:
        """Encode with `model`; photos over the limits are refused."""
        self._model = model
        self._limits = limits

    def prepare(self, row: int, item: ImageItem) -> Prepared:
        """Read a photo and bring it to the network's size; the photo itself is let go."""
        photo = read_image(item.photo, self._limits)
        pixels: Float[Tensor, "3 height width"] = self._model.image.encoder.preprocess(photo)
        return Prepared(row, pixels, photo.size)

    def encode(self, batch: Sequence[Prepared]) -> Encoding:
        """Encode photos."""
        return encode_pixels(self._model, [prepared.data for prepared in batch])


class SentenceEncoder:
    """Encodes texts."""

    def __init__(self, model: AladinModel) -> None:
        """Encode with `model`."""
        self._model = model

    def prepare(self, row: int, item: TextItem) -> Prepared:
        """Refuse a text that is blank or too long for the network."""
        tokenize(self._model, [item.text])
        return Prepared(row, item.text, None)

    def encode(self, batch: Sequence[Prepared]) -> Encoding:
        """Encode texts."""
        return encode_texts(self._model, [prepared.data for prepared in batch])


def prepared_batches(
    encoder: ItemEncoder,
    items: Sequence[Any],
    rows: range,
    batch_size: int,
    readers: int,
) -> Iterator[list[Prepared | LeftOut]]:
    """Prepare items batch by batch, one batch ahead of the one that is being encoded.

    Args:
        encoder: of the items.
        items: all items of the side.
        rows: of the items to prepare.
        batch_size: items a batch.
        readers: threads.

    Yields:
        The items of a batch in order, those that cannot be used with the reason.
    """

    def prepare(row: int) -> Prepared | LeftOut:
        try:
            return encoder.prepare(row, items[row])
        except InputError as error:
            return LeftOut(items[row].id, str(error))

    with ThreadPoolExecutor(readers, thread_name_prefix="reader") as pool:
        ahead: list[Future[Prepared | LeftOut]] = []
        for start in range(0, len(rows), batch_size):
            batch = ahead or [pool.submit(prepare, row) for row in rows[:batch_size]]
            following = rows[start + batch_size : start + 2 * batch_size]
            ahead = [pool.submit(prepare, row) for row in following]
            yield [future.result() for future in batch]
