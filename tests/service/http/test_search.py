"""Searching over HTTP: its forms and their numbers; doors in common are in `tests/contract`."""

from __future__ import annotations

import asyncio
import json
import math
import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest

from aladin_index.generations.info import describe
from aladin_index.generations.published import store_calibration
from aladin_service.http import documents
from aladin_service.http.routes import search as searches
from tests.conftest import made_up_calibration
from tests.service.http.conftest import Service, b64, told

pytestmark = pytest.mark.anyio

TEXT = "a red dog rides a motorcycle"
BOX = [0.25, 0.0, 0.8, 0.6]
DOG, CAR = {"text": "a red dog"}, {"text": "a car"}
FILES = ("image",)


async def ask(client: httpx.AsyncClient, target: str, **body: Any) -> dict[str, Any]:
    """Search by JSON; the answer has to be a success."""
    response = await client.post(f"/v1/search/{target}", json=body)
    assert response.status_code == 200, response.text
    return response.json()


def as_form(body: dict[str, Any]) -> dict[str, Any]:
    """The parts of a form: files as they are, numbers and words as texts, the rest as JSON."""
    return {
        name: value
        if name in FILES
        else (None, value if isinstance(value, str) else json.dumps(value))
        for name, value in body.items()
    }


async def test_a_form_and_a_batch_get_the_answer_of_json(
    client: httpx.AsyncClient, calibrated: httpx.AsyncClient, photo: bytes, image_ids: list[str]
) -> None:
    terms = {"all": [DOG | {"weight": 2}, {"id": "plain", "box": BOX}], "not": [CAR]}
    options = {
        "k": 3,
        "offset": 1,
        "candidates": 4,
        "rerank": False,
        "filter": {"number": {"lt": 5}},
    }
    bodies: list[tuple[str, dict[str, Any]]] = [
        ("texts", {"image": photo, "k": 3}),
        ("texts", {"image": photo, "explain": True, "fusion": 1.0, "timeout_ms": 60_000.0}),
        ("images", {"image": photo, "candidates": "exhaustive", "sort": "-number"}),
        ("images", {"image": photo, "box": BOX, "explain": True}),
        ("images", DOG | options),
        ("images", DOG | {"lexical": 0.5}),
        ("images", {"id": image_ids[2], "box": BOX, "k": 10}),
        ("images", terms | {"like": image_ids[:2], "k": 4}),
        ("texts", {"image": photo, "min_probability": 0.05, "k": 12}),
    ]
    for target, body in bodies:
        asked = calibrated if "min_probability" in body else client
        in_json = body | {name: b64(body[name]) for name in FILES if name in body}
        expected = await ask(asked, target, **in_json)
        took_ms = expected.pop("took_ms")
        assert expected["hits"]
        form = await asked.post(f"/v1/search/{target}", files=as_form(body))
        queries = {"queries": [in_json | {"target": target}]}
        batch = await asked.post("/v1/search/batch", json=queries)
        for found in (form.json(), batch.json()["answers"][0]):
            assert found.pop("took_ms").keys() == took_ms.keys()
            assert found == expected, body


async def test_hits_carry_what_the_user_said_of_them_and_answers_what_they_lack(
    client: httpx.AsyncClient, image_ids: list[str], captions: list[tuple[str, str]]
) -> None:
    for hit in (await ask(client, "images", text=TEXT))["hits"]:
        number = image_ids.index(hit["id"])
        assert (hit["uri"], hit["text"]) == (f"photo-{number}.png", captions[number][0])
        assert (hit["metadata"]["number"], hit["evidence"]) == (number, None)
    texts = (await ask(client, "texts", text=TEXT, k=50))["hits"]
    assert {hit["text"] for hit in texts} == {text for pair in captions for text in pair}
    assert {hit["uri"] for hit in texts} == {None}
    for spec, unknown in (({"scene.background": "sea"}, ["scene.background"]), ({"number": 9}, [])):
        nothing = await ask(client, "images", text=TEXT, filter=spec)
        assert (nothing["hits"], nothing["unknown_fields"]) == ([], unknown)
    late = await ask(client, "images", text=TEXT, timeout_ms=0.001)
    assert (late["degraded"], late["reranked"]) == (["rerank_timeout"], False)


