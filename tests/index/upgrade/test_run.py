from __future__ import annotations

import shutil
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

import aladin_index.upgrade.run as run_module
from aladin_index.building.builder import build_index
from aladin_index.changes.writer import ChangesWriter
from aladin_index.encode.item_changer import ItemChanger
from aladin_index.encode.item_encoders import ImageReader
from aladin_index.encode.source_items import ImageItem, TextItem
from aladin_index.format.disk import only_builder
from aladin_index.format.layout import (
    CURRENT,
    MODELS,
    UPGRADE,
    EngineLocation,
    generation_folder,
    write_location,
)
from aladin_index.format.manifest import live_model_folder, read_manifest
from aladin_index.generations.collection_writer import CollectionSource, live_parts
from aladin_index.generations.compact import compact_index
from aladin_index.generations.history import pending_changes
from aladin_index.generations.published import rollback_index
from aladin_index.generations.reader import open_index
from aladin_index.generations.verify import verify_index
from aladin_index.generations.writer import NewGeneration, install_model, write_generation
from aladin_index.items.tables import StoredItem
from aladin_index.items.uploaded_photos import UploadedPhoto
from aladin_index.measure.tune import tune_index
from aladin_index.measure.tune_options import TuneOptions
from aladin_index.upgrade.encodings import Encodings
from aladin_index.upgrade.run import MissingSourcesError, upgrade_index
from aladin_network.calibration.calibration import Calibration, write_calibration
from aladin_network.calibration.fitted_files import UNCORRECTED
from aladin_network.checkpoint import load_checkpoint
from aladin_network.checkpoint_files import read_model_id
from aladin_network.errors import (
    IndexMismatchError,
    IndexNotReadyError,
    InputError,
)
from aladin_network.scoring.hub_correction import CORRECTION
from tests.index.conftest import SMALL
from tests.index.corrections import correction_of
from tests.index.upgrade.conftest import SETTINGS, Begin


class Held(NamedTuple):
    """What the live generation says of an item."""

    item: StoredItem
    embedding: np.ndarray
    tokens: np.ndarray


def content(root: Path, target: str) -> dict[str, Held]:
    """Return what the live generation says of each item, by its id."""
    with open_index(root) as index:
        collection = index.collection(target)  # type: ignore[arg-type]
        return {
            item_id: Held(
                collection.items.by_rows([row])[0]._replace(row=0),
                np.array(collection.embedding(row)),
                np.array(collection.tokens(row)),
            )
            for item_id, row in collection.items.ids()
        }


def assert_encoded_alike(found: Held, expected: Held) -> None:
    """Assert that encodings are the same, but for what other items of a batch change."""
    np.testing.assert_allclose(found.embedding, expected.embedding, atol=1e-5)
    np.testing.assert_allclose(found.tokens, expected.tokens, atol=2e-3)


def assert_same(found: dict[str, Held], expected: dict[str, Held]) -> None:
    """Assert that two generations hold the same."""
    assert found.keys() == expected.keys()
    for item_id, held in found.items():
        assert held.item == expected[item_id].item
        assert_encoded_alike(held, expected[item_id])


@pytest.fixture
def rebuilt(
    new_checkpoint: Path, images: list[ImageItem], texts: list[TextItem], tmp_path: Path
) -> Path:
    """The same items, built by the new network."""
    build_index(new_checkpoint, tmp_path / "rebuilt", images, texts, SMALL)
    return tmp_path / "rebuilt"


@pytest.fixture
def changer(index_copy: Path, tiny_checkpoint: Path) -> Any:
    """Changes the index by its old network."""
    checkpoint = load_checkpoint(tiny_checkpoint)
    writer = ChangesWriter(index_copy, checkpoint.model_id)
    with closing(ItemChanger(writer, checkpoint.model, ImageReader())) as opened:
        yield opened


