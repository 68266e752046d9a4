"""One side of a folder of encodings, checked and streamed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np

from aladin.errors import DataError, IndexMismatchError
from index.building.generation_writer import SideSource
from index.building.item_encoders import LeftOut
from index.building.photo_places import PhotoPlaces
from index.building.side_writer import EncodedPart
from index.exchange.checks import check_kind, check_tokens, map_array, unit_vectors
from index.exchange.item_source import ItemSource
from index.exchange.layout import SideLayout
from index.exchange.stored_tokens import StoredTokens
from index.items.tables import StoredItem
from index.settings import TokenDtype
from index.tokens.codec import PackedTokens, TokenCodec

# As of `index.tokens.sample`: enough for a codebook of full size, and to know queries by.
_TOKEN_SAMPLE, _QUERY_SAMPLE = 2**16, 2**13


class Dims(NamedTuple):
    """Sizes of a network's output.

    Attributes:
        embedding: of an embedding.
        token: of a token.
    """

    embedding: int
    token: int


class EncodedSide:
    """The images, or the texts, of a folder."""

    def __init__(self, layout: SideLayout, dims: Dims, *, own: bool) -> None:
        """Map the files, and compare their sizes with one another and with the network's.

        Args:
            layout: of a side that has embeddings.
            dims: of the network.
            own: whether `index.exchange.exporter` wrote the folder, or another program.

        Raises:
            DataError: a file is missing, is not what it should be, or is out of step.
            IndexMismatchError: embeddings or tokens are of another size than the network's.
        """
        self._layout, self._dims = layout, dims
        names = layout.parts()
        self._embeddings = {name: map_array(layout.embeddings(name), 2) for name in names}
        for name, embeddings in self._embeddings.items():
            path = layout.embeddings(name)
            check_kind(path, embeddings, "float32", "float16")
            if embeddings.shape[1] != dims.embedding:
                found = embeddings.shape[1]
                raise IndexMismatchError(f"{path}: size of an embedding", dims.embedding, found)
        rows = [len(embeddings) for embeddings in self._embeddings.values()]
        self.count = sum(rows)
        self._items = ItemSource(layout, names, rows, own=own)
        if layout.target == "texts" and not self._items.has_metadata:
            place = layout.metadata(names[0])
            raise DataError(place, None, "missing, and with it the texts of the embeddings")
        has_tokens = layout.tokens.is_dir()
        self._tokens = StoredTokens(layout, names, rows, dims.token) if has_tokens else None

    @property
    def files(self) -> set[Path]:
        """All files of the side."""
        codec = None if self._tokens is None else self._tokens.codec
        files = {file for name in self._embeddings for file in self._layout.files(name, codec)}
        if not self._items.has_metadata:
            files -= {self._layout.metadata(name) for name in self._embeddings}
        return files

    def source(
        self,
        dtype: TokenDtype | None,
        other: EncodedSide | None = None,
        places: PhotoPlaces | None = None,
    ) -> SideSource:
        """Describe the side as a generation is written from it.

        Args:
            dtype: form in which the tokens are to be stored; None: the one they are in.
            other: the other side, whose tokens are like those that will ask; None: there is none.
            places: looks where each photo with an absolute path lies; None: all are taken.

        Raises:
            InputError: an id repeats.
            DataError: the metadata is damaged; while the parts are read: an embedding or a token
                is not L2-normalised, or the metadata is damaged.
        """
        self._items.check_ids()
        left_out: list[LeftOut] = []
        fault = _caption_fault
        if self._layout.target == "images":
            fault = _no_fault if places is None else partial(_place_fault, places)
        codec = self._codec(dtype, other)
        return SideSource(
            embedding_dim=self._dims.embedding,
            codec=codec,
            parts=(_usable(part, left_out, fault) for part in self._parts(codec)),
            left_out=left_out,
            count=self.count,
        )

    def _codec(self, dtype: TokenDtype | None, other: EncodedSide | None) -> TokenCodec:
        if self._tokens is None:
            return TokenCodec("float16", self._dims.token)
        stored = self._tokens.codec
        if dtype is None or dtype == stored.dtype or self._tokens.count == 0:
            return stored
        asking = None if other is None else other._tokens
        return TokenCodec.train(
            dtype,
            self._tokens.sample(_TOKEN_SAMPLE),
            queries=None if asking is None else asking.sample(_QUERY_SAMPLE),
        )

    def _parts(self, codec: TokenCodec) -> Iterator[EncodedPart]:
        for name, embeddings in self._embeddings.items():
            row = token = 0
            for items in self._items.chunks(name):
                rows = slice(row, row + len(items))
                lengths = self._lengths(name, rows)
                tokens = slice(token, token + int(lengths.sum()))
                yield EncodedPart(
                    items=items,
                    embeddings=unit_vectors(self._layout.embeddings(name), row, embeddings[rows]),
                    tokens=self._packed(name, tokens, codec),
                    lengths=lengths,
                )
                row, token = rows.stop, tokens.stop

    def _lengths(self, name: str, rows: slice) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
        if self._tokens is None:
            return np.zeros(rows.stop - rows.start, dtype=np.int64)
        return np.asarray(self._tokens.lengths[name][rows], dtype=np.int64)

    def _packed(self, name: str, places: slice, codec: TokenCodec) -> PackedTokens:
        if self._tokens is None:
            return codec.pack(np.empty((0, codec.dim), dtype=np.float32))
        stored, packed = self._tokens.codec, self._tokens.packed[name].take(places)
        check_tokens(self._layout.token_array("values", name), places.start, packed, stored)
        if codec is stored and packed.values.dtype != np.float32:
            return packed
        return codec.pack(stored.unpack(packed))


def _usable(
    part: EncodedPart, left_out: list[LeftOut], fault: Callable[[StoredItem], str | None]
) -> EncodedPart:
    """Leave out the items that have a fault, with all that belongs to them."""
    faults = [fault(item) for item in part.items]
    if not any(faults):
        return part
    kept = np.array([reason is None for reason in faults])
    left_out += [
        LeftOut(item.id, reason)
        for item, reason in zip(part.items, faults, strict=True)
        if reason is not None
    ]
    places = np.flatnonzero(np.repeat(kept, part.lengths))
    return EncodedPart(
        items=[item for item, usable in zip(part.items, kept.tolist(), strict=True) if usable],
        embeddings=part.embeddings[kept],
        tokens=part.tokens.take(places),
        lengths=part.lengths[kept],
    )


def _caption_fault(item: StoredItem) -> str | None:
    """Refuse a text that has no caption: its embedding is of nothing."""
    return None if item.text else "has no caption"


def _no_fault(item: StoredItem) -> str | None:  # noqa: ARG001
    return None


def _place_fault(places: PhotoPlaces, item: StoredItem) -> str | None:
    """Refuse a photo outside of the root; one that was uploaded comes with the encodings."""
    if item.path is None or not Path(item.path).is_absolute():
        return None
    return places.fault(Path(item.path), item.path)
