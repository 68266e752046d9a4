"""Searching over HTTP: the answer's form, its numbers, and both directions."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import httpx
import pytest
from PIL import Image

from aladin_network.checkpoint import load_checkpoint
from aladin_network.scoring.scores import matching_scores
from tests.tensors import encode_photos, encode_texts

pytestmark = pytest.mark.anyio

Service = Callable[..., AbstractAsyncContextManager[httpx.AsyncClient]]
Encoded = Callable[..., bytes]

TEXT = "a red dog rides a motorcycle"

# Scores of float16 tokens against float32 ones.
TOLERANCE = 1e-2


async def ask(client: httpx.AsyncClient, target: str, **body: Any) -> dict[str, Any]:
    """Search by JSON; the answer has to be a success."""
    response = await client.post(f"/v1/search/{target}", json=body)
    assert response.status_code == 200, response.text
    return response.json()


async def test_the_answer_has_exactly_the_documented_keys(service: Service) -> None:
    async with service() as client:
        answer = await ask(client, "images", text=TEXT, k=2, explain=True)
        page = await ask(client, "images", text=TEXT, k=2, offset=2, fusion=1)
        first_stage = await ask(client, "images", text=TEXT, rerank=False)
    assert ([hit["rank"] for hit in page["hits"]], page["fusion"]) == ([3, 4], 1.0)
    assert (first_stage["reranked"], first_stage["fusion"]) == (False, None)
    for hit in first_stage["hits"]:
        assert hit["rank"] == hit["stages"]["match"]["rank"]
    assert list(answer) == [
        "hits",
        "reranked",
        "fusion",
        "candidates",
        "generation",
        "degraded",
        "no_match",
        "probabilities_reliable",
        "unreliable_because",
        "unknown_fields",
        "terms",
        "suggestion",
        "took_ms",
    ]
    assert set(answer["took_ms"]) == {"decode", "encode", "retrieve", "rerank", "total"}
    assert [hit["rank"] for hit in answer["hits"]] == [1, 2]
    for hit in answer["hits"]:
        assert list(hit) == [
            "id",
            "rank",
            "score",
            "per_word",
            "probability",
            "stages",
            "uri",
            "text",
            "metadata",
            "size_px",
            "evidence",
            "found",
            "region_evidence",
            "terms",
        ]
        assert list(hit["stages"]) == ["match", "align", "lexical"]
        assert hit["stages"]["lexical"] is None
        assert list(hit["stages"]["match"]) == list(hit["stages"]["align"]) == ["rank", "score"]
        for evidence in hit["evidence"]:
            assert list(evidence) == ["token", "start", "end", "region", "box", "score", "share"]
            assert len(evidence["box"]) == 4


async def test_the_same_pair_scores_the_same_both_ways_and_as_in_the_model(
    service: Service,
    tiny_checkpoint: Path,
    data_file: Path,
    image_ids: list[str],
    captions: list[tuple[str, str]],
) -> None:
    model = load_checkpoint(tiny_checkpoint).model
    files = [data_file.parent / f"photo-{number}.png" for number in range(len(image_ids))]
    photos: list[Image.Image] = []
    for file in files:
        with Image.open(file) as picture:
            photos.append(picture.convert("RGB"))
    texts = [caption for pair in captions for caption in pair]
    text_ids = [f"{image_id}#{number}" for image_id in image_ids for number in range(2)]
    images_encoded, texts_encoded = encode_photos(model, photos), encode_texts(model, texts)
    align = model.scores("alignment", images_encoded, texts_encoded)
    match = matching_scores(images_encoded, texts_encoded)

    async with service() as client:
        for column, text in enumerate(texts):
            answer = await ask(client, "images", text=text)
            assert len(answer["hits"]) == len(image_ids)
            for hit in answer["hits"]:
                row = image_ids.index(hit["id"])
                stages = hit["stages"]
                assert stages["align"]["score"] == pytest.approx(
                    float(align[row, column]), abs=TOLERANCE
                )
                assert stages["match"]["score"] == pytest.approx(
                    float(match[row, column]), abs=1e-4
                )
        for row, file in enumerate(files):
            response = await client.post(
                "/v1/search/texts", files={"image": file.read_bytes()}, data={"k": "50"}
            )
            hits = response.json()["hits"]
            assert len(hits) == len(texts)
            for hit in hits:
                column = text_ids.index(hit["id"])
                stages = hit["stages"]
                assert stages["align"]["score"] == pytest.approx(
                    float(align[row, column]), abs=TOLERANCE
                )


@pytest.mark.parametrize("target", ["images", "texts"])
async def test_evidence_adds_up_to_the_alignment_score(
    service: Service, query_photo: Image.Image, encoded: Encoded, target: str
) -> None:
    async with service() as client:
        if target == "images":
            answer = await ask(client, target, text=TEXT, explain=True)
        else:
            image = base64.b64encode(encoded(query_photo)).decode()
            answer = await ask(client, target, image=image, explain=True)
    for hit in answer["hits"]:
        align = hit["stages"]["align"]["score"]
        assert sum(word["score"] for word in hit["evidence"]) == pytest.approx(align, abs=1e-4)
        assert hit["per_word"] == pytest.approx(align / len(hit["evidence"]))
        text = TEXT if target == "images" else hit["text"]
        for word in hit["evidence"]:
            assert word["token"] == text[word["start"] : word["end"]]
            x0, y0, x1, y1 = word["box"]
            assert 0 <= x0 < x1 <= 1
            assert 0 <= y0 < y1 <= 1


async def test_json_base64_and_multipart_of_one_photo_agree(
    service: Service, query_photo: Image.Image, encoded: Encoded
) -> None:
    data = encoded(query_photo)
    async with service() as client:
        by_json = await ask(client, "texts", image=base64.b64encode(data).decode(), k=3)
        form = await client.post(
            "/v1/search/texts", files={"image": ("p.png", data)}, data={"k": "3"}
        )
    assert form.json()["hits"] == by_json["hits"]
    assert by_json["took_ms"]["decode"] > 0


async def test_an_item_is_not_among_its_own_hits_in_a_batch_either(service: Service) -> None:
    queries = [{"target": "images", "id": "plain", "k": 3}, {"target": "texts", "id": "plain"}]
    async with service() as client:
        batch = await client.post("/v1/search/batch", json={"queries": queries})
        alone = await ask(client, "images", id="plain", k=3)
    images, texts = batch.json()["answers"]
    assert images["hits"] == alone["hits"]
    assert "plain" not in [hit["id"] for hit in images["hits"]]
    assert "plain#0" in [hit["id"] for hit in texts["hits"]]


async def test_the_field_that_no_item_has_is_named(
    service: Service, calibrated_index: Path
) -> None:
    async with service(calibrated_index) as client:
        unknown = await ask(client, "images", text=TEXT, filter={"scene.background": "beach"})
        known = await ask(client, "images", text=TEXT, filter={"number": 99})
    for answer, fields in ((unknown, ["scene.background"]), (known, [])):
        assert (answer["hits"], answer["unknown_fields"]) == ([], fields)
        assert (answer["no_match"], answer["unreliable_because"]) == (None, None)


async def test_an_item_is_a_query_like_its_own_photo_or_text(
    service: Service, data_file: Path, image_ids: list[str], captions: list[tuple[str, str]]
) -> None:
    async with service() as client:
        by_id = await ask(client, "images", id=f"{image_ids[1]}#0", explain=True)
        by_text = await ask(client, "images", text=captions[1][0], explain=True)
        photo_id = await ask(client, "texts", id=image_ids[2], explain=True, k=12)
        data = base64.b64encode((data_file.parent / "photo-2.png").read_bytes()).decode()
        by_photo = await ask(client, "texts", image=data, explain=True, k=12)
    # The index keeps 16 bits of each number: two that are nearly alike may change places.
    for ours, theirs in ((by_id, by_text), (photo_id, by_photo)):
        others = {hit["id"]: hit for hit in theirs["hits"]}
        assert {hit["id"] for hit in ours["hits"]} == set(others)
        for hit in ours["hits"]:
            other = others[hit["id"]]
            assert hit["stages"]["align"]["score"] == pytest.approx(
                other["stages"]["align"]["score"], abs=TOLERANCE
            )
            assert [word["box"] for word in hit["evidence"]] == [
                word["box"] for word in other["evidence"]
            ]


async def test_a_filter_leaves_only_what_fits(service: Service) -> None:
    async with service() as client:
        small = await ask(client, "images", text=TEXT, filter={"number": {"lt": 3}, "tags": "even"})
        none = await ask(client, "images", text=TEXT, filter={"colour": "red"})
        form = await client.post(
            "/v1/search/images",
            data={"text": TEXT, "filter": json.dumps({"number": 4})},
            files={"image": b""},
        )
        bad = await client.post(
            "/v1/search/images", json={"text": TEXT, "filter": {"number": {"about": 3}}}
        )
    assert {hit["metadata"]["number"] for hit in small["hits"]} == {0, 2}
    assert none["hits"] == []
    assert form.status_code == 422  # a text and an image
    assert bad.status_code == 422
    assert "about" in bad.json()["error"]["message"]


@pytest.mark.parametrize(
    ("spec", "says"),
    [
        ({"number": {"in": 3}}, "filter field 'number': in takes a list"),
        ({"or": [{"number": None}]}, "filter field 'number': expected text"),
        ({"and": [{"number": list(range(501))}, {"rank": list(range(501))}]}, "field 'rank'"),
    ],
    ids=["no list", "null", "many values"],
)
async def test_filters_that_cannot_be_answered(
    service: Service, spec: dict[str, Any], says: str
) -> None:
    async with service() as client:
        answer = await client.post("/v1/search/images", json={"text": TEXT, "filter": spec})
    assert answer.status_code == 422
    assert says in answer.json()["error"]["message"]


@pytest.mark.parametrize("levels", [17, 100, 10_000])
async def test_a_filter_has_only_so_many_levels(service: Service, levels: int) -> None:
    spec = '{"or": [' * (levels - 1) + '{"number": 1}' + "]}" * (levels - 1)
    body = f'{{"text": "{TEXT}", "filter": {spec}}}'
    async with service() as client:
        answer = await client.post(
            "/v1/search/images", content=body, headers={"content-type": "application/json"}
        )
    assert answer.status_code == 422
    if levels < 100:  # beyond, the JSON itself is refused
        assert "filter 'or': expected at most 16 levels" in answer.json()["error"]["message"]


async def test_hits_carry_what_the_user_said_of_them(
    service: Service, image_ids: list[str], captions: list[tuple[str, str]]
) -> None:
    async with service() as client:
        images = (await ask(client, "images", text=TEXT))["hits"]
        texts = (await ask(client, "texts", text=TEXT, k=50))["hits"]
    for hit in images:
        number = image_ids.index(hit["id"])
        assert hit["uri"] == f"photo-{number}.png"
        assert hit["text"] == captions[number][0]
        assert hit["metadata"]["number"] == number
        assert hit["evidence"] is None
    assert {hit["text"] for hit in texts} == {text for pair in captions for text in pair}
    assert all(hit["uri"] is None for hit in texts)


async def test_without_the_time_for_it_the_second_stage_is_left_out(service: Service) -> None:
    async with service() as client:
        late = await ask(client, "images", text=TEXT, timeout_ms=0.001)
        in_time = await ask(client, "images", text=TEXT, timeout_ms=60_000)
        plain = await ask(client, "images", text=TEXT, rerank=False)
    assert (late["degraded"], late["reranked"]) == (["rerank_timeout"], False)
    assert [hit["id"] for hit in late["hits"]] == [hit["id"] for hit in plain["hits"]]
    assert (in_time["degraded"], in_time["reranked"]) == ([], True)
