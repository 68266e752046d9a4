"""clip-retrieval's requests and answers."""

from __future__ import annotations

import base64
import io
import json
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, closing
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx
import numpy as np
import pytest
from PIL import Image

from aladin_index.generations.reader import open_index

pytestmark = pytest.mark.anyio

Service = Callable[..., AbstractAsyncContextManager[httpx.AsyncClient]]

BASE = "http://localhost/v1/images/"


def of_clip_client(**given: Any) -> bytes:
    """The body of a request as clip_retrieval.clip_client.ClipClient writes it by default."""
    fields: dict[str, Any] = {
        "text": None,
        "image": None,
        "image_url": None,
        "embedding_input": None,
        "deduplicate": True,
        "use_safety_model": True,
        "use_violence_detector": True,
        "indice_name": "laion5B-L-14",
        "use_mclip": False,
        "aesthetic_score": 9,
        "aesthetic_weight": 0.5,
        "modality": "image",
        "num_images": 40,
        "num_result_ids": 40,
    }
    return json.dumps({**fields, **given}).encode()


def of_front_end(**given: Any) -> bytes:
    """The body of a request as clip-retrieval's page writes it by default."""
    fields: dict[str, Any] = {
        "text": "",
        "image": None,
        "image_url": None,
        "embedding_input": None,
        "modality": "image",
        "num_images": 40,
        "indice_name": "aladin",
        "num_result_ids": 3000,
        "use_mclip": False,
        "deduplicate": True,
        "use_safety_model": True,
        "use_violence_detector": True,
        "aesthetic_score": "",
        "aesthetic_weight": "0.5",
    }
    return json.dumps({**fields, **given}).encode()


async def ask(client: httpx.AsyncClient, body: bytes, **headers: str) -> Any:
    # ClipClient names no content type, the page names text/plain.
    response = await client.post("/knn-service", content=body, headers=headers)
    assert response.status_code == 200, response.text
    return response.json()


async def test_clip_clients_text_query(
    service: Service, image_ids: list[str], captions: list[tuple[str, str]]
) -> None:
    async with service() as client:
        results = await ask(client, of_clip_client(text="a red dog", deduplicate=False))
        body = {"text": "a red dog", "k": 40}
        hits = (await client.post("/v1/search/images", json=body)).json()["hits"]
    assert [result["id"] for result in results] == [hit["id"] for hit in hits]
    for result, hit in zip(results, hits, strict=True):
        number = image_ids.index(hit["id"])
        assert result == {
            "id": hit["id"],
            "similarity": hit["stages"]["match"]["score"],
            "url": BASE + quote(hit["id"], safe=""),
            "caption": captions[number][0],
            "number": number,
            "tags": ["even" if number % 2 == 0 else "odd"],
        }


async def test_the_urls_of_results_are_photos_and_queries(service: Service) -> None:
    async with service() as client:
        results = await ask(client, of_front_end(text="a dog"))
        for result in results:
            photo = await client.get(result["url"])
            assert photo.status_code == 200
            Image.open(io.BytesIO(photo.content)).load()
            found = await ask(client, of_clip_client(image_url=result["url"], num_result_ids=1))
            assert [each["id"] for each in found] == [result["id"]]


async def test_a_photo_is_a_query_also_beside_an_empty_text(
    service: Service, data_file: Path, image_ids: list[str]
) -> None:
    photo = base64.b64encode((data_file.parent / "photo-3.png").read_bytes()).decode()
    async with service() as client:
        front = await ask(client, of_front_end(image=photo), **{"content-type": "text/plain"})
        texts = await ask(client, of_clip_client(image=photo, modality="text"))
    assert front[0]["id"] == image_ids[3]
    assert front[0]["similarity"] == pytest.approx(1, abs=1e-3)
    assert all("#" in text["id"] and "url" not in text for text in texts)
    assert all(isinstance(text["caption"], str) for text in texts)


async def test_what_is_beyond_the_described_is_described_by_its_id(service: Service) -> None:
    async with service() as client:
        results = await ask(client, of_front_end(text="a dog", num_images=2, deduplicate=False))
        assert [sorted(result) for result in results[2:]] == [["id", "similarity"]] * 4
        ids = [result["id"] for result in results]
        body = json.dumps({"ids": [*ids, "nobody", "plain#1"], "indice_name": "aladin"})
        described = (await client.post("/metadata", content=body)).json()
        nothing = await client.post("/metadata", content='{"ids":[],"indice_name":"aladin"}')
    assert [each["id"] for each in described] == [*ids, "plain#1"]
    for result, each in zip(results[:2], described[:2], strict=True):
        assert {
            **each["metadata"],
            "id": result["id"],
            "similarity": result["similarity"],
        } == result
    assert described[-1]["metadata"]["caption"] == "the square is striped"
    assert "url" not in described[-1]["metadata"]
    assert nothing.json() == []


async def test_an_embedding_is_a_query(service: Service, index_folder: Path) -> None:
    with open_index(index_folder) as index:
        side = index.side("images")
        rows = [side.items.by_rows([row])[0].id for row in range(side.count)]
        embeddings = np.stack([side.embedding(row) for row in range(side.count)])
    wanted = 7.5 * (embeddings[1] - 0.2 * embeddings[4])
    cosines = embeddings @ wanted / np.linalg.norm(wanted)
    body = of_clip_client(embedding_input=wanted.tolist(), deduplicate=False)
    async with service() as client:
        results = await ask(client, body)
    assert [result["id"] for result in results] == [rows[row] for row in np.argsort(-cosines)]
    similarities = [result["similarity"] for result in results]
    assert similarities == pytest.approx(sorted(cosines, reverse=True), abs=1e-3)


