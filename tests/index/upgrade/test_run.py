from __future__ import annotations

import shutil
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

import aladin_index.upgrade.finish as finish_module
import aladin_index.upgrade.run as run_module
from aladin_index.build.builder import build_index
from aladin_index.changes.writer import ChangesWriter
from aladin_index.encode.item_changer import ItemChanger
from aladin_index.encode.item_encoders import ImageReader
from aladin_index.encode.source_items import ImageItem, TextItem
from aladin_index.format.layout import CURRENT, MODELS, UPGRADE, generation_folder
from aladin_index.format.manifest import read_manifest
from aladin_index.format.models import live_model_folder
from aladin_index.format.upgrade_plan import upgrade_progress
from aladin_index.generations.compact import compact_index
from aladin_index.generations.history import pending_changes
from aladin_index.generations.published import rollback_index
from aladin_index.generations.reader import open_index
from aladin_index.generations.verify import verify_index
from aladin_index.items.tables import StoredItem
from aladin_index.items.uploaded_photos import UploadedPhoto
from aladin_index.measure.tune import tune_index
from aladin_index.measure.tune_options import TuneOptions
from aladin_index.settings import BuildSettings
from aladin_index.upgrade.run import (
    MissingSourcesError,
    discard_upgrade,
    upgrade_index,
)
from aladin_network.calibration.calibration import Calibration, write_calibration
from aladin_network.calibration.fitted_files import UNCORRECTED
from aladin_network.checkpoint import load_checkpoint
from aladin_network.checkpoint_files import read_model_id
from aladin_network.errors import (
    IndexMismatchError,
    IndexNotReadyError,
    InputError,
    UpgradeUnfinishedError,
)
from aladin_network.scoring.correction import CORRECTION
from tests.index.conftest import SMALL
from tests.index.corrections import correction_of
from tests.index.upgrade.conftest import SETTINGS, Begin, CutShortError

RESUMED = replace(SETTINGS, resume=True)


class Held(NamedTuple):
    """What the live generation says of an item."""

    item: StoredItem
    embedding: np.ndarray
    tokens: np.ndarray


