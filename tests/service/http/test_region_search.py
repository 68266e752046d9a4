"""From a table of regions and captions to an index, and over HTTP to answers with boxes."""

from __future__ import annotations

import io
import shutil
from collections.abc import AsyncGenerator, Callable
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from PIL import Image

from aladin_network.detectors.base import load_detector
from aladin_network.inference import encode_images, encode_texts
from aladin_network.model import AladinModel
from aladin_network.photos.region_files import write_region_npz
from aladin_network.photos.regions import RegionSet
from tests.service.http.conftest import Encoded, Service, b64, told
from tests.service.region_world import (
    DIM,
    HEIGHT,
    WIDTH,
    World,
    build_world,
    random_regions,
    region_model,
    save_detector,
)

pytestmark = pytest.mark.anyio


@pytest.fixture(scope="module")
def world(
    build_tiny: Callable[..., AladinModel],
    captions: list[tuple[str, str]],
    tmp_path_factory: pytest.TempPathFactory,
) -> World:
    """Photos that are not there, of which VinVL's tables have regions and labels."""
    return build_world(tmp_path_factory.mktemp("world"), region_model(build_tiny), captions)


@pytest.fixture(scope="module")
def detector_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A random detector, whose vectors are as long as those of the index's regions."""
    folder = tmp_path_factory.mktemp("detr")
    save_detector(folder)
    return folder


@pytest.fixture(scope="module")
async def of_regions(world: World, service: Service) -> AsyncGenerator[httpx.AsyncClient]:
    """The service of the index; it has no detector."""
    async with service(world.index) as opened:
        yield opened


def npz(regions: RegionSet, folder: Path) -> bytes:
    path = folder / "regions.npz"
    write_region_npz(path, regions)
    return path.read_bytes()


def align(model: AladinModel, text: str, regions: RegionSet) -> float:
    """ALADIN's eq 2 by loops: each word takes its best region."""
    words = encode_texts(model, [text]).item_tokens(0)
    tokens = encode_images(model, [model.image.encoder.preprocess(regions)]).item_tokens(0)
    return sum(max(float(word @ region) for region in tokens) for word in words)


def check_hits(
    world: World, answer: httpx.Response, pair: Callable[[str], tuple[str, RegionSet]]
) -> None:
    """Compare scores with the model's, and boxes with the photo's own.

    `pair` leads from a hit's id to the text and the regions that were compared.
    """
    assert answer.status_code == 200, answer.text
    assert answer.json()["hits"]
    for hit in answer.json()["hits"]:
        text, regions = pair(hit["id"])
        score = hit["stages"]["align"]["score"]
        # Tokens and boxes of the index are kept in 16 bits.
        assert score == pytest.approx(align(world.model, text, regions), abs=5e-3)
        assert sum(entry["score"] for entry in hit["evidence"]) == pytest.approx(score, abs=1e-4)
        assert hit["evidence"]
        assert regions.boxes is not None
        for entry in hit["evidence"]:
            assert text[entry["start"] : entry["end"]] == entry["token"]
            np.testing.assert_allclose(entry["box"], regions.boxes[entry["region"]], atol=1e-3)


async def test_texts_photos_and_regions_find_with_boxes(
    of_regions: httpx.AsyncClient, world: World, tmp_path: Path
) -> None:
    text, regions = "two dogs run on the green grass", random_regions(50, 4)
    data = npz(regions, tmp_path)
    asked: tuple[tuple[str, dict[str, Any], Callable[[str], tuple[str, RegionSet]]], ...] = (
        ("images", {"text": text}, lambda found: (text, world.photos[found])),
        ("texts", {"id": "photo-4"}, lambda found: (world.texts[found], world.photos["photo-4"])),
        ("texts", {"regions": b64(data)}, lambda found: (world.texts[found], regions)),
    )
    for target, body, pair in asked:
        body |= {"explain": True, "k": 12}
        check_hits(world, await of_regions.post(f"/v1/search/{target}", json=body), pair)
    its_own = b64(npz(world.photos["photo-2"], tmp_path))
    queries = [{"regions": each, "target": "images", "k": 1} for each in (its_own, "?")]
    batch = await of_regions.post("/v1/search/batch", json={"queries": queries})
    found, failed = batch.json()["answers"]
    assert (found["hits"][0]["id"], failed["status"]) == ("photo-2", 422)
    form = {"files": {"regions": ("r.npz", data)}, "data": {"explain": "true"}}
    found = await of_regions.post("/v1/search/texts", **form)
    check_hits(world, found, lambda item_id: (world.texts[item_id], regions))


async def test_a_detector_finds_the_regions_of_a_photo(
    world: World, service: Service, detector_folder: Path, photo: bytes, query_photo: Image.Image
) -> None:
    named = f"objects={detector_folder},min_regions=4,max_regions=4"
    regions = load_detector(named).detect(query_photo)
    assert regions.vectors.shape == (4, DIM)
    async with service(world.index, detector=named) as client:
        form = {"files": {"image": photo}, "data": {"explain": "true"}}
        answer = await client.post("/v1/search/texts", **form)
        check_hits(world, answer, lambda item_id: (world.texts[item_id], regions))
        again = await client.post("/v1/search/texts", **form)
        assert again.json()["hits"] == answer.json()["hits"]  # the boxes are remembered, too
        drawn = await client.post(
            "/v1/explain.png", files={"image": photo}, data={"id": "photo-0#0"}
        )
        assert drawn.headers["content-type"] == "image/png"


