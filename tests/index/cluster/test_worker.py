import pickle
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from packaging.version import Version

from aladin_index.building.shards import ShardFormat, shard_files, write_shard
from aladin_index.cluster.worker import (
    ShardOrder,
    ShardWorker,
    WorkerRecipe,
    decisive_versions,
    read_recipe_checkpoint,
    remove_left_behind,
)
from aladin_index.encode.item_encoders import item_encoder
from aladin_index.encode.read_ahead import StageSeconds, encoded_batches
from aladin_index.encode.source_items import ImageItem
from aladin_index.settings import BuildSettings, EncodeSettings
from aladin_network.checkpoint import load_checkpoint
from aladin_network.errors import CheckpointError, InputError
from aladin_network.types import NullProgress


@pytest.fixture
def recipe(tiny_checkpoint: Path) -> WorkerRecipe:
    """Of two items a batch."""
    checkpoint = read_recipe_checkpoint(tiny_checkpoint)
    return WorkerRecipe(
        build="some", checkpoint=checkpoint, settings=BuildSettings(batch_size=2), threads=1
    )


def test_a_worker_makes_the_files_that_a_build_makes(
    tmp_path: Path, tiny_checkpoint: Path, recipe: WorkerRecipe, images: list[ImageItem]
) -> None:
    gone = ImageItem(id="gone", path=tmp_path / "gone", uri="gone")
    broken = ImageItem(id="broken", path=tmp_path / "broken", uri="broken")
    broken.path.write_bytes(b"no photo")
    items = [images[0], gone, broken, images[1], images[2]]
    # All that comes and goes is sent.
    worker = ShardWorker(pickle.loads(pickle.dumps(recipe)))
    facts = pickle.loads(pickle.dumps(worker.start()))
    assert facts.versions == decisive_versions()
    assert Version(facts.versions["torch"]).public == Version(torch.__version__).public
    order = pickle.loads(pickle.dumps(ShardOrder(target="images", rows=range(40, 45), items=items)))
    shard = pickle.loads(pickle.dumps(worker.encode(order)))
    assert shard.unreadable == [str(gone.path)]  # the broken one can be read
    assert set(shard.seconds) == {"read", "decode", "encode", "write"}

    model = load_checkpoint(tiny_checkpoint).model
    encoder, form = item_encoder("images", model, EncodeSettings()), ShardFormat.of(model)
    thirds = [items[:2], items[2:4], items[4:]]
    batches = encoded_batches(encoder, thirds, EncodeSettings(), StageSeconds(), NullProgress())
    write_shard(tmp_path / "shard", form, range(40, 45), batches, StageSeconds())
    expected = shard_files(tmp_path / "shard")
    assert {name: content.tobytes() for name, content in shard.files.items()} == {
        name: content.tobytes() for name, content in expected.items()
    }


class Regions:
    """Regions that a node has opened."""


def test_regions_are_opened_on_the_node(recipe: WorkerRecipe, images: list[ImageItem]) -> None:
    worker = ShardWorker(pickle.loads(pickle.dumps(replace(recipe, open_regions=Regions))))
    worker.start()
    # The network of these tests reads photos, and says what it was given.
    with pytest.raises(InputError, match="this network reads photos, got regions"):
        worker.encode(ShardOrder(target="images", rows=range(1), items=images[:1]))


def test_a_worker_that_cannot_start_says_why(tmp_path: Path, recipe: WorkerRecipe) -> None:
    weights = {**recipe.checkpoint, "model.safetensors": recipe.checkpoint["config.json"]}
    with pytest.raises(CheckpointError, match=r"model\.safetensors: cannot be read"):
        ShardWorker(replace(recipe, checkpoint=weights)).start()

    def missing() -> None:
        raise InputError(f"{tmp_path}: no regions")

    with pytest.raises(InputError, match="no regions"):
        ShardWorker(replace(recipe, open_regions=missing)).start()


def test_only_the_folders_of_ended_workers_are_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    for name in ("aladin-mine-1", "aladin-mine-2", "aladin-minetoo-3", "other"):
        (tmp_path / name / "shard").mkdir(parents=True)
    remove_left_behind("mine")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["aladin-minetoo-3", "other"]
