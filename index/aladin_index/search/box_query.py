"""Queries by a box: the photo's regions inside of it take the place of the whole photo."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float
from numpy.typing import NDArray

from aladin_index.search.collection import Collection, SearchBackend
from aladin_index.search.evidence import region_boxes
from aladin_index.search.options import SearchOptions
from aladin_index.search.query import Term
from aladin_index.search.region_embedder import LazyEmbedder
from aladin_index.search.results import Box
from aladin_network.errors import InputError, NoSuchTargetError, brief
from aladin_network.scoring.encoding import Encoding
from aladin_network.scoring.fusion import DirectionFusion

# Weight of the regions' mean cosine beside that of the embeddings, chosen on Flickr8k: more finds
# the same photo again, less finds others of the thing in the box.
_REGION_WEIGHT = 0.75
# Share of a region's area that has to be inside of the box. With a half, cells of a grid whose
# corner alone is inside are missing, and fewer boxes are found again (benchmarks/RESULTS.md).
_INSIDE = 1 / 3


def region_fusion(query: Term) -> DirectionFusion:
    """Return the fusion of a search of photos by the regions of one.

    No constants are fitted to such searches: the mean cosine of the regions and the cosine of the
    embeddings are of one scale.

    Args:
        query: Query of at least one region.
    """
    regions = int(query.encoding.mask.sum())
    return DirectionFusion(weight=_REGION_WEIGHT, align_std=float(regions))


def check_boxed(
    query: Term, options: SearchOptions, collection: Collection, *, is_aligned: bool
) -> None:
    """Check that a collection can be searched by a box.

    Args:
        query: Query with a box.
        options: How to search.
        collection: The searched collection.
        is_aligned: Whether regions are compared at all, see `ValidSearch`.

    Raises:
        InputError: If it cannot, or an option is given that does not apply.
    """
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

    Args:
        query: Encoded photo with a box.
        index: Index of the model that encoded it.
        embedder: Predicts the embedding of the part.
        is_crossing: Whether texts are searched.

    Returns:
        The query with the tokens and boxes of the regions inside, their numbers in the photo, and
        the embedding of the part.

    Raises:
        InputError: If the places of the regions are not known, none overlaps the box, or the index
            has no photos with regions.
        EngineUnavailableError: If the vector database does not respond.
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

    Args:
        boxes: Boxes of a photo's regions, at least one.
        box: Box of the query.
    """
    asked = np.array([box], dtype=np.float64)
    shared = overlap_areas(boxes, asked)[:, 0]
    areas = box_areas(boxes)
    inside = np.flatnonzero((areas > 0) & (shared >= _INSIDE * areas))
    if len(inside):
        return inside
    union = areas + box_areas(asked)[0] - shared
    return np.array([np.argmax(shared / union)])
