"""One policy for what cannot be used: it is skipped and named, or with --strict ends the job."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from PIL import Image

from tests.service.commands.conftest import aladin, write_lines

JSON, PHOTO, CAPTION = "data.jsonl:1: not JSON", "damaged.png: ", "data.jsonl:6: captions[1]: is bl"


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Four good photos, and a line, a caption, a photo and a file that cannot be used."""
    for number in range(4):
        Image.new("RGB", (40, 30), (60 * number, 0, 0)).save(tmp_path / f"{number}.png")
    (tmp_path / "damaged.png").write_bytes(b"words")
    lines = [
        *({"image": f"{number}.png", "captions": [f"drawing {number}"]} for number in range(4)),
        {"image": "0.png", "id": "blank", "captions": ["one", ""]},
        {"image": "gone.png", "captions": ["gone"]},
        {"image": "damaged.png", "captions": ["damaged"]},
    ]
    return write_lines(
        tmp_path / "data.jsonl", "no JSON", *(each | {"split": "val"} for each in lines)
    )


@pytest.mark.parametrize(
    ("line", "named"),
    [
        ("index build --model TINY --out NEW --images DATA", [JSON, "gone.png: ", PHOTO]),
        ("index build --model TINY --out NEW --texts DATA", [JSON, CAPTION]),
        ("index add INDEX --texts DATA", [JSON, CAPTION]),
        (
            "evaluate TINY DATA --split val",
            [JSON, CAPTION, "data.jsonl:7: no such photo", PHOTO],
        ),
    ],
)
def test_what_cannot_be_used_is_skipped_and_named_or_refused(
    line: str, named: list[str], data: Path, tiny_checkpoint: Path, index: Path, tmp_path: Path
) -> None:
    new = tmp_path / "new"
    paths = {"TINY": tiny_checkpoint, "NEW": new, "INDEX": index, "DATA": data}
    words = [paths.get(word, word) for word in line.split()]
    refused = aladin(*words, "--strict", code=2).stderr
    assert "data.jsonl:1" in refused and "not JSON" in refused
    assert not (new / "CURRENT").exists()
    shutil.rmtree(new, ignore_errors=True)
    done = aladin(*words)
    for each in named:
        assert f"skipped {each}" in done.stderr
    added = "7 added, 0 replaced, 0 already there, 2 skipped"
    assert added in done.stdout or "add" not in words
