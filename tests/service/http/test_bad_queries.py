"""Bad photos and texts: each gets one clear error, and good queries beside them their answers."""

from __future__ import annotations

import struct
import zlib

import httpx
import pytest

from tests.aladin.pictures import long_png, webp_of
from tests.service.http.conftest import Service, b64, told

pytestmark = pytest.mark.anyio


def png_bomb(side_px: int) -> bytes:
    """A tiny PNG file whose header declares side_px x side_px pixels."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        checksum = zlib.crc32(kind + data)
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", checksum)

    header = struct.pack(">IIBBBBB", side_px, side_px, 8, 0, 0, 0, 0)
    pixels = zlib.compress(b"\0" * 4096, 9)
    start = b"\x89PNG\r\n\x1a\n"
    return start + chunk(b"IHDR", header) + chunk(b"IDAT", pixels) + chunk(b"IEND", b"")


async def upload(
    client: httpx.AsyncClient, data: bytes, path: str = "/v1/search/texts", **fields: str
) -> httpx.Response:
    return await client.post(path, files={"image": ("photo", data)}, data=fields)


@pytest.mark.parametrize(
    "data",
    [b"not an image", b"", b"<svg xmlns='http://www.w3.org/2000/svg'/>", b"%PDF-1.7", None],
    ids=["text", "0 bytes", "svg", "pdf", "cut short"],
)
async def test_other_files_are_refused(
    client: httpx.AsyncClient, data: bytes | None, photo: bytes
) -> None:
    data = photo[: len(photo) // 2] if data is None else data
    by_json = await client.post("/v1/search/texts", json={"image": b64(data)})
    for answer in (await upload(client, data), by_json):
        assert told(answer)[:2] == (415, "not_an_image")


@pytest.mark.parametrize(
    ("data", "limits", "words"),
    [
        (png_bomb(50_000), {}, "50000 x 50000 pixels, limit 64000000"),
        (long_png(64_000_000), {}, "64000000 x 1 pixels, limit 30000 for each side"),
        (webp_of(100, 100), {"max_image_bytes": 20}, "limit 20"),
        (webp_of(100, 100), {"max_image_pixels": 100}, "limit 100"),
        (
            webp_of(8000, 7000),
            {"decode_memory_bytes": 64 * 2**20},
            f"bytes of memory, limit {64 * 2**20}",
        ),
    ],
    ids=["bomb", "long and thin", "bytes", "pixels", "memory"],
)
async def test_a_picture_is_too_large_wherever_it_is_sent(
    service: Service, data: bytes, limits: dict[str, int], words: str
) -> None:
    async with service(**limits) as client:
        for path, fields in (
            ("/v1/explain.png", {"id": "plain#0"}),
            ("/v1/search/texts", {}),
            ("/v1/items/images", {"id": "large"}),
        ):
            status, code, message = told(await upload(client, data, path, **fields))
            assert (status, code) == (413, "image_too_large")
            assert words in message
        if "max_image_pixels" not in limits and "max_image_bytes" not in limits:
            assert (await upload(client, webp_of(100, 100))).status_code == 200
