"""Shipped recipes on the drawn scenes, with tiny encoders in the place of the pretrained ones."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner

from aladin_service.cli import app
from aladin_training.config.recipe import Recipe, load_recipe
from aladin_training.demo.scenes import draw_data_set
from aladin_training.stages.run import run_recipe
from tests.dual_encoders import save_dual_encoder
from tests.training.region_data import recipe_of, write_regions


@pytest.fixture(scope="session")
def scenes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """16 training and 8 validation scenes with two captions each."""
    folder = tmp_path_factory.mktemp("scenes")
    return draw_data_set(folder, scenes=32, val_scenes=8, test_scenes=8, captions=2, size_px=32)


@pytest.fixture(scope="session")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder for caches and for the stages that recipes share."""
    return tmp_path_factory.mktemp("shared")


@pytest.fixture(scope="session")
def dual_encoder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkpoint made from a small random CLIP, in the place of models/clip."""
    folder = tmp_path_factory.mktemp("clip")
    save_dual_encoder("clip", folder / "source")
    words = ["convert", "towers", str(folder / "source"), "--out", str(folder / "checkpoint")]
    result = CliRunner().invoke(app, words)
    assert result.exit_code == 0, result.stderr
    return folder / "checkpoint"


@pytest.fixture(scope="session")
def region_data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Tables of regions, and a small random network of regions in the place of models/vinvl."""
    folder = tmp_path_factory.mktemp("vinvl")
    write_regions(folder)
    run_recipe(recipe_of(folder), folder / "run")
    return folder


@pytest.fixture(scope="session")
def tiny(
    recipe_path: Path, scenes: Path, shared: Path, request: pytest.FixtureRequest
) -> Callable[..., Recipe]:
    """Return a function that loads a recipe with settings, on the scenes, an epoch a stage."""
    network = load_recipe(recipe_path).model
    image = {
        "architecture": network.image_encoder.architecture,
        "preprocessing": {"height_px": 32, "width_px": 32},
        "frozen": True,
    }
    text = {"architecture": network.text_encoder.architecture, "frozen": True}

    def load(path: Path, *settings: str) -> Recipe:
        shipped = load_recipe(path, settings)
        changes = [f"data.cache={shared / 'cache'}", "data.crops=0", "precision=float32"]
        for stage in shipped.stage:
            changes += [f"stage.{stage.name}.epochs=1", f"stage.{stage.name}.batch_size=8"]
            changes.append(f"stage.{stage.name}.validate_every_epochs=1")
            changes += [f"stage.{stage.name}.{key}" for key in ("max_steps=null", "tune={}")]
        if shipped.data.regions is not None:
            folder = request.getfixturevalue("region_data")
            changes += [
                f"start={folder / 'run' / 'checkpoint'}",
                f"data.source={folder / 'captions.jsonl'}",
                f"data.regions={folder / 'features.tsv'}",
                f"data.region_labels={folder / 'labels.json'}",
            ]
            return load_recipe(path, [*settings, *changes])
        changes.append(f"data.source={scenes}")
        if shipped.start is not None:
            changes.append(f"start={request.getfixturevalue('dual_encoder')}")
            return load_recipe(path, [*settings, *changes])
        changes += [
            f"model.image_encoder={json.dumps(image)}",
            "tokenizer.vocabulary_size=300",
            "model.image_tower.trunk.width=16",
        ]
        if shipped.model.text_encoder.name in ("gru", "lstm"):
            changes.append("model.text_encoder.architecture.hidden_size=16")
        else:
            changes.append(f"model.text_encoder={json.dumps(text)}")
            changes += [f"model.{tower}_tower.trunk.feedforward=16" for tower in ("image", "text")]
            changes.append("model.text_tower.trunk.width=16")
        return load_recipe(path, [*settings, *changes])

    return load
