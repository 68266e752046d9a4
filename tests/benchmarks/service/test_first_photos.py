"""The way from a wheel to the first hit, with the installation and a small model that are here."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from PIL import Image

from aladin_network.photos.decoding import read_image
from benchmarks.service.first_photos import KINDS, draw_photos, follow
from tests.graph_models import make_graph_model


def test_photos_of_all_kinds_are_drawn_found_and_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ALADIN_RUNTIME", "auto")
    draw_photos(tmp_path / "photos", len(KINDS), (96, 72))
    drawn = sorted((tmp_path / "photos").iterdir())
    assert [read_image(file).size for file in drawn] == [(96, 72)] * len(KINDS)
    assert len({read_image(file).tobytes() for file in drawn}) == len(KINDS)
    assert {file.suffix for file in drawn} == {".heic", ".jpg", ".png", ".webp", ".avif", ".tif"}
    with Image.open(drawn[1]) as picture:
        assert picture.format == KINDS[1]
    (tmp_path / "home").mkdir()
    model = make_graph_model(tmp_path / "model", "js-clip", ["quantized"]).folder
    aladin = Path(sys.executable).with_name("aladin")
    seen = follow(aladin, tmp_path / "photos", f"{model}:quantized", tmp_path / "home")
    assert 0 < seen.hit_wall_s <= seen.all_wall_s
    assert 0 < seen.hit_processor_s <= seen.all_processor_s
    assert 20 < seen.memory_mb < 4000
    assert not (tmp_path / "photos" / "index").exists()
