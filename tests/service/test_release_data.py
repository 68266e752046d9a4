"""What the first release wrote still opens, verifies, and gives the very scores that it gave.

``tests/data/release`` was written before the packages had their present names: a checkpoint with a
recurrent text encoder and an attention head, and an index of two generations, the second made by
folding changes in, with changes pending on both: photos and texts added, replaced and deleted, and
a photo that was uploaded. ``expected.json`` has what that release answered.
"""

from __future__ import annotations

import base64
import dataclasses
import json
import shutil
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
import torch
from PIL import Image

from aladin_index.generations.published import rollback_index
from aladin_index.generations.verify import verify_index
from aladin_network.checkpoint import load_checkpoint
from tests.tensors import encode_photos, encode_texts

pytestmark = pytest.mark.anyio

DATA = Path(__file__).parents[1] / "data" / "release"
EXPECTED: dict[str, Any] = json.loads((DATA / "expected.json").read_text(encoding="utf-8"))
# Names that an HTTP request gives to the options of a search.
HTTP_OPTIONS = {"num_candidates": "candidates"}

Service = Callable[..., AbstractAsyncContextManager[httpx.AsyncClient]]
Encoded = Callable[..., bytes]


@pytest.fixture
def index(tmp_path: Path) -> Path:
    """The index that the release wrote."""
    shutil.unpack_archive(DATA / "index.zip", tmp_path)
    return tmp_path / "index"


def photo(number: int) -> Image.Image:
    """One of the photos that the release indexed."""
    colours = np.random.default_rng(number).integers(0, 256, (5, 6, 3), dtype=np.uint8)
    size = (48 + 8 * number, 40)
    return Image.fromarray(colours).resize(size, Image.Resampling.NEAREST)


def close(value: float | None) -> Any:
    return None if value is None else pytest.approx(value, rel=1e-5, abs=1e-6)


def test_every_file_of_the_index_is_valid(index: Path) -> None:
    report = verify_index(index)
    assert report.generations == EXPECTED["verify"]["generations"]
    assert report.files == EXPECTED["verify"]["files"]


@pytest.mark.parametrize("number", range(len(EXPECTED["searches"])))
async def test_a_search_has_the_hits_and_scores_of_the_release(
    service: Service, index: Path, encoded: Encoded, number: int
) -> None:
    expected = EXPECTED["searches"][number]
    if "text" in expected:
        query = {"text": expected["text"]}
    else:
        query = {"image": base64.b64encode(encoded(photo(expected["photo"]))).decode()}
    options = {HTTP_OPTIONS.get(name, name): each for name, each in expected["options"].items()}
    async with service(index) as client:
        answer = await client.post(
            f"/v1/search/{expected['target']}", json={"k": 5, **query, **options}
        )
    assert answer.status_code == 200, answer.text
    found = answer.json()
    assert found["generation"] == expected["generation"]
    assert found.get("match_probability") == close(expected["match_probability"])
    assert [hit["id"] for hit in found["hits"]] == [hit["id"] for hit in expected["hits"]]
    for hit, old in zip(found["hits"], expected["hits"], strict=True):
        align = hit["stages"]["align"]
        assert hit["score"] == close(old["score"])
        assert hit["stages"]["match"]["score"] == close(old["match"])
        assert (align and align["score"]) == close(old["align"])
        assert hit.get("probability") == close(old["probability"])


async def test_an_uploaded_photo_is_still_served(service: Service, index: Path) -> None:
    async with service(index) as client:
        item = await client.get("/v1/items/images/uploaded")
        picture = await client.get("/v1/images/uploaded", params={"size": 32})
    assert item.json()["metadata"] == {"number": 99}
    assert picture.status_code == 200


async def test_the_earlier_generation_can_be_live_again(service: Service, index: Path) -> None:
    rollback_index(index)
    async with service(index) as client:
        answer = await client.post("/v1/search/images", json={"text": "a red dog", "k": 5})
    found = answer.json()
    assert found["generation"] == 1
    assert [(hit["id"], hit["score"]) for hit in found["hits"]] == [
        (hit["id"], close(hit["score"])) for hit in EXPECTED["first_generation"]
    ]


def test_the_checkpoint_has_the_scores_of_the_release() -> None:
    expected = EXPECTED["checkpoint"]
    checkpoint = load_checkpoint(DATA / "checkpoint")
    assert checkpoint.model_id == expected["model_id"]
    assert dataclasses.asdict(checkpoint.fusion) == expected["fusion"]
    assert dataclasses.asdict(checkpoint.provenance) == expected["provenance"]
    images = encode_photos(checkpoint.model, [photo(number) for number in expected["photos"]])
    texts = encode_texts(checkpoint.model, expected["texts"])
    assert set(checkpoint.model.score_names) == set(expected["scores"])
    for name in checkpoint.model.score_names:
        with torch.inference_mode():
            scores = checkpoint.model.scores(name, images, texts)
        assert scores.numpy() == close(np.array(expected["scores"][name]))
