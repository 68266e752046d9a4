"""What the tools need of an index, and the implementation for a service at a URL.

The implementation for an index that this process serves is in `aladin_service.http.agents`: it
calls what the HTTP routes call.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import httpx

from aladin_index.search.options import OPTION_NAMES, SearchOptions
from aladin_index.search.results import SearchAnswer
from aladin_network.types import Target
from aladin_service.client.calls import Photo
from aladin_service.client.clients import AsyncAladinClient
from aladin_service.client.connection import RetryPolicy
from aladin_service.client.searches import Search, SearchPart
from aladin_service.search.answers import (
    IndexFields,
    Item,
    ItemPage,
    LiveIndexInfo,
    WordMapsAnswer,
)

# An agent waits for the answer, and can ask again.
_RETRIES = RetryPolicy(attempts=3, total_s=30.0)


@dataclass(frozen=True, kw_only=True)
class Query:
    """Words, or an item of the index, exactly one of them; and further parts of the query.

    Attributes:
        text: Words.
        item_id: Id of the item.
        box: Part of the item's photo, in fractions of its size; None for all of it.
        also: Texts that hits have as well.
        without: Texts that hits do not have.
        like: Ids of items that hits are like.
    """

    text: str | None = None
    item_id: str | None = None
    box: Sequence[float] | None = None
    also: Sequence[str] = ()
    without: Sequence[str] = ()
    like: Sequence[str] = ()

    def search(self, target: Target, options: SearchOptions) -> Search:
        """Return the search that a client would send.

        Args:
            target: Collection to search.
            options: Options of the search.
        """
        how: Any = {name: getattr(options, name) for name in OPTION_NAMES}
        if not (self.also or self.without or self.like):
            return Search(self.text, target, id=self.item_id, box=self.box, **how)
        return Search(
            target=target,
            all=[SearchPart(text=self.text, id=self.item_id, box=self.box), *self.also],
            not_=self.without,
            like=self.like,
            **how,
        )


class IndexAccess(Protocol):
    """An index, as the tools use it; every method raises `ServiceError` as the HTTP API answers.

    `ServiceUnreachableError` may be raised, too, if the index is that of a service.
    """

    async def search(self, query: Query, target: Target, options: SearchOptions) -> SearchAnswer:
        """Search one collection."""
        ...

    async def compare(self, photo_id: str, query: Query) -> WordMapsAnswer:
        """Compare the words of a text with the regions of a photo."""
        ...

    async def draw(self, photo_id: str, query: Query) -> bytes:
        """Draw the evidence for a text and a photo; returns a PNG file."""
        ...

    async def photo(self, photo_id: str, size_px: int) -> Photo:
        """Return a photo as a JPEG whose longest side has at most this many pixels."""
        ...

    async def item(self, target: Target, item_id: str) -> Item:
        """Look an item up."""
        ...

    async def newest(self, target: Target, count: int) -> ItemPage:
        """Return the items that were added last."""
        ...

    async def index(self) -> LiveIndexInfo:
        """Describe the live generation."""
        ...

    async def fields(self) -> IndexFields:
        """Describe the metadata fields."""
        ...


class RemoteIndex:
    """The index of a running service."""

    def __init__(
        self,
        url: str,
        *,
        api_key: str | None = None,
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        """Connect to nothing yet.

        Args:
            url: URL of the service.
            api_key: API key, or None for the one in the environment variable ALADIN_API_KEY.
            transport: Transport that sends the requests, or None for the network.

        Raises:
            ConfigError: If the URL is not a valid HTTP URL.
        """
        self._client = AsyncAladinClient(
            url, api_key=api_key, retries=_RETRIES, transport=transport
        )

    async def close(self) -> None:
        """Close the connections."""
        await self._client.close()

    async def search(self, query: Query, target: Target, options: SearchOptions) -> SearchAnswer:
        """Search one collection."""
        return await self._client.search(query.search(target, options))

    async def compare(self, photo_id: str, query: Query) -> WordMapsAnswer:
        """Compare the words of a text with the regions of a photo."""
        return await self._client.explain(photo_id, query.text, query_id=query.item_id)

    async def draw(self, photo_id: str, query: Query) -> bytes:
        """Draw the evidence for a text and a photo; returns a PNG file."""
        return await self._client.explain_png(photo_id, query.text, query_id=query.item_id)

    async def photo(self, photo_id: str, size_px: int) -> Photo:
        """Return a photo as a JPEG whose longest side has at most this many pixels."""
        return await self._client.photo(photo_id, size_px)

    async def item(self, target: Target, item_id: str) -> Item:
        """Look an item up."""
        return await self._client.item(target, item_id)

    async def newest(self, target: Target, count: int) -> ItemPage:
        """Return the items that were added last."""
        return await self._client.list_items(target, limit=count)

    async def index(self) -> LiveIndexInfo:
        """Describe the live generation."""
        return await self._client.index()

    async def fields(self) -> IndexFields:
        """Describe the metadata fields."""
        return await self._client.index_fields()
