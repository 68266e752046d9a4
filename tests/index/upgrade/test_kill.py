from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np

from aladin_index.format.layout import UPGRADE, generation_folder
from aladin_index.format.manifest import read_manifest
from aladin_index.generations.reader import open_index
from aladin_index.generations.verify import verify_index
from aladin_index.upgrade.run import upgrade_index
from aladin_network.checkpoint_files import read_model_id
from tests.index.upgrade.conftest import SETTINGS

SCRIPT = "tests.index.upgrade.killed_upgrades"


def files_of(root: Path) -> dict[str, bytes]:
    """Return all files of the new generation."""
    folder = generation_folder(root, 2)
    paths = [path for path in folder.rglob("*") if path.is_file()]
    return {str(path.relative_to(folder)): path.read_bytes() for path in paths}


def test_a_killed_upgrade_resumes_to_the_same_generation_and_keeps_changes(
    index_copy: Path, new_checkpoint: Path, tmp_path: Path
) -> None:
    unbroken = Path(shutil.copytree(index_copy, tmp_path / "unbroken"))
    upgrade_index(unbroken, new_checkpoint, SETTINGS)
    done = subprocess.run(
        [sys.executable, "-m", SCRIPT, str(index_copy), str(new_checkpoint), str(tmp_path)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    names = done.stdout.split()
    assert len(names) == 10
    expected, new_id = files_of(unbroken), read_model_id(new_checkpoint)
    with open_index(unbroken) as index:
        first = np.array(index.collection("texts").embedding(0))
    for name in names:
        root = tmp_path / name
        assert read_manifest(generation_folder(root, 2)).model.id == new_id, name
        assert not (root / UPGRADE).exists(), name
        if name.startswith("alone"):
            assert files_of(root) == expected, name
            continue
        with open_index(root) as index:
            collection = index.collection("texts")
            ids = dict(collection.items.ids())
            late = {"added", *([] if "advance" in name else ["carried"])}
            built = {f"text {number}" for number in range(16)}
            assert ids.keys() == built - {"text 5"} | late, name
            for item_id in late:  # like the first text, by the new model
                np.testing.assert_allclose(collection.embedding(ids[item_id]), first, atol=1e-5)
        verify_index(root)
