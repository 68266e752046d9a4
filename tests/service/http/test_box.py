"""Boxes of photos over HTTP: as queries, as terms, in explanations and drawings; refusals."""

from __future__ import annotations

import base64
import json
import random
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import httpx
import pytest
from PIL import Image

from aladin_network.photos.decoding import decode_image
from aladin_service.evidence.png import read_evidence

Service = Callable[..., AbstractAsyncContextManager[httpx.AsyncClient]]

BOX = [0.25, 0.0, 0.8, 0.6]
IN_URL = "0.25,0,0.8,0.6"


async def found(client: httpx.AsyncClient, target: str, **body: Any) -> dict[str, Any]:
    """Return an answer with evidence."""
    asked = {"k": 10, "explain": True} | body
    response = await client.post(f"/v1/search/{target}", json=asked)
    assert response.status_code == 200, response.text
    return response.json()


def assert_same(one: dict[str, Any], other: dict[str, Any]) -> None:
    """Compare the hits of two answers, and where the box was found in them."""
    assert [hit["id"] for hit in one["hits"]] == [hit["id"] for hit in other["hits"]]
    assert one["hits"]
    for hit, expected in zip(one["hits"], other["hits"], strict=True):
        assert hit["score"] == pytest.approx(expected["score"], abs=5e-3)
        assert hit["found"] == pytest.approx(expected["found"], abs=1e-3)


@pytest.mark.anyio
async def test_a_box_of_an_item_of_a_file_and_in_a_form_and_a_batch(
    service: Service, data_file: Path, image_ids: list[str]
) -> None:
    photo = (data_file.parent / "photo-2.png").read_bytes()
    async with service() as client:
        by_id = await found(client, "images", id=image_ids[2], box=BOX)
        by_file = await found(client, "images", image=base64.b64encode(photo).decode(), box=BOX)
        form = {"box": (None, json.dumps(BOX)), "image": photo}
        by_form = (await client.post("/v1/search/images", files=form)).json()
        batch = {"queries": [{"target": "images", "id": image_ids[2], "box": BOX, "k": 10}]}
        in_batch = (await client.post("/v1/search/batch", json=batch)).json()["answers"][0]
    assert by_file["hits"][0]["id"] == image_ids[2]  # an upload is compared with all photos
    assert by_file["hits"][0]["found"] == pytest.approx(BOX, abs=1e-3)
    assert_same(by_form, by_file)
    assert_same(in_batch, by_id)
    by_file["hits"] = by_file["hits"][1:]
    assert_same(by_id, by_file)
    assert image_ids[2] not in [hit["id"] for hit in by_id["hits"]]
    for hit in by_id["hits"]:
        x0, y0, x1, y1 = hit["found"]
        assert 0 <= x0 < x1 <= 1
        assert 0 <= y0 < y1 <= 1
        scores = [each["score"] for each in hit["region_evidence"]]
        assert sum(scores) == pytest.approx(hit["stages"]["align"]["score"], abs=1e-4)
        assert hit["per_word"] == pytest.approx(sum(scores) / len(scores), abs=1e-4)
        assert (hit["evidence"], hit["probability"]) == (None, None)


@pytest.mark.anyio
async def test_texts_are_found_by_the_regions_inside(
    service: Service, image_ids: list[str]
) -> None:
    async with service() as client:
        answer = await found(client, "texts", id=image_ids[2], box=BOX)
        whole = await found(client, "texts", id=image_ids[2])
    assert [hit["found"] for hit in answer["hits"]] == [None] * len(answer["hits"])
    words = [word for hit in answer["hits"] for word in hit["evidence"]]
    allowed = {word["region"] for word in words}
    everywhere = {word["region"] for hit in whole["hits"] for word in hit["evidence"]}
    assert allowed < everywhere | allowed
    assert len(allowed) <= 6 < 16  # three columns and two rows of the grid of four by four


