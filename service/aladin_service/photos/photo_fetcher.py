"""Fetching of photos that clients name by their URL."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING

from aladin_network.errors import OverloadedError
from aladin_service.photos.photo_url import ImageUrlFailedError, parse_photo_url
from aladin_service.settings import ServiceSettings

if TYPE_CHECKING:
    import ssl

    import httpcore

    from aladin_service.photos.pinned_network import Resolver

# Number of requests that may wait for photos.
_MAX_REQUESTS = 32
_RETRY_AFTER_S = 1.0


class PhotoFetcher:
    """Fetches photos from listed hosts, within limits of bytes, time and number."""

    def __init__(
        self,
        settings: ServiceSettings,
        resolve: Resolver | None = None,
        network: httpcore.AsyncNetworkBackend | None = None,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        """Create a fetcher without opening connections.

        Args:
            settings: Allowed hosts and limits in bytes and seconds.
            resolve: Function that finds the addresses of a host, or None for the machine's own
                resolver.
            network: Network backend that connects to one of the addresses, or None for the
                machine's own network.
            tls: TLS context that checks certificates, or None to check against the public
                authorities.
        """
        self._hosts = settings.image_url_hosts
        self._timeout_s = settings.image_url_timeout_s
        self._requests = 0
        self._downloads = None
        if settings.image_url_hosts:
            # Only now: to import HTTP clients takes a tenth of a service's start.
            from aladin_service.photos.photo_downloads import PhotoDownloads

            self._downloads = PhotoDownloads(settings, resolve, network, tls)

    async def fetch(self, urls: Sequence[str]) -> list[bytes]:
        """Fetch the photos of one request: all of them or, if one fails, none.

        Args:
            urls: URLs as given by the client.

        Returns:
            Their bytes, which nobody has looked at yet.

        Raises:
            ImageUrlRefusedError: If a URL, or one that it redirects to, may not be fetched.
            ImageUrlFailedError: If a photo cannot be fetched, or not in time.
            ImageTooLargeError: If a photo, or all photos together, have too many bytes.
            OverloadedError: If too many requests are already waiting for photos.
        """
        parsed = [parse_photo_url(url, self._hosts) for url in urls]
        assert self._downloads is not None  # without a host, every URL is refused
        if self._requests >= _MAX_REQUESTS:
            raise OverloadedError(_RETRY_AFTER_S)
        self._requests += 1
        try:
            async with asyncio.timeout(self._timeout_s):
                return await self._downloads.fetch(parsed)
        except TimeoutError:
            raise ImageUrlFailedError(parsed[0].host) from None
        finally:
            self._requests -= 1
