"""Photos that clients name by their URL: which URLs are fetched.

A URL is parsed once, so that the address that is checked is the address that is requested.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple
from urllib.parse import quote, urljoin, urlsplit

from aladin_network.errors import AladinError, InputError

MAX_URL_CHARS = 2000

PORTS = {"http": 80, "https": 443}
_HOST = re.compile(r"[a-z0-9]([a-z0-9-]*[a-z0-9])?(\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)*")
# All characters that may occur in a path or a query; existing escapes are kept.
_UNESCAPED = "/?:@!$&'()*+,;=-._~%"


class ImageUrlRefusedError(AladinError):
    """A URL that this service never fetches, regardless of its content."""

    def __init__(self, reason: str) -> None:
        super().__init__(f"image_url: {reason}")


class ImageUrlFailedError(InputError):
    """A photo could not be fetched.

    The message is the same for unknown hosts, hosts that do not answer and private addresses, so
    that it reveals nothing about internal networks.
    """

    def __init__(self, host: str, reason: str = "no photo could be fetched") -> None:
        super().__init__(f"image_url: {reason} from {host}")


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
