"""Bad queries: each gets one clear error, and the service answers the next good one."""

from __future__ import annotations

import asyncio
import base64
import struct
import zlib
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager

import httpx
import numpy as np
import pytest
from PIL import Image

pytestmark = pytest.mark.anyio

Service = Callable[..., AbstractAsyncContextManager[httpx.AsyncClient]]
Encoded = Callable[..., bytes]


def png_bomb(side_px: int) -> bytes:
    """A tiny PNG file whose header declares side_px x side_px pixels."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        checksum = zlib.crc32(kind + data)
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", checksum)

    header = struct.pack(">IIBBBBB", side_px, side_px, 8, 0, 0, 0, 0)
    pixels = zlib.compress(b"\0" * 4096, 9)
    start = b"\x89PNG\r\n\x1a\n"
    return start + chunk(b"IHDR", header) + chunk(b"IDAT", pixels) + chunk(b"IEND", b"")


async def check(client: httpx.AsyncClient, response: httpx.Response, status: int, code: str) -> str:
    """Check an error, and that a good query is answered after it; return the message."""
    assert response.status_code == status, response.text
    error = response.json()["error"]
    assert error["code"] == code
    assert error["request_id"] == response.headers["X-Request-ID"]
    good = await client.post("/v1/search/images", json={"text": "a dog"})
    assert good.status_code == 200
    return error["message"]


async def upload(client: httpx.AsyncClient, data: bytes) -> httpx.Response:
    """Search by a photo."""
    return await client.post("/v1/search/texts", files={"image": ("photo", data)})


@pytest.mark.parametrize(
    "data",
    [b"not an image at all", b"", b"<svg xmlns='http://www.w3.org/2000/svg'/>", b"%PDF-1.7"],
    ids=["text", "0 bytes", "svg", "pdf"],
)
async def test_what_is_not_an_image(service: Service, data: bytes) -> None:
    async with service() as client:
        await check(client, await upload(client, data), 415, "not_an_image")
        body = {"image": base64.b64encode(data).decode()}
        by_json = await client.post("/v1/search/texts", json=body)
        await check(client, by_json, 415, "not_an_image")


@pytest.mark.parametrize("format", ["PNG", "JPEG", "GIF", "WEBP", "BMP", "TIFF"])
async def test_an_image_cut_short(service: Service, encoded: Encoded, format: str) -> None:
    noise = np.random.default_rng(0).integers(0, 256, (64, 64, 3), dtype=np.uint8)
    data = encoded(Image.fromarray(noise), format)
    async with service() as client:
        await check(client, await upload(client, data[: len(data) // 2]), 415, "not_an_image")


async def test_a_few_bytes_that_would_become_billions_of_pixels(service: Service) -> None:
    bomb = png_bomb(50_000)
    assert len(bomb) < 5000
    async with service() as client:
        message = await check(client, await upload(client, bomb), 413, "image_too_large")
    assert "50000 x 50000 pixels, limit 64000000" in message


async def test_a_photo_over_the_limit_in_bytes(service: Service, encoded: Encoded) -> None:
    noise = np.random.default_rng(0).integers(0, 256, (64, 64, 3), dtype=np.uint8)
    async with service(max_image_bytes=5000) as client:
        response = await upload(client, encoded(Image.fromarray(noise)))
        assert "limit 5000" in await check(client, response, 413, "image_too_large")


def pictures() -> dict[str, tuple[Image.Image, str, dict[str, object]]]:
    """Unusual pictures that are fine."""
    colours = Image.linear_gradient("L").resize((40, 32)).convert("RGB")
    frames = [colours.rotate(angle) for angle in (0, 90, 180)]
    grey16 = Image.fromarray(np.linspace(0, 65535, 40 * 32).reshape(32, 40).astype(np.uint16))
    animated = {"save_all": True, "append_images": frames[1:], "duration": 50}
    transparent = colours.convert("RGBA")
    transparent.putalpha(100)
    return {
        "animated gif": (frames[0], "GIF", animated),
        "animated webp": (frames[0], "WEBP", animated),
        "cmyk": (colours.convert("CMYK"), "JPEG", {}),
        "palette": (colours.convert("P"), "PNG", {}),
        "16 bit": (grey16, "PNG", {}),
        "grey": (colours.convert("L"), "JPEG", {}),
        "1 bit": (colours.convert("1"), "PNG", {}),
        "transparent": (transparent, "PNG", {}),
        "1 pixel": (Image.new("RGB", (1, 1)), "PNG", {}),
    }


@pytest.mark.parametrize("name", list(pictures()))
async def test_unusual_pictures_are_fine(service: Service, encoded: Encoded, name: str) -> None:
    picture, format, options = pictures()[name]
    async with service() as client:
        response = await upload(client, encoded(picture, format, **options))
    assert response.status_code == 200, response.text
    assert len(response.json()["hits"]) == 10


@pytest.mark.parametrize("text", ["", " ", "\n\t  ", "\u200b"])
async def test_empty_and_blank_text(service: Service, text: str) -> None:
    async with service() as client:
        response = await client.post("/v1/search/images", json={"text": text})
        await check(client, response, 422, "invalid_field")


async def test_text_of_a_hundred_thousand_characters(service: Service) -> None:
    async with service() as client:
        response = await client.post("/v1/search/images", json={"text": "dog " * 25_000})
        message = await check(client, response, 422, "text_too_long")
    assert message == "the text has 100000 characters, at most 2000 are allowed"


async def test_text_of_more_tokens_than_the_network_takes(service: Service) -> None:
    async with service() as client:
        response = await client.post("/v1/search/images", json={"text": "dog " * 100})
        message = await check(client, response, 422, "text_too_long")
    assert "at most 32 are allowed" in message


async def test_odd_characters_are_fine(service: Service) -> None:
    async with service() as client:
        for text in ("\u0000dog", "🐕 dog", "dog\u202e", "a" * 2000, "'; DROP TABLE items --"):
            response = await client.post("/v1/search/images", json={"text": text})
            assert response.status_code in (200, 422), response.text


async def test_good_queries_beside_bad_ones_get_their_own_answers(
    service: Service, query_photo: Image.Image, encoded: Encoded
) -> None:
    good_photo = encoded(query_photo)
    async with service(max_wait_ms=60_000) as client:
        alone = (await upload(client, good_photo)).json()["hits"]

        async def good(text: str) -> httpx.Response:
            return await client.post("/v1/search/images", json={"text": text})

        texts = ["a dog", "two men", "a star", "the street"]
        expected = [(await good(text)).json()["hits"] for text in texts]
        queries = [
            query
            for text in texts * 5
            for query in (
                good(text),
                upload(client, b"broken"),
                good(" "),
                upload(client, png_bomb(50_000)),
                upload(client, good_photo),
            )
        ]
        answers = await asyncio.gather(*queries)
    statuses = [answer.status_code for answer in answers]
    assert statuses == [200, 415, 422, 413, 200] * 20
    for number in range(20):
        assert answers[5 * number].json()["hits"] == expected[number % 4]
        assert answers[5 * number + 4].json()["hits"] == alone


async def test_more_queries_than_may_wait_are_refused_and_told_when_to_come_back(
    service: Service,
) -> None:
    async with service(query_threads=1, max_waiting=1) as client:
        answers = await asyncio.gather(
            *(client.post("/v1/search/images", json={"text": "a dog"}) for _ in range(30))
        )
        statuses = [answer.status_code for answer in answers]
        refused = next(answer for answer in answers if answer.status_code == 429)
        assert set(statuses) == {200, 429}
        assert int(refused.headers["Retry-After"]) >= 1
        await check(client, refused, 429, "overloaded")
