"""Upper bounds of alignment scores: the late interaction of tokens in short form.

See `aladin_index.tokens.short_form` for the bound of one inner product; the best region of a word,
and the sum over the words, have the same bound. The bounds include all roundings, those of the
scores' own arithmetic as well: the errors of short tokens and short queries are measured, those of
float32 and of the queries of the scoring kernel are bounded by `_relative_error`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from jaxtyping import Float
from numpy.typing import NDArray

from aladin_index.kernel import load_kernel
from aladin_index.kernel.structures import NativeShorts, ShortQuery
from aladin_index.tokens.maxsim import in_threads
from aladin_index.tokens.short_form import (
    FINER,
    ROUNDOFF,
    TINY,
    BoundTransform,
    shorten_tokens,
    vector_lengths,
)
from aladin_index.tokens.store import TokenStore
from aladin_network.types import Modality

# Tokens that are transformed at a time: 8 MiB of 128 float32 values.
_TOKENS_AT_A_TIME = 2**14
# Tokens that the transform is fitted to.
SAMPLE = 2**15
# Roundings of the sums of a bound.
_SUMS = 8 * ROUNDOFF
# Items that are scored before the bounds are compared with a score, and between later comparisons.
_FIRST_BLOCK, _LATER_BLOCK = 64, 512
# Items that are scored at a time without the kernel.
_ITEMS_AT_A_TIME = 1024


@dataclass(frozen=True, eq=False)
class ShortTokens:
    """The short form of all items' tokens.

    Attributes:
        values: (tokens, width) uint8, each value plus 128: the transformed dimensions, the length
            of their rounding error in steps of a 16th, and the length of the rest.
        scales: (items,) float32, what the values of an item's tokens are to be multiplied by.
        reach: (items,) float32, length of the transformed dimensions of an item's longest token.
        offsets: (items + 1,) int64; item i has the tokens offsets[i] to offsets[i + 1].
    """

    values: NDArray[np.uint8]
    scales: NDArray[np.float32]
    reach: NDArray[np.float32]
    offsets: NDArray[np.int64]

    @cached_property
    def native(self) -> NativeShorts:
        """The arrays in the form that the kernel expects."""
        return NativeShorts.of(self.values, self.scales, self.offsets)

    def score(
        self, query: ShortQuery, rows: NDArray[np.int64] | None = None
    ) -> NDArray[np.float32]:
        """Return the late interaction of a short query with some items, or with every item."""
        kernel = load_kernel()
        if rows is not None and kernel is not None:
            return kernel.bound_rows(self.native, query, rows)
        scores = np.empty(len(self.scales), dtype=np.float32)

        def score_part(start: int, end: int) -> None:
            if kernel is None:
                self._score_slowly(query, start, scores[start:end])
            else:
                kernel.bound_range(self.native, query, start, scores[start:end])

        in_threads(score_part, len(scores))
        return scores if rows is None else scores[rows]

    def _score_slowly(self, query: ShortQuery, first: int, scores: NDArray[np.float32]) -> None:
        """Compute `score` for some items without the kernel."""
        asked = query.values.astype(np.float32)
        for place in range(0, len(scores), _ITEMS_AT_A_TIME):
            part = scores[place : place + _ITEMS_AT_A_TIME]
            offsets = self.offsets[first + place : first + place + len(part) + 1]
            part[:] = 0
            filled = np.diff(offsets) > 0
            if not filled.any() or len(asked) == 0:
                continue
            tokens = self.values[offsets[0] : offsets[-1]].astype(np.float32) - 128
            # Sums of products of bytes, which are exact in float32.
            products = (tokens @ asked.T) * query.scales  # (tokens, query tokens)
            starts = offsets[:-1][filled] - offsets[0]
            if query.are_regions:
                part[filled] = np.add.reduceat(products.max(axis=1), starts)
            else:
                part[filled] = np.maximum.reduceat(products, starts, axis=0).sum(axis=1)
            part *= self.scales[first + place : first + place + len(part)]


class TokenBounds:
    """Upper bounds of the alignment scores of all items of a token store; thread-safe.

    Attributes:
        transform: Transform of tokens and queries.
        short: Short tokens.
        longest: Length that no stored token exceeds.
    """

    def __init__(
        self, tokens: TokenStore, transform: BoundTransform, short: ShortTokens, longest: float
    ) -> None:
        """Bound the scores of `tokens`; see `build`."""
        self.transform = transform
        self.short = short
        self.longest = longest
        rounds_queries = tokens.codec.bits != 16
        self._error = _relative_error(tokens.codec.dim, rounds_queries=rounds_queries)
        self._lengths = np.diff(short.offsets).astype(np.float32)
        self._empty = np.flatnonzero(self._lengths == 0)
        self._most = float(self._lengths.max(initial=0))
        self._widest = float(short.scales.max(initial=0)), float(short.reach.max(initial=0))

    @classmethod
    def build(
        cls, tokens: TokenStore, queries: NDArray[np.float32] | None, *, are_texts: bool
    ) -> TokenBounds:
        """Compute the short tokens: four seconds for 100,000 photos of 49 tokens on one core."""
        transform = fit_transform(tokens, queries, are_texts=are_texts)
        values = np.empty((tokens.stored.count, transform.width), dtype=np.uint8)
        scales, reach = np.empty((2, tokens.count), dtype=np.float32)
        longest = 0.0
        for part in shorten(tokens, transform):
            values[part.tokens], scales[part.items], reach[part.items] = part.short
            longest = max(longest, part.longest)
        offsets = np.ascontiguousarray(tokens.offsets)
        return cls(tokens, transform, ShortTokens(values, scales, reach, offsets), longest)

    def upper(
        self,
        query: Float[np.ndarray, "query_tokens dim"],
        modality: Modality,
        rows: NDArray[np.int64] | None = None,
    ) -> NDArray[np.float32]:
        """Return upper bounds of the scores of items."""
        words = query.astype(np.float64)
        values, scales, missed = self._shorten(words)
        asked = ShortQuery(values, scales, are_regions=modality == "image")
        bounds = self.short.score(asked, rows)
        lengths = np.sqrt((words * words).sum(axis=1))
        # More than the largest sum of absolute products with an item of scale 1.
        largest = 127.0**2 * values.shape[1] * scales.astype(np.float64)
        if modality == "text":
            roundings = (len(words) + 16) * ROUNDOFF
            constant = float((words @ self.transform.mean).sum())
            slack = float(lengths.sum()) * self.longest * (self._error + roundings)
            by_scale, by_reach = roundings * float(largest.sum()), float(missed.sum())
        else:
            # A sum over an item's tokens: for each of them, the most of any token of the query.
            roundings = (self._most + 16) * ROUNDOFF
            constant = 0.0
            slack = float(lengths.max(initial=0)) * self.longest * (self._error + roundings)
            slack *= self._most
            by_scale = self._most * roundings * float(largest.max(initial=0))
            by_reach = self._most * float(missed.max(initial=0))
        # The roundings of the following sums.
        widest_scale, widest_reach = self._widest
        reached = float(largest.sum()) * max(1.0, self._most * asked.are_regions) * widest_scale
        reached += abs(constant) + by_reach * widest_reach
        with np.errstate(invalid="ignore", over="ignore"):
            reach = self.short.reach if rows is None else self.short.reach[rows]
            bounds += np.float32(by_reach) * reach
            bounds += np.float32(
                constant + slack + by_scale * widest_scale + reached * _SUMS + TINY
            )
        # What overflows bounds nothing.
        if not np.isfinite(bounds).all():
            bounds[~np.isfinite(bounds)] = np.inf
        bounds[self._empty if rows is None else self._lengths[rows] == 0] = 0
        return bounds

    def _shorten(
        self, words: NDArray[np.float64]
    ) -> tuple[NDArray[np.int8], NDArray[np.float32], NDArray[np.float64]]:
        """Return the short form of a query, its scales, and the lengths of what rounding cut."""
        transform, kept = self.transform, self.transform.kept
        moved = words @ transform.of_queries
        squares = moved * moved
        # The dimensions that are kept, and the lengths of all and of those that are cut off.
        exact = np.zeros((len(words), transform.width))
        exact[:, :kept] = moved[:, :kept]
        np.sqrt(squares.sum(axis=1), out=exact[:, kept])
        exact[:, kept] /= FINER
        np.sqrt(squares[:, kept:].sum(axis=1), out=exact[:, kept + 1])
        largest = np.abs(exact).max(axis=1, initial=0)
        kernel = load_kernel()
        steps = 127 if kernel is None else kernel.short_largest[0]
        scales = np.maximum(largest / steps * (1 + 1e-6), TINY).astype(np.float32)
        exact /= scales.astype(np.float64)[:, None]
        values = np.rint(exact)
        wrong = exact[:, :kept] - values[:, :kept]
        missed = np.sqrt((wrong * wrong).sum(axis=1)) * scales * (1 + 1e-6)
        values[:, kept : kept + 2] = np.ceil(exact[:, kept : kept + 2] * (1 + 1e-12))
        return values.astype(np.int8), scales, missed


class ScoredItems(NamedTuple):
    """Items that were scored in full.

    Attributes:
        rows: (scored,) int64, in no order.
        keys: (scored,) float32, what `score` returned for them.
    """

    rows: NDArray[np.int64]
    keys: NDArray[np.float32]


def score_best(
    upper: NDArray[np.float32],
    score: Callable[[NDArray[np.int64]], NDArray[np.float32]],
    count: int,
) -> ScoredItems:
    """Score the items that can be among the best, in the order of their bounds.

    A bound of minus infinity excludes an item. Every item whose score is at least that of the item
    of rank `count` is returned, those of equal score included, and some others.
    """
    rest = np.flatnonzero(upper > -np.inf)
    rows: list[NDArray[np.int64]] = []
    keys: list[NDArray[np.float32]] = []
    best = np.empty(0, dtype=np.float32)  # the `count` largest scores so far
    block = max(_FIRST_BLOCK, 2 * count)
    while len(rest):
        chosen = rest
        if len(rest) > block:
            places = np.argpartition(-upper[rest], block)
            chosen, rest = rest[places[:block]], rest[places[block:]]
        else:
            rest = rest[:0]
        rows.append(chosen)
        keys.append(score(chosen))
        best = np.concatenate([best, keys[-1]])
        if len(best) >= count:
            best = -np.partition(-best, count - 1)[:count] if count else best[:0]
            rest = rest[upper[rest] >= (best.min() if count else np.inf)]
        block = _LATER_BLOCK
    if not rows:
        return ScoredItems(np.empty(0, dtype=np.int64), np.empty(0, dtype=np.float32))
    return ScoredItems(np.concatenate(rows), np.concatenate(keys))


def spread_sample(store: TokenStore, tokens: int) -> NDArray[np.float32]:
    """Decode about `tokens` tokens of items spread over a store."""
    per_item = max(1, store.stored.count // max(1, store.count))
    wanted = min(store.count, max(1, tokens // per_item))
    rows = np.linspace(0, max(0, store.count - 1), wanted).astype(np.int64)
    return store.read(rows).values


def fit_transform(
    tokens: TokenStore, queries: NDArray[np.float32] | None, *, are_texts: bool
) -> BoundTransform:
    """Fit the transform of a collection's tokens; for the arguments see `TokenBounds.build`."""
    # What all regions of a photo share changes all scores of a word alike. For the words of a
    # text this does not hold: each has its own best region.
    return BoundTransform.fit(spread_sample(tokens, SAMPLE), queries, centred=not are_texts)


