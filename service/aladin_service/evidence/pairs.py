"""Pairs of a query and an item for which evidence is requested, and their lookup."""

from __future__ import annotations

import hashlib
from importlib.metadata import version
from typing import NamedTuple

from aladin_index.items.tables import StoredItem
from aladin_index.search.collection import Collection
from aladin_index.search.searcher import TwoStageSearcher
from aladin_network.errors import InputError, UnknownItemError
from aladin_network.photos.files import PhotoFile, PhotosRoot
from aladin_network.types import OTHER_TARGET_OF, TARGET_OF, Modality
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
        item: Item of the other modality, or for a part of a photo another photo.
        photo: File or bytes of the photo, of two that of the item; None if the index does not have
            it.
        query_photo: File or bytes of the query's photo if the item is a photo, too.
    """

    query: PairQuery
    modality: Modality
    query_item: StoredItem | None
    collection: Collection
    item: StoredItem
    photo: PhotoFile | bytes | None
    query_photo: PhotoFile | bytes | None = None

    @property
    def is_of_photos(self) -> bool:
        """Whether both are photos, whose regions are compared."""
        return self.modality == "image" and self.collection.target == "images"


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
        item_id: Id of a photo if the query is a text, of a text if it is a photo, of either if it
            is a part of a photo.
        photos_root: Folder outside of which no photo of the index is shown, or None.

    Raises:
        UnknownItemError: If no item has this id or that of the query.
        NoSuchTargetError: If the index has no items of the other modality.
        InputError: If the query and the item have the same modality and the query has no box, or
            the alignment of the index's model was not trained.
    """
    index = searcher.index
    if not index.checkpoint.alignment_trained:
        raise InputError(
            "there is no evidence: the alignment of this index's model was not trained, so its "
            "regions say nothing about words; `aladin train finetune-clip` trains one"
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
    box = None if isinstance(query, TextQuery) else query.box
    if box is not None and modality == "text":
        raise InputError("box: expected a photo to take a part of, got a text")
    collection, item = _find_other(searcher, modality, item_id, has_box=box is not None)
    if isinstance(query, PhotoQuery):
        photo = query.data
    elif isinstance(query, RegionsQuery):
        photo = query.photo
    else:
        shown = item if modality == "text" else query_item
        photo = None if shown is None else served_photo(index.path, shown, photos_root)
    pair = Pair(query, modality, query_item, collection, item, photo)
    if pair.is_of_photos:
        own = served_photo(index.path, item, photos_root)
        pair = pair._replace(photo=own, query_photo=photo)
    return pair


def _find_other(
    searcher: TwoStageSearcher, modality: Modality, item_id: str, *, has_box: bool
) -> tuple[Collection, StoredItem]:
    """Look up what a query is compared with: an item of the other modality, by a box also a photo.

    Raises:
        UnknownItemError: If there is no such item.
        NoSuchTargetError: If the index has no items of the other modality.
        InputError: If the item is of the query's own modality.
    """
    index, other = searcher.index, OTHER_TARGET_OF[modality]
    if has_box and "images" in index.manifest.targets:
        photos = index.collection("images")
        photo = photos.items.by_id(item_id)
        if photo is not None:
            return photos, photo
    collection = index.collection(other)
    item = collection.items.by_id(item_id)
    if item is None:
        _check_modality(searcher, modality, item_id)
        raise UnknownItemError(other, item_id)
    return collection, item


def _check_modality(searcher: TwoStageSearcher, modality: Modality, item_id: str) -> None:
    """Raise an error if the id belongs to an item of the query's own modality."""
    target = TARGET_OF[modality]
    index = searcher.index
    if (
        target in index.manifest.targets
        and index.collection(target).items.by_id(item_id) is not None
    ):
        wanted = OTHER_TARGET_OF[modality]
        raise InputError(
            f"id: expected one of the {wanted}, but {item_id!r} is one of the {target};"
            " evidence requires a text and a photo, or a box"
        )


def drawing_version(searcher: TwoStageSearcher, pair: Pair) -> str:
    """Return a version of the drawing of a pair, which changes whenever the drawing would.

    Args:
        searcher: Searcher of the index.
        pair: Pair of a query and an item of that index.

    Returns:
        64 hexadecimal digits that reveal nothing about the contents.
    """
    shown = [_photo_state(photo, pair.item.id) for photo in (pair.photo, pair.query_photo)]
    query = pair.query
    asked = query.text if isinstance(query, TextQuery) else query.box
    manifest = searcher.index.manifest
    parts = (version("aladin-search"), manifest.model.id, searcher.index.generation)
    state = repr((parts, asked, pair.query_item, pair.item, shown))
    return hashlib.sha256(state.encode("utf-8", "surrogateescape")).hexdigest()


def _photo_state(photo: PhotoFile | bytes | None, item_id: str) -> str | None:
    if isinstance(photo, PhotoFile):
        try:
            return photo_version(photo, item_id, None)
        except PhotoGoneError:
            return None
    return None if photo is None else hashlib.sha256(photo).hexdigest()
