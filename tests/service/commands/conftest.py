"""What tests of commands share: running one, an index to change, data sets of made-up photos."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from typer.testing import CliRunner, Result

from aladin_service.cli import app

WORDS = ("red", "dog", "man", "street", "star", "grass", "blue", "circle")


def aladin(*words: object, code: int = 0) -> Result:
    """Run a command line that ends with `code`."""
    result = CliRunner().invoke(app, [str(word) for word in words])
    assert result.exit_code == code, result.output
    return result


def aladin_json(*words: object) -> Any:
    return json.loads(aladin(*words, "--json").stdout)


def write_lines(file: Path, *records: object) -> Path:
    """Write JSON lines; a text is a line as it is."""
    lines = [each if isinstance(each, str) else json.dumps(each) for each in records]
    file.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return file


def made_up_data(folder: Path, splits: Sequence[str], lengths: Sequence[int]) -> Path:
    """Write photos of noise, each in a split, with captions of so many random words."""
    generator, lines = np.random.default_rng(0), list[dict[str, Any]]()
    for number, split in enumerate(splits):
        colours = generator.integers(0, 256, (32, 32, 3), dtype=np.uint8)
        Image.fromarray(colours).save(folder / f"{number}.png")
        captions = [" ".join(generator.choice(WORDS, size=length)) for length in lengths]
        lines.append({"image": f"{number}.png", "captions": captions, "split": split})
    return write_lines(folder / "data.jsonl", *lines)


@pytest.fixture
def index(index_folder: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(index_folder, tmp_path / "index"))


@pytest.fixture
def checkpoint(tiny_checkpoint: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(tiny_checkpoint, tmp_path / "checkpoint"))


@pytest.fixture
def photos(data_file: Path, tmp_path: Path) -> Path:
    """A folder of one photo, a.png."""
    folder = tmp_path / "photos"
    folder.mkdir()
    shutil.copyfile(data_file.parent / "photo-0.png", folder / "a.png")
    return folder
