import contextlib
import dataclasses
import errno
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from aladin_index.building.builder import BuildReport, build_index
from aladin_index.changes.item_changer import add_items
from aladin_index.encode.source_items import ImageItem, TextItem
from aladin_index.format.disk import only_builder
from aladin_index.format.layout import (
    BUILD,
    generation_folder,
    live_generation,
    published_generations,
)
from aladin_index.format.manifest import read_manifest
from aladin_index.generations.merge import merge_indexes
from aladin_index.generations.published import store_calibration
from aladin_index.generations.reader import open_index
from aladin_index.generations.verify import verify_index
from aladin_index.open import open_writer
from aladin_index.search.searcher import TwoStageSearcher
from aladin_index.settings import AddSettings, BuildSettings
from aladin_network.calibration.calibration import Calibration, write_calibration
from aladin_network.checkpoint import load_checkpoint, save_checkpoint
from aladin_network.errors import (
    CheckpointError,
    ConfigError,
    IndexMismatchError,
    IndexWriteError,
    InputError,
)
from aladin_network.photos.decoding import ImageLimits
from aladin_network.scoring.fusion import DirectionFusion, Fusion
from aladin_network.types import NullProgress
from tests.index.progress import CountedProgress
from tests.index.written import contents, file_bytes

SETTINGS = BuildSettings(shard_items=4, batch_size=3)


class Recorder(CountedProgress):
    """Keeps what a build reports; interrupts it when it has done `fail_at` units of `fail_in`."""

    def __init__(self, fail_in: str = "", fail_at: int = 0) -> None:
        super().__init__()
        self.notes: dict[str, float | str] = {}
        self._fail = (fail_in, fail_at)

    def advance(self, count: int = 1) -> None:
        super().advance(count)
        unit, _, done = self.pieces[-1]
        if unit == self._fail[0] and done >= self._fail[1]:
            raise KeyboardInterrupt

    def note(self, **numbers: float | str) -> None:
        self.notes |= numbers


Build = Callable[..., BuildReport]


@pytest.fixture
def out(tmp_path: Path) -> Path:
    """Where the index of a test is."""
    return tmp_path / "index"


@pytest.fixture
def build(out: Path, tiny_checkpoint: Path) -> Build:
    """Builds: ``build(images, texts, checkpoint=..., out=..., progress=..., batch_size=2)``."""
    usual = out

    def run(
        images: Any,
        texts: Any = None,
        checkpoint: Path = tiny_checkpoint,
        out: Path = usual,
        progress: Any = None,
        **settings: Any,
    ) -> BuildReport:
        wanted = dataclasses.replace(SETTINGS, **settings)
        return build_index(checkpoint, out, images, texts, wanted, progress or NullProgress())

    return run


@pytest.fixture
def other_weights(tiny_checkpoint: Path, tmp_path: Path) -> Path:
    """A checkpoint of the same form."""
    model = load_checkpoint(tiny_checkpoint).model
    next(model.parameters()).data += 0.5
    save_checkpoint(tmp_path / "other", model)
    return tmp_path / "other"


def left_behind(out: Path) -> list[str]:
    """What is in the folder of an index and no part of it."""
    known = {"CURRENT", "model", "generations", ".lock", ".changes.lock", "changes"}
    there = out.iterdir() if out.exists() else ()
    return [path.name for path in there if path.name not in known]


