"""From a query to its answer, in one thread, whichever front door it came through."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import NamedTuple

from aladin.encoding import Encoding
from aladin.errors import TextTooLongError, UnknownItemError
from aladin.images import DEFAULT_LIMITS, ImageLimits, decode_image
from aladin.inference import encode_photos, encode_texts
from aladin.model import AladinModel
from aladin.photo_file import PhotoFile
from index.changes.uploaded_photos import photo_of
from index.items.tables import StoredItem
from index.manifest import Manifest
from index.searcher import TwoStageSearcher
from service.answer import SearchAnswer, TookMs, build_answer
from service.queries import ItemQuery, Modality, PhotoQuery, Query, SearchOptions, Target, TextQuery


@dataclass(frozen=True, kw_only=True)
class QueryLimits:
    """What a query may cost.

    Attributes:
        image: bytes and pixels of an uploaded photo.
        max_text_chars: of a text; the network's own limit in tokens comes on top.
    """

    image: ImageLimits = DEFAULT_LIMITS
    max_text_chars: int = 2000


class EncodedQuery(NamedTuple):
    """A query as the searcher takes it.

    Attributes:
        encoding: of the one item.
        modality: of the query.
        text: of a text query, for the evidence.
        size_px: width and height of a photo query, for the evidence.
        decode_ms: time to turn a photo's bytes into pixels.
        encode_ms: time in the network, or to look an item up.
    """

    encoding: Encoding
    modality: Modality
    text: str | None
    size_px: tuple[int, int] | None
    decode_ms: float
    encode_ms: float


class SearchEngine:
    """Encodes queries and searches one open index; safe to use from any number of threads."""

    def __init__(self, searcher: TwoStageSearcher, limits: QueryLimits) -> None:
        """Search with `searcher`.

        Args:
            searcher: of an open index; its model encodes the queries.
            limits: what a query may cost.
        """
        self._searcher = searcher
        self._model = searcher.index.checkpoint.model
        self._limits = limits

    @property
    def manifest(self) -> Manifest:
        """What the generation that is searched consists of."""
        return self._searcher.index.manifest

    @property
    def model(self) -> AladinModel:
        """The network that encodes queries and items."""
        return self._model

    def count(self, target: Target) -> int:
        """Return the number of items that a search may find now.

        Raises:
            NoSuchTargetError: the index has no such side.
        """
        return self._searcher.index.side(target).count

    def search(self, query: Query, target: Target, options: SearchOptions) -> SearchAnswer:
        """Answer one query.

        Args:
            query: what to search for.
            target: where.
            options: how.

        Raises:
            InputError: the text or the photo cannot be used, or an option is impossible.
            UnknownItemError: no item has the query's id.
            NoSuchTargetError: the index has no such side.
        """
        started = time.perf_counter()
        encoded = self._encode(query)
        result = self._searcher.search(
            encoded.encoding,
            encoded.modality,
            target,
            top_k=options.k,
            offset=options.offset,
            num_candidates=options.candidates,
            rerank=options.rerank,
            fusion=options.fusion,
            filter=options.filter,
            explain=options.explain,
            query_text=encoded.text,
            query_size_px=encoded.size_px,
        )
        took_ms = TookMs(
            decode=encoded.decode_ms,
            encode=encoded.encode_ms,
            retrieve=result.took_ms.retrieve,
            rerank=result.took_ms.rerank,
            total=_ms_since(started),
        )
        return build_answer(result, took_ms)

    def item(self, target: Target, item_id: str) -> StoredItem:
        """Return what the index knows of an item.

        Raises:
            UnknownItemError: no item of this side has this id.
            NoSuchTargetError: the index has no such side.
        """
        item = self._searcher.index.side(target).items.by_id(item_id)
        if item is None:
            raise UnknownItemError(target, item_id)
        return item

    def photo(self, item_id: str) -> PhotoFile | None:
        """Return where the bytes of an image are; None where the index was not told.

        Raises:
            UnknownItemError: no image has this id.
            NoSuchTargetError: the index has no images.
        """
        return photo_of(self._searcher.index.path, self.item("images", item_id))

    def _encode(self, query: Query) -> EncodedQuery:
        match query:
            case TextQuery(text):
                return self._encode_text(text)
            case PhotoQuery(data, source):
                return self._encode_photo(data, source)
            case ItemQuery(item_id):
                return self._look_up(item_id)

    def _encode_text(self, text: str) -> EncodedQuery:
        if len(text) > self._limits.max_text_chars:
            raise TextTooLongError(len(text), self._limits.max_text_chars, "characters")
        started = time.perf_counter()
        encoding = encode_texts(self._model, [text])
        return EncodedQuery(encoding, "text", text, None, 0.0, _ms_since(started))

    def _encode_photo(self, data: bytes, source: str) -> EncodedQuery:
        started = time.perf_counter()
        photo = decode_image(data, source, self._limits.image)
        decode_ms = _ms_since(started)
        started = time.perf_counter()
        encoding = encode_photos(self._model, [photo])
        return EncodedQuery(encoding, "image", None, photo.size, decode_ms, _ms_since(started))

    def _look_up(self, item_id: str) -> EncodedQuery:
        started = time.perf_counter()
        item, modality = self._searcher.find_item(item_id)
        encoding, _ = self._searcher.encode_item(item_id)
        text = item.text if modality == "text" else None
        return EncodedQuery(encoding, modality, text, item.size_px, 0.0, _ms_since(started))


def _ms_since(started_s: float) -> float:
    return 1000 * (time.perf_counter() - started_s)
