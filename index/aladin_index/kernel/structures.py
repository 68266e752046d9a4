"""The structures that the native kernel reads, see `maxsim.h`."""

from __future__ import annotations

from ctypes import Structure, c_int32, c_int64, c_void_p
from typing import Any

import numpy as np
from numpy.typing import NDArray


class NativeTokens(Structure):
    """`maxsim_tokens`: location of the stored tokens of a collection."""

    _fields_ = (
        ("values", c_void_p),
        ("scales", c_void_p),
        ("centroid_ids", c_void_p),
        ("centroids", c_void_p),
        ("offsets", c_void_p),
        ("item_count", c_int64),
        ("token_count", c_int64),
        ("centroid_count", c_int64),
        ("dim", c_int32),
        ("bits", c_int32),
    )

    @classmethod
    def of(
        cls,
        values: NDArray[Any],
        scales: NDArray[np.float32] | None,
        centroid_ids: NDArray[np.uint16] | None,
        centroids: NDArray[np.float32] | None,
        offsets: NDArray[np.int64],
        dim: int,
        bits: int,
    ) -> NativeTokens:
        """Point to C-contiguous arrays, which must outlive the returned object."""
        return cls(
            address(values),
            address(scales),
            address(centroid_ids),
            address(centroids),
            address(offsets),
            len(offsets) - 1,
            len(values),
            0 if centroids is None else len(centroids),
            dim,
            bits,
        )


class NativeQueries(Structure):
    """The `maxsim_queries` structure of the kernel."""

    _fields_ = (
        ("tokens", c_void_p),
        ("offsets", c_void_p),
        ("count", c_int64),
        ("are_regions", c_int32),
    )


class NativeShorts(Structure):
    """`maxsim_shorts`: location of the short forms of a collection's tokens."""

    _fields_ = (
        ("values", c_void_p),
        ("scales", c_void_p),
        ("offsets", c_void_p),
        ("item_count", c_int64),
        ("token_count", c_int64),
        ("width", c_int32),
    )

    @classmethod
    def of(
        cls,
        values: NDArray[np.uint8],
        scales: NDArray[np.float32],
        offsets: NDArray[np.int64],
    ) -> NativeShorts:
        """Point to C-contiguous arrays, which must outlive the returned object."""
        count, width = values.shape
        return cls(
            address(values), address(scales), address(offsets), len(offsets) - 1, count, width
        )


class NativeShortQuery(Structure):
    """The `maxsim_short_query` structure of the kernel."""

    _fields_ = (
        ("values", c_void_p),
        ("scales", c_void_p),
        ("count", c_int64),
        ("are_regions", c_int32),
    )


class ShortQuery:
    """A query in short form, in the layout that the kernel expects.

    Attributes:
        values: (tokens, width) int8.
        scales: (tokens,) float32: what the values of a token are to be multiplied by.
        are_regions: Whether the query is regions, not words.
    """

    def __init__(
        self, values: NDArray[np.int8], scales: NDArray[np.float32], *, are_regions: bool
    ) -> None:
        """Take values within the kernel's `short_largest`, and their scales."""
        self.values = np.ascontiguousarray(values, dtype=np.int8)
        self.scales = np.ascontiguousarray(scales, dtype=np.float32)
        self.are_regions = are_regions
        self.native = NativeShortQuery(
            self.values.ctypes.data, self.scales.ctypes.data, len(self.values), are_regions
        )


def address(array: NDArray[Any] | None) -> int | None:
    """Return the address of an array's data."""
    return None if array is None else array.ctypes.data
