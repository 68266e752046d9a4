"""The address of a photo, taken apart once: what is checked is what is asked for."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple
from urllib.parse import quote, urljoin, urlsplit

from aladin.errors import AladinError

MAX_URL_CHARS = 2000

PORTS = {"http": 80, "https": 443}
_HOST = re.compile(r"[a-z0-9]([a-z0-9-]*[a-z0-9])?(\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)*")
# All that may stand in a path or a query; what is escaped already stays so.
_UNESCAPED = "/?:@!$&'()*+,;=-._~%"


class ImageUrlRefusedError(AladinError):
    """A URL that this service does not fetch from, whatever is there."""

    def __init__(self, reason: str) -> None:
        super().__init__(f"image_url: {reason}")


class PhotoUrl(NamedTuple):
    """Where a photo is.

    Attributes:
        scheme: http or https.
        host: a name in lower case, or an address.
        port: 80 or 443.
        target: path and query.
    """

    scheme: str
    host: str
    port: int
    target: str

    def __str__(self) -> str:
        return f"{self.scheme}://{self.host}:{self.port}{self.target}"

    def after_redirect(self, location: str, hosts: Sequence[str]) -> PhotoUrl:
        """Return where an answer sends us on to, checked like the first URL.

        Raises:
            ImageUrlRefusedError: as `parse_photo_url`.
        """
        try:
            url = urljoin(str(self), location)
        except ValueError:
            raise ImageUrlRefusedError("redirected to what is no URL") from None
        return parse_photo_url(url, hosts)


def parse_photo_url(url: str, hosts: Sequence[str]) -> PhotoUrl:
    """Take a URL apart and check all of it that needs no network.

    Args:
        url: as the client gave it.
        hosts: names that photos may be fetched from; ``*.example.com`` stands for all names
            under example.com.

    Raises:
        ImageUrlRefusedError: it is none, or of a scheme, host or port that is not allowed.
    """
    if not hosts:
        raise ImageUrlRefusedError("this service fetches no photos")
    if len(url) > MAX_URL_CHARS:
        raise ImageUrlRefusedError(f"expected at most {MAX_URL_CHARS} characters, got {len(url)}")
    # Parsers differ in what they make of these.
    if any(char <= " " or char in "\\\x7f" for char in url):
        raise ImageUrlRefusedError("a URL has no spaces, control characters and backslashes")
    try:
        parts = urlsplit(url)
        port = parts.port
        host = (parts.hostname or "").rstrip(".").encode("idna").decode("ascii").lower()
    except ValueError:
        raise ImageUrlRefusedError("not a URL") from None
    if parts.scheme not in PORTS:
        raise ImageUrlRefusedError("expected a URL that begins with http:// or https://")
    if "@" in parts.netloc:
        raise ImageUrlRefusedError("a URL with a user name is not fetched")
    port = PORTS[parts.scheme] if port is None else port
    if port not in PORTS.values():
        raise ImageUrlRefusedError("expected port 80 or 443")
    if not _HOST.fullmatch(host) or not _is_listed(host, hosts):
        raise ImageUrlRefusedError("the host is not one that this service fetches photos from")
    query = f"?{parts.query}" if parts.query else ""
    return PhotoUrl(parts.scheme, host, port, quote((parts.path or "/") + query, safe=_UNESCAPED))


def _is_listed(host: str, hosts: Sequence[str]) -> bool:
    for listed in hosts:
        name = listed.lower().rstrip(".")
        if host == name or (name.startswith("*.") and host.endswith(name[1:])):
            return True
    return False
