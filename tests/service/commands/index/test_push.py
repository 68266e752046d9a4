"""``aladin index push``, and commands on an index that an engine keeps; the engine is in memory."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from aladin_index.engines.milvus import EngineOptions
from aladin_index.format.layout import EngineLocation, location_of
from aladin_network.types import TARGETS
from tests.index.engines.memory_engine import MemoryEngine, MemoryServer
from tests.service.commands.conftest import aladin, aladin_json, write_lines

URL = "http://127.0.0.1:19530"
QUERY = ["a red dog runs", "-k", 6, "--explain"]


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[EngineOptions | None]:
    """Has commands reach the engine in memory; how they would have reached a real one."""
    options, server = list[EngineOptions | None](), MemoryServer()

    def connect(_: EngineLocation, given: EngineOptions | None) -> MemoryEngine:
        options.append(given)
        return MemoryEngine(server)

    monkeypatch.setattr("aladin_index.open.connect", connect)
    return options


def test_an_index_is_pushed_searched_changed_and_pushed_again(
    index_folder: Path,
    tiny_checkpoint: Path,
    data_file: Path,
    tmp_path: Path,
    asked: list[EngineOptions | None],
) -> None:
    folder, push = tmp_path / "remote", ["index", "push", index_folder, "--out"]
    first = [*push, folder, "--url", URL, "--name", "photos", "--search-param", "ef=64"]
    line, *stages = aladin(*first).stdout.splitlines()
    assert line == f"{folder}: generation 1 of photos in Milvus, 6 images, 12 texts"
    assert [stage.split(":")[0] for stage in stages] == ["  images", "  texts"]
    assert all("recall 1, factory milvus flat, recall at" in stage for stage in stages)
    assert location_of(folder) == EngineLocation(url=URL, name="photos", search_params={"ef": 64})
    assert asked == [EngineOptions(url=URL)]  # --url is trusted
    here, there = (aladin_json("search", index, *QUERY)["hits"] for index in (index_folder, folder))
    assert [hit["id"] for hit in there] == [hit["id"] for hit in here]
    for one, other in zip(here, there, strict=True):
        assert other["score"] == pytest.approx(one["score"], abs=1e-5)
        assert other["evidence"] == one["evidence"]
    evaluate = ["evaluate", tiny_checkpoint, data_file, "--split", "test", "--index"]
    judged = [aladin_json(*evaluate, index)["two_stage"] for index in (folder, index_folder)]
    assert judged[0] == judged[1]

    texts = ["--target", "texts"]
    more = write_lines(tmp_path / "more.jsonl", {"id": "new", "text": QUERY[0]})
    added = aladin("index", "add", folder, "--texts", more).stdout
    assert "texts: 1 added, 0 replaced, 0 already there, 0 skipped" in added
    hit = aladin_json("search", folder, QUERY[0], *texts)["hits"][0]
    assert (hit["text"], hit["stages"]["match"]["score"]) == (QUERY[0], pytest.approx(1, abs=1e-5))
    assert "'new'" in aladin("index", "add", folder, "--texts", more, code=2).stderr
    assert "texts: 1 deleted" in aladin("index", "delete", folder, *texts, "new").stdout
    left = aladin_json("search", folder, QUERY[0], *texts, "-k", 20)["hits"]
    assert "new" not in {hit["id"] for hit in left}
    aladin("index", "delete", folder, "--target", "images", here[0]["id"])
    told = aladin_json("index", "info", folder)
    counts = {target: (told[target]["count"], told[target]["built"]) for target in TARGETS}
    assert (counts, told["changed"]) == ({"images": (5, 6), "texts": (12, 12)}, True)
    assert (told["generation"], told["engine"]["name"]) == (1, "photos")

    # What the folder says of the engine holds on; it is no reason to trust its address.
    assert "--discard-changes" in aladin(*push, folder, code=2).stderr
    assert asked[-1] == EngineOptions()
    again = aladin(*push, folder, "--discard-changes", "--keep", 1).stdout
    assert "generation 2 of photos" in again and "generations removed: 1" in again
    shown = " ".join(aladin("index", "info", folder).stdout.split())
    for words in (f"url {URL} name photos", "generations 2", "changed no"):
        assert words in shown


def test_an_engine_is_reached_as_the_environment_says(
    index_folder: Path,
    tmp_path: Path,
    asked: list[EngineOptions | None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    folder = tmp_path / "remote"
    variables: dict[str, Any] = {"url": "http://other:1", "token": "root:secret", "timeout_s": 3}
    monkeypatch.setenv("ALADIN_ENGINE_TOKEN", variables["token"])
    words = ["--url", URL, "--name", "photos", "--out", folder]
    said = aladin("index", "push", index_folder, *words).stdout
    assert f"set ALADIN_ENGINE_URL={URL}: the token is not sent" in said and "secret" not in said
    for name, value in variables.items():
        monkeypatch.setenv(f"ALADIN_ENGINE_{name.upper()}", str(value))
    aladin("search", folder, "a dog")
    assert asked[-1] == EngineOptions(**variables)
