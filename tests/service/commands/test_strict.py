"""One policy for what cannot be used: it is skipped and named, or with --strict ends the job."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from pathlib import Path

import pytest
from PIL import Image
from typer.testing import CliRunner

from aladin_service.cli import app


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Four good photos, and a line, a caption, a photo and a file that cannot be used."""
    lines: list[object] = ["no JSON"]
    for number in range(4):
        Image.new("RGB", (40, 30), (60 * number, 0, 0)).save(tmp_path / f"{number}.png")
        lines.append({"image": f"{number}.png", "captions": [f"drawing {number}"], "split": "val"})
    lines.append({"image": "0.png", "id": "blank", "captions": ["one", ""], "split": "val"})
    lines.append({"image": "gone.png", "captions": ["gone"], "split": "val"})
    (tmp_path / "damaged.png").write_bytes(b"words")
    lines.append({"image": "damaged.png", "captions": ["damaged"], "split": "val"})
    file = tmp_path / "data.jsonl"
    written = [line if isinstance(line, str) else json.dumps(line) for line in lines]
    file.write_text("\n".join(written), encoding="utf-8")
    return file


def run(*words: object) -> tuple[int, str, str]:
    result = CliRunner().invoke(app, [str(word) for word in words])
    return result.exit_code, result.stdout, result.stderr


def check(words: Sequence[object], out: Path, said: Sequence[str]) -> None:
    """Run a command without --strict, then with it."""
    code, _, stderr = run(*words)
    assert code == 0, stderr
    for each in said:
        assert each in stderr
    shutil.rmtree(out, ignore_errors=True)
    code, _, stderr = run(*words, "--strict")
    assert code == 2, stderr
    assert "data.jsonl:1" in stderr
    assert "not JSON" in stderr


def test_an_index_of_images_and_of_texts(data: Path, tiny_checkpoint: Path, tmp_path: Path) -> None:
    out = tmp_path / "index"
    build = ["index", "build", "--model", tiny_checkpoint, "--out", out]
    photos = ["skipped data.jsonl:1: not JSON", "skipped gone.png: ", "skipped damaged.png: "]
    check([*build, "--images", data], out, photos)
    assert not out.exists() or not (out / "CURRENT").exists()
    texts = ["skipped data.jsonl:1: not JSON", "skipped data.jsonl:6: captions[1]: is blank"]
    check([*build, "--texts", data], out, texts)


def test_additions_to_an_index(data: Path, tiny_checkpoint: Path, tmp_path: Path) -> None:
    first = tmp_path / "first.jsonl"
    first.write_text('{"id": "first", "text": "a dog"}', encoding="utf-8")
    out = tmp_path / "index"
    code, _, stderr = run(
        "index", "build", "--model", tiny_checkpoint, "--texts", first, "--out", out
    )
    assert code == 0, stderr
    add = ["index", "add", out, "--texts", data]
    code, _, stderr = run(*add, "--strict")
    assert code == 2
    assert "data.jsonl:1" in stderr
    code, stdout, stderr = run(*add)
    assert code == 0, stderr
    assert "7 added, 0 replaced, 0 already there, 2 skipped" in stdout
    assert "skipped data.jsonl:6: captions[1]: is blank" in stderr


def test_an_evaluation(data: Path, tiny_checkpoint: Path, tmp_path: Path) -> None:
    said = [
        "skipped data.jsonl:1: not JSON",
        "skipped data.jsonl:6: captions[1]: is blank",
        "skipped data.jsonl:7: no such photo",
        "skipped damaged.png: ",
    ]
    check(["evaluate", tiny_checkpoint, data, "--split", "val"], tmp_path / "none", said)
