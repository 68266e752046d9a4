from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import aladin_index.upgrade.run as run_module
from aladin_index.ann.first_stage_build import build_first_stages
from aladin_index.building.builder import build_index
from aladin_index.changes.item_changer import ItemChanger
from aladin_index.changes.writer import ChangesWriter
from aladin_index.encode.encoded import ItemBatch
from aladin_index.encode.item_encoders import ImageReader
from aladin_index.encode.source_items import ImageItem, TextItem
from aladin_index.format.layout import (
    CURRENT,
    MODELS,
    UPGRADE,
    EngineLocation,
    generation_folder,
    write_location,
)
from aladin_index.format.manifest import live_model_folder, read_manifest
from aladin_index.generations.collection_writer import live_parts
from aladin_index.generations.compact import compact_index
from aladin_index.generations.history import pending_changes
from aladin_index.generations.published import rollback_index
from aladin_index.generations.reader import open_index
from aladin_index.generations.verify import verify_index
from aladin_index.items.uploaded_photos import UploadedPhoto
from aladin_index.measure.tune import tune_index
from aladin_index.measure.tune_options import TuneOptions
from aladin_index.settings import BuildSettings
from aladin_index.upgrade.encodings import Encodings
from aladin_index.upgrade.run import MissingSourcesError, UpgradeReport, upgrade_index
from aladin_network.calibration.calibration import Calibration, write_calibration
from aladin_network.checkpoint import load_checkpoint
from aladin_network.checkpoint_files import Checkpoint, read_model_id
from aladin_network.errors import IndexMismatchError, IndexNotReadyError, InputError
from aladin_network.scoring.hub_correction import CORRECTION
from aladin_network.types import TARGETS, Target
from tests.index.conftest import SMALL
from tests.index.corrections import correction_of
from tests.index.upgrade.conftest import SETTINGS, begin_upgrade
from tests.index.written import Held, contents, write_index


def assert_encoded_alike(found: Held, expected: Held, atol: float = 2e-3) -> None:
    """Assert that encodings are the same, but for what other items of a batch change."""
    np.testing.assert_allclose(found.embedding, expected.embedding, atol=1e-5)
    np.testing.assert_allclose(found.tokens, expected.tokens, atol=atol)


def assert_same(found: dict[str, Held], expected: dict[str, Held], atol: float = 2e-3) -> None:
    """Assert that two generations hold the same."""
    assert found.keys() == expected.keys()
    for item_id, held in found.items():
        assert held.item == expected[item_id].item
        assert_encoded_alike(held, expected[item_id], atol)


@dataclass
class Upgrading:
    """An index, its new model, what changes it by the old one, and how many each pass encodes."""

    root: Path
    new: Path
    changer: ItemChanger
    encoded: list[int]

    def begin(self, shards: int) -> None:
        """Begin the upgrade, end it after so many shards, and count from then."""
        begin_upgrade(self.root, self.new, shards)
        self.encoded.clear()

    def run(self, model: Path | None = None, **options: Any) -> UpgradeReport:
        """Upgrade, or go on."""
        return upgrade_index(self.root, model or self.new, SETTINGS, **options)

    def content(self, target: Target) -> dict[str, Held]:
        """Return what the live generation says of each item, by its id."""
        return contents(self.root, target)


@pytest.fixture(scope="module")
def old(tiny_checkpoint: Path) -> Checkpoint:
    return load_checkpoint(tiny_checkpoint)


@pytest.fixture
def up(
    index_copy: Path, new_checkpoint: Path, old: Checkpoint, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Upgrading]:
    counts: list[int] = []
    begin = Encodings.begin

    def counted(self: Encodings, keys: Any) -> Path:
        counts.append(len(keys))
        return begin(self, keys)

    monkeypatch.setattr(Encodings, "begin", counted)
    writer = ChangesWriter(index_copy, old.model_id)
    with closing(ItemChanger(writer, old.model, ImageReader())) as changer:
        yield Upgrading(index_copy, new_checkpoint, changer, counts)


