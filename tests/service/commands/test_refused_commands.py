"""Commands that are refused: they leave no folder and no file behind."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from aladin_service.cli import app
from tests.service.conftest import make_photo


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working folder with photos, damaged ones, a folder that is no model, and no hub."""
    monkeypatch.setenv("ALADIN_MODELS_DIR", str(tmp_path / "models"))
    monkeypatch.setenv("ALADIN_LIBRARIES_DIR", str(tmp_path / "libraries"))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "hub"))
    work = tmp_path / "work"
    for name in ("photos", "damaged", "nomodel"):
        (work / name).mkdir(parents=True)
    make_photo(1).save(work / "photos" / "1.png")
    (work / "damaged" / "1.png").write_bytes(b"no photo")
    (work / "nomodel" / "readme.txt").write_text("no model", encoding="utf-8")
    (work / "bad.toml").write_text("not a recipe", encoding="utf-8")
    monkeypatch.chdir(work)
    return work


@pytest.mark.parametrize(
    "command",
    [
        "index build --model nomodel --images photos --out new/index",
        "index build --model nobody/x --images photos --out new/index",
        "index build --model TINY --images nothing --out new/index",
        "index build --model TINY --images damaged --out new/index",
        "prepare new/index --photos photos --model nomodel",
        "prepare new/index --photos nothing --model TINY",
        "index import nomodel --model TINY --out new/index",
        "index merge nomodel photos --out new/merged",
        "index export nomodel --out new/export",
        "index sync new/index photos",
        "index sync nomodel photos",
        "index add nomodel --images photos",
        "convert towers nomodel --out new/checkpoint",
        "export onnx nomodel --out new/graphs",
        "train bad.toml --out new/run",
        "train demo --out new/run --set data.source=nothing.jsonl",
        "compare bad.toml --out new/comparison",
        "mine nomodel photos --out new/negatives.npz",
        "mcp new/index",
        "serve nomodel",
        "key add bad/name --keys keys.json",
        "key remove ci --keys keys.json",
        "key list --keys keys.json",
    ],
)
def test_a_refused_command_leaves_nothing(command: str, place: Path, tiny_checkpoint: Path) -> None:
    before = sorted(place.rglob("*"))
    words = command.replace("TINY", str(tiny_checkpoint)).split()
    refused = CliRunner().invoke(app, words)
    assert refused.exit_code == 2, refused.output
    left = [each for each in place.rglob("*") if each not in before]
    # The lock that orders writers of keys stays: two writers would each have their own.
    assert [each for each in left if each.name != ".keys.json.lock"] == []
    assert not left or command.startswith("key add")
