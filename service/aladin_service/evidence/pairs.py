"""From a query and an item of the other modality to the drawing of their evidence."""

from __future__ import annotations

import hashlib
from collections.abc import Generator
from contextlib import ExitStack, contextmanager, suppress
from importlib.metadata import version
from typing import NamedTuple

from PIL import Image

from aladin_index.items.tables import StoredItem
from aladin_index.modality import OTHER_TARGET_OF, TARGET_OF, Modality
from aladin_index.search.backend import Collection
from aladin_index.search.evidence import region_boxes, score_pair
from aladin_index.search.query import EncodedQuery
from aladin_index.search.results import Box
from aladin_index.search.searcher import TwoStageSearcher
from aladin_network.errors import ImageError, InputError, UnknownItemError
from aladin_network.photos.decoding import DEFAULT_LIMITS, decoded_image
from aladin_network.photos.files import PhotoFile, PhotosRoot
from aladin_network.photos.memory import DecodingMemory
from aladin_service.evidence.drawing import draw_page
from aladin_service.evidence.layout import PHOTO_PX, lay_out
from aladin_service.evidence.png import ExplainedPair, write_png
from aladin_service.photos.photo_bytes import PhotoGoneError, photo_version, served_photo
from aladin_service.queries import ItemQuery, PhotoQuery, RegionsQuery, TextQuery

PairQuery = TextQuery | PhotoQuery | RegionsQuery | ItemQuery


class Pair(NamedTuple):
    """A query, and the item whose evidence for it is asked for.

    Attributes:
        query: what was asked with.
        modality: of the query.
        asked: the query where it is an item of the index, else None.
        side: that holds the item.
        item: of the other modality than the query.
        photo: where the photo's bytes are, or the bytes; None where the index was not told.
    """

    query: PairQuery
    modality: Modality
    asked: StoredItem | None
    side: Collection
    item: StoredItem
    photo: PhotoFile | bytes | None


def find_pair(
    searcher: TwoStageSearcher,
    query: PairQuery,
    item_id: str,
    photos_root: PhotosRoot | None = None,
) -> Pair:
    """Look up what belongs to a pair; nothing is encoded.

    Args:
        searcher: of the index.
        query: a text or a photo.
        item_id: of a photo for a text, of a text for a photo.
        photos_root: folder outside of which no photo of the index is shown, or None.

    Raises:
        UnknownItemError: no item has this id, or the query's.
        NoSuchTargetError: the index has no such side.
        InputError: the two are of one modality.
    """
    index = searcher.index
    asked: StoredItem | None = None
    modality: Modality
    match query:
        case TextQuery():
            modality = "text"
        case PhotoQuery() | RegionsQuery():
            modality = "image"
        case ItemQuery(asked_id):
            asked, modality = searcher.find_item(asked_id)
    side = index.side(OTHER_TARGET_OF[modality])
    item = side.items.by_id(item_id)
    if item is None:
        _refuse_alike(searcher, modality, item_id)
        raise UnknownItemError(OTHER_TARGET_OF[modality], item_id)
    photo: PhotoFile | bytes | None
    if isinstance(query, PhotoQuery):
        photo = query.data
    elif isinstance(query, RegionsQuery):
        photo = query.photo
    else:
        shown = item if modality == "text" else asked
        photo = None if shown is None else served_photo(index.path, shown, photos_root)
    return Pair(query, modality, asked, side, item, photo)


def _refuse_alike(searcher: TwoStageSearcher, modality: Modality, item_id: str) -> None:
    """Refuse an id that is there, among the items that are of the query's own modality."""
    target = TARGET_OF[modality]
    index = searcher.index
    if target in index.manifest.targets and index.side(target).items.by_id(item_id) is not None:
        wanted = OTHER_TARGET_OF[modality]
        raise InputError(
            f"id: expected one of the {wanted}, {item_id!r} is one of the {target};"
            " evidence is between a text and a photo"
        )


def drawing_version(searcher: TwoStageSearcher, pair: Pair) -> str:
    """Name what the drawing of a pair looks like now: another name where anything of it changes.

    Args:
        searcher: of the index.
        pair: of that index.

    Returns:
        64 hexadecimal digits, that tell nothing.
    """
    photo = pair.photo
    shown = photo
    if isinstance(photo, PhotoFile):
        try:
            shown = photo_version(photo, pair.item.id, None)
        except PhotoGoneError:
            shown = None
    elif photo is not None:
        shown = hashlib.sha256(photo).hexdigest()
    words = pair.query.text if isinstance(pair.query, TextQuery) else None
    manifest = searcher.index.manifest
    parts = (version("aladin-search"), manifest.model.id, searcher.index.generation)
    state = repr((parts, words, pair.asked, pair.item, shown))
    return hashlib.sha256(state.encode("utf-8", "surrogateescape")).hexdigest()


def draw_pair(
    searcher: TwoStageSearcher, pair: Pair, encoded: EncodedQuery, memory: DecodingMemory
) -> bytes:
    """Draw the evidence for a pair.

    Args:
        searcher: of the index.
        pair: of that index.
        encoded: the pair's query.
        memory: Where the memory to decode the photo is reserved.

    Returns:
        A PNG file, see `aladin_service.evidence.png`.

    Raises:
        InputError: the index has no tokens.
        ImageTooLargeError: The photo takes more memory than there is.
        OverloadedError: The memory did not become free in time.
        WithdrawnError: Nobody waits for the drawing any more.
    """
    model = searcher.index.checkpoint.model
    text = encoded.text if pair.modality == "text" else pair.item.text
    size_px = pair.item.size_px if pair.modality == "text" else encoded.size_px
    scores = score_pair(
        model,
        encoded,
        pair.modality,
        pair.side,
        pair.item,
    )
    asked_id = None if pair.asked is None else pair.asked.id
    explained = ExplainedPair(
        text=text or "",
        text_id=asked_id if pair.modality == "text" else pair.item.id,
        photo_id=pair.item.id if pair.modality == "text" else asked_id,
        generation=searcher.index.generation,
        match=scores.match,
        align=scores.align,
        evidence=scores.evidence,
    )
    with _decoded(pair.photo, memory) as photo:
        boxes: list[Box] = []
        if photo is None and size_px is not None:
            if pair.modality == "text":
                regions, own = len(pair.side.tokens(pair.item.row)), pair.item.region_boxes
            else:
                regions, own = encoded.encoding.item_tokens(0).shape[0], encoded.boxes
            boxes = region_boxes(model, regions, size_px, own)
        shown_px = size_px if photo is None else photo.size
        page = lay_out(explained, shown_px, boxes, has_photo=photo is not None)
        drawing = draw_page(page, photo)
    return write_png(drawing, [explained])


@contextmanager
def _decoded(
    photo: PhotoFile | bytes | None, memory: DecodingMemory
) -> Generator[Image.Image | None]:
    """Decode what is drawn, for as long as it is drawn; None where it cannot be shown."""
    with ExitStack() as stack:
        shown: Image.Image | None = None
        # The encoder has refused an upload over the limits; the rest are the index's own.
        with suppress(ImageError):
            if photo is not None:
                data = photo if isinstance(photo, bytes) else photo.read(DEFAULT_LIMITS.max_bytes)
                shown = stack.enter_context(
                    decoded_image(data, memory, "photo", DEFAULT_LIMITS, at_least_px=max(PHOTO_PX))
                )
        yield shown
