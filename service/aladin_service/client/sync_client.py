"""The client for programs without an event loop.

Generated from `async_client` by ``python -m tests.service.client.sync_source``; change
that file instead.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from types import TracebackType
from typing import Self, TypeVar, Unpack

import httpx

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
from aladin_service.client.answers import Added, Deleted, Item, LiveIndexInfo
from aladin_service.client.calls import (
    Call,
    Photo,
    PictureSource,
    delete_call,
    explain_call,
    index_call,
    item_call,
    photo_call,
    probe_call,
)
from aladin_service.client.connection import (
    ADD_BYTES,
    ADD_ITEMS,
    BATCH_QUERIES,
    Attempts,
    RetryPolicy,
    connection_settings,
    patience,
)
from aladin_service.client.searches import (
    Outcome,
    Search,
    SearchFields,
    batch_call,
    batch_calls,
    search_call,
)
from aladin_service.client_errors import NotReadyError, ServiceUnreachableError

T = TypeVar("T")


class AladinClient:
    """Client of a service over HTTP; may be used from any number of threads.

    >>> from aladin_service.client import AladinClient
    >>> with AladinClient(url) as client:
    ...     client.wait_until_ready()
    ...     answer = client.search_images("a red dog", k=2)
    ...     png = client.explain_png(answer.hits[0].id, "a red dog")
    >>> [hit.rank for hit in answer.hits], png[1:4]
    ([1, 2], b'PNG')
    """

    def __init__(
        self,
        url: str,
        *,
        api_key: str | None = None,
        timeout_s: float = 30.0,
        retries: RetryPolicy | None = None,
        transport: httpx.BaseTransport | None = None,
    ) -> None:
        """Connect to nothing yet.

        Args:
            url: URL of the service, such as ``http://127.0.0.1:8000``.
            api_key: API key, or None for the one in the environment variable ALADIN_API_KEY, if
                any.
            timeout_s: Timeout for connecting and for each wait for the network.
            retries: Retry policy, or None for the defaults of `RetryPolicy`.
            transport: Transport that sends the requests, or None for the network.

        Raises:
            ConfigError: If the URL is not a valid HTTP URL.
        """
        self._retries = retries or RetryPolicy()
        self._timeout_s = timeout_s
        self._http = httpx.Client(
            **connection_settings(url, api_key, timeout_s), transport=transport
        )

    def __enter__(self) -> Self:
        """Return the client."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close the connections."""
        self.close()

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    def search_images(
        self, text: str | None = None, **fields: Unpack[SearchFields]
    ) -> SearchAnswer:
        """Find the images that fit a text, a picture or an item.

        Args:
            text: Words, or None if `image`, `id`, `image_url` or `regions` is given.
            fields: Search options, see `SearchFields`.

        Raises:
            ServiceError: If the service rejects the request.
            ServiceUnreachableError: If the service does not answer.
            OSError: If a picture's file cannot be read.
        """
        return self._send(search_call(Search(text, "images", **fields)))

    def search_texts(self, text: str | None = None, **fields: Unpack[SearchFields]) -> SearchAnswer:
        """Find the texts that fit a picture, a text or an item; as `search_images`."""
        return self._send(search_call(Search(text, "texts", **fields)))

    def search(self, search: Search) -> SearchAnswer:
        """Ask one search that is put together already; otherwise as `search_images`."""
        return self._send(search_call(search))

    def search_batch(self, searches: Sequence[Search]) -> list[Outcome]:
        """Ask several searches in one request.

        Args:
            searches: One search or more, at most the service's ALADIN_MAX_BATCH_QUERIES.

        Returns:
            In the same order, an answer or the error of each.

        Raises:
            ServiceError: If the service rejects the whole batch.
            ServiceUnreachableError, OSError: See `search_images`.
        """
        return self._send(batch_call(searches))

    def search_many(
        self,
        queries: Iterable[str | Search],
        target: Target = "images",
        *,
        batch_size: int = BATCH_QUERIES,
        **fields: Unpack[SearchFields],
    ) -> Iterator[Outcome]:
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
            yield from self._send(call)

    def item(self, target: Target, item_id: str) -> Item:
        """Look an item up.

        Raises:
            NotFoundError: If there is no such item.
        """
        return self._send(item_call(target, item_id))

    def photo(self, item_id: str, size_px: int | None = None) -> Photo:
        """Fetch an image's photo: its file, or with `size_px` a JPEG with at most this long a side.

        Raises:
            NotFoundError: If there is no such image, or its file no longer exists.
        """
        return self._send(photo_call(item_id, size_px))

    def explain_png(
        self,
        item_id: str,
        text: str | None = None,
        *,
        query_id: str | None = None,
        image: PictureSource | None = None,
        regions: PictureSource | None = None,
    ) -> bytes:
        """Draw the evidence for a score: the photo with its regions, the text with its numbers.

        The file also carries the numbers, see `aladin_service.evidence.png.read_evidence`.

        Args:
            item_id: Id of an indexed photo for a text query, of an indexed text for a photo.
            text: Words of the query; if omitted, one of the following arguments is required.
            query_id: Id of another item of the index.
            image: A photo that is not in the index.
            regions: Regions of that photo, or instead of it, for an index of a region model.

        Raises:
            InputError: If not exactly one of `text`, `query_id` and a photo is given.
            NotFoundError: If there is no such item.
            RefusedInputError: If both have one modality, or the photo is over a limit.
            OSError: If the photo's file cannot be read.
        """
        return self._send(explain_call(item_id, text, query_id, image, regions))

    def add_photo(self, photo: NewPhoto, on_duplicate: OnDuplicate = "error") -> Added:
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
        return self._send(add_photo_call(photo, on_duplicate))

    def add_photos(self, photos: Sequence[NewPhoto], on_duplicate: OnDuplicate = "error") -> Added:
        """Add several photos in one step, all or none; otherwise as `add_photo`."""
        return self._send(add_call(photos, on_duplicate))

    def add_text(self, text: NewText, on_duplicate: OnDuplicate = "error") -> Added:
        """Add one text; otherwise as `add_photo`."""
        return self._send(add_call([text], on_duplicate))

    def add_texts(self, texts: Sequence[NewText], on_duplicate: OnDuplicate = "error") -> Added:
        """Add several texts in one step, all or none; otherwise as `add_photo`."""
        return self._send(add_call(texts, on_duplicate))

    def add_many(
        self,
        items: Iterable[NewItem],
        on_duplicate: OnDuplicate = "error",
        *,
        max_items: int = ADD_ITEMS,
        max_bytes: int = ADD_BYTES,
    ) -> Iterator[Added]:
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
            yield self._send(call)

    def delete(self, target: Target, item_id: str) -> Deleted:
        """Delete an item.

        Raises:
            NotFoundError: If there is no such item.
        """
        return self._send(delete_call(target, item_id))

    def index(self) -> LiveIndexInfo:
        """Describe the live generation of the index."""
        return self._send(index_call())

    def health(self) -> bool:
        """Return whether the service's process answers."""
        return self._probe("healthz")

    def ready(self) -> bool:
        """Return whether the service can answer searches."""
        return self._probe("readyz")

    def wait_until_ready(self, timeout_s: float = 60.0) -> None:
        """Wait until the service can answer searches.

        Raises:
            NotReadyError: If the service answers, but is not ready in time.
            ServiceUnreachableError: If the service does not answer in time.
        """
        self._send(probe_call("readyz", "always"), patience(timeout_s))

    def _probe(self, path: str) -> bool:
        try:
            self._send(probe_call(path))
        except (NotReadyError, ServiceUnreachableError):
            return False
        return True

    def _send(self, call: Call[T], policy: RetryPolicy | None = None) -> T:
        attempts = Attempts(policy or self._retries, call.again)
        while True:
            try:
                response = self._attempt(call, attempts.left_s)
            except httpx.RequestError as error:
                wait_s = attempts.wait_s_after_error(error)
            else:
                wait_s = attempts.wait_s_after_answer(response)
                if wait_s is None:
                    return call.read(response)
            time.sleep(wait_s)

    def _attempt(self, call: Call[T], left_s: float) -> httpx.Response:
        with call.body() as body:
            return self._http.request(
                call.method,
                call.path,
                params=call.params,
                headers=body.headers,
                json=body.json,
                data=body.data,
                files=body.files,
                content=body.content,
                timeout=min(self._timeout_s, left_s),
            )
