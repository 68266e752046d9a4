"""``aladin index export`` and ``aladin index import``."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
from typer.testing import CliRunner, Result

from aladin_service.cli import app


def aladin(*words: object) -> Result:
    """Run a command line."""
    return CliRunner().invoke(app, [str(word) for word in words])


def test_an_index_goes_out_and_comes_in_again(
    tiny_checkpoint: Path, index_folder: Path, tmp_path: Path
) -> None:
    out, again = tmp_path / "out", tmp_path / "again"
    result = aladin("index", "export", index_folder, "--out", out)
    assert (result.exit_code, result.stdout) == (0, f"{out}: 6 images, 12 texts\n")
    words = ["--model", tiny_checkpoint, "--out", again, "--tokens", "int8", "--ann", "exact"]
    result = aladin("index", "import", out, *words, "--filter-fields", "number")
    assert (result.exit_code, result.stdout) == (0, f"{again}: generation 1, 6 images, 12 texts\n")
    info = json.loads(aladin("index", "info", again, "--json").stdout)
    assert info["images"]["token_dtype"] == "int8"
    for query in ("a red dog runs", "a star"):
        words = [query, "-k", 6, "--filter", '{"number": {"lt": 5}}', "--json"]
        before = json.loads(aladin("search", index_folder, *words).stdout)
        after = json.loads(aladin("search", again, *words).stdout)
        assert {hit["id"] for hit in after["hits"]} == {hit["id"] for hit in before["hits"]}
        assert after["reranked"]


def test_mistakes_are_said_in_one_line(
    tiny_checkpoint: Path, index_folder: Path, tmp_path: Path
) -> None:
    result = aladin("index", "export", index_folder, "--out", tmp_path)
    assert result.exit_code == 2
    assert "already exists" in result.stderr
    (tmp_path / "clip" / "img_emb").mkdir(parents=True)
    np.save(tmp_path / "clip" / "img_emb" / "img_emb_0.npy", np.ones((3, 512), np.float32))
    words = ["--model", tiny_checkpoint, "--out", tmp_path / "index"]
    result = aladin("index", "import", tmp_path / "clip", *words)
    assert result.exit_code != 0
    assert "size of an embedding: expected 16, got 512" in result.stderr
    assert "Traceback" not in result.stderr
