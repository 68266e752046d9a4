"""``engine.json``: what it may say."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from aladin_index.engines.milvus import EngineOptions
from aladin_index.format.layout import ENGINE_FILE, EngineLocation, location_of, write_location
from aladin_network.errors import ConfigError, IndexCorruptError, IndexMismatchError

MILVUS = EngineLocation(
    url="https://milvus.example:19530",
    name="photos",
    shards=4,
    index="hnsw",
    index_params={"M": 32},
    search_params={"ef": 100, "level": 0.5},
)


def test_a_location_is_read_as_it_was_written(tmp_path: Path) -> None:
    assert location_of(tmp_path) is None
    assert location_of(tmp_path / "nothing") is None
    write_location(tmp_path, MILVUS)
    assert location_of(tmp_path) == MILVUS
    write_location(tmp_path, plain := EngineLocation(url="http://milvus", name="_a1"))
    assert location_of(tmp_path) == plain


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"url": "milvus.example:19530"}, "http://host:port or https://host:port, got"),
        ({"url": "file:///data"}, "url: expected http://"),
        ({"url": "http://"}, "url: expected http://"),
        ({"url": "http://host:99999"}, "expected an address"),
        ({"name": "1st"}, "letters, digits and underscores"),
        ({"name": "my-photos"}, "letters, digits and underscores"),
        ({"name": "a" * 101}, "at most 100"),
        ({"shards": 0}, "shards: expected at least 1, got 0"),
        ({"replicas": -1}, "replicas: expected at least 1"),
    ],
)
def test_impossible_values_are_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        replace(MILVUS, **changes)


def test_a_password_in_an_address_is_refused_and_not_repeated() -> None:
    with pytest.raises(ConfigError, match="ALADIN_ENGINE_TOKEN") as caught:
        replace(MILVUS, url="https://root:secret@milvus.example")
    assert "secret" not in str(caught.value)
    assert "secret" not in repr(EngineOptions(token="secret"))


@pytest.mark.parametrize(
    ("content", "kind"),
    [
        ("{", IndexCorruptError),
        ("[]", IndexCorruptError),
        ('{"schema_version": 9}', IndexMismatchError),
        ('{"schema_version": 1, "name": "a"}', IndexCorruptError),
        (json.dumps({"schema_version": 1, "url": "http://a", "name": "a", "password": "x"}),
         IndexCorruptError),
    ],
)  # fmt: skip
def test_a_file_of_another_form_is_refused(
    tmp_path: Path, content: str, kind: type[Exception]
) -> None:
    (tmp_path / ENGINE_FILE).write_text(content)
    with pytest.raises(kind, match=ENGINE_FILE):
        location_of(tmp_path)


@pytest.mark.parametrize(
    ("options", "message"),
    [({"timeout_s": 0}, "timeout_s"), ({"retries": -1}, "retries")],
)
def test_impossible_options_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        EngineOptions(**options)
