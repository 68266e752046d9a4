"""``--regions`` wherever a data set goes in: photos that are not there, only their regions."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from aladin_network.checkpoint import save_checkpoint
from aladin_network.config import ImageEncoderConfig
from aladin_network.model import AladinModel
from tests.service.commands.conftest import WORDS, aladin, aladin_json, write_lines

COUNT = 24


def base64_of(values: np.ndarray) -> str:
    return base64.b64encode(values.astype("<f4").tobytes()).decode()


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Captions of photos of which only regions exist: two to three each, in VinVL's tables."""
    folder = tmp_path_factory.mktemp("regions")
    rng = np.random.default_rng(2)
    lines: list[object] = []
    features: list[str] = []
    labels: dict[str, object] = {}
    for number in range(COUNT):
        regions = 2 + number % 2
        boxes = [10, 20, 30, 40] + np.arange(regions)[:, None] + number
        features.append(f"{number}\t{regions}\t{base64_of(rng.normal(size=(regions, 4)))}\n")
        labels[str(number)] = {
            "class": ["dog"] * regions,
            "boxes": boxes.tolist(),
            "image_w": 100,
            "image_h": 200,
        }
        captions = [" ".join(rng.choice(WORDS, size=length)) for length in (3, 5)]
        split = "test" if number < COUNT - 2 else "new"
        line = {"image": f"p{number}.jpg", "captions": captions, "split": split}
        lines.append(line)
    write_lines(folder / "captions.jsonl", *lines)
    (folder / "regions.tsv").write_text("".join(features))
    (folder / "labels.json").write_text(json.dumps(labels))
    return folder


