"""``aladin evaluate``: the documented JSON, against ranks counted by hand; curves."""

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

from aladin_index.building.builder import build_index
from aladin_network.checkpoint import load_checkpoint
from aladin_network.scoring.separation import cross_retrieval_ranks
from aladin_service.item_sources import image_items, text_items
from tests.service.commands.conftest import aladin, aladin_json, write_lines
from tests.tensors import encode_photos, encode_texts

HEADS = ["matching", "alignment"]
DIRECTIONS = ["text_to_image", "image_to_text"]


@pytest.fixture
def words(tiny_checkpoint: Path, data_file: Path) -> list[object]:
    return ["evaluate", tiny_checkpoint, data_file, "--split", "all"]


@pytest.fixture(scope="module")
def drawn(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("curve") / "curve.png"


@pytest.fixture(scope="module")
def with_index(
    tiny_checkpoint: Path, data_file: Path, index_folder: Path, drawn: Path
) -> dict[str, Any]:
    """The JSON of an evaluation of all photos with their index, and a curve."""
    index = Path(shutil.copytree(index_folder, drawn.parent / "index"))
    words = ["evaluate", tiny_checkpoint, data_file, "--split", "all", "--index", index]
    return aladin_json(*words, "--curve", drawn, "--curve-candidates", "2,4,50")


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
    systems = [*HEADS, "fused", "two_stage"]
    assert list(with_index) == [
        *systems,
        *("two_stage_minus_matching", "agreement", "median_ms", "curve"),
    ]
    for system in systems:
        metrics = with_index[system]
        of_pairs = ["mean_difference", "cross_rank"] if system in HEADS else []
        assert list(metrics) == [*DIRECTIONS, "rsum", *of_pairs]
        recalls = 0.0
        for direction in DIRECTIONS:
            names = ["r1", "r5", "r10", "median_rank", "mean_rank"]
            assert list(metrics[direction]) == names
            recalls += sum(metrics[direction][name] for name in names[:3])
        assert metrics["rsum"] == pytest.approx(recalls, abs=0.01)
    # The index re-ranks all items, and so serves the fused order.
    assert with_index["agreement"] == dict.fromkeys(DIRECTIONS, 100.0)
    assert with_index["two_stage"] == with_index["fused"]
    gain = with_index["two_stage_minus_matching"]
    difference = with_index["two_stage"]["rsum"] - with_index["matching"]["rsum"]
    assert gain["rsum"] == pytest.approx(difference, abs=0.01)
    assert gain["low"] <= gain["rsum"] <= gain["high"]

    curve = with_index["curve"]
    shape = ["default_candidates", "items", "texts", "images", "resamples", "timed"]
    assert list(curve) == ["points", *shape]
    assert curve["default_candidates"] == dict.fromkeys(DIRECTIONS, 100)
    assert curve["items"] == {"text_to_image": 6, "image_to_text": 12}
    assert (curve["texts"], curve["images"], curve["timed"]) == (12, 6, 12)
    # Fifty and the default are more than there are: all.
    assert [point["candidates"] for point in curve["points"]] == [1, 2, 4, 12]
    estimate = ["value", "low", "high"]
    for point in curve["points"]:
        assert list(point) == ["candidates", "fitted", "papers", "ms"]
        for rule in ("fitted", "papers"):
            quality = point[rule]
            assert list(quality) == [*DIRECTIONS, "rsum", "rsum_gain"]
            assert list(quality["rsum"]) == list(quality["rsum_gain"]) == estimate
            for direction in DIRECTIONS:
                assert list(quality[direction]) == ["r1", "r1_gain", "agreement"]
                assert list(quality[direction]["r1"]) == estimate
        assert all(list(time) == ["median", "p95"] for time in point["ms"].values())


def test_the_numbers_are_those_of_the_model(
    with_index: dict[str, Any],
    tiny_checkpoint: Path,
    data_file: Path,
    captions: list[tuple[str, str]],
) -> None:
    model = load_checkpoint(tiny_checkpoint).model
    files = [data_file.parent / f"photo-{number}.png" for number in range(len(captions))]
    images = encode_photos(model, [Image.open(file).convert("RGB") for file in files])
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


def test_a_curve_begins_with_matching_alone_and_ends_with_the_exhaustive_order(
    with_index: dict[str, Any], drawn: Path
) -> None:
    first, *_, last = with_index["curve"]["points"]
    for system, end in (("matching", first["papers"]), ("fused", last["fitted"])):
        metrics = with_index[system]
        assert end["rsum"]["value"] == pytest.approx(metrics["rsum"], abs=0.01)
        for direction in DIRECTIONS:
            r1 = metrics[direction]["r1"]
            assert end[direction]["r1"]["value"] == pytest.approx(r1, abs=0.01)
    alignment = with_index["alignment"]["rsum"]
    assert last["papers"]["rsum"]["value"] == pytest.approx(alignment, abs=0.01)
    assert last["fitted"]["text_to_image"]["agreement"] == 100.0
    with Image.open(drawn) as picture:
        assert picture.format == "PNG" and min(picture.size) > 900
        colours = {colour for _, colour in picture.convert("RGB").getcolors(2**24) or []}
        # Two that also differ in grey.
        assert {(0x00, 0x45, 0x7C), (0xD5, 0x5E, 0x00)} <= colours


def test_people_get_tables_of_the_same_numbers(
    words: list[object], index_folder: Path, with_index: dict[str, Any], tmp_path: Path
) -> None:
    index, file = shutil.copytree(index_folder, tmp_path / "index"), tmp_path / "curve.json"
    shown = aladin(*words, "--index", index, "--curve", file, "--curve-candidates", "2,4").stdout
    points = json.loads(file.read_text())["points"]
    for ours, before in zip(points, with_index["curve"]["points"], strict=True):
        assert (ours["fitted"], ours["papers"]) == (before["fitted"], before["papers"])
    gains = [points[1][rule]["rsum_gain"] for rule in ("fitted", "papers")]
    ranks = [with_index[name]["cross_rank"]["mean"] for name in HEADS]
    for words_of_it in (
        *(f"{each['value']:+.1f} ({each['low']:+.1f}, {each['high']:+.1f})" for each in gains),
        *(f"mean {rank:.1f}" for rank in ranks),
        *(f"{with_index[name]['mean_difference']:.3f}" for name in HEADS),
        *("R@1", "split all", f"{with_index['alignment']['rsum']:.1f}"),
        *("two_stage minus matching: ", "text to image 100.0 %"),
    ):
        assert words_of_it in shown
    assert max(map(len, shown.splitlines())) <= 132


def test_folds_are_blocks_of_photos_evaluated_beside_the_whole(
    tiny_checkpoint: Path, data_file: Path, words: list[object], tmp_path: Path
) -> None:
    folder = Path(shutil.copytree(data_file.parent, tmp_path / "data"))
    lines, alone = data_file.read_text().splitlines(), list[dict[str, Any]]()
    for block in (lines[:3], lines[3:]):
        file = write_lines(folder / "block.jsonl", *block)
        alone.append(aladin_json("evaluate", tiny_checkpoint, file, "--split", "all"))
    whole, both = aladin_json(*words), aladin_json(*words, "--folds", 2)
    folded = both.pop("folded")
    assert both == whole == aladin_json(*words, "--folds", 1)
    assert folded.pop("folds") == 2
    assert list(folded) == list(whole) == [*HEADS, "fused"]
    for name, metrics in folded.items():
        mean = (alone[0][name]["rsum"] + alone[1][name]["rsum"]) / 2
        assert metrics["rsum"] == pytest.approx(mean, abs=0.01)
    shown = aladin(*words, "--folds", 2).stdout
    assert "fused, 2 folds" in shown and f"{folded['fused']['rsum']:.1f}" in shown


def test_a_photo_without_captions_competes_but_does_not_ask(
    tiny_checkpoint: Path, data_file: Path, tmp_path: Path
) -> None:
    folder = Path(shutil.copytree(data_file.parent, tmp_path / "data"))
    lines = [json.loads(line) for line in data_file.read_text().splitlines()]
    lines[0]["captions"] = []
    lines[1]["captions"] = lines[1]["captions"][:1]
    file = write_lines(folder / "uneven.jsonl", *lines)
    captioned = write_lines(folder / "captioned.jsonl", *lines[1:])
    index, split = tmp_path / "index", ["--split", "all"]
    build_index(tiny_checkpoint, index, image_items(file, None), text_items(captioned, None))
    data = aladin_json("evaluate", tiny_checkpoint, file, *split, "--index", index)
    # As served or exhaustive: of six photos and nine texts, five photos ask.
    assert data["two_stage"] == data["fused"]
    for system in ("matching", "two_stage"):
        assert data[system]["image_to_text"]["r10"] == 100.0
        asking_hits = data[system]["image_to_text"]["r1"] / 100 * 5
        assert asking_hits == pytest.approx(round(asking_hits), abs=1e-3)
    more = {"image": "photo-0.png", "id": "another", "captions": ["a dog"]}
    file = write_lines(folder / "more.jsonl", more, *lines)
    refused = aladin("evaluate", tiny_checkpoint, file, *split, "--index", index, code=2)
    assert "1 of the images" in refused.stderr
