"""Upgrades of an index in a vector database: the same generation as a push of a build."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from aladin_index.build.builder import build_index
from aladin_index.encode.item_changer import ItemChanger
from aladin_index.encode.item_encoders import ImageReader
from aladin_index.encode.source_items import ImageItem, TextItem
from aladin_index.engines.client import EngineItem
from aladin_index.engines.engine_index import open_engine_index
from aladin_index.engines.push import PushSettings, push_index, rollback_engine
from aladin_index.engines.record import read_generation
from aladin_index.engines.writer import EngineWriter
from aladin_index.format.layout import UPGRADE
from aladin_index.upgrade.engines import discard_engine_upgrade, upgrade_engine_index
from aladin_index.upgrade.run import MissingSourcesError, UpgradeReport
from aladin_network.checkpoint import load_checkpoint
from aladin_network.checkpoint_files import read_model_id
from aladin_network.errors import (
    EngineUnavailableError,
    IndexMismatchError,
    InputError,
    UpgradeUnfinishedError,
)
from aladin_network.types import TARGETS, Target
from tests.index.conftest import SMALL
from tests.index.engines.conftest import LOCATION
from tests.index.engines.memory_engine import MemoryEngine, MemoryServer
from tests.index.upgrade.conftest import SETTINGS

RESUMED = replace(SETTINGS, resume=True)
Upgrade = Callable[..., UpgradeReport]


@pytest.fixture
def server() -> MemoryServer:
    return MemoryServer()


@pytest.fixture
def folder(server: MemoryServer, index_copy: Path, tmp_path: Path) -> Path:
    """An index of 23 images and 16 texts in an engine; that of files is gone."""
    push_index(index_copy, tmp_path / "remote", LOCATION, MemoryEngine(server), PushSettings())
    shutil.rmtree(index_copy)
    return tmp_path / "remote"


@pytest.fixture
def upgrade(server: MemoryServer, folder: Path, new_checkpoint: Path) -> Upgrade:
    """Upgrade the index, without waiting for calls that are under way."""

    def run(client: MemoryEngine | None = None, **options: Any) -> UpgradeReport:
        given: dict[str, Any] = {"checkpoint_folder": new_checkpoint, "settings": SETTINGS}
        chosen = client or MemoryEngine(server)
        return upgrade_engine_index(folder, LOCATION, chosen, **given | options, settle_s=0)

    return run


@pytest.fixture
def changer(server: MemoryServer, folder: Path, tiny_checkpoint: Path) -> Any:
    """Changes the live generation by the old model."""
    checkpoint = load_checkpoint(tiny_checkpoint)
    writer = EngineWriter(folder, MemoryEngine(server), checkpoint.model_id)
    with closing(ItemChanger(writer, checkpoint.model, ImageReader())) as opened:
        yield opened


class Meanwhile(MemoryEngine):
    """A client that calls a function before a call of a method, once.

    Attributes:
        method: Name of the method.
        at: Number of the call.
        call: The function.
    """

    def __init__(
        self, server: MemoryServer, method: str, at: int, call: Callable[[], None]
    ) -> None:
        super().__init__(server)
        self.method, self.at, self.call = method, at, call

    def _call(self, name: str) -> None:
        if name == self.method:
            self.at -= 1
            if self.at == 0:
                self.call()
        super()._call(name)


class DiedError(Exception):
    """An upgrade ends as if it were killed."""


def die() -> None:
    raise DiedError


def embeddings(server: MemoryServer, generation: int, target: Target) -> dict[str, np.ndarray]:
    return {
        item_id: entry.embedding
        for item_id, entry in server.sides[generation, target].items()
        if entry.embedding is not None
    }


def assert_of_new_model(
    server: MemoryServer, new_checkpoint: Path, images: list[Any], texts: list[Any], tmp_path: Path
) -> None:
    """Compare the live generation with a push of these items, built by the new model."""
    rebuilt, other = tmp_path / "rebuilt", MemoryServer()
    build_index(new_checkpoint, rebuilt, images, texts, SMALL)
    push_index(rebuilt, tmp_path / "other", LOCATION, MemoryEngine(other), PushSettings())
    assert server.live is not None
    for target in TARGETS:
        found, expected = embeddings(server, server.live, target), embeddings(other, 1, target)
        assert sorted(found) == sorted(expected)
        for item_id, embedding in expected.items():
            np.testing.assert_allclose(found[item_id], embedding, atol=1e-5)
            stored, wanted = (
                each.sides[number, target][item_id]
                for each, number in ((server, server.live), (other, 1))
            )
            assert stored.item._replace(row=0) == wanted.item._replace(row=0)
            assert stored.tokens is not None
            assert wanted.tokens is not None
            assert stored.tokens.count == wanted.tokens.count


def test_the_new_generation_is_that_of_a_build_by_the_new_model(
    upgrade: Upgrade,
    server: MemoryServer,
    folder: Path,
    new_checkpoint: Path,
    images: list[ImageItem],
    texts: list[TextItem],
    tmp_path: Path,
) -> None:
    report = upgrade()
    assert (report.generation, report.counts) == (2, {"images": 23, "texts": 16})
    assert (server.live, report.carried, report.skipped) == (2, 0, [])
    assert not (folder / UPGRADE).exists()
    assert_of_new_model(server, new_checkpoint, images, texts, tmp_path)
    with open_engine_index(folder, MemoryEngine(server)) as index:
        assert index.checkpoint.model_id == read_model_id(new_checkpoint)


def test_one_step_leads_back_and_forth(
    upgrade: Upgrade, server: MemoryServer, folder: Path, tiny_checkpoint: Path
) -> None:
    before = embeddings(server, 1, "images")
    upgrade()
    assert rollback_engine(MemoryEngine(server)) == 1
    with open_engine_index(folder, MemoryEngine(server)) as index:
        assert (index.generation, index.checkpoint.model_id) == (1, read_model_id(tiny_checkpoint))
    np.testing.assert_equal(embeddings(server, 1, "images"), before)
    assert rollback_engine(MemoryEngine(server), 2) == 2
    with pytest.raises(InputError, match=r"expected another complete one \(1\), got 3"):
        rollback_engine(MemoryEngine(server), 3)


def test_a_model_of_a_generation_is_not_replaced_by_another_of_the_same_weights(
    upgrade: Upgrade, server: MemoryServer, same_weights: Path
) -> None:
    upgrade()
    rollback_engine(MemoryEngine(server))
    with pytest.raises(IndexMismatchError, match=r"generation 2: sha256 of config\.json"):
        upgrade(checkpoint_folder=same_weights)
    assert server.live == 1


@pytest.mark.parametrize(
    ("method", "at"),
    [
        ("items", 1),  # while the live generation is listed
        ("fetch_tokens", 2),  # while it is copied
        ("create_collection", 1),  # when all is encoded
        ("upsert", 2),  # while it is pushed
        ("items", 5),  # while changes are carried over
        ("make_live", 1),
        ("drop_generation", 1),
        ("items", 8),  # while the old generation is looked through once more
    ],
)
def test_an_upgrade_that_died_is_resumed(
    upgrade: Upgrade,
    server: MemoryServer,
    changer: ItemChanger,
    new_checkpoint: Path,
    images: list[ImageItem],
    texts: list[TextItem],
    tmp_path: Path,
    method: str,
    at: int,
) -> None:
    new = TextItem(id="new", text="a yellow bird")
    try:
        upgrade(Meanwhile(server, method, at, die))
    except DiedError:
        if server.live == 1:
            changer.add("texts", [new], "error")
            texts = [*texts, new]
    upgrade(settings=RESUMED)
    assert server.live == 2
    assert_of_new_model(server, new_checkpoint, images, texts, tmp_path)


def test_changes_at_any_time_are_carried_over(
    upgrade: Upgrade,
    server: MemoryServer,
    changer: ItemChanger,
    new_checkpoint: Path,
    images: list[ImageItem],
    texts: list[TextItem],
    tmp_path: Path,
) -> None:
    replaced = TextItem(id=texts[2].id, text="a blue boat by the sea")
    new = [TextItem(id=f"new {number}", text=f"{number} yellow birds") for number in range(2)]

    def change() -> None:
        changer.add("texts", [new[0]], "error")
        changer.delete("texts", texts[0].id)
        changer.delete("images", images[1].id)

    def change_again() -> None:
        changer.add("texts", [replaced], "replace")
        changer.add("texts", [new[1]], "error")

    class Twice(Meanwhile):
        def make_live(self, generation: int) -> None:
            change_again()  # which nothing but the last look finds
            super().make_live(generation)

    report = upgrade(Twice(server, "upsert", 1, change))
    assert report.carried == 5
    assert report.counts == {"images": 22, "texts": 17}
    kept = [item for item in texts if item.id not in (texts[0].id, texts[2].id)]
    assert_of_new_model(
        server,
        new_checkpoint,
        [item for item in images if item is not images[1]],
        [*kept, replaced, *new],
        tmp_path,
    )


def test_an_upgrade_that_died_with_all_changes_carried_over_is_resumed(
    upgrade: Upgrade, server: MemoryServer, changer: ItemChanger
) -> None:
    def change() -> None:
        changer.add("texts", [TextItem(id="new", text="a yellow bird")], "error")

    class Dying(Meanwhile):
        def make_live(self, generation: int) -> None:
            del generation
            die()

    with pytest.raises(DiedError):
        upgrade(Dying(server, "upsert", 1, change))
    report = upgrade(settings=RESUMED)
    assert (report.generation, report.counts["texts"]) == (2, 17)
    assert sorted(server.records) == [1, 2]


def test_what_is_changed_in_the_new_generation_is_newer(
    upgrade: Upgrade, server: MemoryServer, texts: list[TextItem]
) -> None:
    """Calls that were under way change the old generation, later ones the new one."""

    class Late(MemoryEngine):
        def make_live(self, generation: int) -> None:
            super().make_live(generation)
            old, new = (self.server.sides[number, "texts"] for number in (1, generation))
            again = old[texts[0].id]
            old[texts[0].id] = again._replace(item=again.item._replace(row=10**15))
            del new[texts[0].id]
            del old[texts[1].id]
            new[texts[1].id] = new[texts[1].id]._replace(
                item=new[texts[1].id].item._replace(row=10**15, text="another")
            )

    report = upgrade(Late(server))
    assert report.carried == 0
    assert texts[0].id not in server.sides[2, "texts"]
    assert server.sides[2, "texts"][texts[1].id].item.text == "another"


def test_missing_photos_keep_the_old_model_until_they_may_be_skipped(
    upgrade: Upgrade, server: MemoryServer, images: list[ImageItem]
) -> None:
    assert images[3].path is not None
    images[3].path.rename(images[3].path.with_suffix(".moved"))
    try:
        with pytest.raises(MissingSourcesError):
            upgrade()
        assert server.live == 1
        report = upgrade(settings=replace(RESUMED, skip_missing=True))
    finally:
        images[3].path.with_suffix(".moved").rename(images[3].path)
    assert (server.live, [each.id for each in report.skipped]) == (2, [images[3].id])
    assert images[3].id not in server.sides[2, "images"]


def test_an_upgrade_can_be_given_up(upgrade: Upgrade, server: MemoryServer, folder: Path) -> None:
    with pytest.raises(DiedError):
        upgrade(Meanwhile(server, "upsert", 2, die))
    assert MemoryEngine(server).generations() == [1, 2]
    assert discard_engine_upgrade(folder, MemoryEngine(server))
    assert (MemoryEngine(server).generations(), server.live) == ([1], 1)
    assert not discard_engine_upgrade(folder, MemoryEngine(server))
    upgrade()
    assert server.live == 2


def test_what_cannot_be_upgraded_is_refused(
    upgrade: Upgrade, server: MemoryServer, tiny_checkpoint: Path
) -> None:
    with pytest.raises(InputError, match="another model than the index's own"):
        upgrade(checkpoint_folder=tiny_checkpoint)
    with pytest.raises(InputError, match="expected --model"):
        upgrade(checkpoint_folder=None)
    with pytest.raises(DiedError):
        upgrade(Meanwhile(server, "upsert", 2, die))
    with pytest.raises(UpgradeUnfinishedError):
        upgrade()
    with pytest.raises(IndexMismatchError):
        upgrade(checkpoint_folder=tiny_checkpoint, settings=RESUMED)
    server.down.add("items")
    with pytest.raises(EngineUnavailableError):
        upgrade(checkpoint_folder=None, settings=RESUMED)
    server.down.clear()
    upgrade(checkpoint_folder=None, settings=RESUMED)
    assert server.live == 2


def test_a_push_of_an_index_by_the_old_model_is_refused(
    upgrade: Upgrade, server: MemoryServer, folder: Path, published: Path
) -> None:
    upgrade()
    assert read_generation(MemoryEngine(server), 2).changed
    with pytest.raises(InputError, match="--discard-changes"):
        push_index(published, folder, LOCATION, MemoryEngine(server), PushSettings())


def test_an_item_replaced_and_deleted_meanwhile_is_gone(
    upgrade: Upgrade, server: MemoryServer, changer: ItemChanger, texts: list[TextItem]
) -> None:
    """The deletion comes after the listing of the changes and before they are looked up."""
    replaced = replace(texts[0], text="a blue boat by the sea")

    class Deleting(Meanwhile):
        def fetch(
            self, generation: int, target: Target, ids: Sequence[str], **options: bool
        ) -> list[EngineItem]:
            if generation == 1 and [*ids] == [replaced.id]:
                changer.delete("texts", replaced.id)
            return super().fetch(generation, target, ids, **options)

    def change() -> None:
        changer.add("texts", [replaced], "replace")

    report = upgrade(Deleting(server, "upsert", 1, change))
    assert report.counts == {"images": 23, "texts": 15}
    assert replaced.id not in server.sides[2, "texts"]
