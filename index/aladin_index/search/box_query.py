"""Queries by a box: the photo's regions inside of it take the place of the whole photo.

An index has one embedding of each photo, that of the whole. The embedding of a part is not stored,
and the file of the photo may be gone. A linear map from the mean of a photo's tokens to its
embedding, fitted to the photos of the index, predicts the embedding of a whole photo to a cosine of
.99 (Flickr8k); it is applied to the regions of a part.

Tokens contain the rest of their photo, too: half of the photo's mean is subtracted from that of the
part, so that what the part has in particular counts. Of ways to find photos with the thing that a
box holds, this was the best that needs no network; the crop, encoded as a photo of its own, was the
worst (benchmarks/RESULTS.md).
"""

from __future__ import annotations

import threading

import numpy as np
from jaxtyping import Float
from numpy.typing import NDArray

from aladin_index.search.collection import Collection, FirstStageQuery, SearchBackend
from aladin_index.search.evidence import region_boxes
from aladin_index.search.options import SearchOptions
from aladin_index.search.query import Term
from aladin_index.search.results import Box
from aladin_network.errors import InputError, NoSuchTargetError, brief
from aladin_network.scoring.encoding import Encoding
from aladin_network.scoring.fusion import DirectionFusion

# The map is fitted to the photos next to some random directions: any index finds them, and more
# make no difference.
_DIRECTIONS, _NEAREST = 8, 256
# Share of the whole photo's mean token that is taken off that of the part.
_CONTRAST = 0.5
# Strength of the regularisation, by the mean variance of the tokens' means.
_RIDGE = 0.05
# Weight of the regions' mean cosine beside that of the embeddings, chosen on Flickr8k: more finds
# the same photo again, less finds others of the thing in the box.
_REGION_WEIGHT = 0.75
# Share of a region's area that has to be inside of the box. With a half, cells of a grid whose
# corner alone is inside are missing, and fewer boxes are found again (benchmarks/RESULTS.md).
_INSIDE = 1 / 3


class RegionEmbedder:
    """Predicts the embedding of some regions of a photo."""

    def __init__(
        self,
        means: Float[np.ndarray, "photos d_align"],
        embeddings: Float[np.ndarray, "photos d_match"],
    ) -> None:
        """Fit the map by ridge regression, to at least one photo."""
        self._mean, self._embedding = means.mean(axis=0), embeddings.mean(axis=0)
        centred = (means - self._mean).astype(np.float64)
        spread = centred.T @ centred
        strength = _RIDGE * np.trace(spread) / len(spread)
        # Without any variance, as of a single photo, every part has that photo's embedding.
        np.fill_diagonal(spread, spread.diagonal() + (strength or 1.0))
        shifts = centred.T @ (embeddings - self._embedding)
        self._map = np.linalg.solve(spread, shifts).astype(np.float32)

    def embed(
        self, inside: Float[np.ndarray, "regions d_align"], photo: Float[np.ndarray, "all d_align"]
    ) -> Float[np.ndarray, " d_match"]:
        """Return the embedding of a part of a photo, L2-normalised; it has at least one region."""
        mean = (inside.mean(axis=0) - _CONTRAST * photo.mean(axis=0)) / (1 - _CONTRAST)
        embedding = self._embedding + (mean - self._mean) @ self._map
        return (embedding / np.linalg.norm(embedding)).astype(np.float32)


class LazyEmbedder:
    """The `RegionEmbedder` of an index, fitted when a box is searched first; thread-safe."""

    def __init__(self, index: SearchBackend) -> None:
        """Fit nothing yet."""
        self._index = index
        self._fitted: RegionEmbedder | None = None
        self._lock = threading.Lock()

    def get(self) -> RegionEmbedder | None:
        """Return the embedder, or None as long as the index has no photo with regions."""
        with self._lock:
            if self._fitted is None:
                self._fitted = fit_embedder(self._index.collection("images"))
            return self._fitted