async def test_terms_are_told_with_their_roles_weights_boxes_and_scores(
    client: httpx.AsyncClient, data_file: Path, image_ids: list[str]
) -> None:
    photo = b64((data_file.parent / "photo-2.png").read_bytes())
    body: dict[str, Any] = {
        "all": [DOG | {"weight": 2}, {"image": photo}, {"id": image_ids[2], "box": BOX}],
        "not": [CAR, {"id": image_ids[4]}],
        "like": image_ids[:2],
    }
    answer = await ask(client, "images", **body, explain=True)
    names = ("role", "weight", "text", "id", "box")
    assert [tuple(term[name] for name in names) for term in answer["terms"]] == [
        ("all", 2, "a red dog", None, None),
        ("all", 1, None, None, None),
        ("all", 1, None, image_ids[2], BOX),
        ("not", -1, "a car", None, None),
        ("not", -1, None, image_ids[4], None),
        ("like", 0.375, None, image_ids[0], None),
        ("like", 0.375, None, image_ids[1], None),
    ]
    assert {hit["id"] for hit in answer["hits"]} <= set(image_ids) - {*image_ids[:3], image_ids[4]}
    assert answer["hits"]
    for hit in answer["hits"]:
        assert hit["score"] == pytest.approx(sum(term["score"] for term in hit["terms"]), abs=1e-4)
        for term, told_of in zip(answer["terms"], hit["terms"], strict=True):
            evidence = told_of["evidence" if term["text"] else "region_evidence"]
            assert (evidence is None) == (told_of["align"] is None)
            assert (told_of["found"] is None) == (term["box"] is None)
            if evidence:
                total = sum(each["score"] for each in evidence)
                assert total == pytest.approx(told_of["align"], abs=1e-4)


async def test_the_split_of_a_negation_is_offered_and_not_made(client: httpx.AsyncClient) -> None:
    whole = await ask(client, "images", text="a red dog, no car")
    suggested = {term["role"]: [{"text": term["text"]}] for term in whole["suggestion"]}
    assert (suggested, whole["terms"]) == ({"all": [DOG], "not": [{"text": "car"}]}, None)
    terms = await ask(client, "images", **suggested)
    assert [term["text"] for term in terms["terms"]] == ["a red dog", "car"]
    assert (terms["suggestion"], (await ask(client, "images", **DOG))["suggestion"]) == (None, None)


async def test_random_bodies_are_answered_or_refused(
    client: httpx.AsyncClient, image_ids: list[str]
) -> None:
    generator = random.Random(0)
    edges: list[Any] = [0, 0.1, 0.5, 0.999999, 1, 1e-12, 1e300, -0.0, -1, True, "0", None, [0]]
    odd: list[Any] = [None, [], {}, "a", 3, True, [None], [""], image_ids[:2], 0.5, -1, 1e300]

    def box() -> list[Any]:
        x0, y0, x1, y1 = (generator.choice(edges[:5]) for _ in range(4))
        return [min(x0, x1), min(y0, y1), max(x0, x1), max(y0, y1)]

    good: dict[str, list[Any]] = {
        "all": [[DOG], [DOG, CAR | {"weight": 0.5}], [{"id": image_ids[2], "weight": 1e9}]],
        "not": [[CAR]],
        "like": [image_ids[:1]],
        "id": [*image_ids, "plain#0", "nobody"],
        "text": ["a dog"],
    }
    statuses: list[int] = []
    for turn in range(300):
        names = generator.sample(list(good), 1 + turn % 3)
        body = {
            name: generator.choice(good[name] if generator.random() < 0.7 else odd)
            for name in names
        }
        if "id" in body and turn % 2:
            one = {
                "id": body.pop("id"),
                "box": box() if turn % 4 == 1 else generator.sample(edges, 4),
            }
            body = generator.choice([one, {"all": [one]}, {"all": [one, DOG]}])
        target = generator.choice(["images", "texts"])
        answer = await client.post(f"/v1/search/{target}", json=body | {"explain": True})
        assert answer.status_code in (200, 404, 422), (body, answer.text)
        statuses.append(answer.status_code)
        asked = {"query_id": "plain", "id": "bike 2?", "box": str(body.get("box", "0,0,1"))[1:-1]}
        pair = await client.get("/v1/explain", params=asked)
        assert pair.status_code in (200, 422), (asked, pair.text)
    assert min(statuses.count(200), statuses.count(422)) > 30


def probability_by_hand(hit: dict[str, Any], others: list[dict[str, Any]]) -> float:
    """Work out what `calibrated_index` says of a photo."""
    align = hit["stages"]["align"]["score"]
    gap = align - max(each["stages"]["align"]["score"] for each in others)
    words = align / hit["per_word"]
    match = hit["stages"]["match"]["score"]
    return 1 / (1 + math.exp(-(3 * match + align / 4 + gap / 2 - 0.5 * math.log(words))))


async def test_hits_carry_the_probabilities_of_the_calibration(
    calibrated: httpx.AsyncClient,
) -> None:
    answer = await ask(calibrated, "images", text=TEXT)
    hits = answer["hits"]
    assert len(hits) == 6
    for hit in hits:
        others = [each for each in hits if each is not hit]
        assert hit["probability"] == pytest.approx(probability_by_hand(hit, others), abs=1e-6)
    assert (answer["no_match"], answer["probabilities_reliable"]) == (False, True)
    least = sorted(hit["probability"] for hit in hits)[3]
    likely = await ask(calibrated, "images", text=TEXT, min_probability=least)
    assert likely["hits"] == [hit for hit in hits if hit["probability"] >= least]
    nothing = await ask(calibrated, "images", text=TEXT, min_probability=1)
    assert (nothing["hits"], nothing["no_match"]) == ([], True)


