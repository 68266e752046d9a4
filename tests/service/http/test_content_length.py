"""What a request says of its body's length."""

from __future__ import annotations

import pytest

from aladin_service.http.middleware import ENDLESS_BYTES, declared_length


@pytest.mark.parametrize(
    ("header", "length"),
    [
        (b"0", 0),
        (b"2048", 2048),
        (b"9" * 18, 10**18 - 1),
        (b"9" * 19, ENDLESS_BYTES),
        (b"1" * 10_000, ENDLESS_BYTES),
        (b"", None),
        (b"-1", None),
        (b"many", None),
        ("²".encode("latin-1"), None),
    ],
)
def test_a_number_of_bytes_or_nothing(header: bytes, length: int | None) -> None:
    assert declared_length({"headers": [(b"content-length", header)]}) == length


def test_a_body_that_comes_in_pieces_has_none() -> None:
    assert declared_length({"headers": [(b"transfer-encoding", b"chunked")]}) is None
