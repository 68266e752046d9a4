"""The configuration of pip that a build uses."""

from __future__ import annotations

import configparser
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest


def test_options_and_the_paths_that_they_name_are_shared(
    program: Callable[[str], ModuleType], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wheels, index, certificate = tmp_path / "wheels", tmp_path / "index", tmp_path / "ca.pem"
    wheels.mkdir()
    (index / "simple").mkdir(parents=True)
    certificate.touch()
    config = tmp_path / "pip.conf"
    config.write_text(
        f"[global]\ncert = {certificate}\ncache-dir = {tmp_path}\ntimeout = 5\n"
        f"extra-index-url = file://{index}/simple https://example.org/simple\n"
    )
    monkeypatch.setenv("PIP_CONFIG_FILE", str(config))
    # The environment wins over the file.
    monkeypatch.setenv("PIP_TIMEOUT", "9")
    monkeypatch.setenv("PIP_FIND_LINKS", str(wheels))
    for name in ("PIP_CERT", "PIP_DEFAULT_TIMEOUT", "PIP_EXTRA_INDEX_URL"):
        monkeypatch.delenv(name, raising=False)
    target = tmp_path / "shared.conf"
    mounts = program("host").share_pip_config(target)
    shared = configparser.ConfigParser()
    shared.read(target)
    assert shared["global"]["timeout"] == "9"
    assert shared["global"]["find-links"] == str(wheels)
    assert (
        shared["global"]["extra-index-url"] == f"file://{index}/simple https://example.org/simple"
    )
    assert "cache-dir" not in shared["global"]
    # An index's pages name packages beside them.
    assert {f"{each}:{each}:ro" for each in (wheels, index, certificate)} <= set(mounts)
    assert f"{target}:/etc/pip.conf:ro" in mounts
