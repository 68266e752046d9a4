"""The configuration of pip that a build uses."""

from __future__ import annotations

import configparser
import runpy
from pathlib import Path

import pytest

from tests.docker.compose_files import DOCKER


def test_options_and_the_paths_that_they_name_are_shared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wheels, index, certificate = tmp_path / "wheels", tmp_path / "index", tmp_path / "ca.pem"
    wheels.mkdir()
    (index / "simple").mkdir(parents=True)
    certificate.touch()
    config = tmp_path / "pip.conf"
    urls = f"file://{index}/simple https://example.org/simple"
    config.write_text(
        f"[global]\ncert = {certificate}\ncache-dir = {tmp_path}\ntimeout = 5\n"
        f"extra-index-url = {urls}\n"
    )
    # The environment wins over the file.
    for name, value in (("CONFIG_FILE", config), ("TIMEOUT", 9), ("FIND_LINKS", wheels)):
        monkeypatch.setenv(f"PIP_{name}", str(value))
    for name in ("PIP_CERT", "PIP_DEFAULT_TIMEOUT", "PIP_EXTRA_INDEX_URL"):
        monkeypatch.delenv(name, raising=False)
    target = tmp_path / "shared.conf"
    mounts = runpy.run_path(str(DOCKER / "host.py"))["share_pip_config"](target)
    shared = configparser.ConfigParser()
    shared.read(target)
    found = {name: shared["global"].get(name) for name in ("timeout", "find-links", "cache-dir")}
    assert found == {"timeout": "9", "find-links": str(wheels), "cache-dir": None}
    assert shared["global"]["extra-index-url"] == urls
    # An index's pages name packages beside them.
    assert {f"{each}:{each}:ro" for each in (wheels, index, certificate)} <= set(mounts)
    assert f"{target}:/etc/pip.conf:ro" in mounts
