"""An index of regions: what a detector found goes in, and its boxes come out with every answer."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest
import torch

from aladin_index.building.builder import build_index
from aladin_index.changes.item_changer import add_items
from aladin_index.changes.writer import ChangesWriter
from aladin_index.encode.source_items import ImageItem, TextItem
from aladin_index.exchange.exporter import export_index
from aladin_index.exchange.importer import import_index
from aladin_index.format.layout import ITEMS, generation_folder
from aladin_index.generations.compact import compact_index
from aladin_index.generations.merge import merge_indexes
from aladin_index.generations.reader import open_index
from aladin_index.items.tables import pack_boxes, unpack_boxes
from aladin_index.search.searcher import TwoStageSearcher
from aladin_index.settings import AddSettings, BuildSettings
from aladin_network.checkpoint import load_checkpoint, save_checkpoint
from aladin_network.config import (
    AlignmentHeadConfig,
    ImageEncoderConfig,
    MatchingHeadConfig,
    TextEncoderConfig,
    TowerConfig,
)
from aladin_network.errors import DataError, IndexMismatchError, IndexWriteError, InputError
from aladin_network.model import AladinModel
from aladin_network.photos.regions import RegionSet
from tests.index.searching import run_search
from tests.tensors import encode_images, encode_texts

PHOTOS, DIM, MOST = 9, 5, 4
SETTINGS = BuildSettings(shard_items=4, batch_size=2, token_dtype="float16")
TEXT = "two dogs run on the green grass"
Boxes = dict[str, list[tuple[float, float, float, float]]]


@dataclass(frozen=True)
class Regions:
    """The regions of some photos, in memory."""

    sets: dict[str, RegionSet]
    fingerprint: str = "of the first run"

    def read(self, key: str) -> RegionSet:
        """Return those of one photo."""
        if key not in self.sets:
            raise DataError("features.tsv", None, f"no regions of a photo {key!r}")
        return self.sets[key]


@pytest.fixture(scope="module")
def regions() -> Regions:
    """Photos of 1 to 6 regions, of which 4 are read; the last photo's have no boxes."""
    rng = np.random.default_rng(5)
    sets: dict[str, RegionSet] = {}
    for number in range(PHOTOS):
        count = number % 6 + 1
        corners = rng.random((count, 2, 2), dtype=np.float32)
        boxes = np.concatenate([corners.min(axis=1), corners.max(axis=1)], axis=1)
        sets[f"key {number}"] = RegionSet(
            rng.normal(size=(count, DIM)).astype(np.float32),
            boxes if number < PHOTOS - 1 else None,
            ("dog",) * count,
            (640, 480) if number % 2 else None,
        )
    return Regions(sets)


