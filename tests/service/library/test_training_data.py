"""A library as data for training: whose photos have texts, how they are split, what is refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from aladin_network.errors import ConfigError
from aladin_service.library.training_data import library_data
from tests.graph_models import make_graph_model
from tests.service.commands.conftest import aladin, write_lines
from tests.service.conftest import make_photo


def make_index(folder: Path, model: Path, count: int) -> Path:
    """Build an index of photos, of which every third has nothing but the name of its file."""
    lines: list[dict[str, object]] = []
    (folder / "photos").mkdir(parents=True)
    for number in range(count):
        name = f"photos/{number:03}.png"
        make_photo(number % 5).save(folder / name)
        line: dict[str, object] = {"image": name, "id": name}
        if number % 3 == 0:
            line["metadata"] = {"title": f"{number:03}"}
        elif number % 3 == 1:
            line["captions"] = [f"a red circle {number}"]
        else:
            line["metadata"] = {"title": f" star {number} ", "description": "in the street"}
        lines.append(line)
    write_lines(folder / "data.jsonl", *lines)
    words = ["--model", model, "--images", folder / "data.jsonl", "--out", folder / "index"]
    aladin("index", "build", *words)
    return folder / "index"


@pytest.fixture(scope="module")
def index(tiny_checkpoint: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_index(tmp_path_factory.mktemp("library"), tiny_checkpoint, 165)


def test_every_tenth_photo_with_texts_is_for_validation(index: Path, tmp_path: Path) -> None:
    data = library_data(str(index), tmp_path / "run" / "library.jsonl")
    assert data.checkpoint == index / "model"
    lines = [json.loads(line) for line in data.file.read_text(encoding="utf-8").splitlines()]
    assert len(lines) == 110
    assert [number for number, line in enumerate(lines) if line["split"] == "val"] == [
        *range(9, 110, 10)
    ]
    assert lines[0]["captions"] == ["a red circle 1"]
    assert lines[1]["captions"] == ["star 2", "in the street"]
    assert lines[1]["image"] == str(index.parent / "photos" / "002.png")
    data.file.write_text("kept")
    assert library_data(str(index), data.file) == data
    assert data.file.read_text() == "kept"


def test_one_command_trains_the_model_of_a_library_on_its_photos(
    index: Path, tmp_path: Path
) -> None:
    recipe = tmp_path / "recipe.toml"
    recipe.write_text(
        """
name = "small"
[data]
source = "another.jsonl"
[model.image_encoder]
frozen = true
[model.text_encoder]
frozen = true
[[stage]]
name = "heads"
epochs = 1
[stage.tasks.alignment]
loss = "infonce"
[stage.tasks.matching]
loss = "infonce"
""",
        encoding="utf-8",
    )
    out = tmp_path / "run"
    trained = aladin("train", recipe, "--library", index, "--out", out)
    assert trained.stdout == f"{out / 'checkpoint'}\n"
    used = json.loads((out / "checkpoint" / "config.json").read_text())["provenance"]["recipe"]
    described = json.loads(used)
    assert described["data"]["source"] == str(out / "library.jsonl")
    assert described["start"]["checkpoint"] == str(index / "model")


def test_too_few_texts_and_models_without_weights_are_refused_at_once(
    tiny_checkpoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    few = make_index(tmp_path / "few", tiny_checkpoint, 6)
    out = tmp_path / "run"
    words = ["train", "finetune-clip", "--out", out, "--library"]
    said = aladin(*words, few, code=2).stderr
    assert "expected at least 100 photos with a title, a description or a caption" in said
    assert "got 4 of 6" in said
    monkeypatch.setenv("ALADIN_RUNTIME", "auto")
    monkeypatch.setenv("ALADIN_MODELS_DIR", str(tmp_path / "models"))
    model = make_graph_model(tmp_path / "model", "js-clip").folder
    graphs = make_index(tmp_path / "graphs", model, 6)
    with pytest.raises(ConfigError, match="has graphs alone, which cannot be trained; make a"):
        library_data(str(graphs), out / "library.jsonl")
    assert "nor any library" in aladin(*words, tmp_path / "nothing", code=2).stderr
    assert not out.exists()