@pytest.fixture(scope="module")
def checkpoint(
    build_tiny: Callable[..., AladinModel], tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """A network of regions of ten numbers: four of the appearance, six of the place."""
    encoder = ImageEncoderConfig(name="regions", architecture={"region_dim": 10})
    folder = tmp_path_factory.mktemp("network") / "checkpoint"
    save_checkpoint(folder, build_tiny(image_encoder=encoder))
    return folder


@pytest.fixture(scope="module")
def options(data: Path) -> list[object]:
    return ["--regions", data / "regions.tsv", "--region-labels", data / "labels.json"]


@pytest.fixture(scope="module")
def index(
    data: Path, checkpoint: Path, options: list[object], tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """An index of the photos of the split "test" and of their captions."""
    out = tmp_path_factory.mktemp("index") / "index"
    captions = data / "captions.jsonl"
    sources = ["--images", captions, "--texts", captions, "--split", "test"]
    aladin("index", "build", "--model", checkpoint, *sources, *options, "--out", out)
    return out


def boxes_of(hits: list[dict[str, Any]]) -> list[list[tuple[int, list[float]]]]:
    return [[(each["region"], each["box"]) for each in hit["evidence"]] for hit in hits]


def test_an_index_of_regions_is_built_searched_and_added_to(
    data: Path, index: Path, options: list[object]
) -> None:
    hits = aladin_json("search", index, "red dog", "--explain", "-k", COUNT)["hits"]
    assert {hit["id"] for hit in hits} == {f"p{n}.jpg" for n in range(COUNT - 2)}
    for hit, evidence in zip(hits, boxes_of(hits), strict=True):
        number = int(hit["id"].removeprefix("p").removesuffix(".jpg"))
        for region, box in evidence:
            expected = np.array([10, 20, 30, 40]) + region + number
            assert np.allclose(np.array(box) * [100, 200, 100, 200], expected, atol=0.1)
    more = ["--images", data / "captions.jsonl", "--split", "new", *options]
    says = aladin("index", "add", index, *more).stdout
    assert says == f"{index}: images: 2 added, 0 replaced, 0 already there, 0 skipped\n"
    assert len(aladin_json("search", index, "red dog", "-k", COUNT + 1)["hits"]) == COUNT


def test_evaluating_mining_and_tuning(
    data: Path, checkpoint: Path, index: Path, options: list[object], tmp_path: Path
) -> None:
    captions = data / "captions.jsonl"
    answer = aladin_json("evaluate", checkpoint, captions, "--index", index, *options)
    assert answer["two_stage"]["rsum"] >= 0
    negatives = tmp_path / "negatives.safetensors"
    words = ["--split", "test", "--texts", 3, "--images", 2, "--cache", tmp_path / "cache"]
    aladin("mine", checkpoint, captions, "--out", negatives, *words, *options)
    assert negatives.is_file()
    words = ["--queries", captions, "--num-queries", 8, "--at", 2]
    assert "images" in aladin_json("index", "tune", index, *words, *options)


@pytest.mark.parametrize(
    "line",
    [
        "evaluate CHECKPOINT DATA",
        "calibrate CHECKPOINT DATA --split test",
        "mine CHECKPOINT DATA --split test --out OUT",
        "index build --model CHECKPOINT --images DATA --out OUT",
        "index add INDEX --images DATA --on-duplicate replace",
        "index tune INDEX --queries DATA",
    ],
)
def test_regions_that_are_missing_are_refused(
    data: Path, checkpoint: Path, index: Path, tmp_path: Path, line: str
) -> None:
    some, out = tmp_path / "some.tsv", tmp_path / "out"
    some.write_text("".join((data / "regions.tsv").read_text().splitlines(keepends=True)[:4]))
    captions = data / "captions.jsonl"
    paths = {"CHECKPOINT": checkpoint, "DATA": captions, "INDEX": index, "OUT": out}
    command = [paths.get(word, word) for word in line.split()]
    for more, says in (
        (["--regions", some], "photos have no regions: 'p4.jpg', 'p5.jpg', 'p6.jpg', ...; looked"),
        (["--region-labels", data / "labels.json"], "--region-labels: expected also --regions"),
        ([], "regions"),
    ):
        assert says in aladin(*command, *more, code=2).stderr
        assert not out.exists()


def test_a_network_of_photos_has_no_use_for_regions(
    data: Path, tiny_checkpoint: Path, options: list[object]
) -> None:
    words = ["evaluate", tiny_checkpoint, data / "captions.jsonl", *options]
    assert "this network reads photos, not regions" in aladin(*words, code=2).stderr


DETECTOR = """
import numpy as np
from aladin_network.photos.regions import RegionSet, with_geometry

BOXES = np.array([[0, 0, 0.5, 0.5], [0.25, 0, 1, 0.75]], np.float32)


class Colours:
    id, dim = "colours", 10

    def detect(self, photo):
        colours = np.asarray(photo)[0, :2].astype(np.float32)
        appearance = np.concatenate([colours, np.ones((2, 1), np.float32)], axis=1) / 255
        return RegionSet(with_geometry(appearance, BOXES), BOXES, (), photo.size, self.id)


def make(source, options, device):
    return Colours()
"""


def test_a_detector_of_the_user_s_own(
    checkpoint: Path, index: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "colours.py").write_text(DETECTOR)
    monkeypatch.syspath_prepend(tmp_path)
    for number in range(2):
        Image.new("RGB", (6, 4), (100 * number, 50, 7)).save(tmp_path / f"{number}.png")
    lines = [{"image": f"{number}.png", "captions": ["a dog"]} for number in range(2)]
    photos, out = write_lines(tmp_path / "photos.jsonl", *lines), tmp_path / "regions"
    detector = ["--detector", "colours:make"]
    for counts in ("2 written, 0 were there", "0 written, 2 were there"):
        says = aladin("regions", "extract", photos, *detector, "--out", out).stdout
        assert says == f"{out}: {counts}, 0 skipped\n"
    built, search = tmp_path / "index", ["search", index, "--explain"]
    aladin("index", "build", "--model", checkpoint, "--images", photos, *detector, "--out", built)
    by_regions = aladin_json(*search, "--regions", out / "1.png.npz")["hits"]
    by_photo = aladin_json(*search, "--image", tmp_path / "1.png", *detector)["hits"]
    assert [hit["id"] for hit in by_photo] == [hit["id"] for hit in by_regions] != []
    assert by_photo[0]["evidence"] == by_regions[0]["evidence"]
    boxes = [[0, 0, 0.5, 0.5], [0.25, 0, 1, 0.75]]
    of_text = aladin_json("search", built, "a dog", "--explain")["hits"]
    for evidence in boxes_of([*by_regions, *of_text]):
        assert all(np.allclose(box, boxes[region], atol=1e-3) for region, box in evidence)
