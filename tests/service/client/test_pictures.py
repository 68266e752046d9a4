"""Pictures that are read while they are sent."""

from __future__ import annotations

import base64
import io
import json
from pathlib import Path

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aladin_service.client import AladinClient, RefusedInputError
from aladin_service.client.additions import NewItem, NewPhoto, NewText, add_many, add_photos
from aladin_service.client.pictures import (
    base64_chunks,
    can_be_sent_again,
    open_picture,
    picture_bytes,
)


class Pipe(io.RawIOBase):
    """A file that can be read once, and gives less than it is asked for."""

    def __init__(self, data: bytes) -> None:
        self._data = io.BytesIO(data)

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return False

    def read(self, size: int = -1) -> bytes:
        return self._data.read(min(size, 1000) if size > 0 else 1000)


class Large(io.RawIOBase):
    """A file of zeros that remembers the most that was wanted at a time."""

    def __init__(self, length: int) -> None:
        self._length = length
        self._place = 0
        self.most = 0

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        self._place = offset if whence == io.SEEK_SET else self._length + offset
        return self._place

    def read(self, size: int = -1) -> bytes:
        assert size > 0
        self.most = max(self.most, size)
        count = min(size, self._length - self._place)
        self._place += count
        return bytes(count)


@given(st.binary(max_size=5000))
def test_base64_in_pieces_is_base64(data: bytes) -> None:
    whole = base64.b64encode(data)
    assert b"".join(base64_chunks(data)) == whole
    assert b"".join(base64_chunks(Pipe(data))) == whole  # pyright: ignore[reportArgumentType]


def test_each_kind_of_source_gives_the_same_bytes_again_and_again(tmp_path: Path) -> None:
    path = tmp_path / "a.jpg"
    path.write_bytes(b"pixels")
    opened = io.BytesIO(b"pixels")
    for source in (b"pixels", path, str(path), opened):
        assert can_be_sent_again(source)
        assert picture_bytes(source) == 6
        for _ in range(2):
            with open_picture(source) as file:
                assert file.read() == b"pixels"
    assert not opened.closed
    assert not can_be_sent_again(Pipe(b""))  # pyright: ignore[reportArgumentType]
    assert picture_bytes(Pipe(b"")) is None  # pyright: ignore[reportArgumentType]


def sent(items: list[NewItem], max_items: int, max_bytes: int) -> list[tuple[str, list[str]]]:
    found: list[tuple[str, list[str]]] = []
    for call in add_many(items, max_items=max_items, max_bytes=max_bytes):
        with call.body() as body:
            assert body.content is not None
            ids = [item["id"] for item in json.loads(b"".join(body.content))["items"]]
        found.append((call.path, ids))
    return found


def test_requests_are_bounded_in_items_and_bytes_and_hold_one_kind() -> None:
    texts: list[NewItem] = [NewText(str(number), "words") for number in range(5)]
    assert sent(texts, 2, 100) == [
        ("v1/items/texts", ["0", "1"]),
        ("v1/items/texts", ["2", "3"]),
        ("v1/items/texts", ["4"]),
    ]
    # 30 bytes are 40 in base64.
    photos: list[NewItem] = [NewPhoto(str(number), bytes(30)) for number in range(3)]
    large = NewPhoto("large", bytes(300))
    mixed = [*photos, large, NewPhoto("last", b""), texts[0], NewPhoto("more", b"")]
    assert sent(mixed, 10, 100) == [
        ("v1/items/images", ["0", "1"]),
        ("v1/items/images", ["2"]),
        ("v1/items/images", ["large"]),
        ("v1/items/images", ["last"]),
        ("v1/items/texts", ["0"]),
        ("v1/items/images", ["more"]),
    ]
    assert sent([], 10, 100) == []


@pytest.mark.parametrize(
    ("on_duplicate", "source", "again"),
    [
        ("error", b"x", "unless_begun"),
        ("replace", b"x", "always"),
        ("skip", b"x", "always"),
        ("replace", Pipe(b"x"), "never"),
    ],
)
def test_additions_are_sent_again_only_where_that_does_no_harm(
    on_duplicate: str, source: bytes, again: str
) -> None:
    call = add_photos([NewPhoto("1", b"y"), NewPhoto("2", source)], on_duplicate)  # pyright: ignore
    assert call.again == again


class Counter(httpx.BaseTransport):
    """Takes a request piece by piece, and remembers how it came."""

    longest = 0
    total = 0

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        assert isinstance(request.stream, httpx.SyncByteStream)
        for chunk in request.stream:
            self.longest = max(self.longest, len(chunk))
            self.total += len(chunk)
        return httpx.Response(422, json={})


@pytest.mark.parametrize("together", [False, True])
def test_a_large_photo_is_uploaded_piece_by_piece(together: bool) -> None:
    file, counter = Large(4_000_000), Counter()
    photo = NewPhoto("large", file)  # pyright: ignore[reportArgumentType]
    with (
        AladinClient("http://host", transport=counter) as client,
        pytest.raises(RefusedInputError),
    ):
        client.add_photos([photo]) if together else client.add_photo(photo)
    assert counter.total > 4_000_000
    assert counter.longest < 200_000
    assert file.most < 100_000
