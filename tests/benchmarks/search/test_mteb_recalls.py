"""MTEB's hit rates of an index are the recalls of `aladin evaluate`."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from aladin_index.building.builder import build_index
from aladin_network.types import NullProgress
from aladin_service.item_sources import image_items, text_items
from aladin_service.measure.evaluate import evaluate_system

COLOURS = ["red", "blue", "green", "yellow"]
CAPTIONS = [
    [f"a {colour} {thing}", f"the {thing} is {colour}"]
    for colour in COLOURS
    for thing in ("dog", "star", "square")
]


@pytest.mark.clients
@pytest.mark.filterwarnings("ignore")
def test_hit_rates_are_the_recalls_of_evaluate(tiny_checkpoint: Path, tmp_path: Path) -> None:
    from benchmarks.search.mteb_recalls import measure

    lines: list[str] = []
    for number, captions in enumerate([*CAPTIONS, []]):
        pixels = np.random.default_rng(number).integers(0, 256, (40, 50, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(tmp_path / f"{number}.png")
        line = {"image": f"{number}.png", "captions": captions, "split": "test"}
        lines.append(json.dumps(line))
    data, index = tmp_path / "captions.jsonl", tmp_path / "index"
    data.write_text("\n".join(lines))
    build_index(tiny_checkpoint, index, image_items(data, None), text_items(data, None))
    rates = measure(index, data, "test")
    recalls = evaluate_system(tiny_checkpoint, data, "test", index, NullProgress()).metrics
    for direction, found in rates.items():
        expected = getattr(recalls["two_stage"], direction)
        assert found == pytest.approx(list(expected[:3]), abs=0.01)
    assert set(rates) == {"text_to_image", "image_to_text"}
    assert 0 < rates["text_to_image"][1] < rates["text_to_image"][2] < 100
