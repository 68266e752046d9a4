"""Recipes train on tars as on the same photos in files of their own."""

from __future__ import annotations

import dataclasses
import io
import json
import tarfile
from pathlib import Path

import torch

from aladin_network.types import NullProgress
from aladin_training.config.recipe import load_recipe
from aladin_training.data import read_records
from aladin_training.stages.preparation import prepare_run


def test_the_inputs_of_a_run_on_tars_are_those_of_a_run_on_files(
    recipe_path: Path, data_set: Path, tmp_path: Path
) -> None:
    with tarfile.open(tmp_path / "0.tar", "w") as tar:
        for record in read_records(data_set):
            details = {"id": record.id, "split": record.split, "captions": record.captions}
            content = {"png": record.photo.read(), "json": json.dumps(details).encode()}
            for suffix, data in content.items():
                info = tarfile.TarInfo(f"{record.id.removesuffix('.png')}.{suffix}")
                info.size = len(data)
                tar.addfile(info, io.BytesIO(data))
    recipe = load_recipe(recipe_path)
    data = dataclasses.replace(
        recipe.data, source=str(tmp_path / "{0..0}.tar"), cache=str(tmp_path / "cache")
    )
    of_files = prepare_run(recipe, NullProgress())
    of_tars = prepare_run(dataclasses.replace(recipe, data=data), NullProgress())
    assert of_tars.train_set.digest == of_files.train_set.digest
    assert of_tars.validation_set.digest == of_files.validation_set.digest
    rows, views = list(range(12)), [0] * 12
    found, expected = (
        each.train_set.read_by(each.model).inputs.photos.get(rows, views)
        for each in (of_tars, of_files)
    )
    assert not isinstance(found, torch.Tensor)
    assert not isinstance(expected, torch.Tensor)
    assert torch.equal(found.states, expected.states)
