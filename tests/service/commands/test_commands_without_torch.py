"""An index is built and searched by graphs where torch and its companions cannot be imported."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
from PIL import Image

_PROGRAM = """
import sys

class Absent:
    def find_spec(self, name, path=None, target=None):
        package = name.partition(".")[0]
        if package in ("torch", "transformers", "sklearn", "scipy", "matplotlib", "tensorboard"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=package)

sys.meta_path.insert(0, Absent())
from aladin_service.cli import main
main()
"""


def aladin(*words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", _PROGRAM, *words]
    environment = os.environ | {"ALADIN_RUNTIME": "auto", "COLUMNS": "200"}
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120)


def test_a_build_and_a_search(
    exported_checkpoint: Path, tiny_checkpoint: Path, tmp_path: Path
) -> None:
    photos, index = tmp_path / "photos", tmp_path / "index"
    photos.mkdir()
    random = np.random.default_rng(0)
    for number in range(4):
        pixels = random.integers(0, 256, (40, 50, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(photos / f"{number}.png")
    source = ["--images", str(photos), "--out", str(index)]
    refused = aladin("index", "build", "--model", str(tiny_checkpoint), *source)
    assert refused.returncode == 2, refused.stderr
    assert "aladin export onnx" in refused.stderr
    built = aladin("index", "build", "--model", str(exported_checkpoint), *source)
    assert built.returncode == 0, built.stderr
    added = aladin("index", "add", str(index), *source[:2], "--on-duplicate", "replace")
    assert added.returncode == 0, added.stderr
    for words in (["index", "info"], ["index", "verify"]):
        told = aladin(*words, str(index))
        assert told.returncode == 0, told.stderr
    found = aladin("search", str(index), "a red circle", "--json")
    assert found.returncode == 0, found.stderr
    hits = json.loads(found.stdout)["hits"]
    assert sorted(hit["id"] for hit in hits) == [f"{number}.png" for number in range(4)]