class ShortPart(NamedTuple):
    """The short form of some consecutive items.

    Attributes:
        items: Rows of the items.
        tokens: Places of their tokens among those of all items.
        short: Values, scales and reach, see `ShortTokens`.
        longest: Length that none of their tokens exceeds.
    """

    items: slice
    tokens: slice
    short: tuple[NDArray[np.uint8], NDArray[np.float32], NDArray[np.float32]]
    longest: float


def shorten(tokens: TokenStore, transform: BoundTransform) -> Iterator[ShortPart]:
    """Compute the short form of all items of a store, some at a time."""
    book, offsets = tokens.codec.centroids, tokens.offsets
    # Roundings of a token of a codebook are relative to its centroid and to its residual.
    beside = 0.0 if book is None else 2 * float(vector_lengths(book).max(initial=0))
    start = 0
    while start < tokens.count:
        end = int(np.searchsorted(offsets, offsets[start] + _TOKENS_AT_A_TIME, side="right"))
        end = min(max(end - 1, start + 1), tokens.count)
        part = slice(int(offsets[start]), int(offsets[end]))
        decoded = tokens.codec.unpack(tokens.stored.take(part))
        lengths = vector_lengths(decoded) + np.float32(beside)
        borders = offsets[start : end + 1] - offsets[start]
        short = shorten_tokens(decoded, lengths, borders, transform)
        yield ShortPart(slice(start, end), part, short, float(lengths.max(initial=0)))
        start = end


def _relative_error(dim: int, *, rounds_queries: bool) -> float:
    """Bound the error of a computed inner product, relative to the lengths of both vectors."""
    error = (dim + 16) * 2 * ROUNDOFF
    if rounds_queries:
        # Half a unit in each dimension; the largest value of a query is this many units.
        units = min(127 * 256 + 127, (2**31 - 1) // (127 * dim))
        error += 0.51 * dim**0.5 / units
    return error
