"""Where searches of the retrievers are answered: an index in this process, or a running service."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from os import PathLike
from threading import Lock
from typing import Any, NamedTuple, Protocol
from weakref import WeakKeyDictionary, finalize

from aladin_index.search.options import OPTION_NAMES
from aladin_index.search.results import SearchAnswer
from aladin_network.errors import UnknownItemError
from aladin_search.functions import open as open_index
from aladin_search.index import Index
from aladin_service.client.async_client import AsyncAladinClient
from aladin_service.client.calls import Photo, item_path
from aladin_service.client.searches import Search
from aladin_service.client.sync_client import AladinClient
from aladin_service.client_errors import NotFoundError

# Photos that are fetched at a time for the hits of one search.
_AT_A_TIME = 4

Photos = Mapping[str, Photo | None]


class Links(NamedTuple):
    """Where the photo of an item is.

    Attributes:
        path: Path of its file, where the index is in this process and the photo has a file of its
            own.
        photo_url: URL of the photo at a service.
        thumbnail_url: URL of a JPEG of it.
    """

    path: str | None = None
    photo_url: str | None = None
    thumbnail_url: str | None = None


class Place(Protocol):
    """Where searches are answered."""

    def answer(self, search: Search) -> SearchAnswer:
        """Search."""
        ...

    def photos(self, ids: Sequence[str], size_px: int | None) -> Photos:
        """Return the photos of items, None for those that cannot be read any more."""
        ...

    async def answer_async(self, search: Search) -> SearchAnswer:
        """Search without blocking the event loop."""
        ...

    async def photos_async(self, ids: Sequence[str], size_px: int | None) -> Photos:
        """Return photos without blocking the event loop."""
        ...

    def links(self, item_id: str, size_px: int) -> Links:
        """Return where the photo of an item is."""
        ...

    def open(self) -> None:
        """Open what the first search would open."""
        ...

    def close(self) -> None:
        """Release what was opened here."""
        ...

    async def close_async(self) -> None:
        """Release what was opened here, the connections of this event loop included."""
        ...


class OpenIndex:
    """Answers searches by an index in this process."""

    def __init__(self, index: Index | str | PathLike[str] | None) -> None:
        """Open nothing yet.

        Args:
            index: Open index, or the folder of one.
        """
        self._given = index
        self._opened: Index | None = index if isinstance(index, Index) else None
        self._lock = Lock()

    def _index(self) -> Index:
        with self._lock:
            if self._opened is None:
                assert self._given is not None
                assert not isinstance(self._given, Index)
                self._opened = open_index(self._given)
            return self._opened

    def answer(self, search: Search) -> SearchAnswer:
        """Search."""
        image = search.image
        if image is not None and not isinstance(image, str | bytes | PathLike):
            image = image.read()
        options: Any = {name: getattr(search, name) for name in OPTION_NAMES}
        hits = self._index().search(
            search.text, image=image, id=search.id, target=search.target, **options
        )
        return hits.answer

    def photos(self, ids: Sequence[str], size_px: int | None) -> Photos:
        """Return the photos of items, None for those that cannot be read any more."""
        return {item_id: self._photo(item_id, size_px) for item_id in ids}

    def _photo(self, item_id: str, size_px: int | None) -> Photo | None:
        try:
            if size_px is None:
                whole = self._index().photo_bytes(item_id)
                return None if whole is None else Photo(whole.data, whole.media_type)
            small = self._index().thumbnail(item_id, size_px)
            return None if small is None else Photo(small, "image/jpeg")
        except UnknownItemError:  # deleted since the search
            return None

    async def answer_async(self, search: Search) -> SearchAnswer:
        """Search in a thread."""
        return await asyncio.to_thread(self.answer, search)

    async def photos_async(self, ids: Sequence[str], size_px: int | None) -> Photos:
        """Return photos, read in a thread."""
        return await asyncio.to_thread(self.photos, ids, size_px)

    def links(self, item_id: str, size_px: int) -> Links:
        """Return the path of a photo's file, unless it is a part of a file."""
        del size_px
        try:
            file = self._index().photo_file(item_id)
        except UnknownItemError:  # deleted since the search
            return Links()
        if file is None or file.offset or file.length is not None:
            return Links()
        return Links(path=str(file.path))

    def open(self) -> None:
        """Open the index."""
        self._index()

    def close(self) -> None:
        """Close the index, if it was opened here."""
        with self._lock:
            if self._opened is not None and self._opened is not self._given:
                self._opened.close()
                self._opened = None

    async def close_async(self) -> None:
        """Close the index, if it was opened here."""
        self.close()


class Service:
    """Answers searches by a running service."""

    def __init__(self, url: str, api_key: str | None, timeout_s: float) -> None:
        """Connect to nothing yet; see `AladinClient`."""
        self._settings: dict[str, Any] = {"url": url, "api_key": api_key, "timeout_s": timeout_s}
        self._url = url.rstrip("/")
        self._client: AladinClient | None = None
        # Connections belong to the event loop in which they were made.
        self._clients: WeakKeyDictionary[asyncio.AbstractEventLoop, AsyncAladinClient] = (
            WeakKeyDictionary()
        )
        self._lock = Lock()
        self._of_threads()  # checks the URL

    def _of_threads(self) -> AladinClient:
        with self._lock:
            if self._client is None:
                self._client = AladinClient(**self._settings)
                # The libraries do not close their retrievers.
                finalize(self, self._client.close)
            return self._client

    def _of_this_loop(self) -> AsyncAladinClient:
        loop = asyncio.get_running_loop()
        with self._lock:
            client = self._clients.get(loop)
            if client is None:
                client = self._clients[loop] = AsyncAladinClient(**self._settings)
            return client

    def answer(self, search: Search) -> SearchAnswer:
        """Search."""
        return self._of_threads().search(search)

    def photos(self, ids: Sequence[str], size_px: int | None) -> Photos:
        """Return the photos of items, None for those that cannot be read any more."""

        client = self._of_threads()

        def fetched(item_id: str) -> Photo | None:
            try:
                return client.photo(item_id, size_px)
            except NotFoundError:
                return None

        with ThreadPoolExecutor(min(_AT_A_TIME, len(ids))) as threads:
            return dict(zip(ids, threads.map(fetched, ids), strict=True))

    async def answer_async(self, search: Search) -> SearchAnswer:
        """Search."""
        return await self._of_this_loop().search(search)

    async def photos_async(self, ids: Sequence[str], size_px: int | None) -> Photos:
        """Return the photos of items, None for those that cannot be read any more."""
        client, turns = self._of_this_loop(), asyncio.Semaphore(_AT_A_TIME)

        async def fetched(item_id: str) -> Photo | None:
            async with turns:
                try:
                    return await client.photo(item_id, size_px)
                except NotFoundError:
                    return None

        photos = await asyncio.gather(*(fetched(each) for each in ids))
        return dict(zip(ids, photos, strict=True))

    def links(self, item_id: str, size_px: int) -> Links:
        """Return the URLs of a photo at the service, which may require a key."""
        url = f"{self._url}/v1/images/{item_path(item_id)}"
        return Links(photo_url=url, thumbnail_url=f"{url}?size={size_px}")

    def open(self) -> None:
        """Do nothing: the first request connects."""

    def close(self) -> None:
        """Close the connections that belong to no event loop; a later search makes new ones."""
        with self._lock:
            client, self._client = self._client, None
        if client is not None:
            client.close()

    async def close_async(self) -> None:
        """Close the connections, those of this event loop included."""
        with self._lock:
            client = self._clients.pop(asyncio.get_running_loop(), None)
        if client is not None:
            await client.close()
        self.close()
