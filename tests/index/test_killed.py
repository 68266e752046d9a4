from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from aladin_index.building.builder import build_index
from aladin_index.encode.source_items import ImageItem
from aladin_index.format.layout import UPGRADE, generation_folder
from aladin_index.format.manifest import read_manifest
from aladin_index.generations.reader import open_index
from aladin_index.generations.verify import verify_index
from aladin_index.settings import BuildSettings
from aladin_index.upgrade.run import upgrade_index
from aladin_network.checkpoint_files import read_model_id
from tests.index.killed import TEXTS, UPGRADE_SETTINGS, photo_items
from tests.index.written import file_bytes


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory, images: list[ImageItem]) -> Path:
    """Nine photos and a broken one."""
    folder = tmp_path_factory.mktemp("photos")
    for item in images[:10]:
        os.link(item.path, folder / item.path.name)
    (folder / "05.png").unlink()
    (folder / "05.png").write_bytes(b"broken")
    return folder


@pytest.fixture(scope="module")
def killed(
    tmp_path_factory: pytest.TempPathFactory,
    photos: Path,
    published: Path,
    tiny_checkpoint: Path,
    new_checkpoint: Path,
) -> list[Path]:
    """Indexes of jobs that were killed and resumed, each at another place."""
    out = tmp_path_factory.mktemp("killed")
    places = [tiny_checkpoint, photos, published, new_checkpoint, out]
    command = [sys.executable, "-m", "tests.index.killed", *map(str, places)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return [out / name for name in done.stdout.split()]


def test_a_killed_build_resumes_to_the_same_files(
    killed: list[Path], tmp_path: Path, tiny_checkpoint: Path, photos: Path
) -> None:
    # Of this process: other hashes of strings, and other shards, change nothing.
    settings = BuildSettings(shards=2, batch_size=2, token_dtype="4bit")
    build_index(tiny_checkpoint, tmp_path / "index", photo_items(photos), TEXTS, settings)
    expected = file_bytes(tmp_path / "index")
    assert "generations/000001/images/ann.faiss" in expected
    assert "generations/000001/images/centroids.npy" in expected
    builds = [root for root in killed if root.name.startswith("build")]
    assert len(builds) == 6
    for root in builds:
        found = file_bytes(root)
        assert found.keys() == expected.keys(), root
        assert [file for file in expected if found[file] != expected[file]] == [], root


def test_a_killed_upgrade_resumes_to_the_same_generation_and_keeps_changes(
    killed: list[Path], tmp_path: Path, published: Path, new_checkpoint: Path
) -> None:
    unbroken = Path(shutil.copytree(published, tmp_path / "unbroken"))
    upgrade_index(unbroken, new_checkpoint, UPGRADE_SETTINGS)
    expected, new_id = file_bytes(generation_folder(unbroken, 2)), read_model_id(new_checkpoint)
    with open_index(unbroken) as index:
        first = np.array(index.collection("texts").embedding(0))
    upgrades = [root for root in killed if not root.name.startswith("build")]
    assert len(upgrades) == 5
    for root in upgrades:
        assert read_manifest(generation_folder(root, 2)).model.id == new_id, root
        assert not (root / UPGRADE).exists(), root
        if root.name.startswith("alone"):
            assert file_bytes(generation_folder(root, 2)) == expected, root
            continue
        with open_index(root) as index:
            collection = index.collection("texts")
            ids, late = dict(collection.items.ids()), {"added", "carried"}
            assert ids.keys() == {f"text {number}" for number in range(16)} - {"text 5"} | late
            for item_id in late:  # like the first text, by the new model
                np.testing.assert_allclose(collection.embedding(ids[item_id]), first, atol=1e-5)
        verify_index(root)
