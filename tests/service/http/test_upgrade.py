"""A service whose index is given another model: it answers all the time, and says by what."""

from __future__ import annotations

import asyncio
import base64
import shutil
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import httpx
import pytest
from PIL import Image
from prometheus_client.parser import text_string_to_metric_families

from aladin_index.build.builder import build_index
from aladin_index.format.models import upgrade_model_folder
from aladin_index.generations.published import rollback_index
from aladin_index.upgrade.encoding import EncodingSettings
from aladin_index.upgrade.run import UpgradeSettings, discard_upgrade, upgrade_index
from aladin_network.checkpoint import save_checkpoint
from aladin_network.checkpoint_files import read_model_id
from aladin_network.config import AlignmentHeadConfig, MatchingHeadConfig
from aladin_network.model import AladinModel
from aladin_service.item_sources import image_items, text_items
from tests.index.upgrade.conftest import begin_upgrade

pytestmark = pytest.mark.anyio

Service = Callable[..., AbstractAsyncContextManager[httpx.AsyncClient]]

SETTINGS = UpgradeSettings(encoding=EncodingSettings(batch_size=2, part_items=2, sample_items=3))
RESUMED = UpgradeSettings(resume=True, encoding=SETTINGS.encoding)
# Three of the images and of the texts as a sample, in two parts each, and two more images.
PARTS = 5
_LONG_S = 20.0


