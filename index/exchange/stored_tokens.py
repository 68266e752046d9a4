"""The tokens of one side of a folder of encodings, mapped in the form they are stored in."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from aladin.errors import DataError, IndexMismatchError
from index.exchange.checks import check_kind, check_rows, map_array
from index.exchange.layout import SideLayout
from index.settings import TokenDtype
from index.tokens.codec import CODE_BITS, PackedTokens, TokenCodec
from index.tokens.scalar_codes import code_bytes


class StoredTokens:
    """The tokens of all parts, by the part's name.

    Attributes:
        codec: that reads them.
        lengths: (rows,) number of tokens of each item.
        packed: of all items of the part, one after the other.
    """

    def __init__(
        self, layout: SideLayout, names: Sequence[str], rows: Sequence[int], dim: int
    ) -> None:
        """Map the files, and compare their sizes with one another and with the network's.

        Args:
            layout: of a side that has tokens.
            names: of its parts.
            rows: of embeddings of each part.
            dim: size of a token of the network.

        Raises:
            DataError: a file is missing, is not what it should be, or is out of step.
            IndexMismatchError: the tokens are of another size.
        """
        self.codec = _codec(layout, names[0], dim)
        self.packed = {name: _packed(layout, name, self.codec) for name in names}
        self.lengths: dict[str, NDArray[Any]] = {}
        for name, count in zip(names, rows, strict=True):
            path = layout.lengths(name)
            lengths = map_array(path, 1)
            check_kind(path, lengths, "int64", "int32")
            check_rows(path, len(lengths), count, layout.embeddings(name))
            total, least = int(lengths.sum()), int(lengths.min(initial=0))
            if least < 0 or total != self.packed[name].count:
                tokens = layout.token_array("values", name)
                found = f"{total}, the least {least}"
                reason = f"expected {self.packed[name].count} tokens, as {tokens.name} has"
                raise DataError(path, None, f"{reason}, got {found}")
            self.lengths[name] = lengths

    @property
    def count(self) -> int:
        """Number of tokens of all items."""
        return sum(packed.count for packed in self.packed.values())

    def sample(self, count: int) -> NDArray[np.float32]:
        """Return some tokens, evenly spread and always the same ones, (tokens, dim)."""
        places = np.linspace(0, self.count - 1, min(count, self.count)).astype(np.int64)
        sample: list[NDArray[np.float32]] = []
        first = 0
        for packed in self.packed.values():
            inside = places[(places >= first) & (places < first + packed.count)] - first
            sample.append(self.codec.unpack(packed.take(inside)))
            first += packed.count
        return np.concatenate(sample)


def _codec(layout: SideLayout, part: str, dim: int) -> TokenCodec:
    """Tell the form of the tokens from the arrays of one part."""
    path = layout.token_array("values", part)
    values = map_array(path, 2)
    check_kind(path, values, "float16", "float32", "int8", "uint8")
    width = values.shape[1]
    if values.dtype != np.uint8:
        if width != dim:
            raise IndexMismatchError(f"{path}: size of a token", dim, width)
        return TokenCodec("int8" if values.dtype == np.int8 else "float16", dim)
    widths: dict[TokenDtype, int] = {
        dtype: code_bytes(dim, bits) for dtype, bits in CODE_BITS.items()
    }
    for dtype, expected in widths.items():
        if width == expected:
            centroids = map_array(layout.centroids, 2)
            check_kind(layout.centroids, centroids, "float32")
            if centroids.shape[1] != dim:
                found = centroids.shape[1]
                raise IndexMismatchError(f"{layout.centroids}: size of a token", dim, found)
            return TokenCodec(dtype, dim, np.array(centroids))
    expected_bytes = " or ".join(str(each) for each in widths.values())
    raise IndexMismatchError(f"{path}: bytes of a token", expected_bytes, width)


def _packed(layout: SideLayout, part: str, codec: TokenCodec) -> PackedTokens:
    values = layout.token_array("values", part)
    arrays: dict[str, NDArray[Any]] = {}
    for array in codec.arrays:
        path = layout.token_array(array.field, part)
        mapped = map_array(path, 1 + len(array.row_shape))
        also = ("float32",) if array.dtype == np.float16 else ()
        check_kind(path, mapped, array.dtype.name, *also)
        if mapped.shape[1:] != array.row_shape:
            raise IndexMismatchError(f"{path}: size of a token", array.row_shape, mapped.shape[1:])
        if arrays:
            check_rows(path, len(mapped), len(arrays["values"]), values)
        arrays[array.field] = mapped
    return PackedTokens(**arrays)