async def test_near_duplicates_are_left_out_where_that_is_asked_for(
    service: Service, index_folder: Path
) -> None:
    async with service() as client:
        all_of_them = await ask(client, of_clip_client(text="a dog", deduplicate=False))
        kept = await ask(client, of_clip_client(text="a dog"))
    with open_index(index_folder) as index:
        side = index.side("images")
        embedding: dict[str, np.ndarray] = {}
        for result in all_of_them:
            item = side.items.by_id(result["id"])
            assert item is not None
            embedding[item.id] = side.embedding(item.row)
    expected: list[str] = []
    for result in all_of_them:
        cosines = [float(embedding[each] @ embedding[result["id"]]) for each in expected]
        if all(cosine < 0.94 for cosine in cosines):
            expected.append(result["id"])
    assert [result["id"] for result in kept] == expected
    assert len(expected) < len(all_of_them)


async def test_a_url_and_a_caption_in_the_metadata_are_those_of_the_picture(
    service: Service, index_folder: Path, tmp_path: Path, query_photo: Image.Image
) -> None:
    index = tmp_path / "index"
    shutil.copytree(index_folder, index)
    target = io.BytesIO()
    query_photo.save(target, "PNG")
    photo = base64.b64encode(target.getvalue()).decode()
    items: list[dict[str, Any]] = [
        {"id": "a", "image": photo, "metadata": {"url": "http://far/a.jpg", "caption": "own"}},
        {"id": "b", "image": photo, "uri": "https://far/b.jpg", "metadata": {"caption": None}},
        {"id": "c", "image": photo, "text": "c", "metadata": {"url": 3, "id": 4, "similarity": 5}},
    ]
    async with service(index) as client:
        await client.post("/v1/items/images", json={"items": items})
        body = of_clip_client(image=photo, num_images=3, num_result_ids=3, deduplicate=False)
        found = {result["id"]: result for result in await ask(client, body)}
    for result in found.values():
        assert result.pop("similarity") == pytest.approx(1, abs=1e-3)
    assert found == {
        "a": {"id": "a", "url": "http://far/a.jpg", "caption": "own"},
        "b": {"id": "b", "url": "https://far/b.jpg"},
        "c": {"id": "c", "url": BASE + "c", "caption": "c"},
    }


@pytest.mark.parametrize(
    ("body", "status", "says"),
    [
        (of_front_end(), 422, "expected one of text, image, image_url and embedding_input"),
        (of_clip_client(embedding_input=[1.0]), 422, "expected shape embedding"),
        (of_clip_client(text="a", modality="sound"), 422, "modality"),
        (of_clip_client(text="a", num_images=0), 422, "num_images"),
        (of_clip_client(image="AAAA"), 415, "not an image"),
        (of_clip_client(image="!"), 422, "image: not base64"),
        (of_clip_client(image_url="http://far/a.jpg"), 403, "image_url"),
        (of_clip_client(image_url=BASE + "nobody"), 404, "nobody"),
        (b"{", 422, "Invalid JSON"),
    ],
)
async def test_queries_that_cannot_be_answered(
    service: Service, body: bytes, status: int, says: str
) -> None:
    async with service() as client:
        response = await client.post("/knn-service", content=body)
    assert response.status_code == status
    assert says in response.json()["error"]["message"]


async def test_an_id_that_looks_like_a_number_may_come_as_one(
    service: Service, index_folder: Path, tmp_path: Path
) -> None:
    index = tmp_path / "index"
    shutil.copytree(index_folder, index)
    async with service(index) as client:
        item = {"id": "42", "text": "a dog"}
        await client.post("/v1/items/texts", json=item)
        described = await client.post("/metadata", content='{"ids": [42]}')
    assert described.json() == [{"id": "42", "metadata": {"caption": "a dog"}}]


async def test_the_front_end_finds_an_index_to_choose(service: Service) -> None:
    async with service() as client:
        indices = await client.get("/indices-list")
    assert indices.json() == ["aladin"]


async def test_the_front_end_may_be_another_sites(service: Service) -> None:
    text = {"content-type": "text/plain;charset=UTF-8"}
    async with service(cors_origins=("http://front:1234",)) as client:
        for origin, status in (("http://front:1234", 200), ("http://elsewhere", 403)):
            body = of_front_end(text="a dog")
            answer = await client.post(
                "/knn-service", content=body, headers={"origin": origin, **text}
            )
            assert answer.status_code == status
            allowed = origin if status == 200 else None
            assert answer.headers.get("access-control-allow-origin") == allowed


async def test_metadata_that_json_cannot_hold_becomes_null(
    service: Service, index_folder: Path, tmp_path: Path
) -> None:
    index = Path(shutil.copytree(index_folder, tmp_path / "index"))
    (items,) = index.glob("generations/*/images/items.sqlite")
    with closing(sqlite3.connect(items)) as database:
        # As an empty cell of a table becomes; the file keeps its length.
        database.execute("""UPDATE items SET metadata = '{"size": NaN}' WHERE row = 0""")
        database.commit()
    async with service(index) as client:
        results = await ask(client, of_clip_client(text="a red dog", deduplicate=False))
        (found,) = [result for result in results if "size" in result]
        answer = await client.post("/metadata", content=json.dumps({"ids": [found["id"]]}))
    assert found["size"] is None
    assert b"NaN" not in answer.content
