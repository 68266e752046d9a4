"""``aladin mine``: the file, that it is made once, and that a stale one is never replaced."""

from __future__ import annotations

import inspect
import json
from pathlib import Path
from typing import Any

import pytest
import torch
from typer.testing import CliRunner, Result

from aladin_network.checkpoint import load_checkpoint, save_checkpoint
from aladin_network.inference import encode_photos, encode_texts
from aladin_network.photos.decoding import read_image
from aladin_service.cli import app
from aladin_service.commands.train import mine
from aladin_training.batches.offline_negatives import MinedFrom, OfflineNegatives, load_negatives
from aladin_training.config.defaults import Lists
from aladin_training.config.recipe import DataConfig
from aladin_training.data import read_records
from aladin_training.mining.miner import MEMORY_BUDGET_BYTES, mine_file


def run(checkpoint: Path, data: Path, out: Path, *more: str) -> Result:
    """Run the command; the tiny encoders are frozen or not, the cache is beside the file."""
    words = [str(checkpoint), str(data), "--out", str(out)]
    cache = str(out.parent / "cache")
    return CliRunner().invoke(app, ["mine", *words, "--cache", cache, *more])


def test_mines_once_and_prints_the_file(
    tiny_checkpoint: Path, data_file: Path, tmp_path: Path
) -> None:
    out = tmp_path / "mined" / "negatives.safetensors"
    words = ["--split", "test", "--texts", "4", "--images", "2", "--memory-mb", "1"]
    first = run(tiny_checkpoint, data_file, out, *words)
    assert first.exit_code == 0, first.stderr
    assert first.stdout == f"{out}\n"
    assert "photos compared" in first.stderr

    checkpoint = load_checkpoint(tiny_checkpoint)
    records = read_records(data_file, "test")
    images = encode_photos(checkpoint.model, [read_image(record.photo) for record in records])
    texts = encode_texts(checkpoint.model, [c for record in records for c in record.captions])
    scores = torch.from_numpy(images.embedding @ texts.embedding.T)
    own = torch.arange(5)[:, None] == torch.arange(5).repeat_interleave(2)
    scores = scores.masked_fill(own, float("-inf"))
    mined = read(out)
    assert mined.texts.tolist() == scores.topk(4, dim=1).indices.tolist()
    assert mined.images.tolist() == scores.T.topk(2, dim=1).indices.tolist()
    assert mined.mined_from.model_id == checkpoint.model_id

    written = out.stat().st_mtime_ns
    again = run(tiny_checkpoint, data_file, out, *words)
    assert again.exit_code == 0
    assert again.stdout == first.stdout
    assert "nothing to do" in again.stderr
    assert out.stat().st_mtime_ns == written


def read(out: Path) -> OfflineNegatives:
    """Load a file by the facts that it names itself."""
    length = int.from_bytes(out.read_bytes()[:8], "little")
    metadata = json.loads(out.read_bytes()[8 : 8 + length])["__metadata__"]
    return load_negatives(out, MinedFrom(**json.loads(metadata["header"])["mined_from"]))


@pytest.fixture(scope="module")
def mined(tiny_checkpoint: Path, data_file: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Negatives of all photos."""
    out = tmp_path_factory.mktemp("mined") / "negatives.safetensors"
    result = run(tiny_checkpoint, data_file, out, "--split", "all")
    assert result.exit_code == 0, result.stderr
    return out


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        (["--split", "test"], "the data or its order: expected"),
        (["--score", "alignment"], "the score: expected alignment, found matching"),
        (["--texts", "30"], "texts for each photo: expected 30, found 300"),
        (["--images", "6"], "images for each caption: expected 6, found 60"),
    ],
)
def test_a_stale_file_is_refused_and_kept(
    mined: Path, tiny_checkpoint: Path, data_file: Path, changes: list[str], says: str
) -> None:
    before = mined.read_bytes()
    result = run(tiny_checkpoint, data_file, mined, "--split", "all", *changes)
    assert result.exit_code == 2
    assert result.stdout == ""
    assert says in result.stderr.splitlines()[-1]
    assert mined.read_bytes() == before


def test_another_network_and_another_order_are_refused(
    mined: Path, tiny_checkpoint: Path, data_file: Path, tmp_path: Path
) -> None:
    model = load_checkpoint(tiny_checkpoint).model
    with torch.no_grad():
        next(model.parameters()).add_(1.0)
    save_checkpoint(tmp_path / "other", model)
    result = run(tmp_path / "other", data_file, mined, "--split", "all")
    assert result.exit_code == 2
    assert "the model: expected" in result.stderr

    lines = data_file.read_text(encoding="utf-8").splitlines()
    turned = data_file.with_name("turned.jsonl")
    turned.write_text("\n".join(reversed(lines)) + "\n", encoding="utf-8")
    result = run(tiny_checkpoint, turned, mined, "--split", "all")
    assert result.exit_code == 2
    assert "the data or its order: expected" in result.stderr


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--split", "train"], "no split 'train'"),
        (["--split", "val"], "at least 2 photos, got 1"),
        (["--split", "test", "--score", "attention"], "no score 'attention'"),
        (["--texts", "0"], "--texts"),
        (["--score", "cosine"], "cosine"),
    ],
)
def test_mistakes_leave_no_file(
    tiny_checkpoint: Path, data_file: Path, tmp_path: Path, words: list[str], says: str
) -> None:
    out = tmp_path / "negatives.safetensors"
    result = run(tiny_checkpoint, data_file, out, *words)
    assert result.exit_code == 2
    assert says in result.stderr
    assert result.stdout == ""
    assert not out.exists()


def test_a_file_of_another_kind_is_never_overwritten(
    tiny_checkpoint: Path, data_file: Path, tmp_path: Path
) -> None:
    out = tmp_path / "notes.txt"
    out.write_text("not to be lost")
    result = run(tiny_checkpoint, data_file, out, "--split", "all")
    assert result.exit_code == 2
    assert "not a file of mined negatives" in result.stderr
    assert out.read_text() == "not to be lost"


def test_the_options_default_to_the_librarys_values() -> None:
    def defaults(function: Any) -> dict[str, Any]:
        return {name: each.default for name, each in inspect.signature(function).parameters.items()}

    options, library = defaults(mine), defaults(mine_file)
    assert Lists() == (options["score"], options["texts"], options["images"])
    assert options["memory_mb"] * 2**20 == MEMORY_BUDGET_BYTES == library["memory_budget_bytes"]
    assert options["cache"] == Path(DataConfig(source="captions.jsonl").cache)


def test_help_says_what_goes_in_and_comes_out() -> None:
    shown = CliRunner().invoke(app, ["mine", "--help"]).stdout
    assert "In: " in shown
    assert "Out: " in shown