@pytest.fixture(scope="session")
def new_checkpoint(
    build_tiny: Callable[..., AladinModel], tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """A checkpoint of a network with other weights and sizes than that of the index."""
    folder = tmp_path_factory.mktemp("new") / "checkpoint"
    heads = AlignmentHeadConfig(dim=12), MatchingHeadConfig(layers=1, heads=2, dim=24)
    save_checkpoint(folder, build_tiny(alignment=heads[0], matching=heads[1]))
    return folder


@pytest.fixture(scope="session")
def photo(query_photo: Image.Image, encoded: Callable[..., bytes]) -> bytes:
    """A picture that is not in the index, as a file."""
    return encoded(query_photo)


@pytest.fixture
def index(index_folder: Path, tmp_path: Path) -> Path:
    """An index to be upgraded, of six images and twelve texts."""
    return Path(shutil.copytree(index_folder, tmp_path / "index"))


async def search(client: httpx.AsyncClient, target: str = "images", **body: Any) -> dict[str, Any]:
    asked = {"text": "a red dog", "k": 6, **body}
    answer = await client.post(f"/v1/search/{target}", json=asked)
    assert answer.status_code == 200, answer.text
    return answer.json()


async def search_until(
    client: httpx.AsyncClient, is_reached: Callable[[dict[str, Any]], bool]
) -> dict[str, Any]:
    """Search until an answer is as expected."""
    async with asyncio.timeout(_LONG_S):
        while not is_reached(answer := await search(client)):
            await asyncio.sleep(0.005)
    return answer


def by_both(answer: dict[str, Any]) -> bool:
    return answer["upgrade"] is not None


def by_one(answer: dict[str, Any]) -> bool:
    return answer["upgrade"] is None


def scores(answer: dict[str, Any]) -> dict[str, float]:
    return {hit["id"]: hit["score"] for hit in answer["hits"]}


async def test_both_models_answer_until_the_new_one_does_alone(
    service: Service, index: Path, data_file: Path, new_checkpoint: Path, tmp_path: Path
) -> None:
    old_id, new_id = read_model_id(index / "model"), read_model_id(new_checkpoint)
    async with service(index) as client:
        before = await search(client)
        assert (before["upgrade"], before["hits"][0]["model"]) == (None, None)
        await asyncio.to_thread(begin_upgrade, index, new_checkpoint, PARTS, SETTINGS)
        during = await search_until(client, by_both)
        assert during["upgrade"] == {
            "old_model": old_id,
            "new_model": new_id,
            "rest": "old",
            "encoded": pytest.approx(5 / 6),
        }
        assert sorted(hit["model"] for hit in during["hits"]) == [*["new"] * 5, "old"]
        assert {*scores(during)} == {*scores(before)}
        texts = await search(client, "texts", k=12)
        assert [hit["model"] for hit in texts["hits"]].count("new") == 3
        added = await client.post("/v1/items/texts", json={"id": "later", "text": "a red bird"})
        assert added.status_code == 201
        assert (await client.delete("/v1/items/texts/plain%230")).status_code == 200
        await asyncio.to_thread(upgrade_index, index, None, RESUMED)
        after = await search_until(client, lambda answer: answer["generation"] == 2)
        assert (after["upgrade"], after["hits"][0]["model"]) == (None, None)
        assert (await client.get("/v1/items/texts/later")).status_code == 200
        assert (await client.get("/v1/items/texts/plain%230")).status_code == 404
        assert (await client.get("/v1/index")).json()["model"]["id"] == new_id
        await asyncio.to_thread(rollback_index, index)
        back = await search_until(client, lambda answer: answer["generation"] == 1)
        assert scores(back) == pytest.approx(scores(before))
        assert (await client.get("/v1/items/texts/later")).status_code == 200
    rebuilt = tmp_path / "rebuilt"
    items = image_items(data_file, None), text_items(data_file, None)
    build_index(new_checkpoint, rebuilt, *items)
    async with service(rebuilt) as client:
        assert scores(after) == pytest.approx(scores(await search(client)), abs=1e-3)


async def test_the_metrics_show_the_upgrade(
    service: Service, index: Path, new_checkpoint: Path
) -> None:
    async with service(index) as client:
        await asyncio.to_thread(begin_upgrade, index, new_checkpoint, PARTS, SETTINGS)
        await search_until(client, by_both)
        metrics = (await client.get("/metrics")).text
    families = {each.name: each for each in text_string_to_metric_families(metrics)}
    encoded = families["aladin_index_upgrade_items"].samples
    assert {sample.labels["side"]: sample.value for sample in encoded} == {"images": 5, "texts": 3}


async def test_an_upgrade_that_is_given_up_leaves_the_old_model(
    service: Service, index: Path, new_checkpoint: Path
) -> None:
    async with service(index) as client:
        before = await search(client)
        await asyncio.to_thread(begin_upgrade, index, new_checkpoint, PARTS, SETTINGS)
        await search_until(client, by_both)
        await asyncio.to_thread(discard_upgrade, index)
        after = await search_until(client, by_one)
    assert (after["generation"], scores(after)) == (1, pytest.approx(scores(before)))


async def test_a_model_that_cannot_be_loaded_leaves_the_old_one_to_answer(
    service: Service, index: Path, new_checkpoint: Path, caplog: pytest.LogCaptureFixture
) -> None:
    begin_upgrade(index, new_checkpoint, PARTS, SETTINGS)
    folder = upgrade_model_folder(index, read_model_id(new_checkpoint))
    (folder / "model.safetensors").write_bytes(b"damaged")
    async with service(index) as client:
        async with asyncio.timeout(_LONG_S):
            while "the old model answers alone" not in caplog.text:
                await asyncio.sleep(0.005)
        answer = await search(client)
    assert (answer["upgrade"], len(answer["hits"])) == (None, 6)


async def test_queries_that_the_new_model_cannot_answer_are_answered_by_the_old_one(
    service: Service, index: Path, new_checkpoint: Path, photo: bytes
) -> None:
    async with service(index) as client:
        await asyncio.to_thread(begin_upgrade, index, new_checkpoint, PARTS, SETTINGS)
        await search_until(client, by_both)
        asked: list[dict[str, Any]] = [{"text": None, "id": "plain"}, {"lexical": 0.5}]
        asked.append({"text": None, "image": base64.b64encode(photo).decode(), "box": [0, 0, 1, 1]})
        asked.append({"text": None, "all": [{"text": "a dog"}], "not": [{"text": "a star"}]})
        for body in asked:
            answer = await search(client, **body)
            assert answer["upgrade"] is None, body
            assert answer["hits"], body
