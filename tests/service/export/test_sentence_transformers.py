"""``aladin export sentence-transformers``: the folder, without the library."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from aladin_network.calibration.calibration import Calibration, read_calibration, write_calibration
from aladin_network.checkpoint import load_checkpoint, save_checkpoint
from aladin_network.checkpoint_files import read_model_id
from aladin_network.model import AladinModel
from aladin_service.cli import app

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


def test_bad_input_is_one_line(tiny_checkpoint: Path, tmp_path: Path) -> None:
    missing = export(tmp_path / "none", "--out", tmp_path / "out")
    assert missing.exit_code == 2
    assert missing.stderr.startswith(f"error: {tmp_path / 'none'}: no such folder; expected a")
    assert len(missing.stderr.splitlines()) == 1
    assert not (tmp_path / "out").exists()
    used = export(tiny_checkpoint, "--out", tiny_checkpoint)
    assert used.exit_code == 2
    assert "there is something already" in used.stderr