def test_broken_items_among_good_ones_are_left_out_and_named(
    tmp_path: Path, out: Path, build: Build, images: list[ImageItem]
) -> None:
    wide = tmp_path / "wide.png"
    Image.fromarray(np.zeros((100, 100), np.uint8)).save(wide)
    broken: dict[str, tuple[bytes | None, str]] = {
        "empty": (b"", "0 bytes"),
        "no picture": (b"words, not pixels", "not an image"),
        "cut short": (images[0].path.read_bytes()[:200], "cut short"),
        "missing": (None, "No such file"),
        "too many pixels": (wide.read_bytes(), "100 x 100 pixels, limit 9999"),
    }
    some: list[ImageItem] = list(images[:5])
    for place, (name, (content, _)) in enumerate(broken.items()):
        path = tmp_path / f"{name}.png"
        if content is not None:
            path.write_bytes(content)
        some.insert(2 * place, ImageItem(id=name, path=path, uri=name))
    words = [TextItem(id="fine", text="two dogs"), TextItem(id="blank", text="  \n")]
    progress = Recorder()
    report = build(some, words, limits=ImageLimits(max_pixels=9_999), progress=progress)
    assert report.counts == {"images": 5, "texts": 1}
    skipped = dict(report.skipped)
    reasons = {name: reason for name, (_, reason) in broken.items()}
    assert skipped.keys() == {*reasons, "blank"}
    assert all(reason in skipped[name] for name, reason in reasons.items())
    assert skipped["blank"] == "the text is empty"
    assert list(contents(out)) == [item.id for item in images[:5]]
    manifest = read_manifest(generation_folder(out, 1))
    assert manifest.images and manifest.texts
    assert (manifest.images.skipped, manifest.texts.skipped) == (5, 1)
    assert progress.pieces == [
        ("photos listed", None, 10),
        ("texts listed", None, 2),
        ("photos", 10, 10),
        ("texts", 2, 2),
        ("images written", 5, 5),
        ("texts written", 1, 1),
        ("vectors", 5, 5),
        ("vectors", 1, 1),
    ]
    assert set(report.seconds) == {"list", "read", "decode", "encode", "write", "ann"}
    assert set(progress.notes) == {f"{stage}_s" for stage in report.seconds}
    assert left_behind(out) == []


def test_nothing_usable_publishes_nothing(out: Path, tmp_path: Path, build: Build) -> None:
    items = [ImageItem(id=name, path=tmp_path / name, uri=name) for name in ("a", "b")]
    with pytest.raises(InputError, match=r"images: none of 2 could be used, e\.g\. 'a': .*No such"):
        build(items)
    assert (published_generations(out), left_behind(out)) == ([], [])


A = TextItem(id="a", text="dog")
TWICE = [ImageItem(id="77", uri=f"post_{n}.jpg", path=Path(f"{n}.jpg")) for n in range(2)]


