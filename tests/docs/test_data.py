"""The snippet of docs/DATA.md writes a data set that the project reads."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from PIL import Image

from aladin_training.data import read_records

GUIDE = Path(__file__).parents[2] / "docs" / "DATA.md"


@pytest.mark.clients
def test_a_data_set_of_hugging_face_becomes_jsonl(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import datasets

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("datasets.config.HF_DATASETS_CACHE", tmp_path / "cache")
    Image.new("RGB", (40, 30), "red").save("red.png")
    rows = {
        "image": [{"bytes": Path("red.png").read_bytes(), "path": None}],
        "captions": [["a red photo", "all is red"]],
    }
    captions = datasets.List(datasets.Value("string"))
    features = datasets.Features(image=datasets.Image(), captions=captions)
    Path("hub").mkdir()
    datasets.Dataset.from_dict(rows, features=features).to_parquet("hub/train.parquet")
    (snippet,) = re.findall(r"```python\n(.*?)```", GUIDE.read_text(encoding="utf-8"), re.S)
    exec(snippet.replace("OWNER/NAME", "hub"), {})

    (record,) = read_records(Path("data/data.jsonl"), "train")
    assert record.captions == ("a red photo", "all is red")
    with Image.open(record.photo.path) as photo:
        assert photo.size == (40, 30)