@pytest.mark.anyio
async def test_a_box_is_a_part_among_others(service: Service, image_ids: list[str]) -> None:
    terms = {
        "all": [{"text": "a red dog"}, {"id": image_ids[2], "box": BOX, "weight": 2}],
        "not": [{"id": image_ids[4], "box": [0, 0, 1, 1]}],
    }
    async with service() as client:
        answer = await found(client, "images", **terms)
    assert [term["box"] for term in answer["terms"]] == [None, BOX, [0, 0, 1, 1]]
    assert answer["hits"]
    for hit in answer["hits"]:
        text, box, without = hit["terms"]
        assert (text["found"], text["region_evidence"]) == (None, None)
        for term in (box, without):
            scores = [each["score"] for each in term["region_evidence"]]
            assert sum(scores) == pytest.approx(term["align"], abs=1e-4)
            assert len(term["found"]) == 4
        assert hit["score"] == pytest.approx(sum(p["score"] for p in hit["terms"]), abs=1e-4)
        assert hit["found"] is None


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({"box": BOX}, "got none"),
        (
            {"text": "a dog", "box": BOX},
            "box: expected a photo beside it, by image or id, got text",
        ),
        ({"id": "plain", "box": [BOX, BOX]}, "box"),
        ({"id": "plain", "box": BOX * 2}, "box"),
        ({"id": "plain", "box": BOX[:3]}, "box"),
        ({"id": "plain", "box": [0, 0, 1.2, 1]}, "box"),
        ({"id": "plain", "box": [-0.1, 0, 1, 1]}, "box"),
        ({"id": "plain", "box": [0.5, 0, 0.5, 1]}, "expected x0 < x1 and y0 < y1"),
        ({"id": "plain", "box": ["0", "0", "1", "1"]}, "box"),
        ({"id": "plain", "box": "0,0,1,1"}, "box"),
        ({"id": "plain", "box": {"x0": 0}}, "box"),
        ({"id": "plain#0", "box": BOX}, "box: expected a photo to take a part of, got 'plain#0'"),
        ({"all": [{"id": "plain"}], "box": BOX}, "got box beside all, not or like"),
        ({"like": ["plain"], "box": BOX}, "got box beside all, not or like"),
        ({"all": [{"text": "a dog", "box": BOX}]}, "expected a photo beside it"),
        ({"all": [{"id": "plain", "box": [BOX, BOX]}]}, "box"),
        ({"id": "plain", "box": BOX, "min_probability": 0.5}, "min_probability"),
        ({"id": "plain", "box": BOX, "lexical": 0.5}, "lexical"),
    ],
)
def test_searches_without_a_box_of_a_photo_are_refused(
    url: str, body: dict[str, Any], message: str
) -> None:
    response = httpx.post(f"{url}/v1/search/images", json=body)
    assert response.status_code == 422, response.text
    assert message in response.json()["error"]["message"]


@pytest.mark.anyio
async def test_two_boxes_in_a_form_and_in_a_url_are_refused(service: Service) -> None:
    boundary = "x"
    lines = [
        f'--{boundary}\r\nContent-Disposition: form-data; name="{name}"\r\n\r\n{value}\r\n'
        for name, value in (("id", "plain"), ("box", "[0,0,1,1]"), ("box", "[0,0,1,1]"))
    ]
    content = "".join(lines) + f"--{boundary}--\r\n"
    headers = {"content-type": f"multipart/form-data; boundary={boundary}"}
    async with service() as client:
        form = await client.post("/v1/search/images", content=content, headers=headers)
        url = f"/v1/explain?query_id=plain&id=bike%202%3F&box={IN_URL}&box={IN_URL}"
        pair = await client.get(url)
    for response in (form, pair):
        assert response.status_code == 422, response.text
        assert "box" in response.json()["error"]["message"]


@pytest.mark.anyio
async def test_two_photos_are_compared_region_by_region(
    service: Service, image_ids: list[str], data_file: Path
) -> None:
    photo = (data_file.parent / "photo-2.png").read_bytes()
    async with service() as client:
        answer = await found(client, "images", id=image_ids[2], box=BOX)
        for hit in answer["hits"][:2]:
            asked = {"query_id": image_ids[2], "id": hit["id"], "box": IN_URL}
            maps = (await client.get("/v1/explain", params=asked)).json()
            form = {"id": (None, hit["id"]), "box": (None, json.dumps(BOX)), "image": photo}
            uploaded = (await client.post("/v1/explain", files=form)).json()
            assert (maps["text"], maps["words"]) == ("", [])
            assert maps["match"] == pytest.approx(hit["stages"]["match"]["score"], abs=1e-4)
            assert maps["align"] == pytest.approx(hit["stages"]["align"]["score"], abs=1e-4)
            assert maps["found"] == pytest.approx(hit["found"], abs=1e-4)
            evidence = hit["region_evidence"]
            assert len(maps["query_regions"]) == len(evidence)
            for mapped, told in zip(maps["query_regions"], evidence, strict=True):
                assert mapped["box"] == pytest.approx(told["query_box"])
                assert mapped["region"] == told["region"]
                assert len(mapped["cosines"]) == len(maps["regions"])
                assert max(mapped["cosines"]) == pytest.approx(told["score"], abs=1e-4)
                box = maps["regions"][told["region"]]["box"]
                assert box == pytest.approx(told["box"])
            assert uploaded["found"] == pytest.approx(maps["found"], abs=1e-3)
            assert uploaded["align"] == pytest.approx(maps["align"], abs=2e-2)