@pytest.mark.parametrize(
    ("error", "message", "images", "texts", "settings"),
    [
        (InputError, "got neither", None, None, {}),
        (InputError, "id 'a' repeats, item 2 after item 1", None, [A, A], {"strict": True}),
        (
            InputError,
            r"id '77' repeats, item 2 \('post_1.jpg'\) after item 1 \('post_0.jpg'\)",
            TWICE,
            None,
            {"strict": True},
        ),
        (ConfigError, "'IVF64,Flat' needs at least 64", None, [A], {"ann": "IVF64,Flat"}),
        (CheckpointError, "not a checkpoint", None, [A], {"checkpoint": Path("/usr")}),
        (ConfigError, "batch_size: expected at least 1, got 0", None, [A], {"batch_size": 0}),
        (ConfigError, "token_dtype: expected one of", None, [A], {"token_dtype": "float8"}),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_bad_input_is_refused_before_any_work(
    out: Path,
    build: Build,
    error: type[Exception],
    message: str,
    images: Any,
    texts: Any,
    settings: dict[str, Any],
) -> None:
    with pytest.raises(error, match=message):
        build(images, texts, **settings)
    assert not out.exists()


def test_a_rebuild_adds_a_generation(out: Path, build: Build, images: list[ImageItem]) -> None:
    assert build(images[:4]).generation == 1
    before = open_index(out)
    assert build(images[:9]).generation == 2
    assert published_generations(out) == [1, 2]
    assert len(contents(out)) == 9
    assert before.collection("images").items.by_rows([3])[0].id == images[3].id
    before.close()
    # The index needs nothing else: the copy of the model is the one to build with.
    assert build(images[:2], checkpoint=out / "model").generation == 3


def test_an_index_takes_no_other_model_once_it_has_a_generation(
    tmp_path: Path, out: Path, build: Build, other_weights: Path, tiny_checkpoint: Path
) -> None:
    with pytest.raises(KeyboardInterrupt):  # a first build that failed binds none
        build(None, [A], progress=Recorder("texts", 1))
    build(None, [A], checkpoint=other_weights)
    model = load_checkpoint(other_weights).model
    other_config = tmp_path / "config"
    save_checkpoint(other_config, model, Fusion(text_to_image=DirectionFusion(weight=0.5)))
    for checkpoint in (tiny_checkpoint, other_config):
        with pytest.raises(IndexMismatchError, match=r"expected .*, got "):
            build(None, [A], checkpoint=checkpoint)
    assert live_generation(out) == 1
    verify_index(out)


def test_resuming_goes_on_where_the_build_stopped(
    out: Path, build: Build, images: list[ImageItem]
) -> None:
    with pytest.raises(KeyboardInterrupt):
        build(images, progress=Recorder("photos", 11))
    # Four items a shard are asked for; two batches of three they are.
    shards = sorted((out / BUILD / "images").glob("shard-*"))
    assert [shard.name for shard in shards] == ["shard-00000"]
    written = [shard.stat().st_mtime_ns for shard in shards]
    seen: list[list[int]] = []

    class Watch(Recorder):
        def start(self, total: int | None, unit: str) -> None:
            super().start(total, unit)
            seen.append([shard.stat().st_mtime_ns for shard in shards])

    progress = Watch()
    # It goes on with its own shards.
    report = build(images, shards=1, resume=True, progress=progress)
    assert report.generation == 1
    assert ("photos", len(images) - 6, len(images) - 6) in progress.pieces
    assert progress.notes["resumed_after"] == 6
    assert seen == [written] * 4  # photos listed, photos, images written, vectors
    assert len(contents(out)) == len(images)
    again = build(images, shards=1, resume=True)
    assert (again.generation, again.counts) == (1, report.counts)  # there is nothing left to do


def test_shards_and_readers_change_nothing(
    tmp_path: Path, build: Build, images: list[ImageItem], texts: list[TextItem]
) -> None:
    broken = ImageItem(id="broken", path=tmp_path / "none", uri="none")
    photos = [*images[:5], broken, *images[5:]]
    found: list[dict[str, bytes]] = []
    for shards, readers in ((1, 1), (3, 2), (99, 4)):
        out = tmp_path / str(shards)
        settings: dict[str, Any] = {"readers": readers, "token_dtype": "4bit", "shard_items": None}
        build(iter(photos), iter(texts), out=out, shards=shards, **settings)
        found.append(file_bytes(out))
    assert found[0] == found[1] == found[2]


@pytest.mark.parametrize("done", [False, True], ids=["cut short", "done"])
def test_a_build_beside_which_another_generation_came_is_not_taken_for_it(
    tmp_path: Path, out: Path, build: Build, images: list[ImageItem], done: bool
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        if done:  # killed before its work is thrown away
            patch.setattr("aladin_index.building.builder.discard", lambda _: None)
            build(images[:3])
        else:
            build(images[:3])
            with pytest.raises(KeyboardInterrupt):
                build(images, progress=Recorder("photos", 5))
    merge_indexes([Path(shutil.copytree(out, tmp_path / "copy"))], out)
    assert live_generation(out) == 2
    build(images[:3] if done else images, resume=True)
    # One that is done is not made live over a later one.
    assert live_generation(out) == (2 if done else 3)
    assert len(contents(out)) == (3 if done else len(images))
    assert left_behind(out) == []


@pytest.mark.parametrize("change", ["photo", "model"])
def test_a_stale_plan_is_not_resumed(
    tmp_path: Path, build: Build, images: list[ImageItem], other_weights: Path, change: str
) -> None:
    photo = Path(shutil.copyfile(images[0].path, tmp_path / "photo.png"))
    items = [ImageItem(id="copy", path=photo, uri="photo.png"), *images[:6]]
    changed = {"checkpoint": other_weights} if change == "model" else {}
    with pytest.raises(KeyboardInterrupt):
        build(items, progress=Recorder("photos", 5))
    if change == "photo":
        shutil.copyfile(images[1].path, photo)
    with pytest.raises(IndexMismatchError, match="cannot resume"):
        build(items, resume=True, **changed)
    assert build(items, **changed).counts == {"images": len(items)}


def no_space(*_: object, **__: object) -> None:
    raise OSError(errno.ENOSPC, "No space left on device")


@pytest.mark.parametrize(
    "place",
    [
        "generations.collection_writer.NpyWriter",
        "building.shards.NpyWriter",
        "building.resume.write_json",
    ],
)
def test_a_full_disk_leaves_the_old_generation_live(
    out: Path, build: Build, images: list[ImageItem], monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    build(images[:3])
    with monkeypatch.context() as patch:
        patch.setattr(f"aladin_index.{place}", no_space)
        with pytest.raises(IndexWriteError, match="No space left on device; the live generation"):
            build(images)
    assert live_generation(out) == 1
    assert list(contents(out)) == [item.id for item in images[:3]]
    verify_index(out)
    assert build(images, resume=True).generation == 2
    assert len(contents(out)) == len(images)


def test_one_builder_at_a_time(out: Path, build: Build) -> None:
    with (
        only_builder(out),
        pytest.raises(IndexWriteError, match="another build of this index is running"),
    ):
        build(None, [A])
    build(None, [A])


def test_the_checkpoints_calibration_goes_into_the_index(
    out: Path,
    build: Build,
    folder: Path,
    texts: list[TextItem],
    make_calibration: Callable[..., Calibration],
) -> None:
    build(None, texts[:3], folder)
    assert read_manifest(generation_folder(out, 1)).calibration is None
    calibration = make_calibration(load_checkpoint(folder).model_id)
    write_calibration(folder, calibration)
    # The same items, yet another index: its hits have probabilities.
    for _ in range(2):
        assert build(None, texts[:3], folder, resume=True).generation == 2
    assert read_manifest(generation_folder(out, 2)).calibration == calibration
    data = json.loads((folder / "calibration.json").read_text())
    (folder / "calibration.json").write_text(json.dumps(data | {"model_id": "f00d"}))
    with pytest.raises(CheckpointError, match="found one of f00d"):
        build(None, texts[:3], folder)
    # The index's own copy of the checkpoint has none: what the live generation has stays.
    assert build(None, texts[:4], out / "model").generation == 3
    assert read_manifest(generation_folder(out, 3)).calibration == calibration


@pytest.mark.parametrize(
    ("data", "target", "marked"),
    [
        (range(60), "images", False),  # all 23 photos are among those of the data
        (range(11, 60), "images", False),  # 12 of them
        (range(12, 60), "images", True),
        (range(11, 60), "texts", False),
        (range(12, 60), "texts", True),
    ],
)
def test_a_calibration_of_other_photos_is_marked(
    out: Path,
    build: Build,
    folder: Path,
    images: list[ImageItem],
    make_calibration: Callable[..., Calibration],
    data: range,
    target: str,
    marked: bool,
) -> None:
    model_id = load_checkpoint(folder).model_id
    made = make_calibration(model_id, data=[f"photo {each}" for each in data])
    write_calibration(folder, made)
    texts = [TextItem(id=f"{image.id}#0", text="some words") for image in images]
    collections: tuple[Any, Any] = (images, None) if target == "images" else (None, texts)
    build(*collections, folder)
    stored = read_manifest(generation_folder(out, 1)).calibration
    assert stored is not None and stored.other_photos is marked
    # One that is fitted to the index is of its photos, whatever its data, also in the next build.
    on_index = dataclasses.replace(stored.fitted_on, searched="index")
    store_calibration(out, dataclasses.replace(made, fitted_on=on_index))
    (folder / "calibration.json").unlink()
    stored = read_manifest(
        generation_folder(out, build(*collections, folder).generation)
    ).calibration
    assert stored is not None and stored.other_photos is False


def test_a_text_that_is_too_long_is_cut_and_its_metadata_say_so(
    tiny_checkpoint: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """By a build and by an addition alike; the text itself is kept whole."""
    long = "dogs " * 100
    # Of the 32 tokens that the network reads, two are special ones.
    words = [TextItem(id="short", text="dogs " * 30), TextItem(id="long", text=long)]
    build_index(tiny_checkpoint, tmp_path / "index", None, words, BuildSettings())
    assert "1 texts are longer than the network reads" in caplog.text
    checkpoint = load_checkpoint(tiny_checkpoint)
    caplog.clear()
    with contextlib.closing(open_writer(tmp_path / "index", checkpoint.model_id)) as writer:
        added = [TextItem(id="added", text=long, metadata={"from": "me"})]
        counts = add_items(writer, checkpoint.model, "texts", added, AddSettings())
    assert (counts.added, counts.skipped) == (1, [])
    assert "1 texts are longer than the network reads" in caplog.text
    with open_index(tmp_path / "index") as opened:
        searcher = TwoStageSearcher(opened)
        items = [opened.collection("texts").items.by_id(each) for each in ("short", "long")]
        assert [each and each.metadata for each in items] == [{}, {"cut_to_tokens": 32}]
        assert [each and each.text for each in items] == ["dogs " * 30, long]
        short, cut, later = (
            searcher.stored_query(each).encoding.embedding[0] for each in ("short", "long", "added")
        )
    np.testing.assert_allclose(cut, short, atol=1e-6)
    np.testing.assert_allclose(later, short, atol=1e-6)
