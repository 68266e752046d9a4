"""Every way of encoding is measured beside float32, whose cost is none."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from benchmarks.search import precision
from tests.processor import pretend_bfloat16

CAPTIONS = ["two dogs", "a dog on the green grass", "a red circle", "a man rides", "a blue square"]


@pytest.mark.parametrize("multiplied", [True, False])
def test_every_way_is_there(
    exported_checkpoint: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    *,
    multiplied: bool,
) -> None:
    # A processor with VNNI reads weights without a sign as well.
    pretend_bfloat16(monkeypatch, multiplied=multiplied)
    random = np.random.default_rng(0)
    lines: list[str] = []
    for number, caption in enumerate(CAPTIONS):
        pixels = random.integers(0, 256, (40, 30 + number, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(tmp_path / f"{number}.png")
        entry = {"image": f"{number}.png", "captions": [caption, f"{caption}, {caption}"]}
        lines.append(json.dumps(entry | {"split": "val"}))
    (tmp_path / "data.jsonl").write_text("\n".join(lines), encoding="utf-8")
    precision.main([str(exported_checkpoint), str(tmp_path / "data.jsonl"), "--json"])
    report = json.loads(capsys.readouterr().out)

    cosines = {(row["items"], row["way"]): row["min_cosine"] for row in report["encoding"]}
    exact, bfloat16 = "onnxruntime float32", "openvino bfloat16"
    of_photos = [exact, *([bfloat16] if multiplied else [])]
    of_texts = [*of_photos, "onnxruntime int8", *(["torch bfloat16"] if multiplied else [])]
    assert set(cosines) == {
        *(("photos", way) for way in of_photos),
        *(("texts", way) for way in of_texts),
    }
    assert cosines["photos", exact] == pytest.approx(1, abs=1e-6)
    # Rounded to eight bits, but of the same texts.
    assert all(0.99 < cosines["texts", way] < 1 + 1e-6 for way in of_texts)
    assert all(row["ms"] > 0 for row in report["encoding"])

    costs = {(row["photos"], row["texts"]): row for row in report["costs"]}
    both = {(bfloat16, bfloat16), (bfloat16, exact)} if multiplied else set[tuple[str, str]]()
    assert set(costs) == {*((exact, way) for way in of_texts), *both}
    assert costs[exact, exact]["difference"]["fused"] == [0, 0, 0]
    for row in report["costs"]:
        for name, (difference, low, high) in row["difference"].items():
            assert row["rsum"][name] - costs[exact, exact]["rsum"][name] == pytest.approx(
                difference, abs=1e-3
            )
            assert low <= difference <= high