@pytest.fixture(scope="module")
def checkpoint(
    build_tiny: Callable[..., AladinModel], tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """The official code's options, with which an image has one region less and one of zeros."""
    bert = {
        "model_type": "bert",
        "hidden_size": 16,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
        "intermediate_size": 16,
        "max_position_embeddings": 32,
        "initializer_range": 0.5,
    }
    model = build_tiny(
        image_encoder=ImageEncoderConfig(
            name="regions",
            architecture={"region_dim": DIM, "max_regions": MOST, "max_label_tokens": 8},
        ),
        text_encoder=TextEncoderConfig(architecture=bert, max_tokens=32),
        image_tower=TowerConfig(trunk=None, aggregate="first_region"),
        text_tower=TowerConfig(trunk=None),
        alignment=AlignmentHeadConfig(dim=None, empty_fill="zero"),
        matching=MatchingHeadConfig(layers=1, heads=2),
    )
    folder = tmp_path_factory.mktemp("regions") / "checkpoint"
    save_checkpoint(folder, model)
    return folder


def items(numbers: range = range(PHOTOS)) -> list[ImageItem]:
    return [
        ImageItem(
            id=f"photo {number}",
            path=Path(f"/nowhere/{number}.jpg"),  # regions need no photo
            uri=f"{number}.jpg",
            regions_key=f"key {number}",
        )
        for number in numbers
    ]


TEXTS = [TextItem(id="a", text=TEXT), TextItem(id="b", text="a small red circle")]


@pytest.fixture(scope="module")
def built(checkpoint: Path, regions: Regions, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An index of all photos; not to be written to."""
    out = tmp_path_factory.mktemp("built") / "index"
    build_index(checkpoint, out, items(), TEXTS, SETTINGS, regions=regions)
    return out


@pytest.fixture(scope="module")
def model(checkpoint: Path) -> AladinModel:
    return load_checkpoint(checkpoint).model


def expected_boxes(regions: Regions, number: int) -> list[list[float]] | None:
    """The boxes that words can find: the first region is the CLS, the fifth is not read."""
    boxes = regions.sets[f"key {number}"].boxes
    return None if boxes is None else boxes[1:MOST].tolist()


def check_answers(index: Path, model: AladinModel, regions: Regions, count: int = PHOTOS) -> None:
    """Compare scores and evidence of a text query with the network's own."""
    with open_index(index) as opened, torch.inference_mode():
        query = encode_texts(model, [TEXT])
        result = run_search(
            TwoStageSearcher(opened),
            query.arrays(),
            "text",
            "images",
            k=PHOTOS,
            explain=True,
            text=TEXT,
        )
        assert len(result.hits) == count
        kinds: set[bool] = set()
        for hit in result.hits:
            number = int(hit.id.removeprefix("photo "))
            photo = regions.sets[f"key {number}"]
            image = encode_images(model, [model.image.encoder.preprocess(photo)])
            assert hit.stages.align is not None
            align = float(model.scores("alignment", image, query))
            assert hit.stages.align.score == pytest.approx(align, abs=2e-2)  # float16 tokens
            cosines = query.tokens[0] @ image.tokens[0].T
            assert hit.evidence is not None
            boxes = expected_boxes(regions, number)
            for word, entry in enumerate(hit.evidence):
                best = int(cosines[word].argmax())
                assert entry.region == best
                kinds.add(bool(cosines[word, best] == 0))
                if boxes is None or best == len(boxes):  # the region of zeros
                    assert entry.box is None
                else:
                    assert entry.box == pytest.approx(tuple(boxes[best]), abs=1e-5)
        assert kinds == {True, False}  # some words find a region, others nothing better than zeros


def build(checkpoint: Path, regions: Regions, out: Path) -> None:
    build_index(checkpoint, out, items(), TEXTS, SETTINGS, regions=regions)


def add(checkpoint: Path, regions: Regions, out: Path) -> None:
    build_index(checkpoint, out, items(range(5)), TEXTS, SETTINGS, regions=regions)
    network = load_checkpoint(checkpoint)
    with closing(ChangesWriter(out, network.model_id)) as writer:
        new = items(range(5, PHOTOS))
        counts = add_items(writer, network.model, "images", new, AddSettings(), regions=regions)
    assert counts.added == PHOTOS - 5


def add_and_compact(checkpoint: Path, regions: Regions, out: Path) -> None:
    add(checkpoint, regions, out)
    compact_index(out)


def merge(checkpoint: Path, regions: Regions, out: Path) -> None:
    parts = [out.with_name("one"), out.with_name("two")]
    for part, numbers in zip(parts, (range(4), range(4, PHOTOS)), strict=True):
        build_index(checkpoint, part, items(numbers), None, SETTINGS, regions=regions)
    merge_indexes(parts, out)


def export_and_import(checkpoint: Path, regions: Regions, out: Path) -> None:
    build(checkpoint, regions, out.with_name("first"))
    export_index(out.with_name("first"), out.with_name("exported"))
    import_index(out.with_name("exported"), checkpoint, out)


@pytest.mark.parametrize("way", [build, add, add_and_compact, merge, export_and_import])
def test_texts_find_photos_with_boxes_however_they_came(
    checkpoint: Path,
    model: AladinModel,
    regions: Regions,
    tmp_path: Path,
    way: Callable[[Path, Regions, Path], None],
) -> None:
    way(checkpoint, regions, tmp_path / "index")
    check_answers(tmp_path / "index", model, regions)


def test_boxes_to_their_stored_form_and_back() -> None:
    boxes = np.random.default_rng(0).random((50, 4), dtype=np.float32)
    boxes[0] = [0, 0, 1, 1]
    stored = pack_boxes(boxes)
    assert len(stored) == 8 * 50
    np.testing.assert_allclose(unpack_boxes(stored), boxes, atol=0.5 / 65535 + 1e-7)
    assert unpack_boxes(stored)[0].tolist() == [0, 0, 1, 1]
    assert pack_boxes(unpack_boxes(stored)) == stored
    assert unpack_boxes(b"").shape == (0, 4)


def test_regions_find_texts_with_their_own_boxes(
    built: Path, model: AladinModel, regions: Regions
) -> None:
    photo = regions.sets["key 4"]
    query = encode_images(model, [model.image.encoder.preprocess(photo)]).arrays()
    assert photo.boxes is not None
    with open_index(built) as opened:
        result, bare = (
            run_search(
                TwoStageSearcher(opened), query, "image", "texts", k=2, explain=True, boxes=boxes
            )
            for boxes in (photo.boxes[:MOST], None)
        )
    allowed = [tuple(box) for box in photo.boxes[1:MOST].tolist()]
    found = [entry for hit in result.hits for entry in hit.evidence or []]
    for entry in found:
        assert entry.box == (allowed[entry.region] if entry.region < len(allowed) else None)
    assert any(entry.box is not None for entry in found)
    assert all(entry.box is None for hit in bare.hits for entry in hit.evidence or [])


def test_a_build_that_was_cut_short_goes_on_with_the_same_regions(
    checkpoint: Path, built: Path, regions: Regions, tmp_path: Path
) -> None:
    out, read = tmp_path / "index", list[str]()

    class Failing(Regions):
        def read(self, key: str) -> RegionSet:
            read.append(key)
            if key == "key 7":
                raise OSError("the disk with the regions is gone")
            return super().read(key)

    with pytest.raises(IndexWriteError, match="is gone"):
        build(checkpoint, Failing(regions.sets), out)
    assert len(read) > 4
    resumed = replace(SETTINGS, resume=True)
    other = Regions(regions.sets, "of another run")
    with pytest.raises(IndexMismatchError, match="cannot resume"):
        build_index(checkpoint, out, items(), TEXTS, resumed, regions=other)
    build_index(checkpoint, out, items(), TEXTS, resumed, regions=regions)
    for file in (f"{collection}/{ITEMS}" for collection in ("images", "texts")):
        ours, theirs = (generation_folder(index, 1) / file for index in (out, built))
        assert ours.read_bytes() == theirs.read_bytes()


def test_a_photo_whose_regions_cannot_be_used_is_left_out(
    checkpoint: Path, model: AladinModel, regions: Regions, tmp_path: Path
) -> None:
    sets = regions.sets | {"key 3": RegionSet(np.ones((2, DIM + 1), np.float32))}
    del sets["key 5"]
    photos = items()
    photos[0] = ImageItem(id="photo 0", path=Path("/nowhere/0.jpg"), uri="0.jpg")
    report = build_index(
        checkpoint, tmp_path / "index", photos, None, SETTINGS, regions=Regions(sets)
    )
    assert dict(report.skipped) == {
        "photo 0": "expected the key of its regions, got none",
        "photo 3": "expected 5 numbers a region, got 6",
        "photo 5": "features.tsv: no regions of a photo 'key 5'",
    }
    check_answers(tmp_path / "index", model, regions, count=PHOTOS - 3)


def test_regions_and_network_go_together(
    checkpoint: Path, tiny_checkpoint: Path, regions: Regions, tmp_path: Path
) -> None:
    with pytest.raises(InputError, match="this network reads regions, got none"):
        build_index(checkpoint, tmp_path / "index", items(), None, SETTINGS)
    with pytest.raises(InputError, match="this network reads photos, got regions"):
        build(tiny_checkpoint, regions, tmp_path / "index")
    assert not (tmp_path / "index").exists()
