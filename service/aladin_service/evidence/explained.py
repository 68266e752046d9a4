"""The evidence for a pair: in numbers, and drawn."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from aladin_index.search.evidence import (
    PairScores,
    WordMap,
    region_boxes,
    score_pair,
    word_evidence,
    word_maps,
)
from aladin_index.search.found_box import FoundPart, find_in_items
from aladin_index.search.query import Term
from aladin_index.search.results import Box, RegionEvidence
from aladin_index.search.searcher import TwoStageSearcher
from aladin_network.errors import ImageError
from aladin_network.photos.decoding import DEFAULT_LIMITS, decoded_image
from aladin_network.photos.files import PhotoFile
from aladin_network.photos.memory import DecodingMemory
from aladin_service.evidence.drawing import draw_page
from aladin_service.evidence.layout import (
    PHOTO_PX,
    SIDE_PX,
    ShownPhoto,
    fitted,
    lay_out,
    lay_out_photos,
)
from aladin_service.evidence.pairs import Pair
from aladin_service.evidence.png import ExplainedPair, write_png


def draw_pair(
    searcher: TwoStageSearcher, pair: Pair, encoded: Term, memory: DecodingMemory
) -> bytes:
    """Draw the evidence for a pair.

    Args:
        searcher: Searcher of the index.
        pair: Pair of a query and an item of that index.
        encoded: Encoding of the pair's query.
        memory: Budget from which the memory to decode the photo is reserved.

    Returns:
        A PNG file, see `aladin_service.evidence.png`.

    Raises:
        InputError: If the index has no tokens.
        ImageTooLargeError: If decoding the photo takes more memory than the budget.
        OverloadedError: If the memory did not become free in time.
        WithdrawnError: If the client has disconnected.
    """
    if pair.is_of_photos:
        return _draw_photos(searcher, pair, encoded, memory)
    model = searcher.index.checkpoint.model
    text = encoded.text if pair.modality == "text" else pair.item.text
    size_px = pair.item.size_px if pair.modality == "text" else encoded.size_px
    scores = _scores(searcher, pair, encoded)
    query_id = None if pair.query_item is None else pair.query_item.id
    explained = ExplainedPair(
        text=text or "",
        text_id=query_id if pair.modality == "text" else pair.item.id,
        photo_id=pair.item.id if pair.modality == "text" else query_id,
        generation=searcher.index.generation,
        match=scores.match,
        align=scores.align,
        evidence=word_evidence(*scores.pair),
        box=encoded.box,
    )
    with _decoded(pair.photo, memory) as photo:
        boxes: list[Box] = []
        if photo is None and size_px is not None:
            if pair.modality == "text":
                regions, own = len(pair.collection.tokens(pair.item.row)), pair.item.region_boxes
            else:
                regions, own = encoded.encoding.item_tokens(0).shape[0], encoded.boxes
            boxes = region_boxes(model, regions, size_px, own)
        shown_px = size_px if photo is None else photo.size
        page = lay_out(explained, shown_px, boxes, has_photo=photo is not None)
        drawing = draw_page(page, photo)
    return write_png(drawing, [explained])


class EvidenceMaps(NamedTuple):
    """A pair: both stages' scores, and each word, or region of the query, with every region.

    Attributes:
        text: Text that the words come from; empty for two photos.
        match: Cosine of the embeddings.
        align: Alignment score, the sum of the scores of the words or regions.
        boxes: Box of each region in fractions of the photo, or None where it is unknown; of the
            query's photo only of those in its box.
        words: Words of the text, see `aladin_index.search.evidence.word_maps`.
        asked: Regions of the query's photo with their best regions, if two photos are compared.
        cosines: (asked, regions) Their cosines with all regions of the other photo.
        found: Where the query's box is in the other photo.
    """

    text: str
    match: float
    align: float
    boxes: list[Box | None]
    words: list[WordMap]
    asked: list[RegionEvidence] | None = None
    cosines: NDArray[np.float32] | None = None
    found: Box | None = None


def map_pair(searcher: TwoStageSearcher, pair: Pair, encoded: Term) -> EvidenceMaps:
    """Compare each word of a pair, or each region in a box, with each region.

    Args:
        searcher: Searcher of the index.
        pair: Pair of a query and an item of that index.
        encoded: Encoding of the pair's query.

    Raises:
        InputError: If the index has no tokens.
    """
    if pair.is_of_photos:
        found = _score_photos(searcher, pair, encoded)
        part = found.part
        return EvidenceMaps(
            text="",
            match=found.match,
            align=found.align,
            boxes=_each_box(part.boxes, part.cosines.shape[1]),
            words=[],
            asked=found.evidence,
            cosines=part.cosines,
            found=part.found,
        )
    scores = _scores(searcher, pair, encoded)
    compared = scores.pair
    boxes = _each_box(compared.boxes, compared.cosines.shape[1])
    return EvidenceMaps(compared.text, scores.match, scores.align, boxes, word_maps(compared))


def _each_box(boxes: Sequence[Box], regions: int) -> list[Box | None]:
    """Return the box of each region; the last ones may have none."""
    return [boxes[number] if number < len(boxes) else None for number in range(regions)]


def _scores(searcher: TwoStageSearcher, pair: Pair, encoded: Term) -> PairScores:
    if encoded.box is not None:
        encoded = searcher.part_of(encoded, pair.collection)
    model = searcher.index.checkpoint.model
    return score_pair(model, encoded, pair.modality, pair.collection, pair.item)


class PhotoScores(NamedTuple):
    """Both stages' scores of a part of a photo and another photo.

    Attributes:
        match: Cosine of the embeddings.
        align: Alignment score, the sum of the scores of the evidence.
        part: What was found of the part.
        evidence: Best region for each region of the part.
    """

    match: float
    align: float
    part: FoundPart
    evidence: list[RegionEvidence]


def _score_photos(searcher: TwoStageSearcher, pair: Pair, encoded: Term) -> PhotoScores:
    """Score a part of a photo and another photo in the same way as a search."""
    index, item = searcher.index, pair.item
    query = searcher.part_of(encoded, pair.collection)
    [part] = find_in_items(index.checkpoint.model, query, pair.collection, [item])
    tokens, row = query.encoding.item_tokens(0), np.array([item.row], dtype=np.int64)
    return PhotoScores(
        match=float(query.encoding.embedding[0] @ pair.collection.embedding(item.row)),
        align=float(pair.collection.align(tokens, "image", row)[0]),
        part=part,
        evidence=part.evidence(query),
    )


def _draw_photos(
    searcher: TwoStageSearcher, pair: Pair, encoded: Term, memory: DecodingMemory
) -> bytes:
    """Draw a part of a photo beside another photo; see `draw_pair`."""
    scores = _score_photos(searcher, pair, encoded)
    query_id = None if pair.query_item is None else pair.query_item.id
    explained = ExplainedPair(
        text="",
        text_id=None,
        photo_id=pair.item.id,
        generation=searcher.index.generation,
        match=scores.match,
        align=scores.align,
        evidence=[],
        box=encoded.box,
        query_photo_id=query_id,
        found=scores.part.found,
        region_evidence=scores.evidence,
    )
    query_name = "uploaded photo" if query_id is None else f"photo {query_id}"
    # One after the other: the memory of two at once might never become free.
    pictures = [_small(photo, memory) for photo in (pair.query_photo, pair.photo)]
    asked, hit = (
        ShownPhoto(name, size if picture is None else picture.size, box, picture is not None)
        for name, size, box, picture in (
            (query_name, encoded.size_px, encoded.box, pictures[0]),
            (f"photo {pair.item.id}", pair.item.size_px, scores.part.found, pictures[1]),
        )
    )
    hit = hit._replace(all_boxes=scores.part.boxes)
    return write_png(draw_page(lay_out_photos(explained, asked, hit), *pictures), [explained])


def _small(photo: PhotoFile | bytes | None, memory: DecodingMemory) -> Image.Image | None:
    """Return a photo in the size of a drawing of two, or None if it is not available."""
    with _decoded(photo, memory) as decoded:
        if decoded is None:
            return None
        wide, high = fitted(decoded.size, SIDE_PX)
        return decoded.resize((wide, high), Image.Resampling.LANCZOS)


@contextmanager
def _decoded(
    photo: PhotoFile | bytes | None, memory: DecodingMemory
) -> Generator[Image.Image | None]:
    """Decode the photo while it is drawn; yields None if it is not available."""
    with ExitStack() as stack:
        shown: Image.Image | None = None
        # Uploads were checked against the limits when they were encoded; the rest are the index's.
        with suppress(ImageError):
            if photo is not None:
                data = photo if isinstance(photo, bytes) else photo.read(DEFAULT_LIMITS.max_bytes)
                decoded = stack.enter_context(
                    decoded_image(data, memory, "photo", DEFAULT_LIMITS, at_least_px=max(PHOTO_PX))
                )
                shown = decoded.picture
        yield shown
