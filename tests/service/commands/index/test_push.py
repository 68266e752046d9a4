"""``aladin index push``, and what the commands say of what was pushed; the engine is in memory."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from aladin_index.engines.milvus import EngineOptions
from aladin_index.format.layout import EngineLocation, location_of
from aladin_network.types import TARGETS
from aladin_service.cli import app
from tests.index.engines.memory_engine import MemoryEngine, MemoryServer


def aladin(*words: object) -> Result:
    """Run a command line."""
    return CliRunner().invoke(app, [str(word) for word in words])


def test_an_index_is_pushed_searched_changed_and_pushed_again(
    index_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked, server = list[EngineOptions | None](), MemoryServer()

    def connect(_: EngineLocation, options: EngineOptions | None) -> MemoryEngine:
        asked.append(options)
        return MemoryEngine(server)

    monkeypatch.setattr("aladin_index.open.connect", connect)
    folder, url = tmp_path / "remote", "http://127.0.0.1:19530"
    words = ["index", "push", index_folder, "--out", folder]
    result = aladin(*words, "--url", url, "--name", "photos", "--search-param", "ef=64")
    assert result.exit_code == 0, result.stderr
    first, *stages = result.stdout.splitlines()
    assert first == f"{folder}: generation 1 of photos in Milvus, 6 images, 12 texts"
    assert [line.split(":")[0] for line in stages] == ["  images", "  texts"]
    assert all("recall 1, factory milvus flat, recall at" in line for line in stages)
    assert location_of(folder) == EngineLocation(url=url, name="photos", search_params={"ef": 64})
    assert asked == [EngineOptions(url=url)]  # --url is trusted
    query = ["a red dog runs", "-k", 6, "--explain", "--json"]
    here = json.loads(aladin("search", index_folder, *query).stdout)
    there = json.loads(aladin("search", folder, *query).stdout)
    assert [hit["id"] for hit in there["hits"]] == [hit["id"] for hit in here["hits"]]
    for one, other in zip(here["hits"], there["hits"], strict=True):
        assert other["score"] == pytest.approx(one["score"], abs=1e-5)
        assert other["evidence"] == one["evidence"]

    removed = here["hits"][0]["id"]
    assert aladin("index", "delete", folder, "--target", "images", removed).exit_code == 0
    told = json.loads(aladin("index", "info", folder, "--json").stdout)
    counts = {target: (told[target]["count"], told[target]["built"]) for target in TARGETS}
    assert (counts, told["changed"]) == ({"images": (5, 6), "texts": (12, 12)}, True)
    assert (told["generation"], told["engine"]["name"]) == (1, "photos")

    # What the folder says of the engine holds on.
    result = aladin(*words)
    assert (result.exit_code, "--discard-changes" in result.stderr) == (2, True)
    assert asked[-1] == EngineOptions()  # an earlier push is no reason to trust its address
    result = aladin(*words, "--discard-changes", "--keep", 1)
    assert result.exit_code == 0, result.stderr
    assert "generation 2 of photos" in result.stdout
    assert "generations removed: 1" in result.stdout
    shown = " ".join(aladin("index", "info", folder).stdout.split())
    assert f"url {url} name photos" in shown
    assert "generations 2" in shown
    assert "changed no" in shown


def test_a_push_with_a_token_says_what_its_searches_have_to_set(
    index_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ALADIN_ENGINE_TOKEN", "root:secret")
    server = MemoryServer()
    monkeypatch.setattr("aladin_index.open.connect", lambda *_: MemoryEngine(server))
    words = ["--url", "http://127.0.0.1:19530", "--name", "photos", "--out", tmp_path / "remote"]
    result = aladin("index", "push", index_folder, *words)
    assert result.exit_code == 0, result.stderr
    assert "set ALADIN_ENGINE_URL=http://127.0.0.1:19530: the token is not sent" in result.stdout
    assert "secret" not in result.stdout


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "a first push needs --url and --name: no --url, --name"),
        (["--url", "http://a"], "no --name"),
        (["--url", "a", "--name", "b"], "url: expected http://"),
        (["--index-param", "M"], "--index-param: expected KEY=VALUE, got 'M'"),
    ],
)
def test_mistakes_are_said_in_one_line(
    index_folder: Path, tmp_path: Path, words: list[str], message: str
) -> None:
    result = aladin("index", "push", index_folder, "--out", tmp_path / "remote", *words)
    assert result.exit_code == 2
    [line] = result.stderr.splitlines()
    assert message in line
    assert not (tmp_path / "remote").exists()


def test_curves_of_an_index_in_an_engine_are_not_drawn(tmp_path: Path) -> None:
    location = {"schema_version": 1, "url": "http://127.0.0.1:1", "name": "a"}
    (tmp_path / "engine.json").write_text(json.dumps(location))
    result = aladin("index", "info", tmp_path, "--plot", tmp_path / "curves.png")
    assert (result.exit_code, "expected an index of files" in result.stderr) == (2, True)
