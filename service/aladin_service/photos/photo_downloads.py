"""Requests of photos over HTTP from public addresses.

Only a service that may fetch photos imports this module: HTTP clients take a tenth of its start.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Sequence
from functools import cached_property
from typing import cast

import httpcore
import httpx

from aladin_network.errors import ImageTooLargeError
from aladin_service.photos.photo_url import PORTS, ImageUrlFailedError, PhotoUrl
from aladin_service.photos.pinned_network import PinnedNetwork, Resolver, system_addresses
from aladin_service.search.task_group import task_group
from aladin_service.settings import ServiceSettings

_MAX_REDIRECTS = 3
_REDIRECTS = (301, 302, 303, 307, 308)

# Number of photos fetched at the same time.
_MAX_FETCHES = 8

_NETWORK_ERRORS = (httpcore.TimeoutException, httpcore.NetworkError, httpcore.ProtocolError)

_HEADERS = [
    (b"User-Agent", b"aladin-search"),
    (b"Accept", b"image/*"),
    (b"Accept-Encoding", b"identity"),  # a few compressed bytes can become very many
]


class _Allowance:
    """Bytes that the photos of one request may still use together."""

    def __init__(self, left: int) -> None:
        self.left = left


class PhotoDownloads:
    """Downloads photos, some at a time."""

    def __init__(
        self,
        settings: ServiceSettings,
        resolve: Resolver | None,
        network: httpcore.AsyncNetworkBackend | None,
        tls: ssl.SSLContext | None,
    ) -> None:
        """Prepare without opening connections; see `PhotoFetcher`."""
        self._hosts = settings.image_url_hosts
        self._max_photo_bytes = settings.max_image_bytes
        # Fetched data counts like a request body of the same size.
        self._max_request_bytes = settings.max_body_bytes
        if network is None:
            network = cast(httpcore.AsyncNetworkBackend, httpcore.AnyIOBackend())
        self._network = PinnedNetwork(resolve or system_addresses, network)
        self._given_tls = tls
        self._slots = asyncio.Semaphore(_MAX_FETCHES)

    @cached_property
    def _tls(self) -> ssl.SSLContext:
        return self._given_tls or httpx.create_ssl_context()

    async def fetch(self, urls: Sequence[PhotoUrl]) -> list[bytes]:
        """Download the photos of one request: all of them or, if one fails, none.

        Args:
            urls: Locations of the photos.

        Raises:
            AladinError: If one fails, see `PhotoFetcher.fetch`.
        """
        allowance = _Allowance(self._max_request_bytes)
        async with task_group() as group:
            photos = [group.create_task(self._fetch_one(url, allowance)) for url in urls]
        return [photo.result() for photo in photos]

    async def _fetch_one(self, url: PhotoUrl, allowance: _Allowance) -> bytes:
        # A separate pool for each photo: no connection, cookie or address outlives the fetch.
        async with (
            self._slots,
            httpcore.AsyncConnectionPool(
                ssl_context=self._tls, max_keepalive_connections=0, network_backend=self._network
            ) as pool,
        ):
            for _ in range(_MAX_REDIRECTS + 1):
                try:
                    answer = await self._ask(pool, url, allowance)
                except (*_NETWORK_ERRORS, OSError):
                    raise ImageUrlFailedError(url.host) from None
                if isinstance(answer, bytes):
                    return answer
                url = answer
            raise ImageUrlFailedError(url.host, f"more than {_MAX_REDIRECTS} redirects")

    async def _ask(
        self, pool: httpcore.AsyncConnectionPool, url: PhotoUrl, allowance: _Allowance
    ) -> bytes | PhotoUrl:
        """Return the photo, or the URL that the response redirects to."""
        address = httpcore.URL(
            scheme=url.scheme.encode(),
            host=url.host.encode(),
            port=url.port,
            target=url.target.encode(),
        )
        default_port = url.port == PORTS[url.scheme]
        host = url.host if default_port else f"{url.host}:{url.port}"
        headers = [(b"Host", host.encode()), *_HEADERS]
        async with pool.stream("GET", address, headers=headers) as answer:
            if answer.status in _REDIRECTS:
                fields = {name.lower(): value for name, value in answer.headers}
                location = fields.get(b"location", b"").decode("latin-1")
                return url.after_redirect(location, self._hosts)
            if answer.status != 200:
                raise ImageUrlFailedError(url.host, f"status {answer.status} instead of a photo")
            photo = bytearray()
            async for part in answer.aiter_stream():
                photo += part
                allowance.left -= len(part)
                if len(photo) > self._max_photo_bytes:
                    limit = self._max_photo_bytes
                    raise ImageTooLargeError("image_url", f"more bytes than the limit of {limit}")
                if allowance.left < 0:
                    limit = self._max_request_bytes
                    raise ImageTooLargeError("image_url", f"more bytes than {limit} in one request")
            return bytes(photo)