@pytest.fixture
def same_weights(new_checkpoint: Path, tmp_path: Path) -> Path:
    """The new model with another fusion."""
    folder = Path(shutil.copytree(new_checkpoint, tmp_path / "same weights"))
    config = json.loads((folder / "config.json").read_text())
    config["fusion"]["text_to_image"]["weight"] = 0.125
    (folder / "config.json").write_text(json.dumps(config))
    return folder


@pytest.mark.parametrize(("tokens", "atol"), [("float16", 2e-3), ("int8", 0.05), ("4bit", 0.35)])
def test_the_new_generation_is_that_of_a_build_by_the_new_model(
    tiny_checkpoint: Path,
    new_checkpoint: Path,
    images: list[ImageItem],
    texts: list[TextItem],
    tmp_path: Path,
    tokens: Any,
    atol: float,
) -> None:
    settings = replace(SMALL, token_dtype=tokens, filter_fields=("number",), ann="HNSW8,Flat")
    build_index(tiny_checkpoint, tmp_path / "index", images, texts, settings)
    report = upgrade_index(tmp_path / "index", new_checkpoint, SETTINGS)
    build_index(new_checkpoint, tmp_path / "rebuilt", images, texts, settings)
    assert (report.generation, report.counts) == (2, {"images": 23, "texts": 16})
    assert (report.skipped, report.carried, report.fit_anew) == ([], 0, [])
    found = read_manifest(generation_folder(tmp_path / "index", 2))
    expected = read_manifest(generation_folder(tmp_path / "rebuilt", 1))
    assert (found.made_by, found.model) == ("upgrade", expected.model)
    for ours, theirs in ((found.images, expected.images), (found.texts, expected.texts)):
        assert ours is not None and theirs is not None
        assert (ours.token_dtype, ours.filter_fields) == (tokens, ["number"])
        assert ours.ann.factory == theirs.ann.factory
    for target in TARGETS:
        assert_same(*(contents(tmp_path / name, target) for name in ("index", "rebuilt")), atol)
    assert not (tmp_path / "index" / UPGRADE).exists()
    assert verify_index(tmp_path / "index").generations == [1, 2]


