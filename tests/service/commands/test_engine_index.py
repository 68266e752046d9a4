"""Commands on the folder of an index that an engine keeps."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from aladin_index.engines.milvus import EngineOptions
from aladin_index.format.layout import EngineLocation
from aladin_service.cli import app
from tests.index.engines.memory_engine import MemoryEngine
from tests.service.engine_world import EngineWorld

WORDS = "two dogs run on the green grass"


@pytest.fixture
def options(world: EngineWorld, monkeypatch: pytest.MonkeyPatch) -> list[EngineOptions | None]:
    """Have commands reach the engine in memory; how they would have reached a real one."""
    asked: list[EngineOptions | None] = []

    def connect(_: EngineLocation, options: EngineOptions | None) -> MemoryEngine:
        asked.append(options)
        return MemoryEngine(world.server)

    monkeypatch.setattr("aladin_index.open.connect", connect)
    return asked


def run(*words: object) -> Result:
    return CliRunner().invoke(app, [str(word) for word in words])


def aladin(*words: object) -> Result:
    """Run a command line; it has to succeed."""
    result = run(*words)
    assert result.exit_code == 0, result.stderr
    return result


def hits(index: Path, *words: object) -> list[dict[str, Any]]:
    return json.loads(aladin("search", index, *words, "--json").stdout)["hits"]


def test_an_engine_is_reached_as_the_environment_says(
    world: EngineWorld, options: list[EngineOptions | None], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in {"URL": "http://other:1", "TOKEN": "s", "TIMEOUT_S": 3}.items():
        monkeypatch.setenv(f"ALADIN_ENGINE_{name}", str(value))
    aladin("search", world.folder, WORDS)
    assert options == [EngineOptions(url="http://other:1", token="s", timeout_s=3)]


@pytest.mark.usefixtures("options")
def test_items_are_added_and_deleted(world: EngineWorld, tmp_path: Path) -> None:
    source = tmp_path / "more.jsonl"
    source.write_text(json.dumps({"id": "new", "text": WORDS}) + "\n", encoding="utf-8")
    result = aladin("index", "add", world.folder, "--texts", source)
    assert "texts: 1 added, 0 replaced, 0 already there, 0 skipped" in result.stdout
    first = hits(world.folder, WORDS, "--target", "texts")[0]
    assert (first["id"], first["stages"]["match"]["score"]) == ("new", pytest.approx(1, abs=1e-5))
    again = run("index", "add", world.folder, "--texts", source)
    assert (again.exit_code, "'new'" in again.stderr) == (2, True)
    result = aladin("index", "delete", world.folder, "--target", "texts", "new")
    assert "texts: 1 deleted" in result.stdout
    assert "new" not in {hit["id"] for hit in hits(world.folder, WORDS, "--target", "texts")}


@pytest.mark.usefixtures("options")
def test_an_evaluation_is_that_of_the_index_that_was_pushed(
    world: EngineWorld, index_folder: Path, tiny_checkpoint: Path, data_file: Path
) -> None:
    def two_stage(index: Path) -> dict[str, Any]:
        result = aladin(
            *["evaluate", tiny_checkpoint, data_file, "--split", "test", "--index", index],
            "--json",
        )
        return json.loads(result.stdout)["two_stage"]

    assert two_stage(world.folder) == two_stage(index_folder)


@pytest.mark.usefixtures("options")
def test_commands_that_need_files_are_refused_and_change_nothing(
    world: EngineWorld, pushed: EngineWorld, tiny_checkpoint: Path, data_file: Path, tmp_path: Path
) -> None:
    folder, out = world.folder, tmp_path / "out"
    for words in (
        ["index", "export", folder, "--out", out],
        ["index", "merge", folder, tmp_path, "--out", out],
        ["index", "build", "--model", tiny_checkpoint, "--images", data_file, "--out", folder],
        ["index", "compact", folder],
        ["index", "tune", folder],
        ["index", "verify", folder],
        ["calibrate", tiny_checkpoint, data_file, "--index", folder],
    ):
        result = run(*words)
        assert (result.exit_code, result.stdout) == (2, ""), words
        assert (
            "expected an index of files, got one that a vector database stores" in result.stderr
        ), words
    names = {path.name for path in folder.iterdir()}
    assert names == {path.name for path in pushed.folder.iterdir()}
