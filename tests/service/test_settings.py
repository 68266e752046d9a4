"""Limits from the environment."""

from __future__ import annotations

import pytest

from aladin.errors import ConfigError
from service.settings import read_settings


def test_the_environment_sets_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ALADIN_MAX_IMAGE_PIXELS", "1000")
    monkeypatch.setenv("ALADIN_MAX_IMAGE_BYTES", "2000")
    monkeypatch.setenv("ALADIN_WORKERS", "3")
    settings = read_settings()
    assert settings.workers == 3
    assert (settings.image_limits.max_pixels, settings.image_limits.max_bytes) == (1000, 2000)


def test_impossible_limits_are_named_all_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ALADIN_WORKERS", "0")
    monkeypatch.setenv("ALADIN_MAX_TEXT_CHARS", "many")
    with pytest.raises(ConfigError) as failure:
        read_settings()
    assert "ALADIN_WORKERS=0: " in str(failure.value)
    assert "ALADIN_MAX_TEXT_CHARS=many: " in str(failure.value)
