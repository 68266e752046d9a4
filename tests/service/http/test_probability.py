"""Probabilities through HTTP: single searches, forms, batches, and what is told of them."""

from __future__ import annotations

import math
import shutil
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest
from PIL import Image

from aladin_index.generations.info import describe
from aladin_index.generations.published import store_calibration
from aladin_network.calibration.calibration import Calibration

pytestmark = pytest.mark.anyio

Service = Callable[..., AbstractAsyncContextManager[httpx.AsyncClient]]
Encoded = Callable[..., bytes]

TEXT = "a red dog rides a motorcycle"


async def ask(client: httpx.AsyncClient, target: str, **body: Any) -> dict[str, Any]:
    """Search by JSON; the answer has to be a success."""
    response = await client.post(f"/v1/search/{target}", json=body)
    assert response.status_code == 200, response.text
    return response.json()


def logistic(log_odds: float) -> float:
    return 1 / (1 + math.exp(-log_odds))


def probability_by_hand(hit: dict[str, Any], others: list[dict[str, Any]]) -> float:
    """Work out what `calibrated_index` says of a photo."""
    align = hit["stages"]["align"]["score"]
    gap = align - max(each["stages"]["align"]["score"] for each in others)
    words = align / hit["per_word"]
    match = hit["stages"]["match"]["score"]
    return logistic(3 * match + align / 4 + gap / 2 - 0.5 * math.log(words))


async def test_hits_carry_the_probabilities_of_the_calibration(
    service: Service, calibrated_index: Path
) -> None:
    async with service(calibrated_index) as client:
        answer = await ask(client, "images", text=TEXT)
    hits = answer["hits"]
    assert len(hits) == 6
    for hit in hits:
        others = [each for each in hits if each is not hit]
        assert hit["probability"] == pytest.approx(probability_by_hand(hit, others), abs=1e-6)
    assert (answer["no_match"], answer["probabilities_reliable"]) == (False, True)
    assert "match_probability" not in answer


async def test_the_least_probability_is_an_option_of_every_form(
    service: Service, calibrated_index: Path, query_photo: Image.Image, encoded: Encoded
) -> None:
    async with service(calibrated_index) as client:
        whole = (await ask(client, "images", text=TEXT))["hits"]
        least = sorted(hit["probability"] for hit in whole)[3]
        likely = [hit for hit in whole if hit["probability"] >= least]
        assert len(likely) == 3
        found = await ask(client, "images", text=TEXT, min_probability=least)
        assert found["hits"] == likely
        nothing = await ask(client, "images", text=TEXT, min_probability=1)
        assert (nothing["hits"], nothing["no_match"]) == ([], True)

        queries = [
            {"target": "images", "text": TEXT, "min_probability": least},
            {"target": "images", "text": TEXT},
        ]
        batch = await client.post("/v1/search/batch", json={"queries": queries})
        ids = [[hit["id"] for hit in each["hits"]] for each in batch.json()["answers"]]
        assert ids == [[hit["id"] for hit in likely], [hit["id"] for hit in whole]]

        files = {"image": ("x.png", encoded(query_photo))}
        texts = (await client.post("/v1/search/texts", files=files)).json()["hits"]
        least = sorted(hit["probability"] for hit in texts)[8]
        form = {"min_probability": str(least)}
        found = (await client.post("/v1/search/texts", files=files, data=form)).json()
        assert [hit["id"] for hit in found["hits"]] == [
            hit["id"] for hit in texts if hit["probability"] >= least
        ]


async def test_without_a_calibration_there_is_none_and_none_can_be_asked_for(
    service: Service,
) -> None:
    async with service() as client:
        answer = await ask(client, "images", text=TEXT)
        assert {hit["probability"] for hit in answer["hits"]} == {None}
        assert (answer["no_match"], answer["probabilities_reliable"]) == (None, None)
        query = {"text": TEXT, "min_probability": 0.5}
        refused = await client.post("/v1/search/images", json=query)
        batch = await client.post(
            "/v1/search/batch",
            json={"queries": [{**query, "target": "images"}, {"text": TEXT, "target": "images"}]},
        )
        assert (await client.get("/v1/index")).json()["calibration"] is None
    assert refused.status_code == 422
    assert "the index is not calibrated" in refused.json()["error"]["message"]
    first, second = batch.json()["answers"]
    assert (first["status"], len(second["hits"])) == (422, 6)


