"""The key that a request carries."""

from __future__ import annotations

import pytest
from starlette.datastructures import Headers

from aladin_service.http.access.control import presented_key
from aladin_service.http.errors import UnauthorizedError


def headers(*pairs: tuple[str, str]) -> Headers:
    """Headers in order, the same name several times if need be."""
    return Headers(raw=[(name.encode(), value.encode()) for name, value in pairs])


@pytest.mark.parametrize(
    "pairs",
    [
        [("authorization", "Bearer k")],
        [("authorization", "bearer  k ")],
        [("x-api-key", "k")],
        [("authorization", "Bearer k"), ("x-api-key", "k")],
    ],
)
def test_either_header_will_do(pairs: list[tuple[str, str]]) -> None:
    assert presented_key(headers(*pairs)) == "k"


def test_no_key_is_no_fault_yet() -> None:
    assert presented_key(headers(("accept", "*/*"))) is None


@pytest.mark.parametrize(
    "pairs",
    [
        [("authorization", "Bearer k"), ("x-api-key", "other")],
        [("x-api-key", "k"), ("x-api-key", "other")],
        [("authorization", "Bearer k"), ("authorization", "Bearer other")],
        [("authorization", "Basic dXNlcjprZXk=")],
        [("authorization", "Bearer k"), ("authorization", "Basic dXNlcjprZXk=")],
        [("authorization", "k")],
    ],
)
def test_what_is_not_one_key(pairs: list[tuple[str, str]]) -> None:
    with pytest.raises(UnauthorizedError) as failure:
        presented_key(headers(*pairs))
    assert "other" not in str(failure.value).replace("another", "")
