"""The key that a request carries."""

from __future__ import annotations

from starlette.datastructures import Headers

from service.http.access.errors import UnauthorizedError


def presented_key(headers: Headers) -> str | None:
    """Return the secret that a request carries; None: it carries none.

    Args:
        headers: ``Authorization: Bearer KEY`` or ``X-API-Key: KEY``.

    Raises:
        UnauthorizedError: there is another kind of authorization, or several that differ: a proxy
            that checks one and a service that checks the other would be no check at all.
    """
    given = set(headers.getlist("x-api-key"))
    for value in headers.getlist("authorization"):
        kind, _, secret = value.partition(" ")
        if kind.lower() != "bearer":
            raise UnauthorizedError("expected Authorization: Bearer KEY, got another kind")
        given.add(secret.strip())
    if len(given) > 1:
        raise UnauthorizedError("the request carries keys that differ")
    return given.pop() if given else None
