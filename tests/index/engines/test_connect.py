"""What the folder of an index may decide of the engine that is reached, and what not."""

from __future__ import annotations

import pytest

from aladin_index.engines.client import EngineOptions
from aladin_index.format.layout import EngineLocation
from aladin_index.open import connect
from aladin_network.errors import ConfigError

LOCATION = EngineLocation(url="https://elsewhere.example:1", name="photos")


def test_a_token_goes_to_no_address_that_only_the_index_names() -> None:
    with pytest.raises(ConfigError, match="ALADIN_ENGINE_URL=https://elsewhere") as caught:
        connect(LOCATION, EngineOptions(token="hush"))
    assert "hush" not in str(caught.value)
    connect(LOCATION, EngineOptions(url=LOCATION.url, token="hush")).close()


def test_the_address_of_this_machine_goes_before_that_of_the_folder(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[str] = []
    monkeypatch.setattr(
        "aladin_index.open.EngineClient",
        lambda location, _: asked.append(location.url),
    )
    connect(LOCATION)
    connect(LOCATION, EngineOptions(url="http://127.0.0.1:1"))
    assert asked == [LOCATION.url, "http://127.0.0.1:1"]


@pytest.mark.parametrize("url", ["redis://here", "file:///folder"])
def test_an_address_without_http_is_refused(url: str) -> None:
    with pytest.raises(ConfigError, match="url: expected http://host:port"):
        connect(LOCATION, EngineOptions(url=url))