async def test_without_probabilities_nothing_is_said_and_none_can_be_asked_for(
    client: httpx.AsyncClient, calibrated: httpx.AsyncClient
) -> None:
    """The index is not calibrated, or the query is a photo and so are the hits."""
    for asked, query, words in (
        (client, {"text": TEXT}, "the index is not calibrated"),
        (calibrated, {"id": "plain"}, "only images for a text and texts for an image"),
    ):
        answer = await ask(asked, "images", **query)
        assert {hit["probability"] for hit in answer["hits"]} == {None}
        assert (answer["no_match"], answer["probabilities_reliable"]) == (None, None)
        refused = await asked.post("/v1/search/images", json=query | {"min_probability": 0.5})
        assert (refused.status_code, words in told(refused)[2]) == (422, True)
    assert (await client.get("/v1/index")).json()["calibration"] is None


async def test_the_index_tells_what_its_probabilities_are_worth(
    calibrated: httpx.AsyncClient,
) -> None:
    described = (await calibrated.get("/v1/index")).json()["calibration"]
    assert described["fitted_on"] == {
        **{"data": "captions.jsonl", "split": "val", "searched": "split"},
        **{"photos": 40, "texts": 40, "short_texts": 7},
    }
    assert (described["measured_on"], described["other_photos"]) == ("out of fold", False)
    for direction in ("text_to_image", "image_to_text"):
        figures = {"ece": 0.02, "auroc": 0.9, "false_alarms": 0.05, "detected": 0.4}
        assert described[direction] == {"aligned": True, "figures": figures}


async def test_a_calibration_is_taken_over_and_one_of_other_photos_judges_no_answer(
    service: Service, index: Path
) -> None:
    made = made_up_calibration(describe(index).model.id)
    async with service(index) as client:
        before = await ask(client, "images", text=TEXT)
        store_calibration(index, made)
        after = await ask(client, "images", text=TEXT, min_probability=0.0)
        store_calibration(index, replace(made, other_photos=True))
        other = await ask(client, "images", text=TEXT, min_probability=1)
        metrics = (await client.get("/metrics")).text
        assert (await client.get("/v1/index")).json()["calibration"]["other_photos"] is True
    ids = [hit["id"] for hit in before["hits"]]
    assert [hit["id"] for hit in after["hits"]] == [hit["id"] for hit in other["hits"]] == ids
    facts = ("generation", "no_match", "probabilities_reliable", "unreliable_because", "degraded")
    assert [[answer[name] for name in facts] for answer in (before, after, other)] == [
        [1, None, None, None, []],
        [2, False, True, None, []],
        [3, None, False, "other_photos", ["min_probability"]],
    ]
    assert all(0 < hit["probability"] < 1 for hit in after["hits"])
    assert {hit["probability"] for hit in other["hits"]} == {None}
    # Only answers that were judged are counted as such.
    for counted in (
        'aladin_judged_answers_total{result="no_match"} 0.0',
        'aladin_judged_answers_total{result="match"} 1.0',
        'aladin_degraded_answers_total{reason="min_probability"} 1.0',
    ):
        assert counted in metrics


async def test_more_queries_than_may_wait_are_refused_and_told_when_to_come_back(
    service: Service,
) -> None:
    async with service(query_threads=1, max_waiting=1) as client:
        asked = [client.post("/v1/search/images", json=DOG) for _ in range(30)]
        answers = await asyncio.gather(*asked)
        refused = next(answer for answer in answers if answer.status_code == 429)
        assert {answer.status_code for answer in answers} == {200, 429}
        assert (told(refused)[1], int(refused.headers["Retry-After"]) >= 1) == ("overloaded", True)
        await ask(client, "images", **DOG)


@pytest.mark.parametrize(
    ("module", "path", "small", "large"),
    [
        (searches, "search/images", DOG | {"k": 1}, DOG | {"k": 6}),
        (documents, "embeddings", {"input": ["a dog"] * 2}, {"input": ["a dog"] * 8}),
    ],
)
async def test_an_answer_has_a_largest_size(
    client: httpx.AsyncClient,
    monkeypatch: pytest.MonkeyPatch,
    module: Any,
    path: str,
    small: dict[str, Any],
    large: dict[str, Any],
) -> None:
    whole = await client.post(f"/v1/{path}", json=large)
    monkeypatch.setattr(module, "MAX_ANSWER_BYTES", len(whole.content) // 2)
    assert (await client.post(f"/v1/{path}", json=small)).status_code == 200
    assert told(await client.post(f"/v1/{path}", json=large))[:2] == (413, "answer_too_large")