def content(root: Path, target: str) -> dict[str, Held]:
    """Return what the live generation says of each item, by its id."""
    with open_index(root) as index:
        side = index.side(target)  # type: ignore[arg-type]
        return {
            item_id: Held(
                side.items.by_rows([row])[0]._replace(row=0),
                np.array(side.embedding(row)),
                np.array(side.tokens(row)),
            )
            for item_id, row in side.items.ids()
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
    assert (report.skipped, report.carried, report.not_kept) == ([], 0, [])
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
            ours, theirs = (each.side(target) for each in (index, rebuilt))
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


def test_regions_are_chosen_by_the_texts_of_the_new_model(
    tiny_checkpoint: Path,
    new_checkpoint: Path,
    images: list[ImageItem],
    texts: list[TextItem],
    tmp_path: Path,
) -> None:
    settings = replace(SMALL, keep_regions=5)
    build_index(tiny_checkpoint, tmp_path / "index", images, texts, settings)
    upgrade_index(tmp_path / "index", new_checkpoint, SETTINGS)
    build_index(new_checkpoint, tmp_path / "rebuilt", images, texts, settings)
    found, expected = content(tmp_path / "index", "images"), content(tmp_path / "rebuilt", "images")
    assert_same(found, expected)
    assert {len(each.tokens) for each in found.values()} == {5}
    assert all(each.item.boxes is not None for each in found.values())


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
        assert index.side("images").count == 22
    # And back to the first model, whose folder is made anew.
    upgrade_index(index_copy, tiny_checkpoint, SETTINGS)
    assert len(list((index_copy / MODELS).iterdir())) == 2
    verify_index(index_copy)


def test_changes_while_items_are_encoded_are_kept(
    index_copy: Path, begin: Begin, changer: ItemChanger, images: list[ImageItem]
) -> None:
    begin(index_copy, 4)
    photo = UploadedPhoto(images[0].path.read_bytes())
    changer.add("images", [ImageItem(id="late", uri="late", upload=photo)], "error")
    changer.add("texts", [TextItem(id="text 3", text="a red star")], "replace")
    changer.delete("images", "photo 5")
    changer.delete("texts", "text 0")
    report = upgrade_index(index_copy, None, RESUMED)
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
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    write = finish_module.write_generation

    def slow(*arguments: Any, **options: Any) -> int:
        photo = UploadedPhoto(images[1].path.read_bytes())
        added = ImageItem(id="late", uri="late", upload=photo, metadata={"number": 99})
        changer.add("images", [added], "error")
        changer.add("images", [replace(added, id="photo 2")], "replace")
        changer.delete("images", "photo 3")
        changer.add("images", [replace(added, id="gone")], "error")
        changer.delete("images", "gone")
        return write(*arguments, **options)

    monkeypatch.setattr(finish_module, "write_generation", slow)
    report = upgrade_index(index_copy, new_checkpoint, SETTINGS)
    assert report.counts == {"images": 23, "texts": 16}
    assert report.carried == 4  # two photos were added, and two removed, one of them replaced
    found = content(index_copy, "images")
    assert_encoded_alike(found["late"], found["photo 1"])
    assert_encoded_alike(found["photo 2"], found["photo 1"])
    assert found["late"].item.metadata == {"number": 99}
    assert "photo 3" not in found
    assert "gone" not in found
    assert pending_changes(index_copy)["images"] == (2, 2)
    verify_index(index_copy)


def test_missing_photos_keep_the_old_model_until_they_may_be_skipped(
    tiny_checkpoint: Path, new_checkpoint: Path, images: list[ImageItem], tmp_path: Path
) -> None:
    photos = tmp_path / "photos"
    photos.mkdir()
    own = [replace(item, path=Path(shutil.copy(item.path, photos))) for item in images[:12]]
    root = tmp_path / "index"
    build_index(tiny_checkpoint, root, own, None, SMALL)
    away = [own[3].path, own[8].path]
    for path in away:
        path.rename(path.with_suffix(".away"))
    with pytest.raises(MissingSourcesError, match=r"2 items cannot be encoded again") as caught:
        upgrade_index(root, new_checkpoint, SETTINGS)
    assert {each.id for each in caught.value.skipped} == {"photo 3", "photo 8"}
    assert (root / CURRENT).read_text() == "000001\n"
    progress = upgrade_progress(root, 1)
    assert progress is not None
    assert (progress.encoded["images"], progress.skipped["images"]) == (10, 2)
    # One of them is back, and is tried again.
    away[0].with_suffix(".away").rename(away[0])
    with pytest.raises(MissingSourcesError, match=r"1 items"):
        upgrade_index(root, None, RESUMED)
    report = upgrade_index(root, None, replace(RESUMED, skip_missing=True))
    assert [each.id for each in report.skipped] == ["photo 8"]
    assert report.counts == {"images": 11}
    with open_index(root) as index:
        assert index.images is not None
        assert (index.images.entry.count, index.images.entry.left_out) == (11, 1)


def test_a_deleted_item_need_not_have_a_source(
    index_copy: Path, begin: Begin, changer: ItemChanger
) -> None:
    begin(index_copy, 1)
    for number in range(22):
        changer.delete("images", f"photo {number}")
    assert upgrade_index(index_copy, None, RESUMED).counts["images"] == 1


def test_a_collection_without_items_is_refused(
    index_copy: Path, begin: Begin, changer: ItemChanger
) -> None:
    begin(index_copy, 2)
    for number in range(23):
        changer.delete("images", f"photo {number}")
    with pytest.raises(InputError, match=r"images: no item is left"):
        upgrade_index(index_copy, None, RESUMED)


def test_a_model_that_an_upgrade_left_is_replaced_by_another_of_the_same_weights(
    index_copy: Path, new_checkpoint: Path, same_weights: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def end(*_: object) -> None:
        raise CutShortError

    with monkeypatch.context() as patch, pytest.raises(CutShortError):
        patch.setattr(run_module, "write_plan", end)
        upgrade_index(index_copy, new_checkpoint, SETTINGS)
    assert len(list((index_copy / MODELS).iterdir())) == 1
    assert upgrade_index(index_copy, same_weights, SETTINGS).generation == 2
    with open_index(index_copy) as index:
        assert index.checkpoint.fusion.text_to_image.weight == 0.125
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
        assert index.side("images").count == 23


def test_other_commands_wait_for_the_end_of_an_upgrade(
    index_copy: Path, tiny_checkpoint: Path, begin: Begin, images: list[ImageItem]
) -> None:
    begin(index_copy, 1)
    attempts: list[Callable[[], object]] = [
        lambda: compact_index(index_copy),
        lambda: rollback_index(index_copy),
        lambda: tune_index(index_copy, TuneOptions()),
        lambda: build_index(tiny_checkpoint, index_copy, images, None, BuildSettings()),
    ]
    for attempt in attempts:
        with pytest.raises(UpgradeUnfinishedError, match=r"--resume` finishes it"):
            attempt()
    with pytest.raises(UpgradeUnfinishedError):
        upgrade_index(index_copy, tiny_checkpoint, SETTINGS)


def test_an_upgrade_can_be_given_up(index_copy: Path, new_checkpoint: Path, begin: Begin) -> None:
    before = content(index_copy, "images")
    begin(index_copy, 5)
    plan = discard_upgrade(index_copy)
    assert plan is not None
    assert plan.model.id == read_model_id(new_checkpoint)
    assert not (index_copy / UPGRADE).exists()
    assert list((index_copy / MODELS).iterdir()) == []
    assert_same(content(index_copy, "images"), before)
    assert discard_upgrade(index_copy) is None
    assert upgrade_index(index_copy, new_checkpoint, SETTINGS).generation == 2


def test_what_cannot_be_upgraded_is_refused(
    index_copy: Path, tiny_checkpoint: Path, new_checkpoint: Path, begin: Begin, tmp_path: Path
) -> None:
    with pytest.raises(InputError, match=r"another model than the index's own"):
        upgrade_index(index_copy, tiny_checkpoint, SETTINGS)
    with pytest.raises(InputError, match=r"expected --model"):
        upgrade_index(index_copy, None, RESUMED)
    with pytest.raises(IndexNotReadyError):
        upgrade_index(tmp_path / "nothing", new_checkpoint, SETTINGS)
    assert not (tmp_path / "nothing").exists()
    assert not (index_copy / MODELS).exists()
    begin(index_copy, 1)
    with pytest.raises(IndexMismatchError, match=r"model of the upgrade to be resumed"):
        upgrade_index(index_copy, tiny_checkpoint, RESUMED)


@pytest.mark.parametrize("corrected", [False, True])
def test_what_is_fitted_to_the_new_model_comes_along(
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


def test_a_finished_upgrade_is_resumed_to_nothing(index_copy: Path, new_checkpoint: Path) -> None:
    upgrade_index(index_copy, new_checkpoint, SETTINGS)
    for model in (None, new_checkpoint):
        report = upgrade_index(index_copy, model, RESUMED)
        assert (report.generation, report.counts) == (2, {"images": 23, "texts": 16})


def test_what_was_fitted_to_the_old_model_is_named(index_copy: Path, new_checkpoint: Path) -> None:
    tune_index(index_copy, TuneOptions(num_queries=4, fidelity=0.5))
    report = upgrade_index(index_copy, new_checkpoint, SETTINGS)
    assert report.not_kept == ["tune"]
    manifest = read_manifest(generation_folder(index_copy, report.generation))
    assert manifest.images is not None
    assert manifest.images.tuning is None
    assert manifest.encoding == {}
