"""``aladin export sentence-transformers``: the folder, without the library."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from aladin_network.calibration.calibration import Calibration, read_calibration, write_calibration
from aladin_network.calibration.fitted_files import read_fitted
from aladin_network.checkpoint import load_checkpoint, save_checkpoint
from aladin_network.checkpoint_files import read_model_id
from aladin_network.model import AladinModel
from aladin_network.scoring.correction import CORRECTION
from aladin_service.cli import app
from tests.index.corrections import correction_of
from tests.service.conftest import make_photo

MODULE = "aladin_search.integrations.sentence_transformers"


def export(*words: object) -> Result:
    return CliRunner().invoke(app, ["export", "sentence-transformers", *map(str, words)])


@pytest.mark.parametrize(
    ("kind", "name", "model_type", "similarity"),
    [
        ("multi-vector", "AladinMultiVector", "MultiVectorEncoder", "maxsim"),
        ("embedding", "AladinEmbedding", "SentenceTransformer", "cosine"),
    ],
)
def test_the_folder_is_a_checkpoint_with_two_more_files(
    tiny_checkpoint: Path, tmp_path: Path, kind: str, name: str, model_type: str, similarity: str
) -> None:
    out = tmp_path / "out"
    result = export(tiny_checkpoint, "--out", out, "--kind", kind)
    assert result.exit_code == 0, result.output
    assert result.stdout == f"{out}\n"
    (module,) = json.loads((out / "modules.json").read_text())
    assert (module["type"], module["path"]) == (f"{MODULE}.{name}", "")
    config = json.loads((out / "config_sentence_transformers.json").read_text())
    assert (config["model_type"], config["similarity_fn_name"]) == (model_type, similarity)
    assert not list(out.rglob("*.py"))
    for file in tiny_checkpoint.iterdir():
        assert (out / file.name).read_bytes() == file.read_bytes()
    assert load_checkpoint(out).model_id == read_model_id(tiny_checkpoint)


def test_the_calibration_comes_along(
    build_tiny: Callable[..., AladinModel],
    make_calibration: Callable[..., Calibration],
    tmp_path: Path,
) -> None:
    source = tmp_path / "checkpoint"
    save_checkpoint(source, build_tiny())
    model_id = read_model_id(source)
    write_calibration(source, make_calibration(model_id))
    assert export(source, "--out", tmp_path / "out").exit_code == 0
    assert read_calibration(tmp_path / "out", model_id) == make_calibration(model_id)


@pytest.mark.parametrize("command", ["sentence-transformers", "hub"])
def test_the_correction_comes_along_with_its_calibration(
    tiny_checkpoint: Path,
    make_calibration: Callable[..., Calibration],
    tmp_path: Path,
    command: str,
) -> None:
    source, out = Path(shutil.copytree(tiny_checkpoint, tmp_path / "source")), tmp_path / "out"
    model_id = read_model_id(source)
    photos = [tmp_path / f"{number}.png" for number in range(4)]
    for number, path in enumerate(photos):
        make_photo(number).save(path)
    correction = correction_of(source, photos, 0.8)
    correction.save(source / CORRECTION)
    calibration = make_calibration(model_id)
    fitted_on = replace(calibration.fitted_on, correction=correction.constants.id)
    write_calibration(source, replace(calibration, fitted_on=fitted_on))
    options = ["--name", "someone/scenes"] if command == "hub" else []
    words = ["export", command, str(source), "--out", str(out), *options]
    assert CliRunner().invoke(app, words).exit_code == 0
    fitted = read_fitted(out, model_id)
    assert fitted.calibration == replace(calibration, fitted_on=fitted_on)
    assert fitted.correction is not None
    assert fitted.correction.constants == correction.constants
    assert (out / CORRECTION).read_bytes() == (source / CORRECTION).read_bytes()


def test_bad_input_is_one_line(tiny_checkpoint: Path, tmp_path: Path) -> None:
    missing = export(tmp_path / "none", "--out", tmp_path / "out")
    assert missing.exit_code == 2
    assert missing.stderr.startswith(f"error: {tmp_path / 'none'}: no such folder; expected a")
    assert len(missing.stderr.splitlines()) == 1
    assert not (tmp_path / "out").exists()
    used = export(tiny_checkpoint, "--out", tiny_checkpoint)
    assert used.exit_code == 2
    assert "there is something already" in used.stderr
