"""Evidence as a picture over HTTP."""

from __future__ import annotations

import io
import shutil
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import httpx
import pytest
from PIL import ExifTags, Image

from aladin_index.building.builder import build_index
from aladin_network.photos.decoding import decode_image
from aladin_service.evidence.png import ExplainedPair, read_evidence
from aladin_service.item_sources import image_items, text_items

pytestmark = pytest.mark.anyio

Service = Callable[..., AbstractAsyncContextManager[httpx.AsyncClient]]

TEXT = "a red dog runs in the street"


def shown(response: httpx.Response) -> ExplainedPair:
    """The evidence that a drawing carries."""
    assert response.status_code == 200, response.text
    assert response.headers["content-type"] == "image/png"
    assert decode_image(response.content).width >= 760
    (pair,) = read_evidence(response.content)
    return pair


def assert_same(pair: ExplainedPair, hit: dict[str, object]) -> None:
    """What is drawn is what a search answers, and adds up to the score."""
    told = pair.model_dump(mode="json")
    assert told["match"] == pytest.approx(hit["stages"]["match"]["score"], abs=1e-6)
    assert told["align"] == pytest.approx(hit["stages"]["align"]["score"], abs=1e-6)
    assert told["evidence"] == [
        {
            **word,
            "score": pytest.approx(word["score"], abs=1e-6),
            "share": pytest.approx(word["share"], abs=1e-6),
        }
        for word in hit["evidence"]
    ]
    assert sum(word.score for word in pair.evidence) == pytest.approx(pair.align, abs=1e-4)


async def test_words_against_a_photo(service: Service) -> None:
    async with service() as client:
        answer = await client.post(
            "/v1/search/images", json={"text": TEXT, "explain": True, "k": 2}
        )
        for hit in answer.json()["hits"]:
            drawn = await client.get("/v1/explain.png", params={"text": TEXT, "id": hit["id"]})
            pair = shown(drawn)
            assert (pair.text, pair.text_id, pair.photo_id) == (TEXT, None, hit["id"])
            assert pair.generation == 1
            assert_same(pair, hit)


async def test_a_text_of_the_index_against_a_photo_of_the_index_either_way_round(
    service: Service,
) -> None:
    async with service() as client:
        for asked, wanted, target in (
            ("dogs/red#1#0", "bike 2?", "images"),
            ("bike 2?", "dogs/red#1#0", "texts"),
        ):
            search = {"id": asked, "explain": True, "k": 100}
            answer = await client.post(f"/v1/search/{target}", json=search)
            (hit,) = (hit for hit in answer.json()["hits"] if hit["id"] == wanted)
            drawn = await client.get("/v1/explain.png", params={"query_id": asked, "id": wanted})
            pair = shown(drawn)
            assert (pair.text, pair.text_id, pair.photo_id) == (
                "a red dog runs",
                "dogs/red#1#0",
                "bike 2?",
            )
            assert_same(pair, hit)


async def test_an_uploaded_photo_against_a_text(
    service: Service, query_photo: Image.Image, encoded: Callable[..., bytes]
) -> None:
    photo = encoded(query_photo)
    async with service() as client:
        search = await client.post(
            "/v1/search/texts", files={"image": photo}, data={"explain": "true", "k": "2"}
        )
        for hit in search.json()["hits"]:
            drawn = await client.post(
                "/v1/explain.png", files={"image": photo}, data={"id": hit["id"]}
            )
            pair = shown(drawn)
            assert (pair.text, pair.text_id, pair.photo_id) == (hit["text"], hit["id"], None)
            assert_same(pair, hit)


async def test_a_photo_is_drawn_upright(
    service: Service, query_photo: Image.Image, encoded: Callable[..., bytes]
) -> None:
    lying = query_photo.transpose(Image.Transpose.ROTATE_90)
    exif = Image.Exif()
    exif[ExifTags.Base.Orientation] = 6  # turn it by 90 degrees to the right
    async with service() as client:
        drawings = [
            await client.post("/v1/explain.png", files={"image": photo}, data={"id": "plain#0"})
            for photo in (encoded(query_photo), encoded(lying, exif=exif), encoded(lying))
        ]
    upright, turned, as_it_lies = (Image.open(io.BytesIO(each.content)) for each in drawings)
    assert turned.tobytes() == upright.tobytes()
    assert as_it_lies.size != upright.size


async def test_a_client_with_the_drawing_gets_304_until_it_changes(service: Service) -> None:
    async with service() as client:
        params = {"text": TEXT, "id": "plain"}
        first = await client.get("/v1/explain.png", params=params)
        assert first.headers["cache-control"] == "private, no-cache"
        known = {"If-None-Match": first.headers["etag"]}
        again = await client.get("/v1/explain.png", params=params, headers=known)
        assert (again.status_code, again.content) == (304, b"")
        assert again.headers["etag"] == first.headers["etag"]
        for other in ({"text": "a dog", "id": "plain"}, {"text": TEXT, "id": "bike 2?"}):
            drawn = await client.get("/v1/explain.png", params=other, headers=known)
            assert drawn.status_code == 200