def test_the_new_generation_is_that_of_a_build_by_the_new_model(
    index_copy: Path, new_checkpoint: Path, rebuilt: Path
) -> None:
    report = upgrade_index(index_copy, new_checkpoint, SETTINGS)
    assert report.generation == 2
    assert report.counts == {"images": 23, "texts": 16}
    assert (report.skipped, report.carried, report.fit_anew) == ([], 0, [])
    for target in ("images", "texts"):
        assert_same(content(index_copy, target), content(rebuilt, target))
    manifest = read_manifest(generation_folder(index_copy, 2))
    assert manifest.made_by == "upgrade"
    assert manifest.model == read_manifest(generation_folder(rebuilt, 1)).model
    assert not (index_copy / UPGRADE).exists()
    assert verify_index(index_copy).generations == [1, 2]


@pytest.mark.parametrize("tokens", ["int8", "4bit"])
def test_tokens_keep_their_form(
    tiny_checkpoint: Path,
    new_checkpoint: Path,
    images: list[ImageItem],
    texts: list[TextItem],
    tmp_path: Path,
    tokens: Any,
) -> None:
    settings = replace(SMALL, token_dtype=tokens, filter_fields=("number",), ann="HNSW8,Flat")
    build_index(tiny_checkpoint, tmp_path / "index", images, texts, settings)
    upgrade_index(tmp_path / "index", new_checkpoint, SETTINGS)
    build_index(new_checkpoint, tmp_path / "rebuilt", images, texts, settings)
    with open_index(tmp_path / "index") as index, open_index(tmp_path / "rebuilt") as rebuilt:
        for target in index.manifest.targets:
            ours, theirs = (each.collection(target) for each in (index, rebuilt))
            assert ours.entry.token_dtype == tokens
            assert ours.entry.filter_fields == ["number"]
            assert ours.entry.ann.factory == theirs.entry.ann.factory
            found, expected = (
                np.concatenate([each.tokens(row) for row in range(each.count)])
                for each in (ours, theirs)
            )
            # The codebooks are of other samples of the same tokens.
            assert np.abs(found - expected).max() < 0.35
            assert np.abs(found - expected).mean() < 0.05


def test_one_step_leads_back_and_forth(index_copy: Path, new_checkpoint: Path) -> None:
    before = content(index_copy, "images")
    old_id, new_id = (
        read_manifest(generation_folder(index_copy, 1)).model.id,
        read_model_id(new_checkpoint),
    )
    upgrade_index(index_copy, new_checkpoint, SETTINGS)
    after = content(index_copy, "images")
    assert rollback_index(index_copy).generation == 1
    assert_same(content(index_copy, "images"), before)
    assert read_model_id(live_model_folder(index_copy)) == old_id
    assert rollback_index(index_copy, 2).generation == 2
    assert_same(content(index_copy, "images"), after)
    assert read_model_id(live_model_folder(index_copy)) == new_id


def test_a_compaction_removes_the_model_of_no_generation(
    index_copy: Path, new_checkpoint: Path, tiny_checkpoint: Path
) -> None:
    upgrade_index(index_copy, new_checkpoint, SETTINGS)
    with closing(ChangesWriter(index_copy, read_model_id(new_checkpoint))) as writer:
        writer.delete("images", ["photo 0"])
    compact_index(index_copy, keep=1)
    assert (index_copy / "model").is_dir() is False  # generation 1 is gone, 2 is the earlier one
    with open_index(index_copy) as index:
        assert index.checkpoint.model_id == read_model_id(new_checkpoint)
        assert index.collection("images").count == 22
    # And back to the first model, whose folder is made anew.
    upgrade_index(index_copy, tiny_checkpoint, SETTINGS)
    assert len(list((index_copy / MODELS).iterdir())) == 2
    verify_index(index_copy)


def shards_of(root: Path) -> list[Path]:
    """Return the finished shards of an unfinished upgrade."""
    return sorted((root / UPGRADE).glob("*/*/*/shard-*"))


