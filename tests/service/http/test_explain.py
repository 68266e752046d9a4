"""Evidence over HTTP, as numbers and as a picture that carries them."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import httpx
import pytest

from aladin_index.building.builder import build_index
from aladin_network.photos.decoding import decode_image
from aladin_service.evidence.png import ExplainedPair, read_evidence
from aladin_service.item_sources import image_items, text_items
from tests.service.http.conftest import Service, b64

pytestmark = pytest.mark.anyio

TEXT = "a red dog runs in the street"
BOX, IN_URL = [0.25, 0.0, 0.8, 0.6], "0.25,0,0.8,0.6"


async def hits_of(client: httpx.AsyncClient, target: str, **body: Any) -> list[dict[str, Any]]:
    """Search with evidence."""
    answer = await client.post(f"/v1/search/{target}", json={"k": 20, "explain": True} | body)
    assert answer.status_code == 200, answer.text
    assert answer.json()["hits"]
    return answer.json()["hits"]


def shown(drawn: httpx.Response) -> ExplainedPair:
    """The evidence that a drawing carries."""
    assert drawn.status_code == 200, drawn.text
    assert drawn.headers["content-type"] == "image/png"
    assert decode_image(drawn.content).width >= 760
    (pair,) = read_evidence(drawn.content)
    return pair


def assert_told(pair: ExplainedPair, maps: dict[str, Any], hit: dict[str, Any]) -> None:
    """What is drawn and mapped is what a search answers, and adds up to the score."""
    stages = hit["stages"]
    for found in (pair.match, maps["match"]):
        assert found == pytest.approx(stages["match"]["score"], abs=1e-4)
    for found in (pair.align, maps["align"]):
        assert found == pytest.approx(stages["align"]["score"], abs=1e-4)
    drawn = pair.model_dump(mode="json")["evidence"]
    for word, expected in zip(drawn, hit["evidence"], strict=True):
        assert word | {"score": 0, "share": 0} == expected | {"score": 0, "share": 0}
        assert word["score"] == pytest.approx(expected["score"], abs=1e-6)
    assert sum(word.score for word in pair.evidence) == pytest.approx(pair.align, abs=1e-4)
    for word in maps["words"]:
        assert len(word["cosines"]) == len(maps["regions"])
        assert word["cosines"][word["region"]] == max(word["cosines"])
        tokens = [each for each in drawn if word["start"] <= each["start"] < word["end"]]
        total = sum(each["score"] for each in tokens)
        assert word["score"] == pytest.approx(total, abs=1e-6)
        if len(tokens) == 1:
            assert maps["regions"][word["region"]]["box"] == tokens[0]["box"]


async def test_words_and_photos_are_explained_as_a_search_explains_them(
    client: httpx.AsyncClient, photo: bytes
) -> None:
    """A text against a photo, a photo of the index against a text of it, an upload against one."""
    by_text = (await hits_of(client, "images", text=TEXT))[0]
    by_id = next(h for h in await hits_of(client, "texts", id="bike 2?") if h["id"] == "plain#0")
    by_photo = (await hits_of(client, "texts", image=b64(photo)))[0]
    asked: list[tuple[dict[str, Any], dict[str, Any], tuple[str, str | None, str | None]]] = [
        (by_text, {"text": TEXT}, (TEXT, None, by_text["id"])),
        (by_id, {"query_id": "bike 2?"}, (by_id["text"], "plain#0", "bike 2?")),
        (by_photo, {}, (by_photo["text"], by_photo["id"], None)),
    ]
    for hit, query, names in asked:
        if query:
            params = query | {"id": hit["id"]}
            maps = await client.get("/v1/explain", params=params)
            pair = shown(await client.get("/v1/explain.png", params=params))
        else:
            form = {"files": {"image": photo}, "data": {"id": hit["id"]}}
            maps = await client.post("/v1/explain", **form)
            pair = shown(await client.post("/v1/explain.png", **form))
        assert (pair.text, pair.text_id, pair.photo_id) == names
        assert maps.json()["text"] == pair.text
        assert " ".join(word["text"] for word in maps.json()["words"]) == pair.text
        assert_told(pair, maps.json(), hit)
    other_way = {"query_id": "plain#0", "id": "bike 2?"}
    assert shown(await client.get("/v1/explain.png", params=other_way)).text_id == "plain#0"


async def test_two_photos_are_compared_region_by_region(
    client: httpx.AsyncClient, image_ids: list[str], data_file: Path
) -> None:
    upload = (data_file.parent / "photo-2.png").read_bytes()
    hit = (await hits_of(client, "images", id=image_ids[2], box=BOX))[0]
    assert hit["id"] != image_ids[2]
    asked = {"query_id": image_ids[2], "id": hit["id"], "box": IN_URL}
    maps = (await client.get("/v1/explain", params=asked)).json()
    form = {"id": (None, hit["id"]), "box": (None, json.dumps(BOX)), "image": upload}
    uploaded = (await client.post("/v1/explain", files=form)).json()
    drawn = await client.get("/v1/explain.png", params=asked)
    other = await client.get("/v1/explain.png", params=asked | {"box": "0,0,1,1"})
    assert other.headers["etag"] != drawn.headers["etag"]
    pair = shown(drawn)
    assert (pair.query_photo_id, pair.photo_id) == (image_ids[2], hit["id"])
    of_upload = shown(await client.post("/v1/explain.png", files=form))
    assert (of_upload.query_photo_id, of_upload.photo_id) == (None, hit["id"])
    assert (pair.text, pair.evidence, maps["text"], maps["words"]) == ("", [], "", [])
    assert pair.box == pytest.approx(BOX)
    for name in ("match", "align"):
        assert maps[name] == pytest.approx(hit["stages"][name]["score"], abs=1e-4)
    assert uploaded["align"] == pytest.approx(maps["align"], abs=2e-2)
    for found in (pair.found, maps["found"], uploaded["found"]):
        assert found == pytest.approx(hit["found"], abs=1e-3)
    assert pair.region_evidence is not None
    told = zip(maps["query_regions"], pair.region_evidence, hit["region_evidence"], strict=True)
    for mapped, marked, expected in told:
        assert (marked.query_region, marked.region) == (
            expected["query_region"],
            expected["region"],
        )
        assert mapped["box"] == pytest.approx(expected["query_box"])
        assert mapped["region"] == expected["region"]
        assert len(mapped["cosines"]) == len(maps["regions"])
        assert max(mapped["cosines"]) == pytest.approx(expected["score"], abs=1e-4)
        assert maps["regions"][expected["region"]]["box"] == pytest.approx(expected["box"])


async def test_a_text_is_compared_with_the_regions_inside_a_box(
    client: httpx.AsyncClient, image_ids: list[str]
) -> None:
    hit = (await hits_of(client, "texts", id=image_ids[2], box=BOX))[0]
    asked = {"query_id": image_ids[2], "id": hit["id"], "box": IN_URL}
    maps = (await client.get("/v1/explain", params=asked)).json()
    pair = shown(await client.get("/v1/explain.png", params=asked))
    assert (maps["query_regions"], maps["found"], hit["found"]) == (None, None, None)
    assert pair.box == pytest.approx(BOX)
    assert_told(pair, maps | {"words": []}, hit)


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
        assert after.content != before.content
