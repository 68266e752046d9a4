"""From a table of regions and captions to an index, and over HTTP to answers with boxes."""

from __future__ import annotations

import base64
import io
import pickle
import shutil
import zipfile
from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from PIL import Image

from aladin_index.encode.region_sources import check_detector
from aladin_network.detectors.base import load_detector
from aladin_network.errors import ConfigError
from aladin_network.inference import encode_images, encode_texts
from aladin_network.model import AladinModel
from aladin_network.photos.region_files import write_region_npz
from aladin_network.photos.regions import RegionSet
from aladin_network.scoring.encoding import Encoding
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

# Tokens and boxes of the index are kept in 16 bits.
CLOSE = 5e-3
Service = Callable[..., AbstractAsyncContextManager[httpx.AsyncClient]]


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


@pytest.fixture
async def client(world: World, service: Service) -> AsyncGenerator[httpx.AsyncClient]:
    """The service of the index; it has no detector."""
    async with service(world.index) as opened:
        yield opened


def npz(regions: RegionSet, folder: Path) -> bytes:
    path = folder / "regions.npz"
    write_region_npz(path, regions)
    return path.read_bytes()


def encoded_photo(model: AladinModel, regions: RegionSet) -> Encoding:
    return encode_images(model, [model.image.encoder.preprocess(regions)])


def align(model: AladinModel, text: str, regions: RegionSet) -> float:
    """ALADIN's eq 2 by loops: each word takes its best region."""
    words = encode_texts(model, [text]).item_tokens(0)
    tokens = encoded_photo(model, regions).item_tokens(0)
    return sum(max(float(word @ region) for region in tokens) for word in words)


def check_hits(
    world: World, hits: list[dict[str, Any]], pair: Callable[[str], tuple[str, RegionSet]]
) -> None:
    """Compare scores with the model's, and boxes with the photo's own.

    Args:
        world: of the index.
        hits: of an answer with evidence.
        pair: from a hit's id to the text and the regions that were compared.
    """
    assert hits
    for hit in hits:
        text, regions = pair(hit["id"])
        score = hit["stages"]["align"]["score"]
        assert score == pytest.approx(align(world.model, text, regions), abs=CLOSE)
        assert sum(entry["score"] for entry in hit["evidence"]) == pytest.approx(score, abs=1e-4)
        assert hit["evidence"]
        assert regions.boxes is not None
        for entry in hit["evidence"]:
            assert text[entry["start"] : entry["end"]] == entry["token"]
            np.testing.assert_allclose(entry["box"], regions.boxes[entry["region"]], atol=1e-3)


async def test_a_text_finds_photos_with_their_boxes(
    client: httpx.AsyncClient, world: World
) -> None:
    text = "two dogs run on the green grass"
    body = {"text": text, "explain": True, "k": 6}
    answer = await client.post("/v1/search/images", json=body)
    assert answer.status_code == 200
    hits = answer.json()["hits"]
    assert {hit["id"] for hit in hits} == set(world.photos)
    check_hits(world, hits, lambda item_id: (text, world.photos[item_id]))


async def test_a_photo_of_the_index_finds_texts_with_its_boxes(
    client: httpx.AsyncClient, world: World
) -> None:
    body = {"id": "photo-4", "explain": True, "k": 12}
    answer = await client.post("/v1/search/texts", json=body)
    assert answer.status_code == 200
    check_hits(
        world,
        answer.json()["hits"],
        lambda item_id: (world.texts[item_id], world.photos["photo-4"]),
    )


@pytest.mark.parametrize("form", [True, False])
async def test_ready_made_regions_find_texts(
    client: httpx.AsyncClient, world: World, tmp_path: Path, form: bool
) -> None:
    regions = random_regions(50, 4)
    data = npz(regions, tmp_path)
    if form:
        files = {"regions": ("r.npz", data)}
        answer = await client.post("/v1/search/texts", files=files, data={"explain": "true"})
    else:
        body = {"regions": base64.b64encode(data).decode(), "explain": True}
        answer = await client.post("/v1/search/texts", json=body)
    assert answer.status_code == 200, answer.text
    check_hits(world, answer.json()["hits"], lambda item_id: (world.texts[item_id], regions))


