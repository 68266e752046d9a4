"""Passes over folders: what each leaves in the index, and which photos the network encodes."""

from __future__ import annotations

import errno
import json
import os
import shutil
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from PIL import Image
from typer.testing import CliRunner

from aladin_index.building import builder
from aladin_index.building.builder import build_index
from aladin_index.changes.database import changes_database
from aladin_index.changes.item_changer import add_items
from aladin_index.changes.writer import ChangesWriter
from aladin_index.encode.item_encoders import PhotoEncoder
from aladin_index.encode.source_items import Prepared, TextItem
from aladin_index.format.skipped import read_follow_record
from aladin_index.generations import reader
from aladin_index.generations.compact import compact_index
from aladin_index.generations.published import rollback_index
from aladin_index.generations.reader import open_index
from aladin_index.settings import AddSettings, BuildSettings
from aladin_index.sync.apply import SyncReport
from aladin_index.sync.plan import MissingPhotosError
from aladin_network.checkpoint import load_checkpoint
from aladin_network.checkpoint_files import Checkpoint
from aladin_network.errors import InputError
from aladin_network.scoring.encoding import Encoding
from aladin_network.scoring.hub_correction import CORRECTION
from aladin_service.cli import app
from aladin_service.item_sources import image_items
from aladin_service.library import folder_sync as folder_sync_module
from aladin_service.library.folder_sync import FolderSettings, FolderSync
from tests.index.corrections import QUERIES, assert_stored_alike, correction_of


class Indexed(NamedTuple):
    """What an index has of a photo."""

    text: str | None
    embedding: list[float]
    tokens: list[list[float]]


def paint(path: Path, seed: int) -> None:
    """Write a photo of 8 x 8 random pixels."""
    path.parent.mkdir(parents=True, exist_ok=True)
    pixels = np.random.default_rng(seed).integers(0, 256, (8, 8, 3), dtype=np.uint8)
    Image.fromarray(pixels).save(path, format="PNG")


def build(model: Path, folder: Path, out: Path) -> Path:
    """Build an index of a folder."""
    build_index(model, out, image_items(folder, None), None, BuildSettings(readers=1))
    return out


def contents(index: Path) -> dict[str, Indexed]:
    """Everything that an index has of its live photos, by id."""
    with open_index(index) as opened:
        live = opened.collection("images")
        ids = list(live.items.ids())
        assert len({item_id for item_id, _ in ids}) == len(ids) == live.count
        return {
            item_id: Indexed(
                live.items.by_rows([row])[0].text,
                live.embedding(row).tolist(),
                live.tokens(row).tolist(),
            )
            for item_id, row in ids
        }


@pytest.fixture(scope="module")
def network(tiny_checkpoint: Path) -> Checkpoint:
    return load_checkpoint(tiny_checkpoint)


@pytest.fixture(autouse=True)
def one_network(network: Checkpoint, monkeypatch: pytest.MonkeyPatch) -> None:
    """Load the network once for all tests, which takes longer than the rest of them."""

    def loaded(*_: object, **__: object) -> Checkpoint:
        return network

    for module in (builder, reader, folder_sync_module):
        monkeypatch.setattr(module, "load_for_inference", loaded)