@pytest.fixture
def encoded(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The number of items of each pass that is encoded."""
    counts: list[int] = []
    begin = Encodings.begin

    def counted(self: Encodings, keys: Any) -> Path:
        counts.append(len(keys))
        return begin(self, keys)

    monkeypatch.setattr(Encodings, "begin", counted)
    return counts


def test_finished_shards_of_an_upgrade_cut_short_are_kept(
    index_copy: Path, new_checkpoint: Path, rebuilt: Path, begin: Begin, encoded: list[int]
) -> None:
    begin(index_copy, 2)
    assert len(shards_of(index_copy)) == 2
    encoded.clear()
    assert upgrade_index(index_copy, new_checkpoint, SETTINGS).generation == 2
    assert encoded == [23 - 12, 16]
    for target in ("images", "texts"):
        assert_same(content(index_copy, target), content(rebuilt, target))


def test_finished_shards_are_kept_beyond_another_generation(
    index_copy: Path,
    new_checkpoint: Path,
    begin: Begin,
    changer: ItemChanger,
    encoded: list[int],
) -> None:
    begin(index_copy, 3)
    changer.delete("images", "photo 2")
    compact_index(index_copy)
    encoded.clear()
    report = upgrade_index(index_copy, new_checkpoint, SETTINGS)
    assert (report.generation, report.counts) == (3, {"images": 22, "texts": 16})
    assert encoded == [23 - 18, 16]


def test_changes_while_items_are_encoded_are_kept(
    index_copy: Path,
    new_checkpoint: Path,
    begin: Begin,
    changer: ItemChanger,
    images: list[ImageItem],
) -> None:
    begin(index_copy, 5)
    photo = UploadedPhoto(images[0].path.read_bytes())
    changer.add("images", [ImageItem(id="late", uri="late", upload=photo)], "error")
    changer.add("texts", [TextItem(id="text 3", text="a red star")], "replace")
    changer.delete("images", "photo 5")
    changer.delete("texts", "text 0")
    report = upgrade_index(index_copy, new_checkpoint, SETTINGS)
    assert report.counts == {"images": 23, "texts": 15}
    found = content(index_copy, "images")
    assert "photo 5" not in found
    assert_encoded_alike(found["late"], found["photo 0"])  # the same photo
    replaced = content(index_copy, "texts")["text 3"]
    assert replaced.item.text == "a red star"
    assert replaced.item.metadata == {}
    assert "text 0" not in content(index_copy, "texts")
    assert pending_changes(index_copy) == {"images": (0, 0), "texts": (0, 0)}


def test_changes_while_the_generation_is_written_are_carried_over(
    index_copy: Path,
    new_checkpoint: Path,
    changer: ItemChanger,
    images: list[ImageItem],
    encoded: list[int],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    write = run_module.write_generation

    def slow(*arguments: Any, **options: Any) -> int:
        photo = UploadedPhoto(images[1].path.read_bytes())
        added = ImageItem(id="late", uri="late", upload=photo, metadata={"number": 99})
        changer.add("images", [added], "error")
        changer.add("images", [replace(added, id="photo 2")], "replace")
        changer.delete("images", "photo 3")
        changer.add("images", [replace(added, id="gone")], "error")
        changer.delete("images", "gone")
        changer.add("texts", [TextItem(id="text 1", text="a blue circle")], "replace")
        new = TextItem(id="text 1", text="a blue circle", metadata={"number": 7})
        changer.add("texts", [new], "replace")
        return write(*arguments, **options)

    monkeypatch.setattr(run_module, "write_generation", slow)
    report = upgrade_index(index_copy, new_checkpoint, SETTINGS)
    assert report.counts == {"images": 23, "texts": 16}
    # Two photos and a text were added, and two photos and a text removed or replaced.
    assert report.carried == 6
    assert encoded == [23, 16, 2, 1]
    found = content(index_copy, "images")
    assert_encoded_alike(found["late"], found["photo 1"])
    assert_encoded_alike(found["photo 2"], found["photo 1"])
    assert found["late"].item.metadata == {"number": 99}
    assert "photo 3" not in found
    assert "gone" not in found
    text = content(index_copy, "texts")["text 1"].item
    assert (text.text, text.metadata) == ("a blue circle", {"number": 7})
    assert pending_changes(index_copy) == {"images": (2, 2), "texts": (1, 1)}
    verify_index(index_copy)


def test_replaced_metadata_of_an_encoded_text_need_no_encoding(
    index_copy: Path, new_checkpoint: Path, begin: Begin, changer: ItemChanger, encoded: list[int]
) -> None:
    begin(index_copy, 6)  # all photos, in four shards, and twelve texts
    text = content(index_copy, "texts")["text 2"].item.text
    assert text is not None
    changer.add("texts", [TextItem(id="text 2", text=text, metadata={"number": 1})], "replace")
    encoded.clear()
    upgrade_index(index_copy, new_checkpoint, SETTINGS)
    assert encoded == [16 - 12]
    assert content(index_copy, "texts")["text 2"].item.metadata == {"number": 1}


@pytest.fixture
def own_photos(
    tiny_checkpoint: Path, images: list[ImageItem], tmp_path: Path
) -> tuple[Path, list[Path]]:
    """An index of twelve photos, and their files, which may be taken away."""
    photos = tmp_path / "photos"
    photos.mkdir()
    own = [replace(item, path=Path(shutil.copy(item.path, photos))) for item in images[:12]]
    build_index(tiny_checkpoint, tmp_path / "index", own, None, SMALL)
    return tmp_path / "index", [item.path for item in own]


def test_missing_photos_are_refused_before_anything_is_encoded(
    own_photos: tuple[Path, list[Path]], new_checkpoint: Path, encoded: list[int]
) -> None:
    root, paths = own_photos
    away = [paths[3], paths[8]]
    for path in away:
        path.rename(path.with_suffix(".away"))
    with pytest.raises(MissingSourcesError, match=r"2 of 12 items have no source") as caught:
        upgrade_index(root, new_checkpoint, SETTINGS)
    assert {each.id for each in caught.value.skipped} == {"photo 3", "photo 8"}
    assert (encoded, (root / CURRENT).read_text()) == ([], "000001\n")
    # One of them is back.
    away[0].with_suffix(".away").rename(away[0])
    with pytest.raises(MissingSourcesError, match=r"1 of 12 items .*'photo 8': the file of its"):
        upgrade_index(root, new_checkpoint, SETTINGS)
    report = upgrade_index(root, new_checkpoint, SETTINGS, skip_missing=True)
    assert [each.id for each in report.skipped] == ["photo 8"]
    assert report.counts == {"images": 11}
    with open_index(root) as index:
        assert index.images is not None
        assert (index.images.entry.count, index.images.entry.skipped) == (11, 1)


def test_a_photo_that_cannot_be_decoded_is_refused_before_the_switch_and_tried_again(
    own_photos: tuple[Path, list[Path]], new_checkpoint: Path, encoded: list[int]
) -> None:
    root, paths = own_photos
    whole = paths[5].read_bytes()
    paths[5].write_bytes(whole[:40])
    with pytest.raises(MissingSourcesError, match=r"1 of 12 items .*'photo 5'"):
        upgrade_index(root, new_checkpoint, SETTINGS)
    assert (root / CURRENT).read_text() == "000001\n"
    paths[5].write_bytes(whole)
    assert upgrade_index(root, new_checkpoint, SETTINGS).counts == {"images": 12}
    assert encoded == [12, 1]


def test_a_photo_that_changed_after_it_was_encoded_is_encoded_again(
    own_photos: tuple[Path, list[Path]], new_checkpoint: Path, begin: Begin, encoded: list[int]
) -> None:
    root, paths = own_photos
    begin(root, 1)
    paths[0].write_bytes(paths[9].read_bytes() + b"\0")
    encoded.clear()
    upgrade_index(root, new_checkpoint, SETTINGS)
    assert encoded == [7]
    found = content(root, "images")
    assert_encoded_alike(found["photo 0"], found["photo 9"])


def test_imported_encodings_without_photos_are_refused_with_that_reason(
    index_copy: Path, new_checkpoint: Path, tmp_path: Path
) -> None:
    with open_index(index_copy) as index:
        collection = index.collection("images")
        items = [
            each._replace(path=None) for each in collection.items.by_rows(range(collection.count))
        ]
        model = index.manifest.model
    root = tmp_path / "imported"
    with open_index(index_copy) as index, only_builder(root):
        install_model(root, index_copy / "model", model)
        part = next(live_parts(index.collection("images")))
        source = CollectionSource(
            embedding_dim=part.embeddings.shape[1],
            codec=index.collection("images").base.tokens.codec,
            parts=[replace(part, items=items)],
        )
        write_generation(
            root,
            NewGeneration(
                collections={"images": source},
                model=model,
                settings=SMALL,
                fingerprint="imported",
                made_by="import",
            ),
        )
    reason = r"23 of 23 items have no source .*'photo 0': it came without a photo \(imported enc"
    with pytest.raises(MissingSourcesError, match=reason) as caught:
        upgrade_index(root, new_checkpoint, SETTINGS)
    assert len(str(caught.value)) < 1000
    with pytest.raises(InputError, match=r"images: no item is left"):
        upgrade_index(root, new_checkpoint, SETTINGS, skip_missing=True)
    assert (root / CURRENT).read_text() == "000001\n"


def test_a_deleted_item_need_not_have_a_source(
    own_photos: tuple[Path, list[Path]], tiny_checkpoint: Path, new_checkpoint: Path
) -> None:
    root, paths = own_photos
    paths[4].unlink()
    with closing(ChangesWriter(root, read_model_id(tiny_checkpoint))) as writer:
        writer.delete("images", ["photo 4"])
    assert upgrade_index(root, new_checkpoint, SETTINGS).counts == {"images": 11}


def test_a_collection_without_items_is_refused(
    index_copy: Path, new_checkpoint: Path, changer: ItemChanger
) -> None:
    for number in range(23):
        changer.delete("images", f"photo {number}")
    with pytest.raises(InputError, match=r"images: no item is left"):
        upgrade_index(index_copy, new_checkpoint, SETTINGS)


def test_changes_after_the_upgrade_are_those_of_its_generation(
    index_copy: Path, new_checkpoint: Path, changer: ItemChanger
) -> None:
    upgrade_index(index_copy, new_checkpoint, SETTINGS)
    model = load_checkpoint(new_checkpoint)
    with closing(ChangesWriter(index_copy, model.model_id)) as writer:
        after = ItemChanger(writer, model.model, ImageReader())
        after.add("texts", [TextItem(id="after", text="a green square")], "error")
        after.delete("texts", "text 4")
    with pytest.raises(IndexMismatchError, match="model"):  # the old model changes nothing now
        changer.delete("texts", "text 5")
    report = rollback_index(index_copy)
    assert report.undone["texts"] == (1, 1)
    assert content(index_copy, "texts").keys() == {f"text {number}" for number in range(16)}
    changer.delete("texts", "text 5")
    rollback_index(index_copy, 2)
    found = content(index_copy, "texts").keys()
    assert found == {f"text {number}" for number in range(16)} - {"text 4"} | {"after"}


def test_a_model_that_an_upgrade_left_is_replaced_by_another_of_the_same_weights(
    index_copy: Path, same_weights: Path, begin: Begin
) -> None:
    begin(index_copy, 1)
    assert len(list((index_copy / MODELS).iterdir())) == 1
    assert upgrade_index(index_copy, same_weights, SETTINGS).generation == 2
    with open_index(index_copy) as index:
        assert index.checkpoint.fusion.text_to_image.weight == 0.125
    assert not (index_copy / UPGRADE).exists()
    verify_index(index_copy)


def test_a_model_of_a_generation_is_not_replaced_by_another_of_the_same_weights(
    index_copy: Path, new_checkpoint: Path, same_weights: Path
) -> None:
    upgrade_index(index_copy, new_checkpoint, SETTINGS)
    rollback_index(index_copy, 1)
    with pytest.raises(IndexMismatchError, match=r"generation 2: sha256 of config\.json"):
        upgrade_index(index_copy, same_weights, SETTINGS)
    assert not (index_copy / UPGRADE).exists()
    assert upgrade_index(index_copy, new_checkpoint, SETTINGS).generation == 3
    verify_index(index_copy)


def test_a_model_of_the_first_generation_is_not_replaced_either(
    index_copy: Path, tiny_checkpoint: Path, new_checkpoint: Path, tmp_path: Path
) -> None:
    changed = Path(shutil.copytree(tiny_checkpoint, tmp_path / "changed"))
    (changed / "config.json").write_text((changed / "config.json").read_text() + "\n")
    upgrade_index(index_copy, new_checkpoint, SETTINGS)
    with pytest.raises(IndexMismatchError, match=r"generation 1: sha256 of config\.json"):
        upgrade_index(index_copy, changed, SETTINGS)
    assert rollback_index(index_copy).generation == 1
    with open_index(index_copy) as index:
        assert index.collection("images").count == 23


def test_an_upgrade_that_was_given_up_leaves_the_index_as_it_was(
    index_copy: Path, begin: Begin, changer: ItemChanger
) -> None:
    begin(index_copy, 5)
    changer.delete("texts", "text 1")
    before = content(index_copy, "images")
    report = compact_index(index_copy)  # also without its model
    assert (report.generation, report.counts) == (2, {"images": 23, "texts": 15})
    assert list((index_copy / MODELS).iterdir()) == []
    shutil.rmtree(index_copy / UPGRADE)
    assert_same(content(index_copy, "images"), before)
    assert verify_index(index_copy).generations == [1, 2]


def test_the_model_of_the_index_itself_changes_nothing(
    index_copy: Path, tiny_checkpoint: Path, new_checkpoint: Path, tmp_path: Path
) -> None:
    report = upgrade_index(index_copy, tiny_checkpoint, SETTINGS)
    assert (report.was_done, report.generation) == (True, 1)
    with pytest.raises(IndexNotReadyError):
        upgrade_index(tmp_path / "nothing", new_checkpoint, SETTINGS)
    assert not (tmp_path / "nothing").exists()
    assert not (index_copy / MODELS).exists()


def test_an_index_in_a_vector_database_is_refused(index_copy: Path, new_checkpoint: Path) -> None:
    location = EngineLocation(url="http://localhost:19530", name="photos")
    write_location(index_copy, location)
    with pytest.raises(InputError, match=r"expected an index of files, .* and push it again"):
        upgrade_index(index_copy, new_checkpoint, SETTINGS)


@pytest.mark.parametrize("corrected", [False, True])
def test_fits_of_the_new_model_go_into_the_generation(
    index_copy: Path,
    new_checkpoint: Path,
    images: list[ImageItem],
    texts: list[TextItem],
    make_calibration: Callable[..., Calibration],
    tmp_path: Path,
    corrected: bool,
) -> None:
    checkpoint = Path(shutil.copytree(new_checkpoint, tmp_path / "checkpoint"))
    calibration = make_calibration(read_model_id(checkpoint))
    name = UNCORRECTED
    if corrected:
        correction = correction_of(checkpoint, [item.path for item in images[:6]], 0.8)
        correction.save(checkpoint / CORRECTION)
        name = correction.constants.id
    fitted_on = replace(calibration.fitted_on, correction=name)
    write_calibration(checkpoint, replace(calibration, fitted_on=fitted_on))
    upgrade_index(index_copy, checkpoint, SETTINGS)
    build_index(checkpoint, tmp_path / "rebuilt", images, texts, SMALL)
    with open_index(index_copy) as index, open_index(tmp_path / "rebuilt") as rebuilt:
        assert index.manifest.calibration == rebuilt.manifest.calibration
        assert index.manifest.calibration is not None
        assert index.manifest.calibration.fitted_on.correction == name
        assert index.manifest.correction == rebuilt.manifest.correction
        assert (index.manifest.correction is not None) is corrected
    for target in ("images", "texts"):
        assert_same(content(index_copy, target), content(tmp_path / "rebuilt", target))


def test_a_finished_upgrade_is_done_already(index_copy: Path, new_checkpoint: Path) -> None:
    upgrade_index(index_copy, new_checkpoint, SETTINGS)
    (index_copy / UPGRADE).mkdir()  # as after a kill when all was done
    report = upgrade_index(index_copy, new_checkpoint, SETTINGS)
    assert (report.generation, report.was_done) == (2, True)
    assert report.counts == {"images": 23, "texts": 16}
    assert not (index_copy / UPGRADE).exists()


def test_fits_of_the_old_model_are_named_as_missing(index_copy: Path, new_checkpoint: Path) -> None:
    tune_index(index_copy, TuneOptions(num_queries=4, fidelity=0.5))
    report = upgrade_index(index_copy, new_checkpoint, SETTINGS)
    assert report.fit_anew == ["tune"]
    manifest = read_manifest(generation_folder(index_copy, report.generation))
    assert manifest.images is not None
    assert manifest.images.tuning is None
