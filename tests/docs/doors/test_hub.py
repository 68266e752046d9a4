"""The snippets of docs/doors/hub.md run: the name is found in the hub's cache."""

from __future__ import annotations

import json
import re
import shlex
import shutil
from pathlib import Path

import huggingface_hub.constants
import pytest
from typer.testing import CliRunner

from aladin_network.checkpoint_files import read_model_id
from aladin_service.cli import app
from tests.service.conftest import make_photo

GUIDE = Path(__file__).parents[3] / "docs" / "doors" / "hub.md"
COMMIT = "0123456789abcdef0123456789abcdef01234567"


def test_the_snippets_run(
    tiny_checkpoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ALADIN_MODELS_DIR", str(tmp_path / "models"))
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    shutil.copytree(tiny_checkpoint, "RUN/checkpoint")
    Path("photos").mkdir()
    lines = []
    for number in range(4):
        make_photo(number).save(f"photos/{number}.png")
        line = {"image": f"photos/{number}.png", "captions": [f"a star {number}"], "split": "test"}
        lines.append(json.dumps(line))
    Path("DATA.jsonl").write_text("\n".join(lines))

    def run(command: str) -> None:
        result = CliRunner().invoke(app, shlex.split(command)[1:])
        assert result.exit_code == 0, result.stderr

    run(
        "aladin index build --model RUN/checkpoint --images DATA.jsonl --texts DATA.jsonl "
        "--out INDEX"
    )
    first, second = re.findall(r"```bash\n(.*?)```", GUIDE.read_text(encoding="utf-8"), re.S)
    for command in first.splitlines():
        run(command)
    assert "license: apache-2.0" in Path("scenes/README.md").read_text()

    # What an upload and a download leave in the hub's cache.
    hub = tmp_path / "hub" / "models--someone--scenes"
    shutil.copytree("scenes", hub / "snapshots" / COMMIT)
    (hub / "refs").mkdir()
    (hub / "refs" / "main").write_text(COMMIT)
    run(second.strip())
    assert read_model_id(Path("FOUND/model")) == read_model_id(tiny_checkpoint)
