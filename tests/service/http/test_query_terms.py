"""Queries of several terms over HTTP: their forms, their refusals, and bodies made at random."""

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

Service = Callable[..., AbstractAsyncContextManager[httpx.AsyncClient]]

DOG, CAR = {"text": "a red dog"}, {"text": "a car"}


@pytest.mark.anyio
async def test_terms_of_all_kinds_in_json_in_a_form_and_in_a_batch(
    service: Service, data_file: Path, image_ids: list[str]
) -> None:
    photo = (data_file.parent / "photo-2.png").read_bytes()
    body: dict[str, Any] = {
        "all": [DOG | {"weight": 2}, {"image": base64.b64encode(photo).decode()}],
        "not": [CAR, {"id": image_ids[4]}],
        "like": [image_ids[0], image_ids[1]],
    }
    async with service() as client:
        response = await client.post("/v1/search/images", json=body | {"k": 4, "explain": True})
        assert response.status_code == 200, response.text
        answer = response.json()
        form = {name: json.dumps(value) for name, value in body.items()} | {"k": "4"}
        multipart = {name: (None, value) for name, value in form.items()}
        by_form = (await client.post("/v1/search/images", files=multipart)).json()
        batch = {"queries": [body | {"target": "images", "k": 4}, DOG | {"target": "images"}]}
        answers = (await client.post("/v1/search/batch", json=batch)).json()["answers"]
    roles = [(term["role"], term["weight"], term["text"], term["id"]) for term in answer["terms"]]
    assert roles == [
        ("all", 2, "a red dog", None),
        ("all", 1, None, None),
        ("not", -1, "a car", None),
        ("not", -1, None, image_ids[4]),
        ("like", 0.375, None, image_ids[0]),
        ("like", 0.375, None, image_ids[1]),
    ]
    found = [hit["id"] for hit in answer["hits"]]
    assert len(found) == 3  # of six photos
    assert not {image_ids[0], image_ids[1], image_ids[4]} & set(found)
    for hit in answer["hits"]:
        assert hit["score"] == pytest.approx(sum(term["score"] for term in hit["terms"]), abs=1e-4)
        texts, photos = hit["terms"][0::2][:2], hit["terms"][1::2]
        assert all(term["align"] is not None and term["evidence"] for term in texts)
        assert all(term["align"] is None and term["evidence"] is None for term in photos)
        words = [word["score"] for word in texts[0]["evidence"]]
        assert sum(words) == pytest.approx(texts[0]["align"], abs=1e-4)
    for other in (by_form, answers[0]):
        assert [hit["id"] for hit in other["hits"]] == found
    assert answers[1]["terms"] is None


@pytest.mark.anyio
async def test_the_split_of_a_negation_is_offered_and_not_made(service: Service) -> None:
    async with service() as client:
        whole = (await client.post("/v1/search/images", json={"text": "a red dog, no car"})).json()
        roles = {"all": "a red dog", "not": "car"}
        suggested = {term["role"]: term["text"] for term in whole["suggestion"]}
        assert (suggested, whole["terms"]) == (roles, None)
        # Its terms are those of a request.
        body = {role: [{"text": text}] for role, text in suggested.items()}
        terms = (await client.post("/v1/search/images", json=body)).json()
        assert [term["text"] for term in terms["terms"]] == ["a red dog", "car"]
        plain = (await client.post("/v1/search/images", json={"text": "a red dog"})).json()
    assert (terms["suggestion"], plain["suggestion"]) == (None, None)


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({"not": [DOG]}, "expected a term in all or like beside it, got none"),
        ({"all": []}, "or the terms of a query, got none"),
        ({"all": [DOG | {"weight": 0}]}, "weight"),
        ({"all": [DOG | {"weight": -1}]}, "weight"),
        ({"all": [{}] * 100_000}, "all.0: expected exactly one of text, image, id"),
        ({"all": [DOG] * 9}, "all: List should have at most 8 items"),
        ({"like": ["x"] * 100_000}, "like: List should have at most 64 items"),
        ({"like": [1] * 64}, "like.0: Input should be a valid string"),
        ({"unlike": ["x"], "all": [DOG]}, "unlike: unknown field"),
        ({"all": DOG}, "all"),
        ({"like": [3]}, "like"),
        ({"all": [DOG], "min_probability": 0.5}, "min_probability"),
        ({"all": [DOG], "lexical": 0.5}, "lexical: expected a query of one text"),
        ({"like": ["plain"], "lexical": 0.5}, "lexical: expected a query of one text"),
        ({"id": "plain", "lexical": 0.5}, "lexical: expected a query of one text"),
        (DOG | {"lexical": 1.5}, "lexical"),
        (DOG | {"lexical": "1"}, "lexical"),
        ({"not_": [DOG]}, "not_"),
    ],
)
def test_bodies_that_are_no_query_are_refused(url: str, body: dict[str, Any], message: str) -> None:
    response = httpx.post(f"{url}/v1/search/images", json=body)
    assert response.status_code == 422, response.text
    assert message in response.json()["error"]["message"]


@pytest.mark.anyio
async def test_unknown_ids_and_bad_photos_name_themselves(service: Service) -> None:
    async with service() as client:
        unknown = await client.post("/v1/search/images", json={"all": [DOG], "like": ["nobody"]})
        bad = {"all": [DOG, {"image": base64.b64encode(b"no photo").decode()}]}
        photo = await client.post("/v1/search/images", json=bad)
    assert (unknown.status_code, unknown.json()["error"]["code"]) == (404, "unknown_id")
    assert "nobody" in unknown.json()["error"]["message"]
    assert (photo.status_code, photo.json()["error"]["code"]) == (415, "not_an_image")
    assert "all[1].image" in photo.json()["error"]["message"]


@pytest.mark.anyio
async def test_random_bodies_are_answered_or_refused(
    service: Service, image_ids: list[str]
) -> None:
    generator = random.Random(0)
    good_values = {
        "all": [[DOG], [DOG, CAR | {"weight": 0.5}]],
        "not": [[CAR]],
        "like": [image_ids[:1]],
    }
    values: list[Any] = [
        None,
        [],
        {},
        "a",
        3,
        True,
        [None],
        [""],
        image_ids[:2],
        [DOG],
        [CAR, {"id": "x"}],
    ]
    values += [[{"id": image_ids[2], "weight": weight}] for weight in (0.1, 1e9, "1", None)]
    names_of_all = ["all", "not", "like", "text", "id", "lexical"]
    values += [0.5, 1, -1, 1e300]
    answered = 0
    async with service() as client:
        for _ in range(250):
            names = generator.sample(names_of_all, 3)
            body = {
                name: generator.choice(
                    good_values[name]
                    if generator.random() < 0.6 and name in good_values
                    else values
                )
                for name in names
            }
            response = await client.post("/v1/search/images", json=body)
            assert response.status_code in (200, 404, 422), (body, response.text)
            answered += response.status_code == 200
        good = await client.post("/v1/search/images", json=DOG)
    assert answered > 5
    assert good.status_code == 200
