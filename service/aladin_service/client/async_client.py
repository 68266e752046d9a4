"""The client for programs with an event loop."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from typing import Any, Unpack

from aladin_index.search.results import SearchAnswer
from aladin_network.types import OnDuplicate, Target
from aladin_service.client.additions import (
    NewItem,
    NewPhoto,
    NewText,
    add_call,
    add_calls,
    add_photo_call,
)
from aladin_service.client.async_sender import AsyncSender
from aladin_service.client.calls import (
    ExplainedPair,
    ListDirection,
    Photo,
    delete_call,
    drawing_call,
    explain_call,
    fields_call,
    index_call,
    item_call,
    list_call,
    photo_call,
)
from aladin_service.client.connection import (
    ADD_BYTES,
    ADD_ITEMS,
    BATCH_QUERIES,
    LISTED_ITEMS,
)
from aladin_service.client.pictures import PictureSource
from aladin_service.client.searches import (
    Outcome,
    Search,
    SearchFields,
    batch_call,
    batch_calls,
    search_call,
)
from aladin_service.search.answers import (
    Added,
    Deleted,
    IndexFields,
    Item,
    ItemPage,
    ListedItem,
    LiveIndexInfo,
    WordMapsAnswer,
)


class AsyncAladinClient(AsyncSender):
    """Client of a service over HTTP, with the methods of `AladinClient` as coroutines.

    >>> import asyncio
    >>> from aladin_service.client import AsyncAladinClient
    >>> async def ranks(words: str) -> list[int]:
    ...     async with AsyncAladinClient(url) as client:
    ...         answer = await client.search_images(words, k=2)
    ...     return [hit.rank for hit in answer.hits]
    >>> asyncio.run(ranks("a red dog"))
    [1, 2]
    """

    async def search_images(
        self, text: str | None = None, **fields: Unpack[SearchFields]
    ) -> SearchAnswer:
        """Find the images that fit a text, a picture or an item.

        Args:
            text: Words, or None if `image`, `id` or `regions` is given.
            fields: Search options, see `SearchFields`.

        Raises:
            ServiceError: If the service rejects the request.
            ServiceUnreachableError: If the service does not answer.
            OSError: If a picture's file cannot be read.
        """
        return await self._send(search_call(Search(text, "images", **fields)))

    async def search_texts(
        self, text: str | None = None, **fields: Unpack[SearchFields]
    ) -> SearchAnswer:
        """Find the texts that fit a picture, a text or an item; as `search_images`."""
        return await self._send(search_call(Search(text, "texts", **fields)))

    async def search(self, search: Search) -> SearchAnswer:
        """Ask one search that is put together already; otherwise as `search_images`."""
        return await self._send(search_call(search))

    async def search_batch(self, searches: Sequence[Search]) -> list[Outcome]:
        """Ask several searches in one request.

        Args:
            searches: One search or more, at most the service's ALADIN_MAX_BATCH_QUERIES.

        Returns:
            In the same order, an answer or the error of each.

        Raises:
            ServiceError: If the service rejects the whole batch.
            ServiceUnreachableError, OSError: See `search_images`.
        """
        return await self._send(batch_call(searches))

    async def search_many(
        self,
        queries: Iterable[str | Search],
        target: Target = "images",
        *,
        batch_size: int = BATCH_QUERIES,
        **fields: Unpack[SearchFields],
    ) -> AsyncIterator[Outcome]:
        """Ask any number of searches, a batch in a request.

        Args:
            queries: Texts, to which `target` and `fields` apply, and searches, which are complete.
            target: Collection to search for the texts.
            batch_size: Number of searches per request.
            fields: Search options for the texts, see `SearchFields`.

        Yields:
            In the same order, an answer or the error of each, as the batches come back.

        Raises:
            ServiceError: If the service rejects a whole batch.
            ServiceUnreachableError, OSError: See `search_images`.
        """
        for call in batch_calls(queries, target, batch_size, fields):
            for outcome in await self._send(call):
                yield outcome

    async def item(self, target: Target, item_id: str) -> Item:
        """Look an item up.

        Raises:
            NotFoundError: If there is no such item.
        """
        return await self._send(item_call(target, item_id))

    async def list_items(
        self,
        target: Target = "images",
        *,
        sort: str | None = None,
        order: ListDirection = "desc",
        filter: Mapping[str, Any] | None = None,
        limit: int | None = None,
        after: str | None = None,
    ) -> ItemPage:
        """List a page of items without a query.

        Args:
            target: Collection to list.
            sort: Metadata field to sort by, such as ``taken_at``, or None for the time of addition;
                items without a value come last.
            order: "desc" lists the largest value, or the newest item, first; "asc" the smallest.
            filter: Metadata that an item must have, as in a search.
            limit: Maximum number of items, or None for the service's default, 50.
            after: The field `next` of the page before, or None for the first page.

        Raises:
            RefusedInputError: If the index is in a vector database, an argument is out of its
                bounds, or the field is not indexed for filters.
            NotFoundError: If the index has no such collection, or never had the item `after`.
        """
        return await self._send(list_call(target, sort, order, filter, limit, after))

    async def every_item(
        self,
        target: Target = "images",
        *,
        sort: str | None = None,
        order: ListDirection = "desc",
        filter: Mapping[str, Any] | None = None,
        page_size: int = LISTED_ITEMS,
    ) -> AsyncIterator[ListedItem]:
        """List all items, a page in a request.

        Args:
            target: Collection to list.
            sort: Metadata field to sort by, see `list_items`.
            order: Direction of the order.
            filter: Metadata that an item must have.
            page_size: Number of items per request.

        Yields:
            The items in the order, as their pages come back.

        Raises:
            RefusedInputError, NotFoundError: See `list_items`.
        """
        after = None
        while True:
            page = await self._send(list_call(target, sort, order, filter, page_size, after))
            for item in page.items:
                yield item
            if page.next is None:
                return
            after = page.next

    async def photo(self, item_id: str, size_px: int | None = None) -> Photo:
        """Fetch an image's photo: its file, or with `size_px` a JPEG with at most this long a side.

        Raises:
            NotFoundError: If there is no such image, or its file no longer exists.
        """
        return await self._send(photo_call(item_id, size_px))

    async def explain(
        self,
        item_id: str,
        text: str | None = None,
        *,
        query_id: str | None = None,
        image: PictureSource | None = None,
        regions: PictureSource | None = None,
        box: Sequence[float] | None = None,
    ) -> WordMapsAnswer:
        """Compare each word of a text, or each region in a box, with every region of a photo.

        Args:
            item_id: Id of an indexed photo for a text query, of an indexed text for a photo, of
                either for a part of a photo.
            text: Words of the query; if omitted, one of the following arguments is required.
            query_id: Id of another item of the index.
            image: A photo that is not in the index.
            regions: Regions of that photo, or instead of it, for an index of a region model.
            box: Part of the query's photo to compare, in fractions of its width and height.

        Returns:
            The scores of both stages; for each word its part of the alignment score, its best
            region, and its cosines with all regions.

        Raises:
            InputError: If not exactly one of `text`, `query_id` and a photo is given.
            NotFoundError: If there is no such item.
            RefusedInputError: If both have one modality (without a box), or the photo is over a
                limit.
            OSError: If the photo's file cannot be read.
        """
        pair = ExplainedPair(item_id, text, query_id, image, regions, box)
        return await self._send(explain_call(pair))

    async def explain_png(
        self,
        item_id: str,
        text: str | None = None,
        *,
        query_id: str | None = None,
        image: PictureSource | None = None,
        regions: PictureSource | None = None,
        box: Sequence[float] | None = None,
    ) -> bytes:
        """Draw the evidence for a score: the photo with its regions, the text with its numbers.

        The file also carries the numbers, see `aladin_service.evidence.png.read_evidence`. The
        arguments and errors are those of `explain`.
        """
        pair = ExplainedPair(item_id, text, query_id, image, regions, box)
        return await self._send(drawing_call(pair))

    async def add_photo(self, photo: NewPhoto, on_duplicate: OnDuplicate = "error") -> Added:
        """Add one photo; its file is read while it is sent.

        Args:
            photo: The new item.
            on_duplicate: Treatment of an id that already exists. With "error" a broken connection
                is not retried, because the photo may have been added.

        Raises:
            ConflictError: If `on_duplicate` is "error" and the ID exists already.
            RefusedInputError: If the photo is not a picture, or exceeds a limit.
            OSError: If the file cannot be read.
        """
        return await self._send(add_photo_call(photo, on_duplicate))

    async def add_photos(
        self, photos: Sequence[NewPhoto], on_duplicate: OnDuplicate = "error"
    ) -> Added:
        """Add several photos in one step, all or none; otherwise as `add_photo`."""
        return await self._send(add_call(photos, on_duplicate))

    async def add_text(self, text: NewText, on_duplicate: OnDuplicate = "error") -> Added:
        """Add one text; otherwise as `add_photo`."""
        return await self._send(add_call([text], on_duplicate))

    async def add_texts(
        self, texts: Sequence[NewText], on_duplicate: OnDuplicate = "error"
    ) -> Added:
        """Add several texts in one step, all or none; otherwise as `add_photo`."""
        return await self._send(add_call(texts, on_duplicate))

    async def add_many(
        self,
        items: Iterable[NewItem],
        on_duplicate: OnDuplicate = "error",
        *,
        max_items: int = ADD_ITEMS,
        max_bytes: int = ADD_BYTES,
    ) -> AsyncIterator[Added]:
        """Add any number of photos and texts, in requests of bounded size.

        Args:
            items: New items, read while the requests are sent.
            on_duplicate: Treatment of ids that already exist.
            max_items: Maximum number of items in a request.
            max_bytes: Maximum bytes of pictures in a request; a larger picture is sent alone.

        Yields:
            The result of each request, once it is on the disk; an error undoes none before it.

        Raises:
            ServiceError: If the service rejects a whole request, as in `add_photo`.
            OSError: If a file cannot be read.
        """
        for call in add_calls(items, on_duplicate, max_items, max_bytes):
            yield await self._send(call)

    async def delete(self, target: Target, item_id: str) -> Deleted:
        """Delete an item.

        Raises:
            NotFoundError: If there is no such item.
        """
        return await self._send(delete_call(target, item_id))

    async def index(self) -> LiveIndexInfo:
        """Describe the live generation of the index."""
        return await self._send(index_call())

    async def index_fields(self) -> IndexFields:
        """Describe the metadata fields that are indexed for filters: values, or their range.

        Raises:
            RefusedInputError: If the index is in a vector database.
        """
        return await self._send(fields_call())
