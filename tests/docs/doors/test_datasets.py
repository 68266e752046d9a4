"""The snippets of docs/doors/datasets.md run, and give what the guide says."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from typer.testing import CliRunner

import aladin_search
from aladin_service.cli import app

GUIDE = Path(__file__).parents[3] / "docs" / "doors" / "datasets.md"


@pytest.mark.clients
def test_the_snippets_run(
    tiny_checkpoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import datasets

    monkeypatch.chdir(tmp_path)
    shutil.copytree(tiny_checkpoint, "RUN/checkpoint")
    Path("photos").mkdir()
    for number in range(2):
        pixels = np.random.default_rng(number).integers(0, 256, (40, 50, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(f"photos/{number}.png")
    # What a hub has, and where the library keeps it.
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    rows = {"image": [{"bytes": Path("photos/0.png").read_bytes(), "path": None}]}
    features = datasets.Features(image=datasets.Image())
    Path("hub").mkdir()
    datasets.Dataset.from_dict(rows, features=features).to_parquet("hub/train.parquet")
    blocks = re.findall(r"```(bash|python)\n(.*?)```", GUIDE.read_text(encoding="utf-8"), re.S)
    outputs: list[str] = []
    names: dict[str, Any] = {}
    for language, block in blocks:
        if language == "python":
            exec(block, names)
            continue
        for line in block.splitlines():
            words = line.replace("OWNER/NAME", "hub").split()[1:]
            result = CliRunner().invoke(app, words)
            assert result.exit_code == 0, result.output
            outputs.append(result.output)

    assert "two_stage" in outputs[1] and "two_stage" not in outputs[2]
    recalls = {str(measure): value for measure, value in names["recalls"].items()}
    assert recalls.keys() == {"Success@1", "Success@5", "Success@10"} and recalls["Success@5"] == 1
    with aladin_search.open("INDEX") as index:
        (best, *_) = index.search(image=Path("photos/1.png"), target="images")
        assert (best.id, best.metadata["year"]) == ("test/1", 2020)
        assert index.photo(best.id).tobytes() == Image.open("photos/1.png").tobytes()
    with aladin_search.open("FIRST") as first:
        (found,) = first.search(image=Path("photos/0.png"), target="images")
        assert found.id == "train/0"
