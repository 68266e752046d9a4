"""``aladin index upgrade``: what it says, and what becomes of items without a source."""

from __future__ import annotations

import shutil
from pathlib import Path

from aladin_network.checkpoint_files import read_model_id
from tests.service.commands.conftest import aladin, aladin_json


def model_of(index: Path) -> str:
    return aladin_json("index", "info", index)["model"]["id"]


def test_an_upgrade_and_its_rollback_change_the_model(
    index_folder: Path, new_checkpoint: Path, tmp_path: Path
) -> None:
    index = Path(shutil.copytree(index_folder, tmp_path / "index"))
    aladin("index", "tune", index, "--fidelity", 0.5, "--num-queries", 4)
    old = model_of(index)
    says = aladin("index", "upgrade", index, "--model", new_checkpoint).stdout
    assert says == (
        f"{index}: generation 3, 6 images, 12 texts, of the new model\n"
        "  settings kept: first stage, form of tokens, fields for filters, candidates\n"
        f"  was fitted to the old model, to be fitted anew: aladin index tune {index}\n"
    )
    assert model_of(index) == read_model_id(new_checkpoint)
    says = aladin("index", "upgrade", index, "--model", new_checkpoint).stdout
    assert says == f"{index}: generation 3, 6 images, 12 texts, is of this model already\n"
    aladin("index", "rollback", index)
    assert model_of(index) == old


def test_items_without_a_source_are_named_and_refused(
    index_folder: Path, data_file: Path, new_checkpoint: Path, tmp_path: Path
) -> None:
    index, photos = tmp_path / "index", tmp_path / "photos"
    shutil.copytree(data_file.parent, photos)
    model = index_folder / "model"
    aladin("index", "build", "--model", model, "--images", photos / data_file.name, "--out", index)
    gone = photos / "photo-1.png"
    gone.unlink()
    said = aladin("index", "upgrade", index, "--model", new_checkpoint, code=2).stderr
    named = [line for line in said.splitlines() if line.startswith("skipped ")]
    assert len(named) == 1
    assert named[0].endswith(": the file of its photo is gone")
    assert "1 of 6 items have no source that the new model could encode" in said
    assert model_of(index) == read_model_id(model)
    upgrade = ["index", "upgrade", index, "--model", new_checkpoint, "--skip-missing"]
    done = aladin(*upgrade, "--batch-size", 4)
    assert done.stdout.startswith(f"{index}: generation 2, 5 images, 1 skipped, of the new model\n")
    assert named[0] in done.stderr.splitlines()
