"""Searches by, and items of, a photo that the service fetches itself."""

from __future__ import annotations

import base64
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import httpcore
import httpx
import pytest
from PIL import Image

from aladin_service.http.app import create_app
from aladin_service.observe.metrics import Metrics
from aladin_service.photos.photo_fetcher import PhotoFetcher
from aladin_service.photos.pinned_network import IpAddress
from aladin_service.settings import ServiceSettings
from aladin_service.work.worker import WorkerPlan
from aladin_service.work.workers import ThreadWorkers

pytestmark = pytest.mark.anyio

Service = Callable[..., AbstractAsyncContextManager[httpx.AsyncClient]]
Encoded = Callable[..., bytes]
URL = "http://photos.test/a.png"


class OneAnswer(httpcore.AsyncMockBackend):
    """A network of one server, that sends the same to everybody."""

    async def connect_tcp(self, host: str, *args: Any, **options: Any) -> Any:
        assert host == "93.184.215.14"
        return await super().connect_tcp(host, *args, **options)


async def resolve(host: str) -> Sequence[IpAddress]:
    """One host of the internet, and one that is on this machine."""
    return [ip_address("93.184.215.14" if host == "photos.test" else "127.0.0.1")]


@pytest.fixture
def fetching(index_folder: Path) -> Callable[..., AbstractAsyncContextManager[httpx.AsyncClient]]:
    """Opens a service that fetches photos: ``async with fetching(data) as client``."""

    @asynccontextmanager
    async def run(data: bytes) -> AsyncGenerator[httpx.AsyncClient]:
        settings = ServiceSettings(image_url_hosts=("photos.test", "inside.test"))
        metrics = Metrics()
        worker = WorkerPlan(index=index_folder, settings=settings).make()
        app = create_app(ThreadWorkers(worker, settings, metrics), settings, metrics)
        answer = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(data)
        async with (
            app.router.lifespan_context(app),
            httpx.AsyncClient(
                transport=httpx.ASGITransport(app), base_url="http://localhost"
            ) as client,
        ):
            network = OneAnswer([answer, data])
            app.state.service.fetcher = PhotoFetcher(settings, resolve, network)
            yield client

    return run


async def test_a_search_by_url_is_a_search_by_photo(
    fetching: Callable[..., AbstractAsyncContextManager[httpx.AsyncClient]],
    query_photo: Image.Image,
    encoded: Encoded,
) -> None:
    data = encoded(query_photo)
    async with fetching(data) as client:
        by_url = await client.post("/v1/search/texts", json={"image_url": URL})
        assert by_url.status_code == 200, by_url.text
        body = {"image": base64.b64encode(data).decode()}
        by_photo = await client.post("/v1/search/texts", json=body)
        assert by_url.json()["hits"] == by_photo.json()["hits"]
        by_form = await client.post(
            "/v1/search/texts", data={"image_url": URL}, files={"x": (None, "")}
        )
        assert by_form.status_code == 422  # an unknown field, whatever else is there


async def test_documents_and_inputs_by_url(
    fetching: Callable[..., AbstractAsyncContextManager[httpx.AsyncClient]],
    query_photo: Image.Image,
    encoded: Encoded,
) -> None:
    data = encoded(query_photo)
    plain = base64.b64encode(data).decode()
    async with fetching(data) as client:
        body: dict[str, Any] = {"input": [{"image": URL}, {"image": plain}]}
        vectors = [
            each["embedding"]
            for each in (await client.post("/v1/embeddings", json=body)).json()["data"]
        ]
        assert vectors[0] == pytest.approx(vectors[1], abs=1e-6)
    async with fetching(data) as client:
        body = {"query": "a dog", "documents": [{"image": plain}, {"image": URL}]}
        results = (await client.post("/v1/rerank", json=body)).json()["results"]
        assert results[0]["score"] == pytest.approx(results[1]["score"], abs=1e-6)
        body["documents"][1]["image"] = "http://inside.test/"
        response = await client.post("/v1/rerank", json=body)
        assert response.status_code == 422
        assert "no photo could be fetched from inside.test" in response.json()["message"]


async def test_the_content_decides(
    fetching: Callable[..., AbstractAsyncContextManager[httpx.AsyncClient]],
) -> None:
    async with fetching(b"<html>no photo</html>") as client:
        response = await client.post("/v1/search/images", json={"image_url": URL})
        assert response.status_code == 415
        assert response.json()["error"]["code"] == "not_an_image"
        response = await client.post(
            "/v1/items/images", json={"id": "new", "image_url": "http://photos.test/b"}
        )
        assert response.status_code == 415


@pytest.mark.parametrize(
    ("url", "status", "code"),
    [
        ("http://inside.test/", 422, "image_url_failed"),
        ("http://other.test/", 403, "image_url_refused"),
        ("http://127.0.0.1/", 403, "image_url_refused"),
        ("file:///etc/passwd", 403, "image_url_refused"),
        ("http://photos.test/" + "a" * 3000, 422, "invalid_field"),
    ],
)
async def test_what_is_not_fetched(
    fetching: Callable[..., AbstractAsyncContextManager[httpx.AsyncClient]],
    url: str,
    status: int,
    code: str,
) -> None:
    async with fetching(b"") as client:
        for path, body in (("/v1/search/images", {}), ("/v1/items/images", {"id": "new"})):
            response = await client.post(path, json={**body, "image_url": url})
            assert (response.status_code, response.json()["error"]["code"]) == (status, code)


async def test_it_is_off_unless_hosts_are_listed(service: Service) -> None:
    async with service() as client:
        for path, body in (("/v1/search/images", {}), ("/v1/items/images", {"id": "new"})):
            response = await client.post(path, json={**body, "image_url": URL})
            assert response.status_code == 403
            assert response.json()["error"]["code"] == "image_url_refused"


async def test_one_query_and_one_image_at_a_time(service: Service) -> None:
    async with service() as client:
        both = await client.post("/v1/search/images", json={"text": "a dog", "image_url": URL})
        assert "got text and image_url" in both.json()["error"]["message"]
        item = {"id": "new", "image": "AAAA", "image_url": URL}
        both = await client.post("/v1/items/images", json=item)
        assert "got both" in both.json()["error"]["message"]
        text = await client.post(
            "/v1/items/texts", json={"id": "new", "text": "a dog", "image_url": URL}
        )
        assert text.status_code == 422
