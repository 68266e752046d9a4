"""Passes over folders: what each leaves in the index, and which photos the network encodes."""

from __future__ import annotations

import errno
import itertools
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

from aladin_index.building import builder
from aladin_index.building.builder import build_index
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
from aladin_service.item_sources import image_items
from aladin_service.library import folder_sync as folder_sync_module
from aladin_service.library.folder_sync import FolderSettings, FolderSync
from tests.index.corrections import QUERIES, assert_stored_alike, correction_of
from tests.service.commands.conftest import aladin

Facts = dict[str, Any]
NAMES = ["a.png", "b.png", "c.png", "d.png", "old/e.png", "old/f.png"]
SEEDS = itertools.count()


class Indexed(NamedTuple):
    text: str | None
    metadata: dict[str, Any]
    embedding: list[float]
    tokens: list[list[float]]


def paint(folder: Path, *names: str) -> None:
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        pixels = np.random.default_rng(next(SEEDS)).integers(0, 256, (8, 8, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(folder / name, format="PNG")


def write(folder: Path, **texts: str) -> None:
    for name, text in texts.items():
        suffix = "json" if text.startswith("{") else "txt"
        (folder / f"{name}.{suffix}").write_text(text, encoding="utf-8")


def build(model: Path, folder: Path, out: Path) -> Path:
    build_index(model, out, image_items(folder, None), None, BuildSettings(readers=1))
    return out


def contents(index: Path) -> dict[str, Indexed]:
    with open_index(index) as opened:
        live = opened.collection("images")
        ids = list(live.items.ids())
        assert len({item_id for item_id, _ in ids}) == len(ids) == live.count
        found: dict[str, Indexed] = {}
        for item_id, row in ids:
            (item,) = live.items.by_rows([row])
            vectors = live.embedding(row).tolist(), live.tokens(row).tolist()
            found[item_id] = Indexed(item.text, item.metadata, *vectors)
        return found


def facts(report: SyncReport) -> Facts:
    ids = {name: sorted(getattr(report, name)) for name in ("added", "changed", "moved", "deleted")}
    skipped = [item_id for item_id, _ in report.skipped]
    counts = {name: getattr(report, name) for name in ("unchanged", "encoded", "remaining")}
    found: Facts = {**ids, "skipped": skipped, **counts, "waiting": report.waiting}
    return {name: each for name, each in found.items() if each}


class Followed(NamedTuple):
    photos: Path
    index: Path
    model: Path

    def sync(self, *folders: Path, **settings: Any) -> FolderSync:
        return FolderSync(self.index, FolderSettings(folders=folders or [self.photos], **settings))

    def run(self, *folders: Path, **settings: Any) -> Facts:
        return facts(self.sync(*folders, **settings).run())

    def is_as_built(self) -> bool:
        """Compare the index with one that is built of the folder as it is now."""
        fresh = build(self.model, self.photos, self.index.with_name("fresh"))
        expected, found = contents(fresh), contents(self.index)
        shutil.rmtree(fresh)
        assert found.keys() == expected.keys()
        for item_id, each in expected.items():
            assert found[item_id][:2] == each[:2]
            for ours, theirs in zip(found[item_id][2:], each[2:], strict=True):
                # Batches of other sizes round differently.
                np.testing.assert_allclose(np.array(ours), np.array(theirs), atol=2e-3)
        return True


@pytest.fixture(scope="module")
def network(tiny_checkpoint: Path) -> Checkpoint:
    return load_checkpoint(tiny_checkpoint)


@pytest.fixture(autouse=True)
def one_network(network: Checkpoint, monkeypatch: pytest.MonkeyPatch) -> None:
    """Load the network once for all tests, which takes longer than the rest of them."""
    for module in (builder, reader, folder_sync_module):
        monkeypatch.setattr(module, "load_for_inference", lambda *_, **__: network)


@pytest.fixture(scope="module")
def before(tiny_checkpoint: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    home = tmp_path_factory.mktemp("followed")
    paint(home / "now" / "photos", *NAMES)
    build(tiny_checkpoint, home / "now" / "photos", home / "now" / "index")
    return Path(shutil.copytree(home / "now", home / "before"))


@pytest.fixture
def followed(before: Path, tiny_checkpoint: Path) -> Followed:
    """The photos as they were when they were indexed, at the same path."""
    now = before.with_name("now")
    shutil.rmtree(now)
    shutil.copytree(before, now)
    return Followed(now / "photos", now / "index", tiny_checkpoint)


def add(followed: Followed, *names: str) -> None:
    """Paint photos and add them as `aladin index add` does, without a pass over the folder."""
    paint(followed.photos, *names)
    network = load_checkpoint(followed.model)
    items = (item for item in image_items(followed.photos, None) if item.id in names)
    with closing(ChangesWriter(followed.index, network.model_id)) as writer:
        add_items(writer, network.model, "images", items, AddSettings(readers=1))


# Edits of a followed folder.


def edit_much(followed: Followed) -> None:
    photos = followed.photos
    paint(photos, "new/g.png", "a.png")
    os.utime(photos / "b.png", ns=(1, 1))  # touched
    (photos / "c.png").unlink()
    (photos / "d.png").rename(photos / "new" / "h.png")
    (photos / "old").rename(photos / "older")


def swap_and_copy(followed: Followed) -> None:
    photos = followed.photos
    (photos / "a.png").rename(photos / "x.png")
    (photos / "b.png").rename(photos / "a.png")
    (photos / "x.png").rename(photos / "b.png")
    os.utime(photos / "a.png", ns=(2, 2))  # both were written within one tick of the clock
    os.utime(photos / "b.png", ns=(3, 3))
    shutil.copy2(photos / "c.png", photos / "copy.png")


def damage(followed: Followed) -> None:
    (followed.photos / "a.png").write_bytes(b"not a photo")
    (followed.photos / "z.png").write_bytes(b"nor this")


def move_all(followed: Followed) -> None:
    for path in sorted(followed.photos.iterdir()):
        (followed.photos / "deep").mkdir(exist_ok=True)
        path.rename(followed.photos / "deep" / path.name)


def compact_and_move(followed: Followed) -> None:
    compact_index(followed.index)
    os.utime(followed.photos / "b.png", ns=(1, 1))
    (followed.photos / "a.png").rename(followed.photos / "first.png")
    (followed.photos / "g.png").rename(followed.photos / "last.png")


def cut(followed: Followed) -> None:
    pixels = np.random.default_rng(3).integers(0, 256, (40, 50, 3), dtype=np.uint8)
    Image.fromarray(pixels).save(followed.photos / "cut.jpg")
    complete = (followed.photos / "cut.jpg").read_bytes()
    (followed.photos / "cut.jpg").write_bytes(complete[:-40])


def edit_in_the_future(followed: Followed) -> None:
    paint(followed.photos, "a.png")
    os.utime(followed.photos / "a.png", ns=(10**19 // 5, 10**19 // 5))


def edit_before_a_compaction(followed: Followed) -> None:
    """Of a photo that was built, one that was added, and one that stays as it was added."""
    add(followed, "g.png", "h.png")
    paint(followed.photos, "b.png", "g.png")
    compact_index(followed.index, keep=1)


Edit = Callable[[Followed], Any]
SEEN: tuple[Edit, Facts] = (lambda _: None, {"unchanged": 6})
OLD, MUCH = ["old/e.png", "old/f.png"], ["new/h.png", "older/e.png", "older/f.png"]
EDITED = {"changed": ["a.png"], "encoded": 1, "unchanged": 5}
# Edits one after the other, and what the pass after each reports.
STEPS: dict[str, list[tuple[Edit, Facts]]] = {
    "much at once": [
        SEEN,
        (
            edit_much,
            {
                "added": ["new/g.png"],
                "changed": ["a.png", "b.png"],  # the time of its file is its date
                "moved": MUCH,
                "deleted": ["c.png"],
                "encoded": 2,
            },
        ),
    ],
    "photos change places and are copied": [
        SEEN,
        (swap_and_copy, {"changed": ["a.png", "b.png"], "added": ["copy.png"], "unchanged": 4}),
    ],
    "captions and metadata": [
        SEEN,
        (
            lambda it: write(it.photos, a="a red dog\n", b='{"year": 2020}'),
            {"changed": ["a.png", "b.png"], "unchanged": 4},
        ),
    ],
    "damage": [
        SEEN,
        (damage, {"deleted": ["a.png"], "skipped": ["a.png", "z.png"], "unchanged": 5}),
    ],
    "all are moved": [SEEN, (move_all, {"moved": [f"deep/{name}" for name in NAMES]})],
    "photos that come back are not encoded again": [
        SEEN,
        (
            lambda it: (it.photos / "old").rename(it.photos.with_name("away")),
            {"deleted": OLD, "unchanged": 4},
        ),
        (
            lambda it: it.photos.with_name("away").rename(it.photos / "old"),
            {"added": OLD, "unchanged": 4},
        ),
    ],
    "states outlive a compaction": [
        (lambda it: paint(it.photos, "g.png"), {"added": ["g.png"], "encoded": 1, "unchanged": 6}),
        (
            compact_and_move,
            {"changed": ["b.png"], "moved": ["first.png", "last.png"], "unchanged": 4},
        ),
    ],
    "a photo without its end keeps what is said of it": [
        (cut, {"added": ["cut.jpg"], "encoded": 1, "unchanged": 6}),
        (
            lambda it: (it.photos / "cut.jpg").rename(it.photos / "moved.jpg"),
            {"moved": ["moved.jpg"], "unchanged": 6},
        ),
    ],
    "younger than an index without states": [(edit_in_the_future, EDITED)],
    "edited after it was indexed, before the next generation": [
        (
            edit_before_a_compaction,
            {"changed": ["b.png", "g.png"], "encoded": 2, "unchanged": 6},
        )
    ],
}


@pytest.mark.parametrize("steps", STEPS.values(), ids=STEPS)
def test_a_pass_makes_the_index_hold_the_photos_of_the_folder(
    followed: Followed, steps: list[tuple[Edit, Facts]]
) -> None:
    for edit, expected in steps:
        edit(followed)
        assert followed.run() == expected
    assert followed.is_as_built()
    for name, found in contents(followed.index).items():
        assert name != "moved.jpg" or found.metadata  # it lacks its end
    again = followed.sync().run()
    assert (again.encoded, again.has_changes) == (0, False)


def test_a_pass_over_a_corrected_index_stores_the_biases_of_a_build(
    followed: Followed, tmp_path: Path
) -> None:
    _, index, tiny = followed
    photos, model = followed.photos, Path(shutil.copytree(tiny, tmp_path / "corrected"))
    correction_of(model, sorted(photos.glob("*.png")), 0.8).save(model / CORRECTION)
    texts = [TextItem(id=text, text=text) for text in QUERIES]
    shutil.rmtree(index)
    build_index(model, index, image_items(photos, None), texts, BuildSettings(readers=1))
    followed.run()
    paint(photos, "new/g.png")
    (photos / "d.png").rename(photos / "new" / "h.png")
    expected = {"added": ["new/g.png"], "moved": ["new/h.png"], "encoded": 1, "unchanged": 5}
    assert followed.run() == expected
    fresh = tmp_path / "fresh"
    build_index(model, fresh, image_items(photos, None), texts, BuildSettings(readers=1))
    assert_stored_alike(index, fresh)


@pytest.mark.parametrize("change", [rollback_index, compact_index])
def test_photos_are_counted_once_whatever_generation_goes_live_in_a_pass(
    followed: Followed, change: Callable[[Path], object]
) -> None:
    """With a rollback, what was added in this pass is gone."""
    photos, index, _ = followed
    paint(photos, "g.png")
    followed.run()
    compact_index(index)
    new = ["h.png", "i.png", "j.png", "k.png"]
    paint(photos, *new)
    write(photos, a="a red dog")
    others = [change]

    def is_stopped() -> bool:
        with open_index(index) as opened:
            if opened.collection("images").count == 9 and others:  # the first two were added
                others.pop()(index)
        return False

    report = followed.sync(add=AddSettings(batch_size=2)).run(is_stopped=is_stopped)
    assert not others
    expected = {"added": new, "changed": ["a.png"], "unchanged": 6}
    assert facts(report) == expected | {"encoded": 6 if change is rollback_index else 4}
    assert followed.is_as_built()


@pytest.mark.parametrize("is_compacted", [True, False])
def test_captions_that_changed_before_the_first_pass_are_noticed(
    followed: Followed, is_compacted: bool
) -> None:
    """In an index that was built of the folder, and of photos that were added from it."""
    photos, index, model = followed
    shutil.rmtree(index)
    write(photos, a="a cat", b='{"year": 2020}', c="a house")
    build(model, photos, index)
    paint(photos, "g.png", "h.png")
    write(photos, g="a bird")
    aladin("index", "add", index, "--images", photos, "--on-duplicate", "skip")
    write(photos, a="a red dog", b='{"year": 2021}', d="a tree", g="two birds", h='{"year": 1999}')
    (photos / "c.txt").unlink()
    if is_compacted:
        compact_index(index)
    changed = [f"{name}.png" for name in "abcdgh"]
    assert followed.run() == {"changed": changed, "unchanged": 2}
    assert followed.is_as_built()
    assert followed.run() == {"unchanged": 8}


def test_captions_of_a_list_stay_with_photos_that_are_followed_afterwards(
    followed: Followed,
) -> None:
    """The folder says nothing of them, and did not when they were indexed."""
    photos, index, model = followed
    shutil.rmtree(index)
    line = {"image": "a.png", "id": "a.png", "captions": ["from the list"]}
    (photos / "list.jsonl").write_text(json.dumps(line), encoding="utf-8")
    build(model, photos / "list.jsonl", index)
    for _ in range(2):
        followed.run()
        assert contents(index)["a.png"].text == "from the list"


def test_many_changes_are_compacted(followed: Followed) -> None:
    paint(followed.photos, "g.png")
    followed.run(compact_at=3)
    paint(followed.photos, "h.png")
    (followed.photos / "a.png").unlink()
    followed.run(compact_at=3)
    with open_index(followed.index) as opened:
        assert (opened.generation, opened.collection("images").changes) == (2, None)
    assert followed.is_as_built()


def test_an_empty_missing_or_disconnected_folder_changes_nothing(
    followed: Followed, monkeypatch: pytest.MonkeyPatch
) -> None:
    photos, index, _ = followed
    before, stat = contents(index), Path.stat

    def disconnected(path: Path, **options: Any) -> os.stat_result:
        if path == photos:
            raise OSError(errno.ENOTCONN, os.strerror(errno.ENOTCONN))
        return stat(path, **options)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "stat", disconnected)
        for allow_missing in (False, True):
            with pytest.raises(MissingPhotosError, match="not connected; nothing was changed"):
                followed.run(allow_missing=allow_missing)
    photos.rename(photos.with_name("unmounted"))
    with pytest.raises(MissingPhotosError, match="expected a folder of photos, found nothing"):
        followed.run()
    photos.mkdir()
    with pytest.raises(
        MissingPhotosError, match=r"has 6 of this folder.*sync INDEX \S+ --allow-empty"
    ):
        followed.run()
    assert contents(index) == before
    assert followed.run(allow_missing=True) == {"deleted": NAMES}
    assert contents(index) == {}
    photos.rmdir()
    photos.with_name("unmounted").rename(photos)
    assert followed.run()["added"] == NAMES
    assert contents(index).keys() == before.keys()


def test_a_subfolder_that_cannot_be_read_keeps_its_photos(
    followed: Followed, monkeypatch: pytest.MonkeyPatch
) -> None:
    scandir = os.scandir

    def broken(folder: Path) -> object:
        if Path(folder).name == "old":
            raise OSError(5, "Input/output error")
        return scandir(folder)

    (followed.photos / "a.png").unlink()
    monkeypatch.setattr(os, "scandir", broken)
    report = followed.sync().run()
    assert report.deleted == ["a.png"]
    assert report.skipped == [("old", "a folder that cannot be read (Input/output error)")]
    assert set(OLD) < contents(followed.index).keys()


def test_photos_of_other_folders_stay(followed: Followed, tmp_path: Path) -> None:
    other = tmp_path / "other"
    paint(other, "a.png", "i.png")
    found = followed.run(other)
    assert (found["added"], found.get("deleted")) == (["i.png", "other/a.png"], None)
    assert len(contents(followed.index)) == 8
    (other / "a.png").unlink()
    assert followed.run(followed.photos, other)["deleted"] == ["other/a.png"]
    with pytest.raises(InputError, match="none is inside another"):
        followed.run(followed.photos, followed.photos / "old")


def test_a_folder_that_was_moved_as_a_whole_keeps_its_encodings(followed: Followed) -> None:
    before = contents(followed.index)
    followed.run()
    assert followed.run(followed.photos.rename(followed.photos.with_name("library"))) == {
        "moved": NAMES
    }
    assert contents(followed.index) == before


def test_a_file_that_may_still_grow_is_left_for_later(followed: Followed) -> None:
    photos, index, _ = followed
    followed.run()
    growing = {"a.png", "g.png", "moved.png"}
    folder_sync = FolderSync(
        index,
        FolderSettings(folders=[photos]),
        is_settled=lambda path, size, mtime_ns: path.name not in growing,  # noqa: ARG005
    )
    before = contents(index)
    paint(photos, "a.png", "g.png")
    assert facts(folder_sync.run()) == {"waiting": 2, "unchanged": 5}
    assert contents(index) == before
    # A rename leaves size and time as they are, so the file is complete.
    (photos / "b.png").rename(photos / "moved.png")
    assert facts(folder_sync.run()) == {"waiting": 2, "moved": ["moved.png"], "unchanged": 4}
    growing.clear()
    expected = {"changed": ["a.png"], "added": ["g.png"], "encoded": 2, "unchanged": 5}
    assert facts(folder_sync.run()) == expected


def test_a_pass_may_end_early_and_the_next_goes_on(followed: Followed) -> None:
    paint(followed.photos, *(f"new-{number}.png" for number in range(5)))
    folder_sync = followed.sync(add=AddSettings(batch_size=2), most_encoded=2)
    reports = [folder_sync.run() for _ in range(3)]
    assert [(report.encoded, report.remaining) for report in reports] == [(2, 3), (2, 1), (1, 0)]
    paint(followed.photos, "last.png")
    report = folder_sync.run(is_stopped=lambda: True)
    assert (report.encoded, report.remaining) == (0, 1)
    assert folder_sync.run().added == ["last.png"]
    assert followed.is_as_built()


def test_a_file_that_is_no_photo_is_read_once(followed: Followed) -> None:
    folder_sync = followed.sync()
    (followed.photos / "bad.png").write_bytes(b"no photo")
    first, second = folder_sync.run(), folder_sync.run()
    assert first.skipped == second.skipped
    assert (len(first.unusable), len(second.unusable)) == (1, 0)
    folder_sync.forget_unusable()
    assert len(folder_sync.run().unusable) == 1
    paint(followed.photos, "bad.png")
    assert folder_sync.run().added == ["bad.png"]


def test_files_of_other_programs_neither_identify_nor_fill_an_item(followed: Followed) -> None:
    photos, posts = followed.photos, [f"post_{number}.jpg" for number in range(3)]
    paint(photos, "g.png", *posts)
    for number in range(3):
        (photos / f"post_{number}.json").write_text('{"id": 77, "title": "my post"}')
    write(photos, post_0="x" * 2001, g='{"deep": ' + 40 * "[" + 40 * "]" + "}")
    write(photos, post_1="x" * 70_000, post_2='{"long": "' + 70_000 * "x" + '"}')
    report = followed.sync().run()
    assert report.added == posts
    found = contents(followed.index)
    assert [found[post].text for post in posts] == ["x" * 2000, None, None]
    reasons = dict(report.skipped)
    for name, says in {
        "g.png": "at most 32 levels",
        "post_0.jpg": "2000",
        "post_1.txt": "70000",
        "post_2.json": "70012",
    }.items():
        assert says in reasons.pop(name)
    assert reasons == {}
    assert followed.run()["unchanged"] == 9


def test_a_pass_starts_over_if_another_generation_went_live(
    followed: Followed, monkeypatch: pytest.MonkeyPatch
) -> None:
    followed.run()
    paint(followed.photos, "g.png")
    (followed.photos / "a.png").rename(followed.photos / "first.png")
    revise, calls = ChangesWriter.revise, list[int]()

    def compacting(self: ChangesWriter, *args: Any) -> Any:
        calls.append(1)
        if len(calls) == 2:  # between the moved photo and the new one
            compact_index(followed.index)
        return revise(self, *args)

    monkeypatch.setattr(ChangesWriter, "revise", compacting)
    expected = {"moved": ["first.png"], "added": ["g.png"], "encoded": 1, "unchanged": 5}
    assert followed.run() == expected
    assert followed.is_as_built()


class KilledError(Exception):
    """Stands in for the end of a process."""


def test_a_pass_that_ends_anywhere_is_continued(
    followed: Followed, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each step is one transaction, so these are all states in which a kill may leave an index."""
    followed.run()
    photos = followed.photos
    paint(photos, "g.png", "h.png", "a.png")
    (photos / "b.png").rename(photos / "old" / "b.png")
    (photos / "c.png").unlink()
    write(photos, d="a caption")
    revise, encode = ChangesWriter.revise, PhotoEncoder.encode
    steps, encoded = 0, 0

    def killed_after_one_step(self: ChangesWriter, *args: Any) -> None:
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
                followed.run(add=AddSettings(batch_size=1, readers=1))
            except KilledError:
                continue
            break
    assert steps == 5  # deleted; moved and described; three with new content
    assert 3 <= encoded <= 6  # what was encoded ahead when it ended is encoded again
    assert followed.is_as_built()


def test_a_photo_that_is_edited_while_an_index_is_built_is_encoded_again(
    followed: Followed, monkeypatch: pytest.MonkeyPatch
) -> None:
    encode = PhotoEncoder.encode

    def encoded(self: PhotoEncoder, batch: Sequence[Prepared]) -> Encoding:
        paint(followed.photos, "a.png")  # which has been read
        return encode(self, batch)

    shutil.rmtree(followed.index)
    with monkeypatch.context() as patched:
        patched.setattr(PhotoEncoder, "encode", encoded)
        build(followed.model, followed.photos, followed.index)
    assert followed.run() == EDITED


def test_skipped_files_of_a_pass_are_recorded_with_the_index(followed: Followed) -> None:
    photos = followed.photos
    for name in ("film.MP4", "film.aae", "IMG_1.xmp", "raw", "notes.pdf", ".hidden.jpg"):
        (photos / name).write_bytes(b"x")
    (photos / "bad.png").write_bytes(b"no photo")
    (photos / "IMG_2.cr2").write_bytes(b"raw")
    folder_sync = followed.sync()
    for _ in range(2):  # also where nothing is read again
        folder_sync.run()
        record = read_follow_record(followed.index)
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
    before = read_follow_record(followed.index)
    folder_sync.run(dry_run=True)
    assert read_follow_record(followed.index) == before
    folder_sync.run()
    after = read_follow_record(followed.index)
    assert after is not None
    assert [item_id for item_id, _ in after.skipped] == ["IMG_2.cr2"]


def test_a_link_out_of_the_followed_folders_is_not_followed(
    followed: Followed, tmp_path: Path
) -> None:
    photos, private, other = followed.photos, tmp_path / "private", tmp_path / "other"
    paint(private, "p.png")
    paint(other, "o.png")
    (photos / "out.png").symlink_to(private / "p.png")
    (photos / "in.png").symlink_to(photos / "a.png")
    (photos / "next.png").symlink_to(other / "o.png")
    found = followed.run(photos, other, photos_root=[photos, other])
    assert (found["added"], found["skipped"]) == (["in.png", "next.png", "o.png"], ["out.png"])
    (photos / "a.png").unlink()
    (photos / "a.png").symlink_to(private / "p.png")
    found = followed.run(photos, other, photos_root=[photos, other])
    assert found["deleted"] == ["a.png", "in.png"]
