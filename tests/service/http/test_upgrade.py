"""A service whose index is given another model: the old one answers until the switch."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import httpx
import pytest

from aladin_index.building.builder import build_index
from aladin_index.generations.published import rollback_index
from aladin_index.settings import BuildSettings
from aladin_index.upgrade.run import upgrade_index
from aladin_network.checkpoint_files import read_model_id
from aladin_service.item_sources import image_items, text_items
from tests.index.upgrade.conftest import begin_upgrade

pytestmark = pytest.mark.anyio

Service = Callable[..., AbstractAsyncContextManager[httpx.AsyncClient]]

SETTINGS = BuildSettings(batch_size=2, shard_items=2)


@pytest.fixture
def index(index_folder: Path, tmp_path: Path) -> Path:
    """An index to be upgraded, of six images and twelve texts."""
    return Path(shutil.copytree(index_folder, tmp_path / "index"))


async def search(client: httpx.AsyncClient) -> dict[str, Any]:
    answer = await client.post("/v1/search/images", json={"text": "a red dog", "k": 6})
    assert answer.status_code == 200, answer.text
    return answer.json()


def scores(answer: dict[str, Any]) -> dict[str, float]:
    return {hit["id"]: hit["score"] for hit in answer["hits"]}


async def test_the_old_model_answers_until_the_switch_and_after_a_rollback(
    service: Service, index: Path, data_file: Path, new_checkpoint: Path, tmp_path: Path
) -> None:
    old_id, new_id = read_model_id(index / "model"), read_model_id(new_checkpoint)
    async with service(index) as client:
        before = await search(client)
        await asyncio.to_thread(begin_upgrade, index, new_checkpoint, 5, SETTINGS)
        during = await search(client)
        assert (during["generation"], scores(during)) == (1, scores(before))
        added = await client.post("/v1/items/texts", json={"id": "later", "text": "a red bird"})
        assert added.status_code == 201
        assert (await client.delete("/v1/items/texts/plain%230")).status_code == 200
        assert (await client.get("/v1/index")).json()["model"]["id"] == old_id
        await asyncio.to_thread(upgrade_index, index, new_checkpoint, SETTINGS)
        after = await search(client)
        assert after["generation"] == 2
        assert (await client.get("/v1/items/texts/later")).status_code == 200
        assert (await client.get("/v1/items/texts/plain%230")).status_code == 404
        assert (await client.get("/v1/index")).json()["model"]["id"] == new_id
        by_new = await client.post("/v1/items/texts", json={"id": "last", "text": "a red car"})
        assert by_new.status_code == 201
        await asyncio.to_thread(rollback_index, index)
        back = await search(client)
        assert (back["generation"], scores(back)) == (1, pytest.approx(scores(before)))
        assert (await client.get("/v1/items/texts/later")).status_code == 200
        assert (await client.get("/v1/items/texts/last")).status_code == 404
    rebuilt = tmp_path / "rebuilt"
    items = image_items(data_file, None), text_items(data_file, None)
    build_index(new_checkpoint, rebuilt, *items)
    async with service(rebuilt) as client:
        assert scores(after) == pytest.approx(scores(await search(client)), abs=1e-3)
