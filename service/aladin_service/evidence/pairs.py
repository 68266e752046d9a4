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
from aladin_service.search.job import ItemQuery, PlainQuery, TextQuery


class Pair(NamedTuple):
    """A query and the item for which evidence is requested.

    Attributes:
        query: Query.
        modality: Modality of the query.
        query_item: Item that is the query, or None if the query is a text or a photo.
        collection: Collection of the item.
        item: Item of the other modality, or for a part of a photo another photo.
        query_photo: File or bytes of the query's photo; None for a text, or if it is not available.
        item_photo: File of the item's photo; None for a text, or if it is not available.
    """

    query: PlainQuery
    modality: Modality
    query_item: StoredItem | None
    collection: Collection
    item: StoredItem
    query_photo: PhotoFile | bytes | None
    item_photo: PhotoFile | None

    @property
    def photo(self) -> PhotoFile | bytes | None:
        """The photo of a text and a photo."""
        return self.item_photo if self.modality == "text" else self.query_photo

    @property
    def is_of_photos(self) -> bool:
        """Whether both are photos, whose regions are compared."""
        return self.modality == "image" and self.collection.target == "images"


def find_pair(
    searcher: TwoStageSearcher,
    query: PlainQuery,
    item_id: str,
    photos_root: PhotosRoot | None = None,
) -> Pair:
    """Look up the items and photos of a pair without encoding anything.

    The item is a photo if the query is a text, a text if it is a photo, and either if it is a part
    of a photo. No photo of the index outside of `photos_root` is shown.
    """
    index = searcher.index
    if not index.checkpoint.alignment_trained:
        raise InputError(
            "there is no evidence: the alignment of this index's model was not trained, so its "
            "regions say nothing about words; `aladin train finetune-clip` trains one"
        )
    query_item: StoredItem | None = None
    if isinstance(query, ItemQuery):
        query_item, modality = searcher.find_item(query.item_id)
        picture = None
    else:
        modality, picture = query.modality, query.picture
    if query.box is not None and modality == "text":
        raise InputError("box: expected a photo to take a part of, got a text")
    collection, item = _find_other(searcher, modality, item_id, has_box=query.box is not None)

    def photo_of(item: StoredItem | None, is_photo: bool) -> PhotoFile | None:
        return served_photo(index.path, item, photos_root) if item and is_photo else None

    asked = picture or photo_of(query_item, modality == "image")
    own = photo_of(item, collection.target == "images")
    return Pair(query, modality, query_item, collection, item, asked, own)


def _find_other(
    searcher: TwoStageSearcher, modality: Modality, item_id: str, *, has_box: bool
) -> tuple[Collection, StoredItem]:
    """Look up an item of the other modality, or with a box a photo, to compare a query with."""
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
    """Return 64 digits that change whenever the drawing would, and reveal nothing of it."""
    shown = [_photo_state(photo, pair.item.id) for photo in (pair.item_photo, pair.query_photo)]
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