@pytest.mark.anyio
async def test_two_photos_are_drawn_with_the_box_and_where_it_was_found(
    service: Service, image_ids: list[str], query_photo: Image.Image, encoded: Callable[..., bytes]
) -> None:
    async with service() as client:
        answer = await found(client, "images", id=image_ids[2], box=BOX)
        hit = answer["hits"][0]
        asked = {"query_id": image_ids[2], "id": hit["id"], "box": IN_URL}
        drawn = await client.get("/v1/explain.png", params=asked)
        assert drawn.status_code == 200, drawn.text
        again = await client.get(
            "/v1/explain.png", params=asked, headers={"If-None-Match": drawn.headers["etag"]}
        )
        other = await client.get("/v1/explain.png", params=asked | {"box": "0,0,1,1"})
        form = {"id": (None, "plain"), "box": (None, "[0,0,1,1]"), "image": encoded(query_photo)}
        uploaded = await client.post("/v1/explain.png", files=form)
    assert again.status_code == 304
    assert other.headers["etag"] != drawn.headers["etag"]
    assert decode_image(drawn.content).width > 1000  # two photos beside each other
    (pair,) = read_evidence(drawn.content)
    assert (pair.text, pair.evidence) == ("", [])
    assert (pair.query_photo_id, pair.photo_id) == (image_ids[2], hit["id"])
    assert pair.box == pytest.approx(BOX)
    assert pair.found == pytest.approx(hit["found"], abs=1e-4)
    assert pair.region_evidence is not None
    told = [(each.query_region, each.region) for each in pair.region_evidence]
    expected = [(each["query_region"], each["region"]) for each in hit["region_evidence"]]
    assert told == expected
    assert uploaded.status_code == 200, uploaded.text
    (pair,) = read_evidence(uploaded.content)
    assert (pair.query_photo_id, pair.photo_id) == (None, "plain")


@pytest.mark.anyio
async def test_a_text_is_compared_with_the_regions_inside(
    service: Service, image_ids: list[str]
) -> None:
    async with service() as client:
        answer = await found(client, "texts", id=image_ids[2], box=BOX)
        hit = answer["hits"][0]
        asked = {"query_id": image_ids[2], "id": hit["id"], "box": IN_URL}
        maps = (await client.get("/v1/explain", params=asked)).json()
        drawn = await client.get("/v1/explain.png", params=asked)
    assert maps["align"] == pytest.approx(hit["stages"]["align"]["score"], abs=1e-4)
    assert (maps["query_regions"], maps["found"]) == (None, None)
    (pair,) = read_evidence(drawn.content)
    assert pair.box == pytest.approx(BOX)
    words = [(word.token, word.region) for word in pair.evidence]
    assert words == [(word["token"], word["region"]) for word in hit["evidence"]]


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        (
            {"text": "a dog", "id": "plain", "box": IN_URL},
            "expected a photo beside it, by image or id",
        ),
        (
            {"query_id": "plain", "id": "bike 2?", "box": "0,0,1"},
            "expected x0, y0, x1, y1 in fractions",
        ),
        ({"query_id": "plain", "id": "bike 2?", "box": "a,b,c,d"}, "expected x0,y0,x1,y1, got 'a"),
        ({"query_id": "plain", "id": "bike 2?", "box": ""}, "expected x0,y0,x1,y1, got ''"),
        (
            {"query_id": "plain", "id": "bike 2?", "box": "0,0,1,nan"},
            "expected x0, y0, x1, y1 in fractions",
        ),
        (
            {"query_id": "plain", "id": "bike 2?", "box": "0,0,1,2"},
            "expected x0, y0, x1, y1 in fractions",
        ),
        ({"query_id": "plain#0", "id": "bike 2?", "box": IN_URL}, "got a text"),
        ({"query_id": "plain", "id": "bike 2?"}, "a text and a photo, or a box"),
    ],
)
def test_pairs_without_a_box_of_a_photo_are_refused(
    url: str, asked: dict[str, str], message: str
) -> None:
    for path in ("/v1/explain", "/v1/explain.png"):
        response = httpx.get(f"{url}{path}", params=asked)
        assert response.status_code == 422, response.text
        assert message in response.json()["error"]["message"]


@pytest.mark.anyio
async def test_random_boxes_are_answered_or_refused(service: Service, image_ids: list[str]) -> None:
    generator = random.Random(0)
    edges: list[Any] = [0, 0.1, 0.5, 0.999999, 1, 1e-12, 1e300, -0.0, -1, True, "0", None, [0]]
    answered = refused = 0
    async with service() as client:
        for turn in range(300):
            # Half of them are boxes, or nearly.
            length = 4 if turn % 2 else generator.randrange(6)
            box: Any = [generator.choice(edges[:6] if turn % 2 else edges) for _ in range(length)]
            if turn % 2 and generator.random() < 0.8:
                x0, y0, x1, y1 = box
                box = [min(x0, x1), min(y0, y1), max(x0, x1), max(y0, y1)]
            one = {"id": generator.choice([*image_ids, "plain#0", "nobody"]), "box": box}
            body = generator.choice([one, {"all": [one]}, {"all": [one, {"text": "a dog"}]}])
            target = generator.choice(["images", "texts"])
            response = await client.post(f"/v1/search/{target}", json=body | {"explain": True})
            assert response.status_code in (200, 404, 422), (body, response.text)
            answered += response.status_code == 200
            refused += response.status_code == 422
            text = generator.choice([",".join(map(str, box)), str(box)])
            asked = {"query_id": one["id"], "id": generator.choice(image_ids), "box": text}
            response = await client.get("/v1/explain", params=asked)
            assert response.status_code in (200, 404, 422), (asked, response.text)
    assert answered > 30
    assert refused > 30
