"""What the folder of an index may decide of the engine that is reached, and what not."""

from __future__ import annotations

from pathlib import Path

import pytest

from aladin_index.engines.client import EngineOptions
from aladin_index.format.layout import EngineLocation
from aladin_index.open import connect
from aladin_network.errors import ConfigError
from aladin_network.types import EngineKind


def test_a_folder_that_only_the_index_names_is_not_opened_by_the_local_mode(
    tmp_path: Path,
) -> None:
    folder = tmp_path / "points"
    location = EngineLocation(engine="qdrant", url=folder.as_uri(), name="photos")
    for options in (None, EngineOptions(timeout_s=1)):
        with pytest.raises(ConfigError, match=f"set ALADIN_ENGINE_URL={location.url}; qdrant-edge"):
            connect(location, options)
    assert not folder.exists()
    connect(location, EngineOptions(url=location.url)).close()
    assert folder.exists()


def test_edge_opens_the_folder_that_the_index_names(tmp_path: Path) -> None:
    """Its files hold no code."""
    url = (tmp_path / "points").as_uri()
    connect(EngineLocation(engine="qdrant-edge", url=url, name="photos")).close()


@pytest.mark.parametrize("engine", ["milvus", "qdrant"])
def test_a_token_goes_to_no_address_that_only_the_index_names(engine: EngineKind) -> None:
    location = EngineLocation(engine=engine, url="https://elsewhere.example:1", name="photos")
    with pytest.raises(ConfigError, match="ALADIN_ENGINE_URL=https://elsewhere") as caught:
        connect(location, EngineOptions(token="hush"))
    assert "hush" not in str(caught.value)
    connect(location, EngineOptions(url=location.url, token="hush")).close()
