"""Fetching of photos that clients name by their URL.

A URL is parsed once, so that the address that is checked is the address that is requested.
"""

from __future__ import annotations

import asyncio
import re
import ssl
from collections.abc import Sequence
from functools import cached_property
from typing import NamedTuple, cast
from urllib.parse import quote, urljoin, urlsplit

import httpcore
import httpx

from aladin_network.errors import AladinError, ImageTooLargeError, InputError, OverloadedError
from aladin_service.photos.pinned_network import PinnedNetwork, Resolver, system_addresses
from aladin_service.settings import ServiceSettings

MAX_URL_CHARS = 2000

PORTS = {"http": 80, "https": 443}
_HOST = re.compile(r"[a-z0-9]([a-z0-9-]*[a-z0-9])?(\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)*")
# All characters that may occur in a path or a query; existing escapes are kept.
_UNESCAPED = "/?:@!$&'()*+,;=-._~%"

_MAX_REDIRECTS = 3
_REDIRECTS = (301, 302, 303, 307, 308)

# Number of photos fetched at the same time, and of requests that may wait for that.
_MAX_FETCHES = 8
_MAX_REQUESTS = 32
_RETRY_AFTER_S = 1.0

_NETWORK_ERRORS = (httpcore.TimeoutException, httpcore.NetworkError, httpcore.ProtocolError)

_HEADERS = [
    (b"User-Agent", b"aladin-search"),
    (b"Accept", b"image/*"),
    (b"Accept-Encoding", b"identity"),  # a few compressed bytes can become very many
]


class ImageUrlRefusedError(AladinError):
    """A URL that this service never fetches, regardless of its content."""

    def __init__(self, reason: str) -> None:
        super().__init__(f"image_url: {reason}")


class PhotoUrl(NamedTuple):
    """Location of a photo.

    Attributes:
        scheme: URL scheme, http or https.
        host: A name in lower case, or an address.
        port: 80 or 443.
        target: Path and query.
    """

    scheme: str
    host: str
    port: int
    target: str

    def __str__(self) -> str:
        return f"{self.scheme}://{self.host}:{self.port}{self.target}"

    def after_redirect(self, location: str, hosts: Sequence[str]) -> PhotoUrl:
        """Return the target of a redirect, checked like the first URL.

        Raises:
            ImageUrlRefusedError: If the target is refused; see `parse_photo_url`.
        """
        try:
            url = urljoin(str(self), location)
        except ValueError:
            raise ImageUrlRefusedError("redirected to an invalid URL") from None
        return parse_photo_url(url, hosts)


def parse_photo_url(url: str, hosts: Sequence[str]) -> PhotoUrl:
    """Parse a URL and check everything that needs no network.

    Args:
        url: URL as given by the client.
        hosts: Host names that photos may be fetched from; ``*.example.com`` stands for all names
            under example.com.

    Raises:
        ImageUrlRefusedError: If the text is not a URL, or its scheme, host or port is not allowed.
    """
    if not hosts:
        raise ImageUrlRefusedError("this service does not fetch photos")
    if len(url) > MAX_URL_CHARS:
        raise ImageUrlRefusedError(f"expected at most {MAX_URL_CHARS} characters, got {len(url)}")
    # Parsers interpret these characters differently.
    if any(char <= " " or char in "\\\x7f" for char in url):
        raise ImageUrlRefusedError("a URL cannot contain spaces, control characters or backslashes")
    try:
        parts = urlsplit(url)
        port = parts.port
        host = (parts.hostname or "").rstrip(".").encode("idna").decode("ascii").lower()
    except ValueError:
        raise ImageUrlRefusedError("invalid URL") from None
    if parts.scheme not in PORTS:
        raise ImageUrlRefusedError("expected a URL that begins with http:// or https://")
    if "@" in parts.netloc:
        raise ImageUrlRefusedError("URLs with a user name are not allowed")
    port = PORTS[parts.scheme] if port is None else port
    if port not in PORTS.values():
        raise ImageUrlRefusedError("expected port 80 or 443")
    if not _HOST.fullmatch(host) or not _is_listed(host, hosts):
        raise ImageUrlRefusedError("this service does not fetch photos from this host")
    query = f"?{parts.query}" if parts.query else ""
    return PhotoUrl(parts.scheme, host, port, quote((parts.path or "/") + query, safe=_UNESCAPED))


def _is_listed(host: str, hosts: Sequence[str]) -> bool:
    for listed in hosts:
        name = listed.lower().rstrip(".")
        if host == name or (name.startswith("*.") and host.endswith(name[1:])):
            return True
    return False


class ImageUrlFailedError(InputError):
    """A photo could not be fetched.

    Says the same of a host that is not there, that does not answer and that has an address in a
    private network: whoever asks learns nothing of networks that only this machine can see.
    """

    def __init__(self, host: str, reason: str = "no photo could be fetched") -> None:
        super().__init__(f"image_url: {reason} from {host}")


class _Allowance:
    """Bytes that the photos of one request may still use together."""

    def __init__(self, left: int) -> None:
        self.left = left


class PhotoFetcher:
    """Fetches photos from listed hosts, within limits of bytes, time and number."""

    def __init__(
        self,
        settings: ServiceSettings,
        resolve: Resolver = system_addresses,
        network: httpcore.AsyncNetworkBackend | None = None,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        """Create a fetcher without opening connections.

        Args:
            settings: Allowed hosts and limits in bytes and seconds.
            resolve: Function that finds the addresses of a host.
            network: Network backend that connects to one of the addresses, or None for the
                machine's own network.
            tls: TLS context that checks certificates, or None to check against the public
                authorities.
        """
        self._hosts = settings.image_url_hosts
        self._timeout_s = settings.image_url_timeout_s
        self._max_photo_bytes = settings.max_image_bytes
        # Fetched data counts like a request body of the same size.
        self._max_request_bytes = settings.max_body_bytes
        if network is None:
            network = cast(httpcore.AsyncNetworkBackend, httpcore.AnyIOBackend())
        self._network = PinnedNetwork(resolve, network)
        self._given_tls = tls
        self._slots = asyncio.Semaphore(_MAX_FETCHES)
        self._requests = 0

    @cached_property
    def _tls(self) -> ssl.SSLContext:
        return self._given_tls or httpx.create_ssl_context()

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
        if self._requests >= _MAX_REQUESTS:
            raise OverloadedError(_RETRY_AFTER_S)
        allowance = _Allowance(self._max_request_bytes)
        self._requests += 1
        try:
            async with asyncio.timeout(self._timeout_s), asyncio.TaskGroup() as group:
                photos = [group.create_task(self._fetch_one(url, allowance)) for url in parsed]
            return [photo.result() for photo in photos]
        except TimeoutError:
            raise ImageUrlFailedError(parsed[0].host) from None
        except BaseExceptionGroup as errors:
            raise _first(errors) from None
        finally:
            self._requests -= 1

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


def _first(errors: BaseExceptionGroup[BaseException]) -> BaseException:
    """Return the first of several errors; the others result from cancelling the rest."""
    first = errors.exceptions[0]
    return _first(first) if isinstance(first, BaseExceptionGroup) else first
