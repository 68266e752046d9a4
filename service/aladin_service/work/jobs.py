"""Jobs of workers: items and their photos, the index and its model, evidence, and documents."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

from aladin_index.changes.item_changer import TimedAddReport
from aladin_index.changes.writer import DeleteReport
from aladin_index.encode.source_items import SourceItem
from aladin_index.format.manifest import model_folder
from aladin_index.generations.info import LocalFacts, facts_of
from aladin_index.items.field_tables import FieldValues
from aladin_index.items.filters import Filter
from aladin_index.items.tables import StoredItem
from aladin_index.search.collection import ListedPage, ListOrder, SearchBackend
from aladin_index.search.documents import DocumentScore, DocumentVectors, score_documents
from aladin_network.errors import ImageError, UnknownItemError
from aladin_network.inference import tokenize
from aladin_network.photos.decoding import DEFAULT_LIMITS, opened_image
from aladin_network.photos.files import PhotoFile
from aladin_network.types import OnDuplicate, Target
from aladin_service.evidence.explained import draw_pair, map_pair
from aladin_service.evidence.pairs import drawing_version, find_pair
from aladin_service.photos.photo_bytes import (
    PhotoBytes,
    PhotoGoneError,
    cut_photo,
    file_name,
    photo_version,
    resized_photo,
    rewritten_photo,
    served_photo,
    whole_photo,
)
from aladin_service.search.answers import WordMapsAnswer
from aladin_service.search.job import (
    EncodedDocument,
    ItemQuery,
    PhotoQuery,
    PlainQuery,
    TextQuery,
)
from aladin_service.work.worker import Job, JobQueueName, Worker

T = TypeVar("T")

_DIGITS = 12  # of a model's public name


class _PictureJob(Job[T]):
    @property
    def queue(self) -> JobQueueName:
        return "picture"


class _ChangeJob(Job[T]):
    @property
    def queue(self) -> JobQueueName:
        return "write"


@dataclass(frozen=True)
class DescribeIndex(Job[LocalFacts]):
    """Describe the live generation, with what was added and deleted since it was built."""

    def run(self, worker: Worker) -> LocalFacts:
        return facts_of(worker.searcher().index)


@dataclass(frozen=True)
class GetItem(Job[StoredItem]):
    """Look up an item."""

    target: Target
    item_id: str

    def run(self, worker: Worker) -> StoredItem:
        return _item(worker.searcher().index, self.target, self.item_id)


@dataclass(frozen=True)
class AddItems(_ChangeJob[TimedAddReport]):
    """Add items in one step."""

    target: Target
    items: tuple[SourceItem, ...]
    on_duplicate: OnDuplicate

    def run(self, worker: Worker) -> TimedAddReport:
        return worker.change(lambda each: each.add(self.target, self.items, self.on_duplicate))


@dataclass(frozen=True)
class DeleteItem(_ChangeJob[DeleteReport]):
    """Delete one item."""

    target: Target
    item_id: str

    def run(self, worker: Worker) -> DeleteReport:
        return worker.change(lambda each: each.delete(self.target, self.item_id))


class PhotoRead(NamedTuple):
    """An item's photo and its version; no photo for a client that holds this version."""

    version: str
    photo: PhotoBytes | None


@dataclass(frozen=True)
class ReadPhoto(Job[PhotoRead]):
    """Read an item's photo, of full size without `size_px`; `known`: versions of the client."""

    item_id: str
    size_px: int | None
    known: frozenset[str] = frozenset()

    @property
    def queue(self) -> JobQueueName:
        # Photos of full size may take long, and must not delay smaller ones.
        return "original" if self.size_px is None else "picture"

    def run(self, worker: Worker) -> PhotoRead:
        index = worker.searcher().index
        item = _item(index, "images", self.item_id)
        file = served_photo(index.path, item, worker.live.photos_root)
        if file is None:
            raise PhotoGoneError(self.item_id)
        version = photo_version(file, self.item_id, self.size_px)
        if version in self.known:
            return PhotoRead(version, None)
        # Uses the index's own limits: a photo that the build could decode can also be delivered.
        if self.size_px is None:
            return PhotoRead(version, self._original(worker, file, version))
        photo = worker.thumbnails.get(version)
        if photo is None:
            photo = resized_photo(file, self.item_id, self.size_px, DEFAULT_LIMITS, worker.memory)
            worker.thumbnails.put(version, photo)
        return PhotoRead(version, photo)

    def _original(self, worker: Worker, file: PhotoFile, version: str) -> PhotoBytes:
        photo = worker.originals.get(version)
        if photo is None:
            photo = cut_photo(file, self.item_id, DEFAULT_LIMITS)
        if photo is None:
            photo = rewritten_photo(file, self.item_id, DEFAULT_LIMITS, worker.memory)
            worker.originals.put(version, photo)
        return photo


class PhotoFileRead(NamedTuple):
    """An item's photo with the name and the time of its file, since 1970."""

    name: str
    data: bytes
    modified_s: float


@dataclass(frozen=True)
class ReadPhotoFile(Job[PhotoFileRead]):
    """Read an item's photo as it is, or `bare`: as `ReadPhoto` reads it."""

    item_id: str
    bare: bool

    @property
    def queue(self) -> JobQueueName:
        return "original"

    def run(self, worker: Worker) -> PhotoFileRead:
        index = worker.searcher().index
        item = _item(index, "images", self.item_id)
        file = served_photo(index.path, item, worker.live.photos_root)
        if file is None:
            raise PhotoGoneError(self.item_id)
        if self.bare:
            photo = ReadPhoto(self.item_id, None).run(worker).photo
            assert photo is not None  # no version is known
        else:
            photo = whole_photo(file, self.item_id, DEFAULT_LIMITS)
        name = file_name(item.uri or item.id, photo.media_type, is_whole=not self.bare)
        return PhotoFileRead(name, photo.data, file.path.stat().st_mtime)


