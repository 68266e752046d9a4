"""Which generation is live, and whether an index is of files or in an engine."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from aladin_index.engines.milvus import EngineOptions
from aladin_index.format.disk import only_builder
from aladin_index.format.layout import (
    CURRENT,
    ENGINE_FILE,
    EngineLocation,
    check_kept_in_files,
    generation_folder,
    live_generation,
    location_of,
    published_generations,
    set_live_generation,
    write_location,
)
from aladin_network.errors import (
    ConfigError,
    IndexCorruptError,
    IndexMismatchError,
    IndexNotReadyError,
    InputError,
)

MILVUS = EngineLocation(
    url="https://milvus.example:19530",
    name="photos",
    shards=4,
    index="hnsw",
    index_params={"M": 32},
    search_params={"ef": 100, "level": 0.5},
)


def test_the_live_generation_is_the_one_that_was_set(tmp_path: Path) -> None:
    for generation in (1, 2, 12):
        generation_folder(tmp_path, generation).mkdir(parents=True)
    (tmp_path / "generations" / "notes").mkdir()
    for generation in (2, 12):
        set_live_generation(tmp_path, generation)
        assert live_generation(tmp_path) == generation
    assert published_generations(tmp_path) == [1, 2, 12]
    assert (tmp_path / CURRENT).read_text() == "000012\n"
    set_live_generation(tmp_path, 4)
    with pytest.raises(IndexCorruptError, match="generation 4, which does not exist"):
        live_generation(tmp_path)


@pytest.mark.parametrize("name", ["nothing", "empty", "a file"])
def test_a_folder_without_an_index_is_not_ready(tmp_path: Path, name: str) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "a file").touch()
    with pytest.raises(IndexNotReadyError, match="no index here"):
        live_generation(tmp_path / name)
    assert published_generations(tmp_path / name) == []


@pytest.mark.parametrize("content", [b"", b"1\n", b"000001", b"000001\n\n", b"../001\n", b"\xff"])
def test_a_damaged_current_is_named(tmp_path: Path, content: bytes) -> None:
    generation_folder(tmp_path, 1).mkdir(parents=True)
    (tmp_path / CURRENT).write_bytes(content)
    with pytest.raises(IndexCorruptError, match="CURRENT"):
        live_generation(tmp_path)


def test_a_location_is_read_as_it_was_written_and_operations_on_files_refuse_it(
    tmp_path: Path,
) -> None:
    assert location_of(tmp_path) is location_of(tmp_path / "nothing") is None
    for location in (MILVUS, EngineLocation(url="http://milvus", name="_a1")):
        write_location(tmp_path, location)
        assert location_of(tmp_path) == location
    for refused in (live_generation, check_kept_in_files):
        with pytest.raises(InputError, match=r"expected an index of files.*engine\.json"):
            refused(tmp_path)
    with pytest.raises(InputError, match="expected an index of files"), only_builder(tmp_path):
        pytest.fail("a build began")
    assert [path.name for path in tmp_path.iterdir()] == [ENGINE_FILE]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"url": "milvus.example:19530"}, "http://host:port or https://host:port, got"),
        ({"url": "file:///data"}, "url: expected http://"),
        ({"url": "http://"}, "url: expected http://"),
        ({"url": "http://host:99999"}, "expected an address"),
        ({"url": "https://root:secret@milvus.example"}, "ALADIN_ENGINE_TOKEN"),
        ({"name": "1st"}, "letters, digits and underscores"),
        ({"name": "my-photos"}, "letters, digits and underscores"),
        ({"name": "a" * 101}, "at most 100"),
        ({"shards": 0}, "shards: expected at least 1, got 0"),
        ({"replicas": -1}, "replicas: expected at least 1"),
    ],
    ids=str,
)
def test_impossible_locations_are_refused_and_passwords_not_repeated(
    changes: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConfigError, match=message) as caught:
        replace(MILVUS, **changes)
    assert "secret" not in str(caught.value) + repr(EngineOptions(token="secret"))


@pytest.mark.parametrize("options", [{"timeout_s": 0}, {"retries": -1}], ids=str)
def test_impossible_options_of_an_engine_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=next(iter(options))):
        EngineOptions(**options)


@pytest.mark.parametrize(
    ("content", "kind"),
    [
        ("{", IndexCorruptError),
        ("[]", IndexCorruptError),
        ('{"schema_version": 9}', IndexMismatchError),
        ('{"schema_version": 1, "name": "a"}', IndexCorruptError),
        (
            '{"schema_version": 1, "url": "http://a", "name": "a", "password": "x"}',
            IndexCorruptError,
        ),
    ],
)
def test_a_location_of_another_form_is_refused(
    tmp_path: Path, content: str, kind: type[Exception]
) -> None:
    (tmp_path / ENGINE_FILE).write_text(content)
    with pytest.raises(kind, match=ENGINE_FILE):
        location_of(tmp_path)
