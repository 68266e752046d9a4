"""``--regions`` wherever a data set goes in: photos that are not there, only their regions."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from typer.testing import CliRunner

from aladin_network.checkpoint import save_checkpoint
from aladin_network.config import ImageEncoderConfig
from aladin_network.model import AladinModel
from aladin_service.cli import app

COUNT = 24


def run(*words: object, code: int = 0) -> str:
    done = CliRunner().invoke(app, [str(word) for word in words])
    assert done.exit_code == code, done.output
    return done.stdout if code == 0 else done.stderr


def base64_of(values: np.ndarray) -> str:
    return base64.b64encode(values.astype("<f4").tobytes()).decode()


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Captions of photos of which only regions exist: two to three each, in VinVL's tables."""
    folder = tmp_path_factory.mktemp("regions")
    rng = np.random.default_rng(2)
    words = ("red", "dog", "man", "street", "star", "grass", "blue", "circle")
    lines: list[str] = []
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
        captions = [" ".join(rng.choice(words, size=length)) for length in (3, 5)]
        split = "test" if number < COUNT - 2 else "new"
        line = {"image": f"p{number}.jpg", "captions": captions, "split": split}
        lines.append(json.dumps(line) + "\n")
    (folder / "captions.jsonl").write_text("".join(lines))
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
    run("index", "build", "--model", checkpoint, *sources, *options, "--out", out)
    return out


def test_an_index_of_regions_is_built_searched_and_added_to(
    data: Path, index: Path, options: list[object]
) -> None:
    answer = json.loads(run("search", index, "red dog", "--explain", "--json", "-k", COUNT))
    assert {hit["id"] for hit in answer["hits"]} == {f"p{n}.jpg" for n in range(COUNT - 2)}
    for hit in answer["hits"]:
        number = int(hit["id"].removeprefix("p").removesuffix(".jpg"))
        assert hit["evidence"]
        for evidence in hit["evidence"]:
            expected = np.array([10, 20, 30, 40]) + evidence["region"] + number
            box = np.array(evidence["box"]) * [100, 200, 100, 200]
            np.testing.assert_allclose(box, expected, atol=0.1)
    captions = data / "captions.jsonl"
    says = run("index", "add", index, "--images", captions, "--split", "new", *options)
    assert says == f"{index}: images: 2 added, 0 replaced, 0 already there, 0 skipped\n"
    answer = json.loads(run("search", index, "red dog", "--json", "-k", COUNT + 1))
    assert len(answer["hits"]) == COUNT


def test_evaluating_mining_and_tuning(
    data: Path, checkpoint: Path, index: Path, options: list[object], tmp_path: Path
) -> None:
    captions = data / "captions.jsonl"
    answer = json.loads(run("evaluate", checkpoint, captions, "--index", index, *options, "--json"))
    assert answer["two_stage"]["rsum"] >= 0
    negatives = tmp_path / "negatives.safetensors"
    words = ["--split", "test", "--texts", 3, "--images", 2, "--cache", tmp_path / "cache"]
    run("mine", checkpoint, captions, "--out", negatives, *words, *options)
    assert negatives.is_file()
    words = ["--queries", captions, "--num-queries", 8, "--at", 2]
    assert "images" in json.loads(run("index", "tune", index, *words, *options, "--json"))


@pytest.mark.parametrize(
    "words",
    [
        ["evaluate", "CHECKPOINT", "DATA"],
        ["calibrate", "CHECKPOINT", "DATA", "--split", "test"],
        ["mine", "CHECKPOINT", "DATA", "--split", "test", "--out", "OUT"],
        ["index", "build", "--model", "CHECKPOINT", "--images", "DATA", "--out", "OUT"],
        ["index", "add", "INDEX", "--images", "DATA", "--on-duplicate", "replace"],
        ["index", "tune", "INDEX", "--queries", "DATA"],
    ],
)
def test_regions_that_are_missing(
    data: Path,
    checkpoint: Path,
    index: Path,
    tmp_path: Path,
    words: list[str],
) -> None:
    some = tmp_path / "some.tsv"
    some.write_text("".join((data / "regions.tsv").read_text().splitlines(keepends=True)[:4]))
    paths = {
        "CHECKPOINT": checkpoint,
        "DATA": data / "captions.jsonl",
        "INDEX": index,
        "OUT": tmp_path / "out",
    }
    command = [paths.get(word, word) for word in words]
    says = run(*command, "--regions", some, code=2)
    assert "photos have no regions: 'p4.jpg', 'p5.jpg', 'p6.jpg', ...; looked for" in says
    assert not (tmp_path / "out").exists()
    says = run(*command, "--region-labels", data / "labels.json", code=2)
    assert "--region-labels: expected also --regions, which they belong to" in says
    assert "regions" in run(*command, code=2)


def test_a_network_of_photos_has_no_use_for_regions(
    data: Path, tiny_checkpoint: Path, options: list[object]
) -> None:
    says = run("evaluate", tiny_checkpoint, data / "captions.jsonl", *options, code=2)
    assert "this network reads photos, not regions" in says


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
    lines: list[str] = []
    for number in range(2):
        Image.new("RGB", (6, 4), (100 * number, 50, 7)).save(tmp_path / f"{number}.png")
        lines.append(json.dumps({"image": f"{number}.png", "captions": ["a dog"]}) + "\n")
    photos, out = tmp_path / "photos.jsonl", tmp_path / "regions"
    photos.write_text("".join(lines))
    detector = ["--detector", "colours:make"]
    for counts in ("2 written, 0 were there", "0 written, 2 were there"):
        says = run("regions", "extract", photos, *detector, "--out", out)
        assert says == f"{out}: {counts}, 0 skipped\n"

    asked = ["search", index, "--explain", "--json", "--regions", out / "1.png.npz"]
    by_regions = json.loads(run(*asked))["hits"]
    boxes = [[0, 0, 0.5, 0.5], [0.25, 0, 1, 0.75]]
    assert by_regions
    for hit in by_regions:
        for evidence in hit["evidence"]:
            np.testing.assert_allclose(evidence["box"], boxes[evidence["region"]], atol=1e-3)
    asked = ["search", index, "--explain", "--json", "--image", tmp_path / "1.png"]
    by_photo = json.loads(run(*asked, *detector))["hits"]
    assert [hit["id"] for hit in by_photo] == [hit["id"] for hit in by_regions]
    assert by_photo[0]["evidence"] == by_regions[0]["evidence"]

    built = tmp_path / "index"
    run("index", "build", "--model", checkpoint, "--images", photos, *detector, "--out", built)
    for hit in json.loads(run("search", built, "a dog", "--explain", "--json"))["hits"]:
        for evidence in hit["evidence"]:
            np.testing.assert_allclose(evidence["box"], boxes[evidence["region"]], atol=1e-3)