class DrawnEvidence(NamedTuple):
    """A drawing as a PNG file, and its version; no file for a client that holds this version."""

    version: str
    png: bytes | None


@dataclass(frozen=True)
class DrawEvidence(_PictureJob[DrawnEvidence]):
    """Draw the evidence for a query and an item; `known`: versions that the client holds."""

    query: PlainQuery
    item_id: str
    known: frozenset[str] = frozenset()

    def run(self, worker: Worker) -> DrawnEvidence:
        searcher = worker.searcher()
        pair = find_pair(searcher, self.query, self.item_id, worker.live.photos_root)
        version = drawing_version(searcher, pair)
        if version in self.known:
            return DrawnEvidence(version, None)
        encoded = worker.encode(searcher, pair.query)
        return DrawnEvidence(version, draw_pair(searcher, pair, encoded, worker.memory))


@dataclass(frozen=True)
class ListItems(Job[tuple[ListedPage, int]]):
    """List items in an order."""

    target: Target
    filter: Filter | None
    order: ListOrder
    after_id: str | None
    count: int

    def run(self, worker: Worker) -> tuple[ListedPage, int]:
        index = worker.searcher().index
        collection = index.collection(self.target, self.filter)
        return collection.list_items(self.order, self.after_id, self.count), index.generation


@dataclass(frozen=True)
class ListFields(Job[Mapping[Target, dict[str, list[FieldValues]]]]):
    """Describe the metadata fields of each collection, with values counted within a filter."""

    filter: Filter | None = None

    def run(self, worker: Worker) -> Mapping[Target, dict[str, list[FieldValues]]]:
        index = worker.searcher().index
        targets = index.manifest.targets
        return {each: index.collection(each, self.filter).list_fields() for each in targets}


@dataclass(frozen=True)
class MapEvidence(_PictureJob[WordMapsAnswer]):
    """Compare each word of a text, or each region in a box, with each region of a photo."""

    query: PlainQuery
    item_id: str

    def run(self, worker: Worker) -> WordMapsAnswer:
        searcher = worker.searcher()
        pair = find_pair(searcher, self.query, self.item_id, worker.live.photos_root)
        return map_pair(searcher, pair, worker.encode(searcher, pair.query))


def model_name(model_id: str) -> str:
    """Return the public name of a model, which changes with its weights."""
    return f"aladin-{model_id[:_DIGITS]}"


class ModelFacts(NamedTuple):
    """The model of the live index; `created_s`: when the index received it, since 1970."""

    name: str
    created_s: int
    dimensions: int
    token_dimensions: int
    max_tokens: int


@dataclass(frozen=True)
class DescribeModel(Job[ModelFacts]):
    """Describe the model of the live index."""

    def run(self, worker: Worker) -> ModelFacts:
        index = worker.searcher().index
        manifest = index.manifest
        entry = next(iter(manifest.collections.values()))
        return ModelFacts(
            name=model_name(manifest.model.id),
            created_s=int(model_folder(index.path, manifest.model.id).stat().st_mtime),
            dimensions=entry.embedding_dim,
            token_dimensions=entry.token_dim,
            max_tokens=index.checkpoint.model.text.encoder.config.max_tokens,
        )


@dataclass(frozen=True)
class CountPixels(_PictureJob[int]):
    """Count the pixels of photos, from their headers, up to `most`.

    One that is no photo has none; if its source is needed, it is an error.
    """

    photos: tuple[PhotoQuery, ...]
    most: int
    needed: tuple[str, ...] = ()

    def run(self, worker: Worker) -> int:
        pixels = 0
        for photo in self.photos:
            try:
                with opened_image(photo.data, photo.source, worker.image_limits) as opened:
                    pixels += opened.picture.width * opened.picture.height
            except ImageError:
                if photo.source in self.needed:
                    raise
            if pixels > self.most:
                break
        return pixels


class ScoredDocuments(NamedTuple):
    """Scores of the documents of a request in their order; None where there is no such item."""

    scores: list[DocumentScore | None]
    model: str
    generation: int
    query_tokens: int


@dataclass(frozen=True)
class ScoreDocuments(_PictureJob[ScoredDocuments | None]):
    """Score encoded documents, and items by their ids, for a query."""

    query: TextQuery | PhotoQuery | ItemQuery
    documents: tuple[EncodedDocument | str, ...]

    def run(self, worker: Worker) -> ScoredDocuments | None:
        searcher = worker.searcher()
        index = searcher.index
        model_id = index.manifest.model.id
        documents: list[str | DocumentVectors] = []
        for document in self.documents:
            if isinstance(document, str):
                documents.append(document)
                continue
            if document.model_id != model_id:
                return None
            assert document.vectors is not None  # they were encoded as arrays
            documents.append(document.vectors)
        query = worker.encode(searcher, self.query)
        scores = score_documents(searcher, query, documents)
        tokens = query.encoding.tokens.shape[1]
        if query.modality == "text" and query.text is not None:
            tokens = int(tokenize(index.checkpoint.model, [query.text], truncate=True).mask.sum())
        return ScoredDocuments(scores, model_name(model_id), index.manifest.generation, tokens)


def _item(index: SearchBackend, target: Target, item_id: str) -> StoredItem:
    """Look up an item."""
    item = index.collection(target).items.by_id(item_id)
    if item is None:
        raise UnknownItemError(target, item_id)
    return item
