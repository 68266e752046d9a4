"""Pictures in JSON: all routes read the same forms of base64, at a small cost."""

from __future__ import annotations

import base64
import json
import shutil
import textwrap
import time
import tracemalloc
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import httpx
import pytest
from PIL import Image

from aladin_index.search.request import decode_base64

pytestmark = pytest.mark.anyio

Service = Callable[..., AbstractAsyncContextManager[httpx.AsyncClient]]

Ask = tuple[str, Callable[[str], dict[str, Any]]]
ROUTES: dict[str, Ask] = {
    "search": ("/v1/search/images", lambda image: {"image": image}),
    "all": ("/v1/search/images", lambda image: {"all": [{"image": image}, {"text": "a dog"}]}),
    "not": (
        "/v1/search/texts",
        lambda image: {"all": [{"text": "a dog"}], "not": [{"image": image}]},
    ),
    "batch": (
        "/v1/search/batch",
        lambda image: {"queries": [{"target": "images", "image": image}]},
    ),
    "explain": ("/v1/explain", lambda image: {"image": image, "id": "plain#0"}),
    "items": (
        "/v1/items/images?on_duplicate=replace",
        lambda image: {"id": "new", "image": image},
    ),
    "embeddings": ("/v1/embeddings", lambda image: {"input": [{"image": image}]}),
    "message": (
        "/v1/embeddings",
        lambda image: {"input": {"type": "image_url", "image_url": {"url": image}}},
    ),
    "documents": (
        "/v1/rerank",
        lambda image: {"query": "a dog", "documents": ["a cat", {"image": image}]},
    ),
    "query": ("/v1/rerank", lambda image: {"query": {"image": image}, "documents": ["a cat"]}),
}
# An item is added once, and then replaced.
VOLATILE = {"took_ms", "id", "generation", "added", "replaced"}


def forms(data: bytes) -> dict[str, str]:
    """The base64 of a file in all forms that clients send."""
    plain, for_urls = base64.b64encode(data).decode(), base64.urlsafe_b64encode(data).decode()
    assert plain.endswith("=")
    assert {"-", "_"} <= set(for_urls)
    return {
        "plain": plain,
        "lines": "\r\n".join(textwrap.wrap(plain, 76)),
        "unpadded": plain.rstrip("="),
        "for URLs": for_urls,
        "for URLs, unpadded": for_urls.rstrip("="),
        "data URL": f"data:image/png;base64,{plain}",
        "data URL with a parameter": f"data:image/png;charset=utf-8;base64,{plain}",
        "data URL of an unknown type": f"data:application/octet-stream;base64,{plain}",
        "data URL without a type, unpadded": f"data:;base64,{for_urls.rstrip('=')}",
    }


def settled(answer: Any) -> Any:
    """An answer without what differs from request to request."""
    if isinstance(answer, list):
        return [settled(each) for each in answer]
    if isinstance(answer, dict):
        return {name: settled(each) for name, each in answer.items() if name not in VOLATILE}
    return answer


@pytest.fixture
def photo(query_photo: Image.Image, encoded: Callable[..., bytes]) -> bytes:
    """A picture file whose base64 has padding, and letters that differ in URLs."""
    file = encoded(query_photo)
    return file + b"\0" * (1 - len(file) % 3 + 3)


@pytest.mark.parametrize("name", ROUTES)
async def test_every_route_reads_every_form(
    service: Service, index_folder: Path, tmp_path: Path, photo: bytes, name: str
) -> None:
    index = Path(shutil.copytree(index_folder, tmp_path / "index"))
    path, make = ROUTES[name]
    answers: dict[str, Any] = {}
    async with service(index) as client:
        for form, text in forms(photo).items():
            answer = await client.post(path, json=make(text))
            assert answer.status_code in (200, 201), (form, answer.text[:300])
            answers[form] = settled(answer.json())
    expected = answers["plain"]
    assert "error" not in json.dumps(expected)
    assert all(answer == expected for answer in answers.values())


@pytest.mark.parametrize("text", ["", "!", "AAAAA", "AA=AAA", "é", "\ud800", "data:image/png,AAAA"])
def test_what_is_not_base64_is_refused(text: str) -> None:
    if text == "":
        assert decode_base64(text) == b""
        return
    with pytest.raises(ValueError, match="not base64"):
        decode_base64(text)


@pytest.mark.parametrize("piece", ["A ", "AA\n", "-_\t", "A", "="])
def test_a_text_as_long_as_a_body_takes_a_few_times_its_memory(piece: str) -> None:
    text = piece * (8_000_000 // len(piece))
    tracemalloc.start()
    try:
        started = time.process_time()
        decode_base64(text)
        seconds = time.process_time() - started
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 5 * len(text)
    assert seconds < 2