async def test_regions_in_a_batch_and_for_photos(
    client: httpx.AsyncClient, world: World, tmp_path: Path
) -> None:
    data = base64.b64encode(npz(world.photos["photo-2"], tmp_path)).decode()
    queries = [{"regions": data, "target": "images", "k": 1}, {"regions": "?", "target": "images"}]
    answer = await client.post("/v1/search/batch", json={"queries": queries})
    found, failed = answer.json()["answers"]
    assert found["hits"][0]["id"] == "photo-2"
    assert failed["status"] == 422


async def test_a_photo_needs_a_detector(
    client: httpx.AsyncClient, encoded: Callable[..., bytes], query_photo: Image.Image
) -> None:
    files = {"image": encoded(query_photo)}
    answer = await client.post("/v1/search/texts", files=files)
    error = answer.json()["error"]
    assert (answer.status_code, error["code"]) == (422, "regions_needed")
    assert "send the regions" in error["message"]


async def test_a_detector_finds_the_regions_of_a_photo(
    world: World,
    service: Service,
    detector_folder: Path,
    encoded: Callable[..., bytes],
    query_photo: Image.Image,
) -> None:
    named = f"objects={detector_folder},min_regions=4,max_regions=4"
    regions = load_detector(named).detect(query_photo)
    assert regions.vectors.shape == (4, DIM)
    async with service(world.index, detector=named) as client:
        files = {"image": encoded(query_photo)}
        answer = await client.post("/v1/search/texts", files=files, data={"explain": "true"})
        assert answer.status_code == 200, answer.text
        check_hits(world, answer.json()["hits"], lambda item_id: (world.texts[item_id], regions))
        again = await client.post("/v1/search/texts", files=files, data={"explain": "true"})
        assert again.json()["hits"] == answer.json()["hits"]  # the boxes are remembered, too
        drawn = await client.post("/v1/explain.png", files=files, data={"id": "photo-0#0"})
        assert drawn.headers["content-type"] == "image/png"


async def test_evidence_is_drawn_without_a_photo(
    client: httpx.AsyncClient, tmp_path: Path, encoded: Callable[..., bytes]
) -> None:
    drawn = await client.get("/v1/explain.png", params={"id": "photo-3", "text": "a red dog"})
    assert drawn.status_code == 200
    files = {"regions": npz(random_regions(51, 3), tmp_path)}
    bare = await client.post("/v1/explain.png", files=files, data={"id": "photo-0#0"})
    red = files | {"image": encoded(Image.new("RGB", (WIDTH, HEIGHT), (255, 0, 0)))}
    shown = await client.post("/v1/explain.png", files=red, data={"id": "photo-0#0"})
    pictures = [
        np.asarray(Image.open(io.BytesIO(each.content)).convert("RGB")) for each in (bare, shown)
    ]
    reds = [int((picture == (255, 0, 0)).all(axis=2).sum()) for picture in pictures]
    assert reds[0] == 0 < reds[1]


async def test_items_are_added_by_their_regions(
    world: World, service: Service, tmp_path: Path, encoded: Callable[..., bytes]
) -> None:
    index = tmp_path / "index"
    shutil.copytree(world.index, index)
    regions = random_regions(52, 3)
    data = npz(regions, tmp_path)
    photo = encoded(Image.new("RGB", (30, 20)))
    async with service(index) as client:
        bare = await client.post("/v1/items/images", files={"regions": data}, data={"id": "bare"})
        assert bare.status_code == 201, bare.text
        files = {"regions": data, "image": photo}
        both = await client.post("/v1/items/images", files=files, data={"id": "both"})
        assert both.status_code == 201, both.text
        body = {"text": "a red dog", "explain": True, "k": 8}
        answer = await client.post("/v1/search/images", json=body)
        own = {hit["id"]: hit for hit in answer.json()["hits"]}
        check_hits(world, [own["bare"], own["both"]], lambda _: ("a red dog", regions))
        assert (await client.get("/v1/images/bare")).status_code == 404
        assert (await client.get("/v1/images/both")).content == photo
        alone = await client.post("/v1/items/images", files={"image": photo}, data={"id": "none"})
        assert (alone.status_code, alone.json()["error"]["code"]) == (422, "regions_needed")


def zipped(**arrays: Any) -> bytes:
    target = io.BytesIO()
    np.savez(target, **arrays)
    return target.getvalue()


def bomb() -> bytes:
    target = io.BytesIO()
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr("vectors.npy", bytes(2**24))
    return target.getvalue()