def fit_embedder(photos: Collection) -> RegionEmbedder | None:
    """Fit a map to some photos of a collection; None if none has regions."""
    entry, generator = photos.entry, np.random.default_rng(0)
    directions = generator.normal(size=(_DIRECTIONS, entry.embedding_dim)).astype(np.float32)
    directions /= np.linalg.norm(directions, axis=1, keepdims=True)
    asked = [FirstStageQuery(each, _NEAREST, _NEAREST, hubs=0) for each in directions]
    found = [each.rows for each in photos.order_all(asked)]
    rows = np.unique(np.concatenate(found))
    rows = rows[photos.lengths(rows) > 0] if len(rows) else rows
    if len(rows) == 0:
        return None
    means = [photos.tokens(row).mean(axis=0) for row in rows.tolist()]
    return RegionEmbedder(np.stack(means), photos.embeddings(rows.tolist()))


def region_fusion(query: Term) -> DirectionFusion:
    """Return the fusion of a search of photos by the regions of one.

    No constants are fitted to such searches: the mean cosine of the regions and the cosine of the
    embeddings are of one scale.
    """
    regions = int(query.encoding.mask.sum())
    return DirectionFusion(weight=_REGION_WEIGHT, align_std=float(regions))


def check_boxed(
    query: Term, options: SearchOptions, collection: Collection, *, is_aligned: bool
) -> None:
    """Check that a collection can be searched by a box."""
    if query.modality != "image":
        name = "a text" if query.own_id is None else f"{brief(query.own_id)}, which is a text"
        raise InputError(f"box: expected a photo to take a part of, got {name}")
    if not is_aligned:
        raise InputError(
            "box: the alignment of this index's model was not trained, so its regions cannot be "
            "compared; `aladin train finetune-clip` trains one"
        )
    if not collection.has_tokens:
        raise InputError(f"box: the {collection.target} of this index have no tokens to compare")
    if options.min_probability is not None:
        raise InputError("min_probability: hits of a query by a box have no probability")


def take_box(
    query: Term, index: SearchBackend, embedder: LazyEmbedder, *, is_crossing: bool
) -> Term:
    """Take the part of a photo that its box holds.

    Its tokens, boxes and numbers are those of the regions inside, its embedding is predicted.
    """
    assert query.box is not None
    tokens = query.encoding.item_tokens(0)
    known = region_boxes(index.checkpoint.model, len(tokens), query.size_px, query.boxes)
    if not known:
        raise InputError("box: the places of the photo's regions are not known")
    boxes = np.array(known, dtype=np.float32)
    inside = regions_inside(boxes, query.box)
    if not overlap_areas(boxes[inside], np.array([query.box])).any():
        raise InputError("box: no region of the photo overlaps it")
    try:
        fitted = embedder.get()
    except NoSuchTargetError:
        fitted = None
    if fitted is None:
        raise InputError("box: expected an index of photos with regions, this one has none")
    embedding = fitted.embed(tokens[inside], tokens[: len(boxes)])
    # The region of zeros, which has no box, is one of every photo that words are compared with.
    kept = np.append(inside, np.arange(len(boxes), len(tokens))) if is_crossing else inside
    return query._replace(
        encoding=Encoding.of_item(embedding, tokens[kept]), boxes=boxes[inside], regions=kept
    )


def overlap_areas(
    boxes: Float[np.ndarray, "boxes 4"], others: Float[np.ndarray, "others 4"]
) -> Float[np.ndarray, "boxes others"]:
    """Return the area that each box has in common with each other box."""
    low = np.maximum(boxes[:, None, :2], others[None, :, :2])
    high = np.minimum(boxes[:, None, 2:], others[None, :, 2:])
    return np.clip(high - low, 0, None).prod(axis=2)


def box_areas(boxes: Float[np.ndarray, "boxes 4"]) -> Float[np.ndarray, " boxes"]:
    """Return the areas of boxes."""
    return (boxes[:, 2:] - boxes[:, :2]).prod(axis=1)


def regions_inside(boxes: Float[np.ndarray, "regions 4"], box: Box) -> NDArray[np.int64]:
    """Return the regions that are searched for by a box, in ascending order.

    Those are the regions with at least a third of their area inside. A box that is too small for
    any takes the one region that fits it best, by the intersection divided by the union.
    """
    asked = np.array([box], dtype=np.float64)
    shared = overlap_areas(boxes, asked)[:, 0]
    areas = box_areas(boxes)
    inside = np.flatnonzero((areas > 0) & (shared >= _INSIDE * areas))
    if len(inside):
        return inside
    union = areas + box_areas(asked)[0] - shared
    return np.array([np.argmax(shared / union)])