async def test_between_two_photos_nothing_is_likely_or_unlikely(
    service: Service, calibrated_index: Path
) -> None:
    async with service(calibrated_index) as client:
        answer = await ask(client, "images", id="plain")
        assert {hit["probability"] for hit in answer["hits"]} == {None}
        assert (answer["no_match"], answer["probabilities_reliable"]) == (None, None)
        body = {"id": "plain", "min_probability": 0.5}
        refused = await client.post("/v1/search/images", json=body)
    assert refused.status_code == 422
    assert "only images for a text and texts for an image" in refused.json()["error"]["message"]


async def test_the_index_tells_what_its_probabilities_are_worth(
    service: Service, calibrated_index: Path
) -> None:
    async with service(calibrated_index) as client:
        told = (await client.get("/v1/index")).json()["calibration"]
    assert told["fitted_on"] == {
        "data": "captions.jsonl",
        "split": "val",
        "photos": 40,
        "texts": 40,
        "short_texts": 7,
        "searched": "split",
    }
    assert (told["measured_on"], told["other_photos"]) == ("out of fold", False)
    for direction in ("text_to_image", "image_to_text"):
        assert told[direction] == {
            "aligned": True,
            "figures": {"ece": 0.02, "auroc": 0.9, "false_alarms": 0.05, "detected": 0.4},
        }


async def test_a_calibration_of_other_photos_judges_no_answer(
    service: Service,
    index_folder: Path,
    tmp_path: Path,
    make_calibration: Callable[..., Calibration],
) -> None:
    root = Path(shutil.copytree(index_folder, tmp_path / "index"))
    made = make_calibration(describe(root).model.id)
    store_calibration(root, replace(made, other_photos=True))
    async with service(root) as client:
        answer = await ask(client, "images", text=TEXT)
        asked = await ask(client, "images", text=TEXT, min_probability=1)
        told = (await client.get("/v1/index")).json()["calibration"]
        metrics = (await client.get("/metrics")).text.splitlines()
    assert (answer["no_match"], answer["probabilities_reliable"]) == (None, False)
    assert answer["unreliable_because"] == "other_photos"
    assert {hit["probability"] for hit in answer["hits"]} == {None}
    assert (len(asked["hits"]), asked["degraded"]) == (6, ["min_probability"])
    assert told["other_photos"] is True
    # Only answers that were judged are counted as such.
    assert 'aladin_judged_answers_total{result="no_match"} 0.0' in metrics
    assert 'aladin_judged_answers_total{result="match"} 0.0' in metrics
    assert 'aladin_degraded_answers_total{reason="min_probability"} 1.0' in metrics


async def test_answers_that_say_no_match_are_counted(
    service: Service, calibrated_index: Path
) -> None:
    async with service(calibrated_index) as client:
        await ask(client, "images", text=TEXT, min_probability=1)
        for _ in range(2):
            await ask(client, "images", text=TEXT)
        await ask(client, "images", id="plain")
        metrics = (await client.get("/metrics")).text.splitlines()
    assert 'aladin_judged_answers_total{result="no_match"} 1.0' in metrics
    assert 'aladin_judged_answers_total{result="match"} 2.0' in metrics


async def test_a_calibration_that_is_published_meanwhile_is_taken_over(
    service: Service,
    index_folder: Path,
    tmp_path: Path,
    make_calibration: Callable[..., Calibration],
) -> None:
    root = Path(shutil.copytree(index_folder, tmp_path / "index"))
    async with service(root) as client:
        before = await ask(client, "images", text=TEXT, min_probability=None)
        store_calibration(root, make_calibration(describe(root).model.id))
        after = await ask(client, "images", text=TEXT, min_probability=0.0)
    assert (before["generation"], after["generation"]) == (1, 2)
    assert before["probabilities_reliable"] is None
    assert all(0 < hit["probability"] < 1 for hit in after["hits"])
    assert [hit["id"] for hit in after["hits"]] == [hit["id"] for hit in before["hits"]]
