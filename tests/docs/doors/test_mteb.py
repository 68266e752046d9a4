"""The snippet of docs/doors/mteb.md runs, and gives what the guide says."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from aladin_index.build.builder import build_index
from aladin_network.types import NullProgress
from aladin_service.item_sources import image_items, text_items
from aladin_service.measure.evaluate import evaluate_system

GUIDE = Path(__file__).parents[3] / "docs" / "doors" / "mteb.md"


@pytest.mark.clients
@pytest.mark.filterwarnings("ignore")
def test_the_snippet_runs(
    tiny_checkpoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    shutil.copytree(tiny_checkpoint, "RUN/checkpoint")
    Path("photos").mkdir()
    lines: list[str] = []
    captions = ["a red dog runs", "a blue square", "two men in the street", "a star on the grass"]
    for number, caption in enumerate(captions):
        pixels = np.random.default_rng(number).integers(0, 256, (40, 50, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(f"photos/{number}.png")
        line = {"image": f"{number}.png", "captions": [caption], "split": "test"}
        lines.append(json.dumps(line))
    data = Path("photos/captions.jsonl")
    data.write_text("\n".join(lines))
    build_index(tiny_checkpoint, Path("INDEX"), image_items(data, None), text_items(data, None))
    (snippet,) = re.findall(r"```python\n(.*?)```", GUIDE.read_text(encoding="utf-8"), re.S)
    names: dict[str, Any] = {}
    exec(snippet, names)

    expected = evaluate_system(tiny_checkpoint, data, "test", Path("INDEX"), NullProgress())
    for results, system in ((names["results"], "fused"), (names["served"], "two_stage")):
        by_text, by_image = results.task_results
        assert [by_text.task_name, by_image.task_name] == [
            "PhotosT2IRetrieval",
            "PhotosI2TRetrieval",
        ]
        for each, way in ((by_text, "text_to_image"), (by_image, "image_to_text")):
            (scores,) = each.scores["test"]
            found = [100 * scores[f"hit_rate_at_{k}"] for k in (1, 5, 10)]
            metrics = getattr(expected.metrics[system], way)
            assert found == pytest.approx(list(metrics[:3]), abs=1e-3)
