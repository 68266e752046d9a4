"""The evidence for a query and an item of the other modality, from its lookup to its drawing."""

from __future__ import annotations

import hashlib
from collections.abc import Generator
from contextlib import ExitStack, contextmanager, suppress
from importlib.metadata import version
from typing import NamedTuple

from PIL import Image

from aladin_index.items.tables import StoredItem
from aladin_index.search.backend import Collection, EncodedQuery
from aladin_index.search.evidence import (
    PairScores,
    WordMap,
    region_boxes,
    score_pair,
    word_evidence,
    word_maps,
)
from aladin_index.search.results import Box
from aladin_index.search.searcher import TwoStageSearcher
from aladin_network.errors import ImageError, InputError, UnknownItemError
from aladin_network.photos.decoding import DEFAULT_LIMITS, decoded_image
from aladin_network.photos.files import PhotoFile, PhotosRoot
from aladin_network.photos.memory import DecodingMemory
from aladin_network.types import OTHER_TARGET_OF, TARGET_OF, Modality
from aladin_service.evidence.drawing import draw_page
from aladin_service.evidence.layout import PHOTO_PX, lay_out
from aladin_service.evidence.png import ExplainedPair, write_png
from aladin_service.photos.photo_bytes import PhotoGoneError, photo_version, served_photo
from aladin_service.search.job import ItemQuery, PhotoQuery, RegionsQuery, TextQuery

PairQuery = TextQuery | PhotoQuery | RegionsQuery | ItemQuery


class Pair(NamedTuple):
    """A query and the item for which evidence is requested.

    Attributes:
        query: Query.
        modality: Modality of the query.
        query_item: Item that is the query, or None if the query is a text or a photo.
        collection: Collection of the item.
        item: Item of the other modality.
        photo: File or bytes of the photo, or None if the index does not have it.
    """

    query: PairQuery
    modality: Modality
    query_item: StoredItem | None
    collection: Collection
    item: StoredItem
    photo: PhotoFile | bytes | None


def find_pair(
    searcher: TwoStageSearcher,
    query: PairQuery,
    item_id: str,
    photos_root: PhotosRoot | None = None,
) -> Pair:
    """Look up the items and the photo of a pair without encoding anything.

    Args:
        searcher: Searcher of the index.
        query: Text or photo, or the id of one.
        item_id: Id of a photo if the query is a text, of a text if it is a photo.
        photos_root: Folder outside of which no photo of the index is shown, or None.

    Raises:
        UnknownItemError: If no item has this id or that of the query.
        NoSuchTargetError: If the index has no items of the other modality.
        InputError: If the query and the item have the same modality, or the alignment of the
            index's model was not trained, or is one of texts.
    """
    index = searcher.index
    if not index.checkpoint.alignment_trained:
        raise InputError(
            "there is no evidence: the alignment of this index's model was not trained, so its "
            "regions say nothing about words; `aladin train finetune-clip` trains one"
        )
    if index.checkpoint.model.text_only:
        raise InputError(
            "there is no evidence to draw: this index's model reads texts only; a search with "
            "explain tells each word's best word"
        )
    query_item: StoredItem | None = None
    modality: Modality
    match query:
        case TextQuery():
            modality = "text"
        case PhotoQuery() | RegionsQuery():
            modality = "image"
        case ItemQuery(asked_id):
            query_item, modality = searcher.find_item(asked_id)
    collection = index.side(OTHER_TARGET_OF[modality])
    item = collection.items.by_id(item_id)
    if item is None:
        _check_modality(searcher, modality, item_id)
        raise UnknownItemError(OTHER_TARGET_OF[modality], item_id)
    photo: PhotoFile | bytes | None
    if isinstance(query, PhotoQuery):
        photo = query.data
    elif isinstance(query, RegionsQuery):
        photo = query.photo
    else:
        shown = item if modality == "text" else query_item
        photo = None if shown is None else served_photo(index.path, shown, photos_root)
    return Pair(query, modality, query_item, collection, item, photo)


def _check_modality(searcher: TwoStageSearcher, modality: Modality, item_id: str) -> None:
    """Raise an error if the id belongs to an item of the query's own modality."""
    target = TARGET_OF[modality]
    index = searcher.index
    if target in index.manifest.targets and index.side(target).items.by_id(item_id) is not None:
        wanted = OTHER_TARGET_OF[modality]
        raise InputError(
            f"id: expected one of the {wanted}, but {item_id!r} is one of the {target};"
            " evidence requires a text and a photo"
        )


def drawing_version(searcher: TwoStageSearcher, pair: Pair) -> str:
    """Return a version of the drawing of a pair, which changes whenever the drawing would.

    Args:
        searcher: Searcher of the index.
        pair: Pair of a query and an item of that index.

    Returns:
        64 hexadecimal digits that reveal nothing about the contents.
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
    state = repr((parts, words, pair.query_item, pair.item, shown))
    return hashlib.sha256(state.encode("utf-8", "surrogateescape")).hexdigest()


def draw_pair(
    searcher: TwoStageSearcher, pair: Pair, encoded: EncodedQuery, memory: DecodingMemory
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


class WordMaps(NamedTuple):
    """A text and a photo: both stages' scores, and each word compared with every region.

    Attributes:
        text: Text that the words come from.
        match: Cosine of the embeddings.
        align: Alignment score, the sum of the words' scores.
        boxes: Box of each region in fractions of the photo, or None where it is unknown.
        words: Words of the text, see `aladin_index.search.evidence.word_maps`.
    """

    text: str
    match: float
    align: float
    boxes: list[Box | None]
    words: list[WordMap]


def map_pair(searcher: TwoStageSearcher, pair: Pair, encoded: EncodedQuery) -> WordMaps:
    """Compare each word of a pair with each region.

    Args:
        searcher: Searcher of the index.
        pair: Pair of a query and an item of that index.
        encoded: Encoding of the pair's query.

    Raises:
        InputError: If the index has no tokens.
    """
    scores = _scores(searcher, pair, encoded)
    compared = scores.pair
    regions = compared.cosines.shape[1]
    boxes = [compared.boxes[n] if n < len(compared.boxes) else None for n in range(regions)]
    return WordMaps(compared.text, scores.match, scores.align, boxes, word_maps(compared))


def _scores(searcher: TwoStageSearcher, pair: Pair, encoded: EncodedQuery) -> PairScores:
    model = searcher.index.checkpoint.model
    return score_pair(model, encoded, pair.modality, pair.collection, pair.item)


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
