"""Options of Qdrant in the location of an index."""

from __future__ import annotations

from typing import Any

import pytest

from aladin_index.engines.qdrant.store import QdrantSettings
from aladin_index.format.layout import EngineLocation
from aladin_network.errors import ConfigError


def settings(**options: Any) -> QdrantSettings:
    return QdrantSettings.of(
        EngineLocation(engine="qdrant", url="http://127.0.0.1:1", name="x", **options)
    )


def test_what_is_not_said_is_the_default() -> None:
    assert settings() == QdrantSettings()


def test_options_are_read() -> None:
    wanted = QdrantSettings(
        shards=4, replicas=3, index="flat", m=8, ef=64, tokens="none", consistency="majority"
    )
    options: dict[str, Any] = {
        "shards": 4,
        "replicas": 3,
        "index": "flat",
        "index_params": {"m": 8, "tokens": "none"},
        "search_params": {"ef": 64},
        "consistency": "majority",
    }
    assert settings(**options) == wanted
    assert [QdrantSettings(replicas=count).most_replicas for count in (1, 2, 3, 4)] == [1, 2, 2, 3]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"index": "ivf_flat"}, "options of qdrant: index: .*hnsw.*flat"),
        ({"index_params": {"M": 8}}, "options of qdrant: M: unknown"),
        ({"index_params": {"tokens": "int8"}}, "tokens: .*float32.*float16.*none"),
        ({"index_params": {"m": 1}}, "m: expected at least 2, got 1"),
        ({"search_params": {"ef": 0}}, "ef: expected at least 1, got 0"),
        ({"consistency": "strong"}, "consistency: .*majority.*quorum.*all"),
    ],
)
def test_impossible_options_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        settings(**options)