async def test_regions_and_photos_are_remembered_apart(
    client: httpx.AsyncClient, tmp_path: Path, encoded: Callable[..., bytes]
) -> None:
    data = npz(random_regions(55, 2), tmp_path)
    for sent in (data, data):
        found = await client.post("/v1/search/texts", files={"regions": sent})
        assert found.status_code == 200
    # The bytes that were good as regions are no photo, and nothing is drawn on a damaged one.
    photo = await client.post("/v1/search/texts", files={"image": data})
    assert photo.status_code == 422
    files = {"regions": data, "image": encoded(Image.new("RGB", (9, 9)))[:40]}
    drawn = await client.post("/v1/explain.png", files=files, data={"id": "photo-0#0"})
    assert (drawn.status_code, drawn.json()["error"]["code"]) == (415, "not_an_image")


VECTORS = np.ones((2, DIM), np.float32)
HOSTILE: dict[str, tuple[bytes, str]] = {
    "no zip": (b"PK\x03\x04 nothing", "cannot be read as an npz file"),
    "empty": (b"", "cannot be read as an npz file"),
    "pickle": (pickle.dumps({"vectors": [1]}), "cannot be read as an npz file"),
    "objects": (zipped(vectors=np.array([{}], dtype=object)), "expected numbers, got object"),
    "NaN": (zipped(vectors=VECTORS * np.nan), "expected finite numbers"),
    "huge": (zipped(vectors=VECTORS * np.float32(3e38)), "expected numbers up to 1e+09"),
    "other numbers": (zipped(vectors=VECTORS[:, :9]), f"expected {DIM} numbers a region"),
    "no regions": (zipped(vectors=VECTORS[:0]), "expected at least one region"),
    "too many": (zipped(vectors=np.ones((101, DIM), np.float32)), "expected at most 100 regions"),
    "box outside": (
        zipped(vectors=VECTORS, boxes=[[0, 0, 700, 9]] * 2, image_size=[640, 480]),
        "expected inside the photo",
    ),
    "box inverted": (zipped(vectors=VECTORS, boxes=[[0.5, 0, 0.1, 1]] * 2), "x0 <= x1"),
    "labels": (zipped(vectors=VECTORS, labels=["one"]), "labels: expected 2, got 1"),
}


@pytest.mark.parametrize("name", HOSTILE)
async def test_hostile_regions(client: httpx.AsyncClient, name: str) -> None:
    data, message = HOSTILE[name]
    answer = await client.post("/v1/search/texts", files={"regions": ("r.npz", data)})
    error = answer.json()["error"]
    assert (answer.status_code, error["code"]) == (422, "invalid_regions")
    assert message in error["message"]


async def test_regions_have_limits(world: World, service: Service, tmp_path: Path) -> None:
    many = npz(random_regions(53, 101), tmp_path)
    large = bytes(8 * 2**20 + 1)
    too_large = f"expected at most 8388608 bytes, got {len(large)}"
    for sent, expected, message in (
        (many, (422, "invalid_regions"), "expected at most 100 regions, got 101"),
        (large, (413, "regions_too_large"), too_large),
        (bomb(), (413, "regions_too_large"), "expected at most 8388608 bytes unpacked"),
    ):
        async with service(world.index) as client:
            answer = await client.post("/v1/search/texts", files={"regions": sent})
            error = answer.json()["error"]
            assert (answer.status_code, error["code"]) == expected
            assert message in error["message"]


async def test_an_index_of_photos_takes_no_regions(service: Service, tmp_path: Path) -> None:
    async with service() as client:
        data = npz(random_regions(54, 2), tmp_path)
        answer = await client.post("/v1/search/texts", files={"regions": data})
        assert answer.status_code == 422
        assert "this index's model reads photos" in answer.json()["error"]["message"]


def test_another_detector_is_refused(
    build_tiny: Callable[..., AladinModel], detector_folder: Path
) -> None:
    detector = load_detector(str(detector_folder))
    own = region_model(build_tiny, detector=detector.id).image.encoder
    other = region_model(build_tiny, detector="objects:another").image.encoder
    check_detector(own, detector)
    check_detector(other, None)
    with pytest.raises(ConfigError, match="expected objects:another, as the model was trained"):
        check_detector(other, detector)
    with pytest.raises(ConfigError, match="reads no regions, but photos"):
        check_detector(build_tiny().image.encoder, detector)
