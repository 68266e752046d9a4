"""From a query to its answer, whichever front door it came through."""

from __future__ import annotations

import time
from contextlib import closing

from aladin_index.format.manifest import Manifest
from aladin_index.items.tables import StoredItem
from aladin_index.search.searcher import TwoStageSearcher
from aladin_network.errors import UnknownItemError
from aladin_network.model import AladinModel
from aladin_network.photos.files import PhotoFile, PhotosRoot
from aladin_network.types import Target
from aladin_service.client.answers import SearchAnswer, TookMs, build_answer
from aladin_service.photos.photo_bytes import served_photo
from aladin_service.queries import Query, SearchOptions
from aladin_service.search.encoder import EncodedQuery, QueryEncoder
from aladin_service.settings import QueryLimits


class SearchEngine:
    """Encodes queries and searches one open index; safe to use from any number of threads.

    Attributes:
        searcher: of the open index.
        photos_root: folder outside of which no photo is shown, or None.
    """

    def __init__(
        self,
        searcher: TwoStageSearcher,
        limits: QueryLimits,
        photos_root: PhotosRoot | None = None,
    ) -> None:
        """Search with `searcher`.

        Args:
            searcher: of an open index; its model encodes the queries.
            limits: what a query may cost that `search` encodes.
            photos_root: folder outside of which no photo is shown, or None to show photos from
                anywhere; photos that the index keeps itself are always shown.
        """
        self.searcher = searcher
        self.photos_root = photos_root
        self._limits = limits

    @property
    def manifest(self) -> Manifest:
        """What the generation that is searched consists of."""
        return self.searcher.index.manifest

    @property
    def model(self) -> AladinModel:
        """The network that encodes queries and items."""
        return self.searcher.index.checkpoint.model

    def count(self, target: Target) -> int:
        """Return the number of items that a search may find now.

        Raises:
            NoSuchTargetError: the index has no such side.
        """
        return self.searcher.index.side(target).count

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
        received_s = time.monotonic()
        with closing(QueryEncoder(self._limits)) as encoder:
            encoded = encoder.encode_one(self.searcher, query)
        return self.find(encoded, target, options, received_s)

    def find(
        self, query: EncodedQuery, target: Target, options: SearchOptions, received_s: float
    ) -> SearchAnswer:
        """Search with a query that is encoded already.

        Args:
            query: of a `QueryEncoder`, encoded for this engine's searcher.
            target: where.
            options: how.
            received_s: when the query came, by `time.monotonic`: the time that it may take and
                the time that it took are counted from there.

        Raises:
            InputError: an option is impossible.
            NoSuchTargetError: the index has no such side.
        """
        timeout_ms = options.timeout_ms
        result = self.searcher.search(
            query.encoding,
            query.modality or ("image" if target == "images" else "text"),
            target,
            top_k=options.k,
            offset=options.offset,
            num_candidates=options.candidates,
            rerank=options.rerank,
            fusion=options.fusion,
            filter=options.filter,
            explain=options.explain,
            query_text=query.text,
            query_size_px=query.size_px,
            query_boxes=query.boxes,
            min_probability=options.min_probability,
            own_id=query.own_id,
            deadline_s=None if timeout_ms is None else received_s + timeout_ms / 1000,
        )
        took_ms = TookMs(
            decode=query.decode_ms,
            encode=query.encode_ms,
            retrieve=result.took_ms.retrieve,
            rerank=result.took_ms.rerank,
            total=1000 * (time.monotonic() - received_s),
        )
        return build_answer(result, took_ms)

    def item(self, target: Target, item_id: str) -> StoredItem:
        """Return what the index knows of an item.

        Raises:
            UnknownItemError: no item of this side has this id.
            NoSuchTargetError: the index has no such side.
        """
        item = self.searcher.index.side(target).items.by_id(item_id)
        if item is None:
            raise UnknownItemError(target, item_id)
        return item

    def photo(self, item_id: str) -> PhotoFile | None:
        """Return where the bytes of an image are; None where there is nothing to be shown.

        Raises:
            UnknownItemError: no image has this id.
            NoSuchTargetError: the index has no images.
        """
        item = self.item("images", item_id)
        return served_photo(self.searcher.index.path, item, self.photos_root)