async def test_evidence_is_drawn_without_a_photo(
    of_regions: httpx.AsyncClient, tmp_path: Path, encoded: Encoded
) -> None:
    stored = await of_regions.get("/v1/explain.png", params={"id": "photo-3", "text": "a red dog"})
    assert stored.status_code == 200
    files = {"regions": npz(random_regions(51, 3), tmp_path)}
    red = files | {"image": encoded(Image.new("RGB", (WIDTH, HEIGHT), (255, 0, 0)))}
    reds: list[int] = []
    for sent in (files, red):
        drawn = await of_regions.post("/v1/explain.png", files=sent, data={"id": "photo-0#0"})
        picture = np.asarray(Image.open(io.BytesIO(drawn.content)).convert("RGB"))
        reds.append(int((picture == (255, 0, 0)).all(axis=2).sum()))
    assert reds[0] == 0 < reds[1]


async def test_items_are_added_by_their_regions(
    world: World, service: Service, tmp_path: Path, encoded: Encoded
) -> None:
    index = Path(shutil.copytree(world.index, tmp_path / "index"))
    regions = random_regions(52, 3)
    data, photo = npz(regions, tmp_path), encoded(Image.new("RGB", (30, 20)))
    async with service(index) as client:
        for name, files in (
            ("bare", {"regions": data}),
            ("both", {"regions": data, "image": photo}),
        ):
            added = await client.post("/v1/items/images", files=files, data={"id": name})
            assert added.status_code == 201, added.text
        body = {"text": "a red dog", "explain": True, "k": 8}
        answer = await client.post("/v1/search/images", json=body)
        every = world.photos | {"bare": regions, "both": regions}
        check_hits(world, answer, lambda item_id: ("a red dog", every[item_id]))
        assert {"bare", "both"} <= {hit["id"] for hit in answer.json()["hits"]}
        assert (await client.get("/v1/images/bare")).status_code == 404
        assert (await client.get("/v1/images/both")).content == photo
        alone = await client.post("/v1/items/images", files={"image": photo}, data={"id": "none"})
        assert told(alone)[:2] == (422, "regions_needed")


async def test_regions_and_photos_are_remembered_apart(
    of_regions: httpx.AsyncClient, tmp_path: Path, encoded: Encoded
) -> None:
    data = npz(random_regions(55, 2), tmp_path)
    for sent in (data, data):
        found = await of_regions.post("/v1/search/texts", files={"regions": sent})
        assert found.status_code == 200
    # The bytes that were good as regions are no photo, and nothing is drawn on a damaged one.
    photo = await of_regions.post("/v1/search/texts", files={"image": data})
    assert photo.status_code == 422
    files = {"regions": data, "image": encoded(Image.new("RGB", (9, 9)))[:40]}
    drawn = await of_regions.post("/v1/explain.png", files=files, data={"id": "photo-0#0"})
    assert told(drawn)[:2] == (415, "not_an_image")


def zipped(**arrays: Any) -> bytes:
    target = io.BytesIO()
    np.savez_compressed(target, **arrays)
    return target.getvalue()


@pytest.mark.parametrize(
    ("data", "status", "words"),
    [
        (b"PK\x03\x04 nothing", 422, "cannot be read as an npz file"),
        (
            zipped(vectors=np.ones((2, DIM - 1), np.float32)),
            422,
            f"expected {DIM} numbers a region",
        ),
        (zipped(vectors=np.ones((101, DIM), np.float32)), 422, "at most 100 regions, got 101"),
        (bytes(8 * 2**20 + 1), 413, "expected at most 8388608 bytes, got 8388609"),
        (zipped(vectors=np.zeros(2**24, np.uint8)), 413, "at most 8388608 bytes unpacked"),
    ],
)
async def test_hostile_regions_are_refused(
    of_regions: httpx.AsyncClient, data: bytes, status: int, words: str
) -> None:
    code = "invalid_regions" if status == 422 else "regions_too_large"
    refused = await of_regions.post("/v1/search/texts", files={"regions": ("r.npz", data)})
    assert told(refused)[:2] == (status, code)
    assert words in told(refused)[2]


async def test_an_index_takes_what_its_model_reads(
    client: httpx.AsyncClient, of_regions: httpx.AsyncClient, photo: bytes, tmp_path: Path
) -> None:
    files = {"regions": npz(random_regions(54, 2), tmp_path)}
    regions = await client.post("/v1/search/texts", files=files)
    assert (regions.status_code, "reads photos" in told(regions)[2]) == (422, True)
    without_detector = await of_regions.post("/v1/search/texts", files={"image": photo})
    assert told(without_detector)[:2] == (422, "regions_needed")