@pytest.mark.parametrize(
    ("params", "status", "message"),
    [
        ({"text": TEXT, "id": "nobody"}, 404, "nobody"),
        ({"query_id": "nobody", "id": "plain"}, 404, "nobody"),
        ({"query_id": "plain", "id": "nobody"}, 404, "nobody"),
        (
            {"text": TEXT, "id": "plain#0"},
            422,
            "expected one of the images, but 'plain#0' is one of",
        ),
        ({"query_id": "plain", "id": "bike 2?"}, 422, "expected one of the texts, but 'bike 2?'"),
        (
            {"query_id": "plain#0", "id": "plain#1"},
            422,
            "expected one of the images, but 'plain#1'",
        ),
        ({"id": "plain"}, 422, "exactly one of text, query_id, got none"),
        ({"text": TEXT, "query_id": "plain", "id": "plain"}, 422, "got text and query_id"),
        ({"text": TEXT}, 422, "id: Field required"),
        ({"text": "dog " * 600, "id": "plain"}, 422, "2400 characters"),
    ],
)
async def test_impossible_pairs_are_refused(
    service: Service, params: dict[str, str], status: int, message: str
) -> None:
    async with service() as client:
        response = await client.get("/v1/explain.png", params=params)
        assert response.status_code == status
        assert message in response.json()["error"]["message"]


async def test_impossible_uploads_are_refused(
    service: Service, query_photo: Image.Image, encoded: Callable[..., bytes]
) -> None:
    photo = encoded(query_photo)
    async with service(max_image_pixels=100) as client:
        for files, data, status in (
            ({"image": photo}, {"id": "plain#0"}, 413),
            ({"image": b"no picture"}, {"id": "plain#0"}, 415),
            ({"image": photo}, {"id": "nobody"}, 404),
            ({"image": photo}, {"id": "plain"}, 422),
            ({"image": photo}, {}, 422),
            ({"image": photo}, {"id": "plain#0", "k": "3"}, 422),
        ):
            response = await client.post("/v1/explain.png", files=files, data=data)
            assert response.status_code == status, response.text


async def test_where_a_photo_is_gone_the_regions_are_drawn_all_the_same(
    service: Service, tiny_checkpoint: Path, data_file: Path, tmp_path: Path
) -> None:
    folder = Path(shutil.copytree(data_file.parent, tmp_path / "data"))
    data, out = folder / data_file.name, tmp_path / "index"
    build_index(tiny_checkpoint, out, image_items(data, None), text_items(data, None))
    async with service(index=out) as client:
        params = {"text": TEXT, "id": "plain"}
        before = await client.get("/v1/explain.png", params=params)
        (folder / "photo-2.png").unlink()
        known = {"If-None-Match": before.headers["etag"]}
        after = await client.get("/v1/explain.png", params=params, headers=known)
        assert shown(after) == shown(before)
        pixels = [Image.open(io.BytesIO(each.content)).tobytes() for each in (before, after)]
        assert pixels[0] != pixels[1]


async def test_every_word_is_compared_with_every_region(service: Service) -> None:
    async with service() as client:
        search = {"text": TEXT, "explain": True, "k": 2}
        hits = (await client.post("/v1/search/images", json=search)).json()["hits"]
        for hit in hits:
            answer = await client.get("/v1/explain", params={"text": TEXT, "id": hit["id"]})
            maps = answer.json()
            assert maps["text"] == TEXT
            assert maps["align"] == pytest.approx(hit["stages"]["align"]["score"], abs=1e-6)
            assert maps["match"] == pytest.approx(hit["stages"]["match"]["score"], abs=1e-6)
            assert " ".join(word["text"] for word in maps["words"]) == TEXT
            total = sum(word["score"] for word in maps["words"])
            assert total == pytest.approx(maps["align"], abs=1e-4)
            for word in maps["words"]:
                best = max(word["cosines"])
                assert len(word["cosines"]) == len(maps["regions"])
                assert word["cosines"][word["region"]] == best
                tokens = [
                    entry
                    for entry in hit["evidence"]
                    if word["start"] <= entry["start"] < word["end"]
                ]
                score = sum(entry["score"] for entry in tokens)
                assert word["score"] == pytest.approx(score, abs=1e-6)
                if len(tokens) == 1:
                    assert maps["regions"][word["region"]]["box"] == tokens[0]["box"]


async def test_an_uploaded_photo_is_compared_with_a_text(
    service: Service, query_photo: Image.Image, encoded: Callable[..., bytes]
) -> None:
    async with service() as client:
        files = {"image": encoded(query_photo)}
        maps = await client.post("/v1/explain", files=files, data={"id": "dogs/red#1#0"})
        both = await client.get("/v1/explain", params={"text": "a", "query_id": "b", "id": "plain"})
    assert [word["text"] for word in maps.json()["words"]] == ["a", "red", "dog", "runs"]
    assert both.status_code == 422