@pytest.fixture(scope="module")
def before(tiny_checkpoint: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of six photos, ``a.png`` to ``d.png`` and two in ``old``, and their index."""
    home = tmp_path_factory.mktemp("followed")
    for seed, name in enumerate(["a.png", "b.png", "c.png", "d.png", "old/e.png", "old/f.png"]):
        paint(home / "now" / "photos" / name, seed)
    build(tiny_checkpoint, home / "now" / "photos", home / "now" / "index")
    return Path(shutil.copytree(home / "now", home / "before"))


@pytest.fixture
def photos(before: Path) -> Path:
    """The photos, as they were when they were indexed, at the same path."""
    now = before.with_name("now")
    shutil.rmtree(now)
    shutil.copytree(before, now)
    return now / "photos"


@pytest.fixture
def index(photos: Path) -> Path:
    return photos.with_name("index")


@pytest.fixture
def same_as_built(
    photos: Path, index: Path, tiny_checkpoint: Path, tmp_path: Path
) -> Callable[[], bool]:
    """Compares the index with one that is built of the folder as it is now."""

    def compare() -> bool:
        fresh = build(tiny_checkpoint, photos, tmp_path / "fresh")
        expected, found = contents(fresh), contents(index)
        assert found.keys() == expected.keys()
        for item_id, encoding in expected.items():
            assert found[item_id].text == encoding.text
            for ours, theirs in zip(found[item_id][1:], encoding[1:], strict=True):
                # Batches of other sizes round differently.
                np.testing.assert_allclose(np.array(ours), np.array(theirs), atol=2e-3)
        shutil.rmtree(fresh)
        return True

    return compare


def one_pass(index: Path, *folders: Path, allow_missing: bool = False) -> SyncReport:
    settings = FolderSettings(folders=folders, allow_missing=allow_missing)
    return FolderSync(index, settings).run()


def facts(report: SyncReport) -> dict[str, Any]:
    """What a report says, without what is empty or nought."""
    ids = {name: sorted(getattr(report, name)) for name in ("added", "changed", "moved", "deleted")}
    skipped = [item_id for item_id, _ in report.skipped]
    counts = {name: getattr(report, name) for name in ("unchanged", "encoded", "remaining")}
    found: dict[str, Any] = {**ids, "skipped": skipped, **counts, "waiting": report.waiting}
    return {name: each for name, each in found.items() if each}


def edit_much(photos: Path) -> None:
    paint(photos / "new" / "g.png", 10)
    paint(photos / "a.png", 11)
    os.utime(photos / "b.png", ns=(1, 1))  # touched
    (photos / "c.png").unlink()
    (photos / "d.png").rename(photos / "new" / "h.png")
    (photos / "old").rename(photos / "older")


def swap_and_copy(photos: Path) -> None:
    (photos / "a.png").rename(photos / "x.png")
    (photos / "b.png").rename(photos / "a.png")
    (photos / "x.png").rename(photos / "b.png")
    os.utime(photos / "a.png", ns=(2, 2))  # both were written within one tick of the clock
    os.utime(photos / "b.png", ns=(3, 3))
    shutil.copy2(photos / "c.png", photos / "copy.png")


def describe(photos: Path) -> None:
    (photos / "a.txt").write_text("a red dog\n", encoding="utf-8")
    (photos / "b.json").write_text('{"year": 2020}', encoding="utf-8")


def damage(photos: Path) -> None:
    (photos / "a.png").write_bytes(b"not a photo")
    (photos / "z.png").write_bytes(b"nor this")


def move_all(photos: Path) -> None:
    for path in sorted(photos.iterdir()):
        (photos / "deep").mkdir(exist_ok=True)
        path.rename(photos / "deep" / path.name)


DEEP = [f"deep/{name}" for name in ("a.png", "b.png", "c.png", "d.png", "old/e.png", "old/f.png")]


@pytest.mark.parametrize(
    ("edit", "expected"),
    [
        (lambda _: None, {"unchanged": 6}),
        (
            edit_much,
            {
                "added": ["new/g.png"],
                "changed": ["a.png"],
                "moved": ["new/h.png", "older/e.png", "older/f.png"],
                "deleted": ["c.png"],
                "unchanged": 1,
                "encoded": 2,
            },
        ),
        (swap_and_copy, {"changed": ["a.png", "b.png"], "added": ["copy.png"], "unchanged": 4}),
        (describe, {"changed": ["a.png", "b.png"], "unchanged": 4}),
        (damage, {"deleted": ["a.png"], "skipped": ["a.png", "z.png"], "unchanged": 5}),
        (move_all, {"moved": DEEP}),
    ],
    ids=["nothing", "much", "places", "captions and metadata", "damage", "all are moved"],
)
def test_a_pass_makes_the_index_hold_the_photos_of_the_folder(
    index: Path,
    photos: Path,
    same_as_built: Callable[[], bool],
    edit: Callable[[Path], None],
    expected: dict[str, Any],
) -> None:
    one_pass(index, photos)
    edit(photos)
    assert facts(one_pass(index, photos)) == expected
    assert same_as_built()
    again = one_pass(index, photos)
    assert (again.encoded, again.has_changes) == (0, False)


def test_a_pass_over_a_corrected_index_stores_the_biases_of_a_build(
    index: Path, photos: Path, tiny_checkpoint: Path, tmp_path: Path
) -> None:
    model = Path(shutil.copytree(tiny_checkpoint, tmp_path / "corrected"))
    correction_of(model, sorted(photos.glob("*.png")), 0.8).save(model / CORRECTION)
    texts = [TextItem(id=text, text=text) for text in QUERIES]
    settings = BuildSettings(readers=1)
    shutil.rmtree(index)
    build_index(model, index, image_items(photos, None), texts, settings)
    one_pass(index, photos)

    paint(photos / "new" / "g.png", 10)
    (photos / "d.png").rename(photos / "new" / "h.png")
    report = one_pass(index, photos)
    assert (report.added, report.moved) == (["new/g.png"], ["new/h.png"])
    build_index(model, tmp_path / "fresh", image_items(photos, None), texts, settings)
    assert_stored_alike(index, tmp_path / "fresh")


def test_a_photo_that_comes_back_is_not_encoded_again(
    index: Path, photos: Path, same_as_built: Callable[[], bool]
) -> None:
    one_pass(index, photos)
    (photos / "old").rename(photos.parent / "elsewhere")
    assert sorted(one_pass(index, photos).deleted) == ["old/e.png", "old/f.png"]
    (photos.parent / "elsewhere").rename(photos / "old")
    expected = {"added": ["old/e.png", "old/f.png"], "unchanged": 4}
    assert facts(one_pass(index, photos)) == expected
    assert same_as_built()


@pytest.mark.parametrize("is_rolled_back", [True, False])
def test_photos_are_counted_once_whatever_generation_goes_live_in_a_pass(
    index: Path, photos: Path, same_as_built: Callable[[], bool], is_rolled_back: bool
) -> None:
    """By a rollback, with which what was added in this pass is gone, and by a compaction."""
    paint(photos / "g.png", 10)
    one_pass(index, photos)
    compact_index(index)
    for seed, name in enumerate("hijk", start=11):
        paint(photos / f"{name}.png", seed)
    (photos / "a.txt").write_text("a red dog", encoding="utf-8")
    others = [rollback_index if is_rolled_back else compact_index]

    def is_stopped() -> bool:
        with open_index(index) as opened:
            if opened.collection("images").count == 9 and others:  # the first two were added
                others.pop()(index)
        return False

    settings = FolderSettings(folders=[photos], add=AddSettings(batch_size=2))
    report = FolderSync(index, settings).run(is_stopped=is_stopped)
    assert not others
    assert facts(report) == {
        "added": [f"{name}.png" for name in "hijk"],
        "changed": ["a.png"],
        "unchanged": 6,
        "encoded": 6 if is_rolled_back else 4,
    }
    assert same_as_built()


@pytest.mark.parametrize("is_compacted", [True, False])
def test_captions_that_changed_before_the_first_pass_are_noticed(
    before: Path, tiny_checkpoint: Path, tmp_path: Path, is_compacted: bool
) -> None:
    """In an index that was built of the folder, and of photos that were added from it."""
    photos = Path(shutil.copytree(before / "photos", tmp_path / "photos"))

    def write(**texts: str) -> None:
        for name, text in texts.items():
            suffix = "json" if text.startswith("{") else "txt"
            (photos / f"{name}.{suffix}").write_text(text, encoding="utf-8")

    write(a="a cat", b='{"year": 2020}', c="a house")
    index = build(tiny_checkpoint, photos, tmp_path / "index")
    paint(photos / "g.png", 10)
    paint(photos / "h.png", 11)
    write(g="a bird")
    words = ["index", "add", index, "--images", photos, "--on-duplicate", "skip"]
    assert CliRunner().invoke(app, [str(word) for word in words]).exit_code == 0
    write(a="a red dog", b='{"year": 2021}', d="a tree", g="two birds", h='{"year": 1999}')
    (photos / "c.txt").unlink()
    if is_compacted:
        compact_index(index)
    changed = [f"{name}.png" for name in "abcdgh"]
    assert facts(one_pass(index, photos)) == {"changed": changed, "unchanged": 2}
    assert described(index) == described(build(tiny_checkpoint, photos, tmp_path / "fresh"))
    assert not one_pass(index, photos).has_changes


def test_a_photo_that_lacks_its_end_says_so_under_another_name_as_well(
    index: Path, photos: Path, tiny_checkpoint: Path, tmp_path: Path
) -> None:
    pixels = np.random.default_rng(3).integers(0, 256, (40, 50, 3), dtype=np.uint8)
    Image.fromarray(pixels).save(photos / "cut.jpg")
    complete = (photos / "cut.jpg").read_bytes()
    (photos / "cut.jpg").write_bytes(complete[:-40])
    one_pass(index, photos)
    (photos / "cut.jpg").rename(photos / "moved.jpg")
    assert facts(one_pass(index, photos)) == {"moved": ["moved.jpg"], "unchanged": 6}
    fresh = described(build(tiny_checkpoint, photos, tmp_path / "fresh"))
    assert described(index) == fresh
    assert fresh["moved.jpg"][1]


def described(index: Path) -> dict[str, tuple[str | None, dict[str, Any]]]:
    """What an index says of its photos."""
    with open_index(index) as opened:
        items = opened.collection("images").items
        rows = [row for _, row in items.ids()]
        return {item.id: (item.text, item.metadata) for item in items.by_rows(rows)}


def test_captions_of_a_list_stay_with_photos_that_are_followed_afterwards(
    before: Path, tiny_checkpoint: Path, tmp_path: Path
) -> None:
    """The folder says nothing of them, and did not when they were indexed."""
    photos = Path(shutil.copytree(before / "photos", tmp_path / "photos"))
    listed = tmp_path / "photos" / "list.jsonl"
    line = {"image": "a.png", "id": "a.png", "captions": ["from the list"]}
    listed.write_text(json.dumps(line), encoding="utf-8")
    index = tmp_path / "index"
    build_index(tiny_checkpoint, index, image_items(listed, None), None, BuildSettings(readers=1))
    for _ in range(2):
        one_pass(index, photos)
        assert contents(index)["a.png"].text == "from the list"


def test_states_outlive_a_compaction(
    index: Path, photos: Path, same_as_built: Callable[[], bool]
) -> None:
    paint(photos / "g.png", 10)
    one_pass(index, photos)
    compact_index(index)
    os.utime(photos / "b.png", ns=(1, 1))
    (photos / "a.png").rename(photos / "first.png")
    (photos / "g.png").rename(photos / "last.png")
    expected = {"moved": ["first.png", "last.png"], "unchanged": 5}
    assert facts(one_pass(index, photos)) == expected
    assert same_as_built()


def test_many_changes_are_compacted(
    index: Path, photos: Path, same_as_built: Callable[[], bool]
) -> None:
    settings = FolderSettings(folders=[photos], compact_at=3)
    paint(photos / "g.png", 10)
    FolderSync(index, settings).run()
    paint(photos / "h.png", 11)
    (photos / "a.png").unlink()
    FolderSync(index, settings).run()
    with open_index(index) as opened:
        assert (opened.generation, opened.collection("images").changes) == (2, None)
    assert same_as_built()


def test_an_empty_missing_or_disconnected_folder_changes_nothing(
    index: Path, photos: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before, stat = contents(index), Path.stat

    def disconnected(path: Path, **options: Any) -> os.stat_result:
        if path == photos:
            raise OSError(errno.ENOTCONN, os.strerror(errno.ENOTCONN))
        return stat(path, **options)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "stat", disconnected)
        for allow_missing in (False, True):
            with pytest.raises(MissingPhotosError, match="not connected; nothing was changed"):
                one_pass(index, photos, allow_missing=allow_missing)
    photos.rename(photos.parent / "unmounted")
    with pytest.raises(MissingPhotosError, match="expected a folder of photos, found nothing"):
        one_pass(index, photos)
    photos.mkdir()
    with pytest.raises(MissingPhotosError, match=r"the index has 6 of this folder.*--allow-empty"):
        one_pass(index, photos)
    assert contents(index) == before
    assert len(one_pass(index, photos, allow_missing=True).deleted) == 6
    assert contents(index) == {}
    photos.rmdir()
    (photos.parent / "unmounted").rename(photos)
    assert len(one_pass(index, photos).added) == 6
    assert contents(index).keys() == before.keys()


def test_a_subfolder_that_cannot_be_read_keeps_its_photos(
    index: Path, photos: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scandir = os.scandir

    def broken(folder: Path) -> object:
        if Path(folder).name == "old":
            raise OSError(5, "Input/output error")
        return scandir(folder)

    (photos / "a.png").unlink()
    monkeypatch.setattr(os, "scandir", broken)
    report = one_pass(index, photos)
    assert report.deleted == ["a.png"]
    reason = "a folder that cannot be read (Input/output error)"
    assert report.skipped == [("old", reason)]
    assert {"old/e.png", "old/f.png"} < contents(index).keys()


def test_photos_of_other_folders_stay(index: Path, photos: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    paint(other / "a.png", 20)
    paint(other / "i.png", 21)
    report = one_pass(index, other)
    assert (sorted(report.added), report.deleted) == (["i.png", "other/a.png"], [])
    assert len(contents(index)) == 8
    (other / "a.png").unlink()
    assert one_pass(index, photos, other).deleted == ["other/a.png"]
    with pytest.raises(InputError, match="none is inside another"):
        one_pass(index, photos, photos / "old")


def test_a_folder_that_was_moved_as_a_whole_keeps_its_encodings(index: Path, photos: Path) -> None:
    before = contents(index)
    one_pass(index, photos)
    report = one_pass(index, photos.rename(photos.parent / "library"))
    assert (len(report.moved), report.encoded, report.deleted) == (6, 0, [])
    assert contents(index) == before


def test_a_file_younger_than_an_index_without_states_is_encoded_again(
    index: Path, photos: Path, same_as_built: Callable[[], bool]
) -> None:
    paint(photos / "a.png", 11)
    future_ns = 10**19 // 5
    os.utime(photos / "a.png", ns=(future_ns, future_ns))
    assert facts(one_pass(index, photos)) == {"changed": ["a.png"], "encoded": 1, "unchanged": 5}
    assert same_as_built()


def test_a_file_that_may_still_grow_is_left_for_later(index: Path, photos: Path) -> None:
    one_pass(index, photos)
    growing = {"a.png", "g.png", "moved.png"}
    folder_sync = FolderSync(
        index,
        FolderSettings(folders=[photos]),
        is_settled=lambda path, size, mtime_ns: path.name not in growing,  # noqa: ARG005
    )
    before = contents(index)
    paint(photos / "a.png", 10)
    paint(photos / "g.png", 11)
    assert facts(folder_sync.run()) == {"waiting": 2, "unchanged": 5}
    assert contents(index) == before
    # A rename leaves size and time as they are, so the file is complete.
    (photos / "b.png").rename(photos / "moved.png")
    assert facts(folder_sync.run()) == {"waiting": 2, "moved": ["moved.png"], "unchanged": 4}
    growing.clear()
    expected = {"changed": ["a.png"], "added": ["g.png"], "encoded": 2, "unchanged": 5}
    assert facts(folder_sync.run()) == expected


def test_a_pass_may_end_early_and_the_next_goes_on(
    index: Path, photos: Path, same_as_built: Callable[[], bool]
) -> None:
    for number in range(5):
        paint(photos / f"new-{number}.png", 10 + number)
    settings = FolderSettings(folders=[photos], add=AddSettings(batch_size=2), most_encoded=2)
    folder_sync = FolderSync(index, settings)
    reports = [folder_sync.run() for _ in range(3)]
    assert [(report.encoded, report.remaining) for report in reports] == [(2, 3), (2, 1), (1, 0)]
    paint(photos / "last.png", 20)
    report = folder_sync.run(is_stopped=lambda: True)
    assert (report.encoded, report.remaining) == (0, 1)
    assert folder_sync.run().added == ["last.png"]
    assert same_as_built()


def test_a_file_that_is_no_photo_is_read_once(index: Path, photos: Path) -> None:
    folder_sync = FolderSync(index, FolderSettings(folders=[photos]))
    (photos / "bad.png").write_bytes(b"no photo")
    first, second = folder_sync.run(), folder_sync.run()
    assert first.skipped == second.skipped
    assert (len(first.unusable), len(second.unusable)) == (1, 0)
    folder_sync.forget_unusable()
    assert len(folder_sync.run().unusable) == 1
    paint(photos / "bad.png", 10)
    assert folder_sync.run().added == ["bad.png"]


def test_files_of_other_programs_neither_identify_nor_fill_an_item(
    index: Path, photos: Path
) -> None:
    for number in range(3):
        paint(photos / f"post_{number}.jpg", 10 + number)
        (photos / f"post_{number}.json").write_text('{"id": 77, "title": "my post"}')
    (photos / "post_0.txt").write_text("x" * 2001, encoding="utf-8")
    (photos / "post_1.txt").write_bytes(b"x" * 70_000)
    (photos / "post_2.json").write_text('{"long": "' + 70_000 * "x" + '"}', encoding="utf-8")
    paint(photos / "g.png", 10)
    (photos / "g.json").write_text('{"deep": ' + 40 * "[" + 40 * "]" + "}", encoding="utf-8")
    report = one_pass(index, photos)
    assert report.added == ["post_0.jpg", "post_1.jpg", "post_2.jpg"]
    kept = {item_id: found.text for item_id, found in contents(index).items() if "post" in item_id}
    assert kept == {"post_0.jpg": "x" * 2000, "post_1.jpg": None, "post_2.jpg": None}
    reasons = dict(report.skipped)
    for name, says in {
        "g.png": "at most 32 levels",
        "post_0.jpg": "2000",
        "post_1.txt": "70000",
        "post_2.json": "70012",
    }.items():
        assert says in reasons.pop(name)
    assert reasons == {}
    assert one_pass(index, photos).unchanged == 9


def test_a_dry_run_changes_nothing(index: Path, photos: Path) -> None:
    paint(photos / "g.png", 10)
    (photos / "a.png").unlink()
    report = FolderSync(index, FolderSettings(folders=[photos])).run(dry_run=True)
    assert (report.added, report.deleted) == (["g.png"], ["a.png"])
    assert not changes_database(index, 1, "images").exists()


def test_a_pass_starts_over_if_another_generation_went_live(
    index: Path,
    photos: Path,
    same_as_built: Callable[[], bool],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    one_pass(index, photos)
    paint(photos / "g.png", 10)
    (photos / "a.png").rename(photos / "first.png")
    revise = ChangesWriter.revise
    calls: list[int] = []

    def compacting(self: ChangesWriter, *args: object) -> list[str]:
        calls.append(1)
        if len(calls) == 2:  # between the moved photo and the new one
            compact_index(index)
        return revise(self, *args)  # type: ignore[arg-type]

    monkeypatch.setattr(ChangesWriter, "revise", compacting)
    expected = {"moved": ["first.png"], "added": ["g.png"], "encoded": 1, "unchanged": 5}
    assert facts(one_pass(index, photos)) == expected
    assert same_as_built()


class KilledError(Exception):
    """Stands in for the end of a process."""


def test_a_pass_that_ends_anywhere_is_continued(
    index: Path,
    photos: Path,
    same_as_built: Callable[[], bool],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each step is one transaction, so these are all states in which a kill may leave an index."""
    one_pass(index, photos)
    paint(photos / "g.png", 10)
    paint(photos / "h.png", 11)
    paint(photos / "a.png", 12)
    (photos / "b.png").rename(photos / "old" / "b.png")
    (photos / "c.png").unlink()
    (photos / "d.txt").write_text("a caption", encoding="utf-8")
    settings = FolderSettings(folders=[photos], add=AddSettings(batch_size=1, readers=1))
    revise, encode = ChangesWriter.revise, PhotoEncoder.encode
    steps, encoded = 0, 0

    def killed_after_one_step(self: ChangesWriter, *args: Any) -> list[str]:
        nonlocal steps
        steps += 1
        revise(self, *args)
        raise KilledError

    def counted(self: PhotoEncoder, batch: Sequence[Prepared]) -> Encoding:
        nonlocal encoded
        encoded += len(batch)
        return encode(self, batch)

    monkeypatch.setattr(PhotoEncoder, "encode", counted)
    with monkeypatch.context() as patched:
        patched.setattr(ChangesWriter, "revise", killed_after_one_step)
        while True:
            try:
                FolderSync(index, settings).run()
            except KilledError:
                continue
            break
    assert steps == 5  # deleted; moved and described; three with new content
    assert 3 <= encoded <= 6  # what was encoded ahead when it ended is encoded again
    assert same_as_built()


def add_photos(index: Path, photos: Path, network: Checkpoint, *names: str) -> None:
    """Add photos of a folder as `aladin index add` does."""
    items = (item for item in image_items(photos, None) if item.id in names)
    with closing(ChangesWriter(index, network.model_id)) as writer:
        add_items(writer, network.model, "images", items, AddSettings(readers=1))


@pytest.mark.parametrize("is_added", [False, True])
def test_a_photo_that_was_edited_before_the_next_generation_is_encoded_again(
    index: Path,
    photos: Path,
    network: Checkpoint,
    same_as_built: Callable[[], bool],
    is_added: bool,
) -> None:
    """It was built or added without a pass over the folder, and the generation is younger."""
    paint(photos / "g.png", 10)
    add_photos(index, photos, network, "g.png")
    name = "g.png" if is_added else "b.png"
    paint(photos / name, 20)
    compact_index(index, keep=1)
    assert facts(one_pass(index, photos)) == {"changed": [name], "encoded": 1, "unchanged": 6}
    assert same_as_built()
    assert one_pass(index, photos).unchanged == 7


def test_a_photo_that_is_edited_while_an_index_is_built_is_encoded_again(
    tiny_checkpoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "photos"
    for seed, name in enumerate(["a.png", "b.png"]):
        paint(folder / name, seed)
    encode = PhotoEncoder.encode

    def encoded(self: PhotoEncoder, batch: Sequence[Prepared]) -> Encoding:
        paint(folder / "a.png", 20)  # which has been read
        return encode(self, batch)

    with monkeypatch.context() as patched:
        patched.setattr(PhotoEncoder, "encode", encoded)
        index = build(tiny_checkpoint, folder, tmp_path / "index")
    report = one_pass(index, folder)
    assert (report.unchanged, report.changed) == (1, ["a.png"])


def test_skipped_files_of_a_pass_are_recorded_with_the_index(index: Path, photos: Path) -> None:
    for name in ("film.MP4", "film.aae", "IMG_1.xmp", "raw", "notes.pdf", ".hidden.jpg"):
        (photos / name).write_bytes(b"x")
    (photos / "bad.png").write_bytes(b"no photo")
    (photos / "IMG_2.cr2").write_bytes(b"raw")
    folder_sync = FolderSync(index, FolderSettings(folders=[photos]))
    for _ in range(2):  # also where nothing is read again
        folder_sync.run()
        record = read_follow_record(index)
        assert record is not None
        assert sorted(item_id for item_id, _ in record.skipped) == ["IMG_2.cr2", "bad.png"]
        assert record.other_files == {
            "videos": 1,
            "files of editors": 2,
            "files without a suffix": 1,
            "other files": 1,
            "hidden, or of other programs": 1,
        }
    (photos / "bad.png").unlink()
    before = read_follow_record(index)
    folder_sync.run(dry_run=True)
    assert read_follow_record(index) == before
    folder_sync.run()
    after = read_follow_record(index)
    assert after is not None
    assert [item_id for item_id, _ in after.skipped] == ["IMG_2.cr2"]


def test_a_link_out_of_the_followed_folders_is_not_followed(
    index: Path, photos: Path, tmp_path: Path
) -> None:
    paint(tmp_path / "private" / "p.png", 30)
    paint(tmp_path / "other" / "o.png", 31)
    (photos / "out.png").symlink_to(tmp_path / "private" / "p.png")
    (photos / "in.png").symlink_to(photos / "a.png")
    (photos / "next.png").symlink_to(tmp_path / "other" / "o.png")
    folders = [photos, tmp_path / "other"]
    settings = FolderSettings(folders=folders, photos_root=folders)
    report = FolderSync(index, settings).run()
    assert sorted(report.added) == ["in.png", "next.png", "o.png"]
    assert [item_id for item_id, _ in report.skipped] == ["out.png"]
    (photos / "a.png").unlink()
    (photos / "a.png").symlink_to(tmp_path / "private" / "p.png")
    report = FolderSync(index, settings).run()
    assert sorted(report.deleted) == ["a.png", "in.png"]
