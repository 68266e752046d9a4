"""``aladin export hub``: the card says what is recorded, and the folder is a checkpoint."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from huggingface_hub import ModelCard
from typer.testing import CliRunner, Result

from aladin_index.format.records import read_evaluations
from aladin_network.checkpoint import load_checkpoint, save_checkpoint
from aladin_network.checkpoint_files import Provenance
from aladin_network.errors import ConfigError
from aladin_network.model import AladinModel
from aladin_service.cli import app
from aladin_service.export.hub import check_card
from aladin_service.export.model_card import base_models
from tests.service.conftest import make_photo

RECIPE = {
    "data": {"source": "/somewhere/scenes.jsonl"},
    "start": None,
    "stage": [
        {"name": "teacher", "tasks": ["alignment_triplet"]},
        {"name": "student", "tasks": ["distillation", "alignment_triplet"]},
    ],
}


def run(*words: object) -> Result:
    return CliRunner().invoke(app, [str(word) for word in words])


@pytest.fixture
def trained(build_tiny: Callable[..., AladinModel], tmp_path: Path) -> Path:
    """A checkpoint as a recipe of two stages writes it."""
    folder = tmp_path / "checkpoint"
    provenance = Provenance(
        commit="abc1234",
        recipe=json.dumps(RECIPE),
        stage="student",
        step=120,
        validation={"matching_rsum": 447.04, "fused_rsum": 508.5},
    )
    save_checkpoint(folder, build_tiny(), provenance=provenance, alignment_trained=True)
    return folder


@pytest.fixture
def evaluated(trained: Path, tmp_path: Path) -> Path:
    """An index of the checkpoint with a stored evaluation."""
    lines = []
    for number in range(6):
        make_photo(number).save(tmp_path / f"{number}.png")
        line = {"image": f"{number}.png", "captions": [f"a red star {number}"], "split": "test"}
        lines.append(json.dumps(line | {"id": str(number)}))
    data = tmp_path / "drawn.jsonl"
    data.write_text("\n".join(lines))
    index = tmp_path / "index"
    sources = ["--images", data, "--texts", data]
    assert run("index", "build", "--model", trained, *sources, "--out", index).exit_code == 0
    assert run("evaluate", trained, data, "--index", index).exit_code == 0
    return index


def read_card(folder: Path) -> tuple[dict[str, Any], str]:
    card = ModelCard.load(folder / "README.md")
    return card.data.to_dict(), card.text


def test_the_card_shows_the_recorded_figures(
    trained: Path, evaluated: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    result = run(
        *("export", "hub", trained, "--out", out, "--name", "someone/drawn-scenes"),
        *("--license", "apache-2.0", "--language", "en", "--index", evaluated),
        *("--dataset", "someone/scenes", "--base-model", "someone/base"),
    )
    assert result.exit_code == 0, result.stderr
    assert result.stdout == f"{out}\n"
    data, text = read_card(out)
    assert data["license"] == "apache-2.0"
    assert data["language"] == ["en"]
    assert data["datasets"] == ["someone/scenes"]
    assert data["base_model"] == ["someone/base"]
    assert data["pipeline_tag"] == "feature-extraction"
    assert {"aladin-search", "late-interaction"} <= set(data["tags"])
    (entry,) = data["model-index"]
    assert entry["name"] == "drawn-scenes"
    of_training, of_index = entry["results"]
    assert (of_training["dataset"]["name"], of_training["dataset"]["split"]) == (
        "scenes.jsonl",
        "val",
    )
    assert "/somewhere" not in text
    values = {each["name"]: each["value"] for each in of_training["metrics"]}
    assert values == {"matching, rsum": 447.04, "fused, rsum": 508.5}
    assert of_index["dataset"] == {"name": "drawn.jsonl", "type": "drawn.jsonl", "split": "test"}
    figures = read_evaluations(evaluated, 1)[0].figures
    values = {each["name"]: each["value"] for each in of_index["metrics"]}
    assert values["two stage, rsum"] == figures["two_stage"]["rsum"]
    assert values["fused, text to image, recall at 1"] == figures["fused"]["text_to_image"]["r1"]
    assert (
        f"| drawn.jsonl | test | two stage | both | rsum | {figures['two_stage']['rsum']:.1f} |"
        in (text)
    )
    assert "* `student`: distillation, alignment_triplet" in text
    assert "step 120, with the code of commit abc1234" in text
    assert "--model someone/drawn-scenes" in text
    # The folder is the checkpoint.
    assert load_checkpoint(out).model_id == load_checkpoint(trained).model_id
    built = run(
        *("index", "build", "--model", out, "--images", evaluated.parent / "drawn.jsonl"),
        *("--out", tmp_path / "again"),
    )
    assert built.exit_code == 0, built.stderr


def test_nothing_is_invented(tiny_checkpoint: Path, tmp_path: Path) -> None:
    assert run("export", "hub", tiny_checkpoint, "--out", tmp_path / "out").exit_code == 0
    data, text = read_card(tmp_path / "out")
    assert data["license"] == "unknown"
    assert not {"model-index", "metrics", "datasets", "base_model", "language"} & set(data)
    assert "No evaluation was given when this card was written." in text
    assert "does not record how it was trained" in text
    assert "No licence was given for these weights." in text


def test_an_untrained_alignment_is_said(
    build_tiny: Callable[..., AladinModel], tmp_path: Path
) -> None:
    origin = {"converted_from": {"vision": "openai/clip-vit-base-patch32", "text": str(tmp_path)}}
    provenance = Provenance(recipe=json.dumps(origin | {"seed": 0}), stage="convert")
    save_checkpoint(tmp_path / "c", build_tiny(), provenance=provenance)
    assert base_models(load_checkpoint(tmp_path / "c")) == ["openai/clip-vit-base-patch32"]
    assert run("export", "hub", tmp_path / "c", "--out", tmp_path / "out").exit_code == 0
    data, text = read_card(tmp_path / "out")
    assert data["base_model"] == ["openai/clip-vit-base-patch32"]
    assert "late-interaction" not in data["tags"]
    assert "searches use embeddings alone" in text
    assert "Converted from published weights, without training." in text
    assert str(tmp_path) not in text


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--name", "a/b/c"], "--name: 'a/b/c' is no name on a hub"),
        (["--dataset", "no name"], "--dataset: 'no name' is no name on a hub"),
        (["--license", "other"], "--license: expected --license-name with the licence 'other'"),
        (["--license-name", "Ours"], "--license: expected --license-name with the licence 'other'"),
    ],
)
def test_impossible_options_are_one_line(
    tiny_checkpoint: Path, tmp_path: Path, words: list[str], message: str
) -> None:
    result = run("export", "hub", tiny_checkpoint, "--out", tmp_path / "out", *words)
    assert result.exit_code == 2
    assert message in result.stderr
    assert len(result.stderr.splitlines()) == 1
    assert not (tmp_path / "out").exists()


def test_an_index_of_another_checkpoint_is_refused(
    evaluated: Path, build_tiny: Callable[..., AladinModel], tmp_path: Path
) -> None:
    other = build_tiny()
    for parameter in other.alignment.parameters():
        parameter.data += 1
    save_checkpoint(tmp_path / "other", other)
    words = ["--out", tmp_path / "out", "--index", evaluated]
    result = run("export", "hub", tmp_path / "other", *words)
    assert result.exit_code == 2
    assert result.stderr.startswith("error: model: expected ")
    assert not (tmp_path / "out").exists()


def test_metadata_that_the_hub_does_not_understand_are_refused() -> None:
    with pytest.raises(ConfigError, match="the metadata is invalid"):
        check_card({"license": "mit", "model-index": [{"name": "a", "results": [{"task": {}}]}]})