def test_the_first_stage_is_built_on_the_device_of_the_upgrade(
    up: Upgrading, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: list[BuildSettings] = []

    def recorded(*arguments: Any) -> object:
        given.append(arguments[3])
        return build_first_stages(*arguments)

    monkeypatch.setattr("aladin_index.generations.writer.build_first_stages", recorded)
    upgrade_index(up.root, up.new, replace(SETTINGS, device="cpu:0", ann="Flat"))
    entry = read_manifest(generation_folder(up.root, 1)).images
    assert entry is not None
    assert [(each.device, each.ann) for each in given] == [("cpu:0", entry.ann.asked)]


def test_one_step_leads_back_and_forth_each_with_its_model_and_changes(up: Upgrading) -> None:
    old, new = read_manifest(generation_folder(up.root, 1)).model.id, up.new
    before = up.content("texts")
    up.run(new)
    model = load_checkpoint(new)
    with closing(ChangesWriter(up.root, model.model_id)) as writer:
        after = ItemChanger(writer, model.model, ImageReader())
        after.add("texts", [TextItem(id="after", text="a green square")], "error")
        after.delete("texts", "text 4")
    with pytest.raises(IndexMismatchError, match="model"):  # the old model changes nothing now
        up.changer.delete("texts", "text 5")
    report = rollback_index(up.root)
    assert (report.generation, report.undone["texts"]) == (1, (1, 1))
    assert_same(up.content("texts"), before)
    assert read_model_id(live_model_folder(up.root)) == old
    up.changer.delete("texts", "text 5")
    assert rollback_index(up.root, 2).generation == 2
    assert up.content("texts").keys() == before.keys() - {"text 4"} | {"after"}
    assert read_model_id(live_model_folder(up.root)) == model.model_id


def test_a_compaction_removes_the_model_of_no_generation(
    up: Upgrading, tiny_checkpoint: Path
) -> None:
    up.run()
    with closing(ChangesWriter(up.root, read_model_id(up.new))) as writer:
        writer.delete("images", ["photo 0"])
    compact_index(up.root, keep=1)
    assert (up.root / "model").is_dir() is False  # generation 1 is gone, 2 is the earlier one
    assert len(up.content("images")) == 22
    # And back to the first model, whose folder is made anew.
    up.run(tiny_checkpoint)
    assert len(list((up.root / MODELS).iterdir())) == 2
    verify_index(up.root)


def delete_and_compact(up: Upgrading) -> None:
    up.changer.delete("images", "photo 2")
    compact_index(up.root)


def replace_metadata(up: Upgrading) -> None:
    text = up.content("texts")["text 2"].item.text or ""
    up.changer.add("texts", [TextItem(id="text 2", text=text, metadata={"number": 1})], "replace")


@pytest.mark.parametrize(
    ("begun", "edit", "again", "generation"),
    [
        pytest.param(2, None, [23 - 12, 16], 2, id="nothing changed"),
        pytest.param(3, delete_and_compact, [23 - 18, 16], 3, id="another generation came"),
        pytest.param(6, replace_metadata, [16 - 12], 2, id="metadata alone changed"),
    ],
)
def test_finished_shards_of_an_upgrade_cut_short_are_kept(
    up: Upgrading, begun: int, edit: Any, again: list[int], generation: int
) -> None:
    up.begin(begun)
    assert len(list((up.root / UPGRADE).glob("*/*/*/shard-*"))) == begun
    if edit:
        edit(up)
    up.encoded.clear()
    before = {target: up.content(target) for target in TARGETS}
    assert up.run().generation == generation
    assert up.encoded == again
    for target, held in before.items():
        found = up.content(target)
        assert {key: each.item for key, each in found.items()} == {
            key: each.item for key, each in held.items()
        }


@pytest.mark.parametrize("written", [False, True], ids=["items are encoded", "files are written"])
def test_changes_made_meanwhile_are_kept(
    up: Upgrading, images: list[ImageItem], monkeypatch: pytest.MonkeyPatch, written: bool
) -> None:
    write = run_module.write_generation

    def change(*arguments: Any, **options: Any) -> int:
        photo = UploadedPhoto(images[1].path.read_bytes())
        added = ImageItem(id="late", uri="late", upload=photo, metadata={"number": 99})
        up.changer.add("images", [added], "error")
        up.changer.add("images", [replace(added, id="photo 2")], "replace")
        up.changer.delete("images", "photo 3")
        up.changer.add("images", [replace(added, id="gone")], "error")
        up.changer.delete("images", "gone")
        for metadata in ({}, {"number": 7}):
            new = TextItem(id="text 1", text="a blue circle", metadata=metadata)
            up.changer.add("texts", [new], "replace")
        return write(*arguments, **options) if arguments else 0

    if written:
        monkeypatch.setattr(run_module, "write_generation", change)
    else:
        up.begin(5)
        change()
    up.encoded.clear()
    report = up.run()
    assert report.counts == {"images": 23, "texts": 16}
    # Two photos and a text were added, and two photos and a text removed or replaced.
    assert report.carried == (6 if written else 0)
    assert up.encoded == ([23, 16, 2, 1] if written else [2, 16 - 6 + 1])
    found = up.content("images")
    assert found.keys() == {f"photo {n}" for n in range(23)} - {"photo 3"} | {"late"}
    assert_encoded_alike(found["late"], found["photo 1"])
    assert_encoded_alike(found["photo 2"], found["photo 1"])
    assert found["late"].item.metadata == {"number": 99}
    text = up.content("texts")["text 1"].item
    assert (text.text, text.metadata) == ("a blue circle", {"number": 7})
    none = {"images": (0, 0), "texts": (0, 0)}
    carried = {"images": (2, 2), "texts": (1, 1)}
    assert pending_changes(up.root) == (carried if written else none)
    verify_index(up.root)


@pytest.fixture
def paths(
    up: Upgrading, tiny_checkpoint: Path, images: list[ImageItem], tmp_path: Path
) -> list[Path]:
    """Files of the twelve photos of the index, which may be taken away."""
    photos = tmp_path / "photos"
    photos.mkdir()
    own = [replace(item, path=Path(shutil.copy(item.path, photos))) for item in images[:12]]
    shutil.rmtree(up.root)
    build_index(tiny_checkpoint, up.root, own, None, SMALL)
    return [item.path for item in own]


def test_missing_and_broken_photos_are_refused_before_the_switch_and_tried_again(
    up: Upgrading, paths: list[Path]
) -> None:
    up.changer.delete("images", "photo 4")
    paths[4].unlink()  # a deleted item needs no source
    for path in (paths[3], paths[8]):
        path.rename(path.with_suffix(".away"))
    with pytest.raises(MissingSourcesError, match=r"2 of 11 items have no source") as caught:
        up.run()
    assert {each.id for each in caught.value.skipped} == {"photo 3", "photo 8"}
    assert up.encoded == []
    paths[3].with_suffix(".away").rename(paths[3])  # one is back, but it is cut short
    whole = paths[3].read_bytes()
    paths[3].write_bytes(whole[:40])
    paths[8].with_suffix(".away").rename(paths[8])
    with pytest.raises(MissingSourcesError, match=r"1 of 11 items .*'photo 3'"):
        up.run()
    assert (up.root / CURRENT).read_text() == "000001\n"
    paths[3].write_bytes(whole)
    paths[8].unlink()
    with pytest.raises(MissingSourcesError, match=r"1 of 11 items .*'photo 8': the file of its"):
        up.run()
    up.encoded.clear()
    report = up.run(skip_missing=True)
    assert ([each.id for each in report.skipped], up.encoded) == (["photo 8"], [1])
    entry = read_manifest(generation_folder(up.root, 2)).images
    assert entry is not None and (entry.count, entry.skipped) == (10, 1)


def test_a_photo_that_changed_after_it_was_encoded_is_encoded_again(
    up: Upgrading, paths: list[Path]
) -> None:
    up.begin(1)
    paths[0].write_bytes(paths[9].read_bytes() + b"\0")
    up.run()
    assert up.encoded == [7]
    found = up.content("images")
    assert_encoded_alike(found["photo 0"], found["photo 9"])


def imported(root: Path, published: Path) -> None:
    """Write an index of encodings without photos."""
    with open_index(published) as index:
        part = next(live_parts(index.collection("images")))
        collection = index.collection("images")
        tokens = [collection.tokens(row) for row in range(collection.count)]
        items = [item._replace(path=None) for item in part.items]
        lengths = np.array([len(each) for each in tokens])
        new = ItemBatch(items, np.array(part.embeddings), np.concatenate(tokens), lengths)
        write_index(root, published / "model", {"images": new}, made_by="import")


def test_what_cannot_be_upgraded_is_refused_and_stays_as_it_was(
    up: Upgrading, tmp_path: Path
) -> None:
    with pytest.raises(IndexNotReadyError):
        upgrade_index(tmp_path / "nothing", up.new, SETTINGS)
    assert not (tmp_path / "nothing").exists()

    imported(tmp_path / "imported", up.root)
    reason = r"23 of 23 items have no source .*'photo 0': it came without a photo \(imported enc"
    with pytest.raises(MissingSourcesError, match=reason) as caught:
        upgrade_index(tmp_path / "imported", up.new, SETTINGS)
    assert len(str(caught.value)) < 1000
    with pytest.raises(InputError, match=r"images: no item is left"):
        upgrade_index(tmp_path / "imported", up.new, SETTINGS, skip_missing=True)

    for number in range(23):
        up.changer.delete("images", f"photo {number}")
    with pytest.raises(InputError, match=r"images: no item is left"):
        up.run()
    for root in (tmp_path / "imported", up.root):
        assert (root / CURRENT).read_text() == "000001\n"

    write_location(up.root, EngineLocation(url="http://localhost:19530", name="photos"))
    with pytest.raises(InputError, match=r"expected an index of files, .* and push it again"):
        up.run()


def test_a_model_that_an_upgrade_left_is_replaced_by_another_of_the_same_weights(
    up: Upgrading, same_weights: Path
) -> None:
    up.begin(1)
    assert len(list((up.root / MODELS).iterdir())) == 1
    assert up.run(same_weights).generation == 2
    with open_index(up.root) as index:
        assert index.checkpoint.fusion.text_to_image.weight == 0.125
    assert not (up.root / UPGRADE).exists()
    verify_index(up.root)


def test_a_model_of_a_generation_is_not_replaced_by_another_of_the_same_weights(
    up: Upgrading, tiny_checkpoint: Path, same_weights: Path, tmp_path: Path
) -> None:
    up.run()
    changed = Path(shutil.copytree(tiny_checkpoint, tmp_path / "changed"))
    (changed / "config.json").write_text((changed / "config.json").read_text() + "\n")
    with pytest.raises(IndexMismatchError, match=r"generation 1: sha256 of config\.json"):
        up.run(changed)
    rollback_index(up.root, 1)
    with pytest.raises(IndexMismatchError, match=r"generation 2: sha256 of config\.json"):
        up.run(same_weights)
    assert not (up.root / UPGRADE).exists()
    assert len(up.content("images")) == 23
    assert up.run().generation == 3
    verify_index(up.root)


def test_an_upgrade_that_was_given_up_leaves_the_index_as_it_was(up: Upgrading) -> None:
    up.begin(5)
    up.changer.delete("texts", "text 1")
    before = up.content("images")
    report = compact_index(up.root)  # also without its model
    assert (report.generation, report.counts) == (2, {"images": 23, "texts": 15})
    assert list((up.root / MODELS).iterdir()) == []
    shutil.rmtree(up.root / UPGRADE)
    assert_same(up.content("images"), before)
    assert verify_index(up.root).generations == [1, 2]


def test_fits_of_the_new_model_go_into_the_generation(
    up: Upgrading,
    images: list[ImageItem],
    texts: list[TextItem],
    make_calibration: Callable[..., Calibration],
    tmp_path: Path,
) -> None:
    checkpoint = Path(shutil.copytree(up.new, tmp_path / "checkpoint"))
    calibration = make_calibration(read_model_id(checkpoint))
    correction = correction_of(checkpoint, [item.path for item in images[:6]], 0.8)
    correction.save(checkpoint / CORRECTION)
    name = correction.constants.id
    fitted_on = replace(calibration.fitted_on, correction=name)
    write_calibration(checkpoint, replace(calibration, fitted_on=fitted_on))
    up.run(checkpoint)
    build_index(checkpoint, tmp_path / "rebuilt", images, texts, SMALL)
    found = read_manifest(generation_folder(up.root, 2))
    expected = read_manifest(generation_folder(tmp_path / "rebuilt", 1))
    assert found.calibration == expected.calibration
    assert found.calibration is not None and found.calibration.fitted_on.correction == name
    assert found.correction == expected.correction is not None
    for target in TARGETS:
        assert_same(up.content(target), contents(tmp_path / "rebuilt", target))


def test_an_upgrade_that_is_done_is_not_done_again_and_names_the_fits_to_repeat(
    up: Upgrading, tiny_checkpoint: Path
) -> None:
    report = up.run(tiny_checkpoint)
    assert (report.was_done, report.generation) == (True, 1)
    assert not (up.root / MODELS).exists()
    tune_index(up.root, TuneOptions(num_queries=4, fidelity=0.5))
    report = up.run()
    assert report.fit_anew == ["tune"]
    manifest = read_manifest(generation_folder(up.root, report.generation))
    assert manifest.images is not None and manifest.images.tuning is None
    (up.root / UPGRADE).mkdir()  # as after a kill when all was done
    again = up.run()
    assert (again.generation, again.was_done) == (report.generation, True)
    assert again.counts == {"images": 23, "texts": 16}
    assert not (up.root / UPGRADE).exists()
