"""Queries by a box: the photo's regions inside of it take the place of the whole photo."""

from __future__ import annotations

import numpy as np

from aladin_index.search.boxes import overlap_areas, regions_inside
from aladin_index.search.collection import Collection, SearchBackend
from aladin_index.search.evidence import region_boxes
from aladin_index.search.options import SearchOptions
from aladin_index.search.query import Term
from aladin_index.search.region_embedder import LazyEmbedder
from aladin_network.errors import InputError, NoSuchTargetError, brief
from aladin_network.scoring.encoding import Encoding
from aladin_network.scoring.fusion import DirectionFusion

# Weight of the regions' mean cosine beside that of the embeddings, chosen on Flickr8k: more finds
# the same photo again, less finds others of the thing in the box.
_REGION_WEIGHT = 0.75


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
