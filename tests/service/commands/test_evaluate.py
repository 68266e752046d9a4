"""``aladin evaluate``: the documented JSON, against ranks counted by hand."""

from __future__ import annotations

import json
import math
import shutil
import statistics
from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image
from typer.testing import CliRunner

from aladin_index.building.builder import build_index
from aladin_network.checkpoint import load_checkpoint
from aladin_network.scoring.separation import cross_retrieval_ranks
from aladin_service.cli import app
from aladin_service.item_sources import image_items, text_items
from tests.tensors import encode_photos, encode_texts

HEADS = ("matching", "alignment")


def evaluate(*words: object) -> str:
    """Run the command and return its stdout."""
    result = CliRunner().invoke(app, ["evaluate", *(str(word) for word in words)])
    assert result.exit_code == 0, result.stderr
    return result.stdout


@pytest.fixture(scope="module")
def own_index(index_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the index."""
    return Path(shutil.copytree(index_folder, tmp_path_factory.mktemp("evaluated") / "index"))


@pytest.fixture(scope="module")
def with_index(tiny_checkpoint: Path, data_file: Path, own_index: Path) -> dict[str, Any]:
    """The JSON of an evaluation of all photos with their index."""
    words = [tiny_checkpoint, data_file, "--split", "all", "--index", own_index, "--json"]
    return json.loads(evaluate(*words))


def slow_metrics(scores: torch.Tensor, image_of_text: list[int]) -> dict[str, dict[str, float]]:
    """Recalls and mean rank of both directions, by counting for each query."""
    by_text: list[int] = []
    for column, own in enumerate(image_of_text):
        right = scores[own, column]
        others = [row for row in range(scores.shape[0]) if row != own]
        by_text.append(sum(bool(scores[row, column] >= right) for row in others))
    by_image: list[int] = []
    for row in range(scores.shape[0]):
        own = [column for column, image in enumerate(image_of_text) if image == row]
        right = max(scores[row, column] for column in own)
        others = [column for column, image in enumerate(image_of_text) if image != row]
        by_image.append(sum(bool(scores[row, column] >= right) for column in others))
    return {
        name: {f"r{k}": 100 * sum(rank < k for rank in ranks) / len(ranks) for k in (1, 5, 10)}
        | {"mean_rank": 1 + sum(ranks) / len(ranks)}
        for name, ranks in (("text_to_image", by_text), ("image_to_text", by_image))
    }


def test_the_json_has_exactly_the_documented_shape(with_index: dict[str, Any]) -> None:
    systems = ["matching", "alignment", "fused", "two_stage"]
    assert list(with_index) == [*systems, "two_stage_minus_matching", "agreement", "median_ms"]
    for system in systems:
        metrics = with_index[system]
        of_pairs = ["mean_difference", "cross_rank"] if system in HEADS else []
        assert list(metrics) == ["text_to_image", "image_to_text", "rsum", *of_pairs]
        recalls = 0.0
        for direction in ("text_to_image", "image_to_text"):
            names = ["r1", "r5", "r10", "median_rank", "mean_rank"]
            assert list(metrics[direction]) == names
            recalls += sum(metrics[direction][name] for name in ("r1", "r5", "r10"))
        assert metrics["rsum"] == pytest.approx(recalls, abs=0.01)
    assert list(with_index["two_stage_minus_matching"]) == ["rsum", "low", "high"]
    assert list(with_index["agreement"]) == ["text_to_image", "image_to_text"]


def test_the_numbers_are_those_of_the_model(
    with_index: dict[str, Any],
    tiny_checkpoint: Path,
    data_file: Path,
    captions: list[tuple[str, str]],
) -> None:
    model = load_checkpoint(tiny_checkpoint).model
    photos: list[Image.Image] = []
    for number in range(len(captions)):
        with Image.open(data_file.parent / f"photo-{number}.png") as picture:
            photos.append(picture.convert("RGB"))
    images = encode_photos(model, photos)
    texts = encode_texts(model, [caption for pair in captions for caption in pair])
    image_of_text = [number // 2 for number in range(2 * len(captions))]
    expected = {
        "matching": images.embedding @ texts.embedding.T,
        "alignment": model.scores("alignment", images, texts),
    }
    own = torch.arange(len(captions)).unsqueeze(1) == torch.tensor(image_of_text)
    for system, scores in expected.items():
        shown = with_index[system]
        for direction, metrics in slow_metrics(scores, image_of_text).items():
            ours = {name: shown[direction][name] for name in metrics}
            assert ours == pytest.approx(metrics, abs=0.01)
        difference = float(scores[own].mean() - scores[~own].mean())
        assert shown["mean_difference"] == pytest.approx(difference, abs=0.001)
        ranks = cross_retrieval_ranks(scores, torch.tensor(image_of_text)).tolist()
        assert shown["cross_rank"]["mean"] == pytest.approx(sum(ranks) / len(ranks), abs=0.001)
        assert shown["cross_rank"]["median"] == math.floor(statistics.median(ranks))


def test_an_index_that_reranks_all_items_serves_the_fused_order(
    with_index: dict[str, Any],
) -> None:
    assert with_index["agreement"] == {"text_to_image": 100.0, "image_to_text": 100.0}
    assert with_index["two_stage"] == with_index["fused"]
    gain = with_index["two_stage_minus_matching"]
    difference = with_index["two_stage"]["rsum"] - with_index["matching"]["rsum"]
    assert gain["rsum"] == pytest.approx(difference, abs=0.01)
    assert gain["low"] <= gain["rsum"] <= gain["high"]


def test_without_an_index_and_for_people(tiny_checkpoint: Path, data_file: Path) -> None:
    data = json.loads(evaluate(tiny_checkpoint, data_file, "--json"))
    assert list(data) == ["matching", "alignment", "fused"]
    shown = evaluate(tiny_checkpoint, data_file)
    for words in ("R@1", "rsum", "matching", "alignment", "fused", "split test"):
        assert words in shown
    assert f"{data['alignment']['rsum']:.1f}" in shown
    for name in HEADS:
        pairs = data[name]
        assert (
            f"{name}: mean difference of positive pairs to others {pairs['mean_difference']:.3f}, "
            f"cross-retrieval rank median {pairs['cross_rank']['median']:.0f}, "
            f"mean {pairs['cross_rank']['mean']:.1f}"
        ) in shown


def test_folds_are_blocks_of_photos_evaluated_beside_the_whole(
    tiny_checkpoint: Path, data_file: Path
) -> None:
    lines = data_file.read_text().splitlines()
    blocks = [lines[:3], lines[3:]]
    alone: list[dict[str, Any]] = []
    for number, block in enumerate(blocks):
        file = data_file.with_name(f"block-{number}.jsonl")
        file.write_text("\n".join(block) + "\n")
        alone.append(json.loads(evaluate(tiny_checkpoint, file, "--split", "all", "--json")))
        file.unlink()
    words = [tiny_checkpoint, data_file, "--split", "all"]
    whole = json.loads(evaluate(*words, "--json"))
    both = json.loads(evaluate(*words, "--folds", 2, "--json"))
    folded = both.pop("folded")
    assert both == whole
    assert folded.pop("folds") == 2
    assert list(folded) == ["matching", "alignment", "fused"]
    for name, metrics in folded.items():
        mean = (alone[0][name]["rsum"] + alone[1][name]["rsum"]) / 2
        assert metrics["rsum"] == pytest.approx(mean, abs=0.01)
    assert json.loads(evaluate(*words, "--folds", 1, "--json")) == whole
    shown = evaluate(*words, "--folds", 2)
    assert "fused, 2 folds" in shown
    assert f"{folded['fused']['rsum']:.1f}" in shown


def test_more_folds_than_photos(tiny_checkpoint: Path, data_file: Path) -> None:
    words = [str(tiny_checkpoint), str(data_file), "--split", "all", "--folds", "7"]
    result = CliRunner().invoke(app, ["evaluate", *words])
    assert result.exit_code == 2
    assert "folds: expected at most 6, the number of photos, got 7" in result.stderr


def test_a_photo_without_captions_competes_but_does_not_ask(
    tiny_checkpoint: Path, data_file: Path, tmp_path: Path
) -> None:
    lines = [json.loads(line) for line in data_file.read_text().splitlines()]
    lines[0]["captions"] = []
    lines[1]["captions"] = lines[1]["captions"][:1]
    file, captioned = data_file.with_name("uneven.jsonl"), data_file.with_name("captioned.jsonl")
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    captioned.write_text("".join(json.dumps(line) + "\n" for line in lines[1:]))
    index = tmp_path / "index"
    build_index(tiny_checkpoint, index, image_items(file, None), text_items(captioned, None))
    words = [tiny_checkpoint, file, "--split", "all", "--index", index, "--json"]
    data = json.loads(evaluate(*words))
    file.unlink()
    captioned.unlink()
    # As served or exhaustive: of six photos and nine texts, five photos ask.
    assert data["two_stage"] == data["fused"]
    for system in ("matching", "two_stage"):
        assert data[system]["image_to_text"]["r10"] == 100.0
        asking_hits = data[system]["image_to_text"]["r1"] / 100 * 5
        assert asking_hits == pytest.approx(round(asking_hits), abs=1e-3)
    gain = data["two_stage_minus_matching"]
    difference = data["two_stage"]["rsum"] - data["matching"]["rsum"]
    assert gain["rsum"] == pytest.approx(difference, abs=0.01)


def test_the_table_says_what_the_index_gains(
    tiny_checkpoint: Path, data_file: Path, own_index: Path
) -> None:
    words = [tiny_checkpoint, data_file, "--split", "all", "--index", own_index]
    shown = evaluate(*words)
    assert "two_stage minus matching: " in shown
    assert "text to image 100.0 %, image to text 100.0 %" in shown


def test_unknown_splits_and_data_of_another_index_are_refused(
    tiny_checkpoint: Path, data_file: Path, tmp_path: Path
) -> None:
    index = tmp_path / "index"
    images, texts = image_items(data_file, "val"), text_items(data_file, "val")
    build_index(tiny_checkpoint, index, images, texts)
    for words, says in (
        ([tiny_checkpoint, data_file, "--split", "dev"], "no split 'dev'"),
        ([tiny_checkpoint, data_file, "--index", index], "5 of the images"),
    ):
        result = CliRunner().invoke(app, ["evaluate", *(str(word) for word in words)])
        assert result.exit_code == 2
        assert says in result.stderr
        assert result.stdout == ""
