"""An index is built and searched by graphs where torch and its companions cannot be imported."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
from PIL import Image

from aladin_index.building.builder import build_index
from aladin_service.item_sources import image_items, text_items

_PROGRAM = """
import sys

class Absent:
    def find_spec(self, name, path=None, target=None):
        package = name.partition(".")[0]
        if package in ("torch", "transformers", "sklearn", "scipy", "matplotlib", "tensorboard"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=package)

sys.meta_path.insert(0, Absent())
"""
_ONE = "from aladin_service.cli import main; main()"
_SEVERAL = """
from typer.testing import CliRunner
from aladin_service.cli import app
for line in sys.argv[1:]:
    done = CliRunner().invoke(app, line.split())
    if done.exit_code:
        sys.exit(f"{line}: {done.stderr}")
"""


def aladin(*words: str, program: str = _ONE) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", _PROGRAM + program, *words]
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


# A command in the order of the list: each finds what those before it left.
_NO_NETWORK = [
    "index info {index}",
    "index verify {index}",
    "index delete {index} --target images {id}",
    "index compact {index}",
    "index rollback {index}",
    "index export {index} --out {folder}/exported",
    "index merge {index} --out {folder}/merged",
    "key add reader --keys {folder}/keys.json",
    "key list --keys {folder}/keys.json",
    "train --list",
    "photos --list",
]


def test_commands_that_encode_nothing_need_no_torch_even_where_the_model_has_no_graphs(
    tiny_checkpoint: Path, data_file: Path, tmp_path: Path
) -> None:
    index = tmp_path / "index"
    build_index(tiny_checkpoint, index, image_items(data_file, None), text_items(data_file, None))
    item = json.loads(data_file.read_text(encoding="utf-8").splitlines()[0])["id"]
    lines = [each.format(index=index, folder=tmp_path, id=item) for each in _NO_NETWORK]
    done = aladin(*lines, program=_SEVERAL)
    assert done.returncode == 0, done.stderr
    refused = aladin("search", str(index), "a red circle")
    assert refused.returncode == 2
    assert "has no graphs" in refused.stderr


def test_an_import_needs_no_torch_where_the_model_has_graphs(
    exported_checkpoint: Path, data_file: Path, tmp_path: Path
) -> None:
    index, exported = tmp_path / "index", tmp_path / "exported"
    build_index(exported_checkpoint, index, image_items(data_file, None), None)
    done = aladin(
        f"index export {index} --out {exported}",
        f"index import {exported} --model {exported_checkpoint} --out {index}-2",
        program=_SEVERAL,
    )
    assert done.returncode == 0, done.stderr


def test_the_first_job_of_a_machine_builds_with_a_model_that_has_graphs_and_trains_no_demo(
    exported_checkpoint: Path, data_file: Path, tmp_path: Path
) -> None:
    index, empty = tmp_path / "index", tmp_path / "empty"
    empty.mkdir()
    words = ["prepare", str(index), "--demo", str(tmp_path / "demo"), "--photos", str(data_file)]
    refused = aladin(*words, "--model", str(empty))
    assert refused.returncode == 2, refused.stderr
    assert "expected photos and a model with graphs, got no model" in refused.stderr
    built = aladin(*words, "--model", str(exported_checkpoint))
    assert built.returncode == 0, built.stderr
    assert "generation 1" in built.stdout
