"""Limits from the environment."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

import pytest

from aladin_index.engines.milvus import EngineOptions
from aladin_network.errors import ConfigError
from aladin_service.settings import ServiceSettings, read_settings


def set_all(patch: pytest.MonkeyPatch, **variables: str) -> None:
    for name, value in variables.items():
        patch.setenv(f"ALADIN_{name}", value)


def test_the_environment_sets_limits_and_lists(monkeypatch: pytest.MonkeyPatch) -> None:
    set_all(monkeypatch, MAX_IMAGE_PIXELS="1000", MAX_IMAGE_BYTES="2000", WORKERS="3")
    set_all(monkeypatch, ALLOWED_HOSTS="search.example.org, aladin,", CORS_ORIGINS="")
    # Of `aladin search --url`, and of `make test-browser`.
    set_all(monkeypatch, API_KEY="key", CHROMIUM="chromium")
    settings = read_settings()
    assert settings.workers == 3
    assert (settings.image_limits.max_pixels, settings.image_limits.max_bytes) == (1000, 2000)
    assert settings.allowed_hosts == ("search.example.org", "aladin")
    assert settings.cors_origins == ()


@pytest.mark.parametrize(
    ("variables", "says"),
    [
        (
            {"WORKERS": "0", "MAX_TEXT_CHARS": "many"},
            ["ALADIN_WORKERS=0: ", "ALADIN_MAX_TEXT_CHARS=many: "],
        ),
        ({"KEY_FILE": "x"}, ["unknown setting", "ALADIN_KEY_FILE", "ALADIN_KEYS_FILE"]),
        ({"READONLY": "x"}, ["unknown setting", "ALADIN_READONLY", "ALADIN_READ_ONLY"]),
        ({"worker": "x"}, ["unknown setting", "ALADIN_WORKER", "ALADIN_WORKERS"]),
        ({"API_KEYS": "x"}, ["unknown setting", "ALADIN_API_KEYS"]),
    ],
)
def test_impossible_and_mistyped_variables_are_named_all_at_once(
    monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], says: list[str]
) -> None:
    set_all(monkeypatch, **variables)
    with pytest.raises(ConfigError) as failure:
        read_settings()
    assert all(each in str(failure.value) for each in says)


def test_an_engine_is_reached_as_the_settings_say(monkeypatch: pytest.MonkeyPatch) -> None:
    assert read_settings().engine_options == EngineOptions()  # the defaults are the same
    monkeypatch.setenv("ALADIN_ENGINE_URL", "http://engine:19530")
    monkeypatch.setenv("ALADIN_ENGINE_TOKEN", "root:hush")
    monkeypatch.setenv("ALADIN_ENGINE_TIMEOUT_S", "2.5")
    settings = read_settings()
    assert settings.engine_options == EngineOptions(
        url="http://engine:19530", token="root:hush", timeout_s=2.5
    )
    assert "hush" not in repr(settings) + repr(settings.engine_options)


def test_every_setting_is_described_once() -> None:
    described = re.findall(r"^\s+(\w+): ", inspect.getdoc(ServiceSettings) or "", re.MULTILINE)
    names = [name for name in described if name in ServiceSettings.model_fields]
    assert names == list(ServiceSettings.model_fields)  # in the same order, too


def test_the_page_on_serving_lists_every_setting_with_its_default() -> None:
    page = (Path(__file__).parents[2] / "service" / "SERVING.md").read_text(encoding="utf-8")
    rows = dict(re.findall(r"^\| `ALADIN_(\w+)` \| (.*?) \|", page, re.MULTILINE))
    assert set(rows) == {name.upper() for name in ServiceSettings.model_fields}
    for name, field in ServiceSettings.model_fields.items():
        if field.default_factory is None and isinstance(field.default, (int, float)):
            assert rows[name.upper()] == str(field.default).lower(), name


def test_memory_for_photos_and_processors_are_shared_by_the_workers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for workers, share_mib in ((1, 896), (2, 896), (4, 448)):
        limits = ServiceSettings(workers=workers).query_limits
        assert (limits.memory.max_bytes, limits.image.max_side_px) == (share_mib * 2**20, 30_000)
        given = ServiceSettings(workers=workers, decode_memory_bytes=400 * 2**20)
        assert given.query_limits.memory.max_bytes == 400 * 2**20 // workers
    for processors, workers, threads in (
        (1, 1, (1, 1)),
        (2, 1, (2, 2)),
        (2, 2, (1, 1)),
        (16, 2, (4, 2)),
    ):
        monkeypatch.setattr("os.cpu_count", lambda processors=processors: processors)
        settings = ServiceSettings(workers=workers)
        assert (settings.query_threads, settings.photo_threads) == threads
