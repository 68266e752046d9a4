"""The evidence for a pair: in numbers, and drawn."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import ExitStack, contextmanager, suppress

import numpy as np
from PIL import Image

from aladin_index.search.evidence import (
    PairScores,
    region_boxes,
    rounded,
    score_pair,
    word_evidence,
    word_maps,
)
from aladin_index.search.found_box import FoundPart, find_in_items
from aladin_index.search.query import Term
from aladin_index.search.results import Box, MappedQueryRegion, RegionEvidence
from aladin_index.search.searcher import TwoStageSearcher
from aladin_network.errors import ImageError
from aladin_network.photos.decoding import DEFAULT_LIMITS, decoded_image
from aladin_network.photos.files import PhotoFile
from aladin_network.photos.memory import DecodingMemory
from aladin_service.evidence.drawing import (
    PHOTO_PX,
    SIDE_PX,
    ShownPhoto,
    draw_text_and_photo,
    draw_two_photos,
    fitted,
)
from aladin_service.evidence.pairs import Pair
from aladin_service.evidence.png import ExplainedPair, write_png
from aladin_service.search.answers import (
    MappedRegion,
    WordMapsAnswer,
)


def draw_pair(
    searcher: TwoStageSearcher, pair: Pair, encoded: Term, memory: DecodingMemory
) -> bytes:
    """Draw the evidence for a pair as a PNG file, see `aladin_service.evidence.png`."""
    if pair.is_of_photos:
        return _draw_photos(searcher, pair, encoded, memory)
    is_text = pair.modality == "text"
    text = encoded.text if is_text else pair.item.text
    size_px = pair.item.size_px if is_text else encoded.size_px
    scores = _scores(searcher, pair, encoded)
    query_id = None if pair.query_item is None else pair.query_item.id
    explained = ExplainedPair(
        text=text or "",
        text_id=query_id if is_text else pair.item.id,
        photo_id=pair.item.id if is_text else query_id,
        generation=searcher.index.generation,
        match=scores.match,
        align=scores.align,
        evidence=word_evidence(scores.pair),
        box=encoded.box,
    )
    with _decoded(pair.photo, memory) as photo:
        boxes: list[Box] = []
        if photo is None and size_px is not None:
            count, own = encoded.encoding.item_tokens(0).shape[0], encoded.boxes
            if is_text:
                count, own = len(pair.collection.tokens(pair.item.row)), pair.item.region_boxes
            boxes = region_boxes(searcher.index.checkpoint.model, count, size_px, own)
        shown = _shown(explained.photo_id, size_px, photo)
        drawing = draw_text_and_photo(explained, shown._replace(all_boxes=boxes))
    return write_png(drawing, [explained])


def map_pair(searcher: TwoStageSearcher, pair: Pair, encoded: Term) -> WordMapsAnswer:
    """Compare each word of a pair, or each region in a box, with each region."""
    if pair.is_of_photos:
        match, align, part, evidence = _score_photos(searcher, pair, encoded)
        return WordMapsAnswer(
            text="",
            match=match,
            align=align,
            regions=_regions(part.boxes, part.cosines.shape[1]),
            words=[],
            query_regions=[
                MappedQueryRegion(
                    box=each.query_box,
                    score=each.score,
                    share=each.share,
                    region=each.region,
                    cosines=rounded(cosines),
                )
                for each, cosines in zip(evidence, part.cosines, strict=True)
            ],
            found=part.found,
        )
    match, align, compared = _scores(searcher, pair, encoded)
    return WordMapsAnswer(
        text=compared.text,
        match=match,
        align=align,
        regions=_regions(compared.boxes, compared.cosines.shape[1]),
        words=word_maps(compared),
    )


def _regions(boxes: Sequence[Box], count: int) -> list[MappedRegion]:
    """Return the regions of a photo, of which the last ones may have no box."""
    known = [MappedRegion(box=box) for box in boxes[:count]]
    return known + [MappedRegion(box=None)] * (count - len(known))


def _scores(searcher: TwoStageSearcher, pair: Pair, encoded: Term) -> PairScores:
    if encoded.box is not None:
        encoded = searcher.part_of(encoded, pair.collection)
    model = searcher.index.checkpoint.model
    return score_pair(model, encoded, pair.collection, pair.item)


def _score_photos(
    searcher: TwoStageSearcher, pair: Pair, encoded: Term
) -> tuple[float, float, FoundPart, list[RegionEvidence]]:
    """Score a part of a photo and another photo in the same way as a search.

    Returns the match score, the alignment score, what was found of the part, and for each of its
    regions the best one of the photo; their scores add up to the alignment score.
    """
    index, item = searcher.index, pair.item
    query = searcher.part_of(encoded, pair.collection)
    [part] = find_in_items(index.checkpoint.model, query, pair.collection, [item])
    tokens, row = query.encoding.item_tokens(0), np.array([item.row], dtype=np.int64)
    match = float(query.encoding.embedding[0] @ pair.collection.embedding(item.row))
    align = float(pair.collection.align(tokens, "image", row)[0])
    return match, align, part, part.evidence(query)


def _draw_photos(
    searcher: TwoStageSearcher, pair: Pair, encoded: Term, memory: DecodingMemory
) -> bytes:
    """Draw a part of a photo beside another photo; see `draw_pair`."""
    match, align, part, evidence = _score_photos(searcher, pair, encoded)
    query_id = None if pair.query_item is None else pair.query_item.id
    explained = ExplainedPair(
        text="",
        text_id=None,
        photo_id=pair.item.id,
        generation=searcher.index.generation,
        match=match,
        align=align,
        evidence=[],
        box=encoded.box,
        query_photo_id=query_id,
        found=part.found,
        region_evidence=evidence,
    )
    # One after the other: the memory of two at once might never become free.
    pictures = [_small(photo, memory) for photo in (pair.query_photo, pair.item_photo)]
    asked = _shown(query_id, encoded.size_px, pictures[0])._replace(box=encoded.box)
    hit = _shown(pair.item.id, pair.item.size_px, pictures[1])
    hit = hit._replace(box=part.found, all_boxes=part.boxes)
    return write_png(draw_two_photos(explained, asked, hit), [explained])


def _shown(
    photo_id: str | None, size_px: tuple[int, int] | None, picture: Image.Image | None
) -> ShownPhoto:
    name = "uploaded photo" if photo_id is None else f"photo {photo_id}"
    return ShownPhoto(name, size_px if picture is None else picture.size, picture)


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
