"""The snippets of docs/doors/sentence-transformers.md run, and give what the guide says."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from typer.testing import CliRunner

from aladin_network.checkpoint import load_checkpoint
from aladin_network.photos.decoding import read_image
from aladin_network.scoring.scores import alignment_scores, matching_scores
from aladin_service.cli import app
from tests.tensors import encode_photos, encode_texts

GUIDE = Path(__file__).parents[3] / "docs" / "doors" / "sentence-transformers.md"


@pytest.mark.clients
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
def test_the_snippets_run(
    tiny_checkpoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    shutil.copytree(tiny_checkpoint, "RUN/checkpoint")
    Path("photos").mkdir()
    random = np.random.default_rng(0)
    for number in range(3):
        pixels = random.integers(0, 256, (40, 50, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(f"photos/{number}.png")
    blocks = re.findall(r"```(bash|python)\n(.*?)```", GUIDE.read_text(encoding="utf-8"), re.S)
    (_, commands), (_, first), (_, second), *_ = blocks
    for line in commands.splitlines():
        result = CliRunner().invoke(app, line.split()[1:])
        assert result.exit_code == 0, result.output
    names: dict[str, Any] = {}
    exec(first, names)

    network = load_checkpoint(tiny_checkpoint).model
    texts = encode_texts(network, ["a red dog runs", "a star on the grass"])
    photos = encode_photos(network, [read_image(Path(f"photos/{n}.png")) for n in range(3)])
    aligned, matched = alignment_scores(photos, texts).T, matching_scores(photos, texts).T
    torch.testing.assert_close(names["alignment"].cpu(), aligned, atol=1e-5, rtol=0)
    torch.testing.assert_close(names["matching"].cpu(), matched, atol=1e-5, rtol=0)
    exec(second, names)
    torch.testing.assert_close(
        names["tokens"].encode_query("a red dog runs"), texts.item_tokens(0), atol=1e-6, rtol=0
    )
    # The last sentence of the guide.
    words = ["--model", "exported/tokens", "--images", "photos", "--out", "INDEX"]
    result = CliRunner().invoke(app, ["index", "build", *words])
    assert result.exit_code == 0, result.output
