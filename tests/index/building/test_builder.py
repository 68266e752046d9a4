import contextlib
import dataclasses
import errno
import json
import shutil
import subprocess
import weakref
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from aladin_index.building.builder import build_index
from aladin_index.building.shards import ShardFormat
from aladin_index.encode.item_changer import add_items
from aladin_index.encode.source_items import ImageItem, Prepared, TextItem
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
from aladin_index.tokens.codec import TokenCodec
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
from aladin_network.scoring.encoding import Encoding
from aladin_network.scoring.fusion import DirectionFusion, Fusion

SETTINGS = BuildSettings(shard_items=4, batch_size=3)


class Recorder:
    """Keeps what a build reports."""

    def __init__(self, fail_in: str = "", fail_at: int = 0) -> None:
        """Interrupt the build when it has done `fail_at` units of `fail_in`."""
        self.pieces: list[list[Any]] = []
        self.notes: dict[str, float | str] = {}
        self._fail = (fail_in, fail_at)

    def start(self, total: int | None, unit: str) -> None:
        self.pieces.append([unit, total, 0])

    def advance(self, count: int = 1) -> None:
        self.pieces[-1][2] += count
        unit, _, done = self.pieces[-1]
        if unit == self._fail[0] and done >= self._fail[1]:
            raise KeyboardInterrupt

    def note(self, **numbers: float | str) -> None:
        self.notes |= numbers


def left_behind(out: Path) -> list[str]:
    """What is in the folder of an index and no part of it."""
    known = {"CURRENT", "model", "generations", ".lock", ".changes.lock", "changes"}
    there = out.iterdir() if out.exists() else ()
    return [path.name for path in there if path.name not in known]


def ids(out: Path) -> list[str]:
    with open_index(out) as opened:
        collection = opened.collection("images")
        return [item.id for item in collection.items.by_rows(range(collection.entry.count))]


def test_broken_items_among_good_ones_are_left_out_and_named(
    tmp_path: Path, tiny_checkpoint: Path, images: list[ImageItem]
) -> None:
    broken = {
        "empty": b"",
        "no picture": b"words, not pixels",
        "cut short": images[0].path.read_bytes()[:200],
        "missing": None,
    }
    some: list[ImageItem] = list(images[:5])
    for place, (name, content) in enumerate(broken.items()):
        path = tmp_path / f"{name}.png"
        if content is not None:
            path.write_bytes(content)
        some.insert(2 * place, ImageItem(id=name, path=path, uri=name))
    wide = tmp_path / "wide.png"
    Image.fromarray(np.zeros((100, 100), np.uint8)).save(wide)
    some.append(ImageItem(id="too many pixels", path=wide, uri="wide"))
    words = [
        TextItem(id="fine", text="two dogs"),
        TextItem(id="blank", text="  \n"),
    ]
    settings = BuildSettings(shard_items=4, batch_size=3, limits=ImageLimits(max_pixels=9_999))
    progress = Recorder()
    report = build_index(tiny_checkpoint, tmp_path / "index", some, words, settings, progress)
    assert report.counts == {"images": 5, "texts": 1}
    skipped = dict(report.skipped)
    assert set(skipped) == {*broken, "too many pixels", "blank"}
    assert "0 bytes" in skipped["empty"]
    assert "not an image" in skipped["no picture"]
    assert "cut short" in skipped["cut short"]
    assert "No such file" in skipped["missing"]
    assert "100 x 100 pixels, limit 9999" in skipped["too many pixels"]
    assert skipped["blank"] == "the text is empty"
    assert ids(tmp_path / "index") == [item.id for item in images[:5]]
    with open_index(tmp_path / "index") as opened:
        assert opened.collection("images").entry.skipped == 5
        assert opened.collection("texts").entry.skipped == 1
    assert progress.pieces == [
        ["photos listed", None, 10],
        ["texts listed", None, 2],
        ["photos", 10, 10],
        ["texts", 2, 2],
        ["images written", 5, 5],
        ["texts written", 1, 1],
        ["vectors", 5, 5],
        ["vectors", 1, 1],
    ]
    assert set(report.seconds) == {"list", "read", "decode", "encode", "write", "ann"}
    assert set(progress.notes) == {f"{stage}_s" for stage in report.seconds}
    assert left_behind(tmp_path / "index") == []


def test_nothing_usable_publishes_nothing(tmp_path: Path, tiny_checkpoint: Path) -> None:
    items = [ImageItem(id=name, path=tmp_path / name, uri=name) for name in ("a", "b")]
    with pytest.raises(InputError, match=r"images: none of 2 could be used, e\.g\. 'a': .*No such"):
        build_index(tiny_checkpoint, tmp_path / "index", items, None)
    assert published_generations(tmp_path / "index") == []
    assert left_behind(tmp_path / "index") == []


def test_bad_input_is_refused_before_any_work(
    tmp_path: Path, tiny_checkpoint: Path, texts: list[TextItem]
) -> None:
    out = tmp_path / "index"
    with pytest.raises(InputError, match="got neither"):
        build_index(tiny_checkpoint, out, None, None)
    strict = BuildSettings(strict=True)
    repeats = rf"id 'text 0' repeats, item {len(texts) + 1} after item 1"
    with pytest.raises(InputError, match=repeats):
        build_index(tiny_checkpoint, out, None, [*texts, texts[0]], strict)
    twice = [ImageItem(id="77", uri=f"post_{n}.jpg", path=tmp_path / f"{n}.jpg") for n in range(2)]
    both = r"id '77' repeats, item 2 \('post_1.jpg'\) after item 1 \('post_0.jpg'\)"
    with pytest.raises(InputError, match=both):
        build_index(tiny_checkpoint, out, twice, None, strict)
    with pytest.raises(ConfigError, match="'IVF64,Flat' needs at least 64 vectors"):
        build_index(tiny_checkpoint, out, None, texts, BuildSettings(ann="IVF64,Flat"))
    with pytest.raises(CheckpointError, match="not a checkpoint"):
        build_index(tmp_path, out, None, texts)
    with pytest.raises(ConfigError, match="batch_size: expected at least 1, got 0"):
        BuildSettings(batch_size=0)
    with pytest.raises(ConfigError, match="token_dtype: expected one of float16, int8, 4bit"):
        BuildSettings(token_dtype="float8")  # type: ignore[arg-type]
    assert not out.exists()


def test_a_rebuild_adds_a_generation(
    tmp_path: Path, tiny_checkpoint: Path, images: list[ImageItem]
) -> None:
    out = tmp_path / "index"
    assert build_index(tiny_checkpoint, out, images[:4], None, SETTINGS).generation == 1
    before = open_index(out)
    assert build_index(tiny_checkpoint, out, images[:9], None, SETTINGS).generation == 2
    assert published_generations(out) == [1, 2]
    assert len(ids(out)) == 9
    assert before.collection("images").items.by_rows([3])[0].id == images[3].id
    before.close()
    # The index needs nothing else: the copy of the model is the one to build with.
    assert build_index(out / "model", out, images[:2], None, SETTINGS).generation == 3


@pytest.mark.parametrize("change", ["weights", "config"])
def test_an_index_takes_no_other_model(
    tmp_path: Path, tiny_checkpoint: Path, texts: list[TextItem], change: str
) -> None:
    out, other = tmp_path / "index", tmp_path / "other"
    build_index(tiny_checkpoint, out, None, texts)
    model = load_checkpoint(tiny_checkpoint).model
    fusion = None
    if change == "weights":
        next(model.parameters()).data += 0.5
    else:
        fusion = Fusion(text_to_image=DirectionFusion(weight=0.5))
    save_checkpoint(other, model, fusion)
    with pytest.raises(IndexMismatchError, match=r"expected .*, got "):
        build_index(other, out, None, texts)
    assert live_generation(out) == 1
    verify_index(out)


def test_a_first_build_that_failed_binds_no_model(
    tmp_path: Path, tiny_checkpoint: Path, texts: list[TextItem]
) -> None:
    out, other = tmp_path / "index", tmp_path / "other"
    with pytest.raises(KeyboardInterrupt):
        build_index(tiny_checkpoint, out, None, texts, SETTINGS, Recorder("texts", 1))
    model = load_checkpoint(tiny_checkpoint).model
    next(model.parameters()).data += 0.5
    save_checkpoint(other, model)
    build_index(other, out, None, texts)
    verify_index(out)


def test_resuming_goes_on_where_the_build_stopped(
    tmp_path: Path, tiny_checkpoint: Path, images: list[ImageItem]
) -> None:
    out = tmp_path / "index"
    with pytest.raises(KeyboardInterrupt):
        build_index(tiny_checkpoint, out, images, None, SETTINGS, Recorder("photos", 11))
    # Four items a shard are asked for; two batches of three they are.
    shards = sorted((out / BUILD / "images").glob("shard-*"))
    assert [shard.name for shard in shards] == ["shard-00000"]
    written = [shard.stat().st_mtime_ns for shard in shards]
    seen: list[list[int]] = []

    class Watch(Recorder):
        def start(self, total: int | None, unit: str) -> None:
            super().start(total, unit)
            seen.append([shard.stat().st_mtime_ns for shard in shards])

    resumed = BuildSettings(shards=1, batch_size=3, resume=True)  # it goes on with its own shards
    progress = Watch()
    report = build_index(tiny_checkpoint, out, images, None, resumed, progress)
    assert report.generation == 1
    assert ["photos", len(images) - 6, len(images) - 6] in progress.pieces
    assert progress.notes["resumed_after"] == 6
    assert seen == [written] * 4  # photos listed, photos, images written, vectors
    assert len(ids(out)) == len(images)
    again = build_index(tiny_checkpoint, out, images, None, resumed)
    assert (again.generation, again.counts) == (1, report.counts)  # there is nothing left to do


@pytest.mark.parametrize("dtype", ["int8", "4bit"])
def test_shards_and_readers_change_nothing(
    tmp_path: Path,
    tiny_checkpoint: Path,
    images: list[ImageItem],
    texts: list[TextItem],
    dtype: Any,
) -> None:
    broken = ImageItem(id="broken", path=tmp_path / "none", uri="none")
    photos = [*images[:5], broken, *images[5:]]
    found: list[dict[str, bytes]] = []
    for shards, readers in ((1, 1), (3, 2), (99, 4)):
        out = tmp_path / str(shards)
        settings = BuildSettings(shards=shards, readers=readers, batch_size=3, token_dtype=dtype)
        build_index(tiny_checkpoint, out, iter(photos), iter(texts), settings)
        found.append(
            {
                str(path.relative_to(out)): path.read_bytes()
                for path in out.rglob("*")
                if path.is_file()
            }
        )
    assert found[0] == found[1] == found[2]


def test_only_so_many_photos_are_in_memory_at_a_time(
    tmp_path: Path,
    tiny_checkpoint: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Of 20,000 items, each with something as large as a photo's pixels."""

    class Pixels:
        """Stands for a decoded photo."""

        def __init__(self, row: int) -> None:
            self.row = row

    alive: weakref.WeakSet[Pixels] = weakref.WeakSet()
    most = 0

    class Fake:
        callers = 1
        items_a_call = 2

        def read(self, item: TextItem) -> str:
            return item.text

        def decode(self, item: TextItem, data: str) -> Prepared:
            assert data == item.text
            pixels = Pixels(int(item.id))
            alive.add(pixels)
            return Prepared(pixels, None)

        def encode(self, batch: Sequence[Prepared]) -> Encoding:
            nonlocal most
            most = max(most, len(alive))
            embedding = np.array(
                [[each.value.row, each.value.row + 1] for each in batch], dtype=np.float32
            )
            embedding /= np.linalg.norm(embedding, axis=1, keepdims=True)
            mask = np.ones((len(batch), 1), dtype=np.bool_)
            return Encoding(embedding, embedding[:, None, :], mask)

    form = ShardFormat(embedding_dim=2, codec=TokenCodec("int8", 2))
    monkeypatch.setattr("aladin_index.building.shards.item_encoder", lambda *_, **_options: Fake())
    monkeypatch.setattr("aladin_index.building.shards.ShardFormat.of", lambda *_: form)
    items = (TextItem(id=str(row), text="words") for row in range(20_000))
    settings = BuildSettings(batch_size=50, ann="exact", readers=2)
    build_index(tiny_checkpoint, tmp_path / "index", None, items, settings)
    # Two of each thread that reads or encodes; those before may not be collected yet.
    assert most <= 2 * 2 * (settings.readers + Fake.callers)
    embeddings = np.load(tmp_path / "index/generations/000001/texts/embeddings.npy")
    assert embeddings.shape == (20_000, 2)
    rows = np.arange(20_000)
    expected = np.stack([rows, rows + 1], axis=1) / np.hypot(rows, rows + 1)[:, None]
    np.testing.assert_allclose(embeddings, expected, atol=1e-6)


def test_a_number_that_another_generation_took_is_not_taken_for_the_builds_own(
    tmp_path: Path, tiny_checkpoint: Path, images: list[ImageItem]
) -> None:
    out = tmp_path / "index"
    build_index(tiny_checkpoint, out, images[:3], None, SETTINGS)
    with pytest.raises(KeyboardInterrupt):
        build_index(tiny_checkpoint, out, images, None, SETTINGS, Recorder("photos", 5))
    # While the build lay there, cut short, something else became generation 2.
    merge_indexes([Path(shutil.copytree(out, tmp_path / "copy"))], out)
    assert live_generation(out) == 2
    resumed = dataclasses.replace(SETTINGS, resume=True)
    assert build_index(tiny_checkpoint, out, images, None, resumed).generation == 3
    assert len(ids(out)) == len(images)
    assert left_behind(out) == []


def test_a_build_that_is_done_is_not_made_live_over_a_later_one(
    tmp_path: Path, tiny_checkpoint: Path, images: list[ImageItem]
) -> None:
    out = tmp_path / "index"
    with pytest.MonkeyPatch.context() as patch:
        # Killed before its work is thrown away, that is.
        patch.setattr("aladin_index.building.builder.discard", lambda _: None)
        build_index(tiny_checkpoint, out, images[:3], None, SETTINGS)
    merge_indexes([Path(shutil.copytree(out, tmp_path / "copy"))], out)
    resumed = dataclasses.replace(SETTINGS, resume=True)
    build_index(tiny_checkpoint, out, images[:3], None, resumed)
    assert live_generation(out) == 2
    assert left_behind(out) == []


@pytest.mark.parametrize("change", ["items", "metadata", "settings", "photo", "model"])
def test_a_stale_plan_is_not_resumed(
    tmp_path: Path, tiny_checkpoint: Path, images: list[ImageItem], change: str
) -> None:
    out, photo = tmp_path / "index", tmp_path / "photo.png"
    shutil.copyfile(images[0].path, photo)
    items = [ImageItem(id="copy", path=photo, uri="photo.png"), *images[:6]]
    with pytest.raises(KeyboardInterrupt):
        build_index(tiny_checkpoint, out, items, None, SETTINGS, Recorder("photos", 5))
    checkpoint, settings = tiny_checkpoint, {"shard_items": 4, "batch_size": 3}
    if change == "items":
        items = items[:-1]
    elif change == "metadata":
        items[3] = ImageItem(id=items[3].id, path=items[3].path, uri=items[3].uri)
    elif change == "settings":
        settings["batch_size"] = 2
    elif change == "photo":
        shutil.copyfile(images[1].path, photo)
    else:
        model = load_checkpoint(tiny_checkpoint).model
        next(model.parameters()).data += 0.5
        checkpoint = tmp_path / "other"
        save_checkpoint(checkpoint, model)
    with pytest.raises(IndexMismatchError, match="cannot resume"):
        build_index(checkpoint, out, items, None, BuildSettings(**settings, resume=True))
    report = build_index(checkpoint, out, items, None, BuildSettings(**settings))
    assert report.counts == {"images": len(items)}


def no_space(*_: object, **__: object) -> None:
    raise OSError(errno.ENOSPC, "No space left on device")


@pytest.mark.parametrize(
    "place",
    [
        "aladin_index.generations.collection_writer.NpyWriter",
        "aladin_index.building.shards.NpyWriter",
        "aladin_index.building.resume.write_json",
    ],
)
def test_a_full_disk_leaves_the_old_generation_live(
    tmp_path: Path,
    tiny_checkpoint: Path,
    images: list[ImageItem],
    monkeypatch: pytest.MonkeyPatch,
    place: str,
) -> None:
    out = tmp_path / "index"
    build_index(tiny_checkpoint, out, images[:3], None, SETTINGS)
    with monkeypatch.context() as patch:
        patch.setattr(place, no_space)
        with pytest.raises(IndexWriteError, match="No space left on device; the live generation"):
            build_index(tiny_checkpoint, out, images, None, SETTINGS)
    assert live_generation(out) == 1
    assert ids(out) == [item.id for item in images[:3]]
    verify_index(out)
    resumed = BuildSettings(shard_items=4, batch_size=3, resume=True)
    assert build_index(tiny_checkpoint, out, images, None, resumed).generation == 2
    assert len(ids(out)) == len(images)


def test_a_disk_that_really_fills_up(
    tmp_path: Path, tiny_checkpoint: Path, images: list[ImageItem]
) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    size = sum(path.stat().st_size for path in tiny_checkpoint.iterdir()) // 1024 + 320
    mount = ["mount", "-t", "tmpfs", "-o", f"size={size}k", "none", str(disk)]
    if shutil.which("mount") is None or subprocess.run(mount, capture_output=True).returncode:
        pytest.skip("mounting a small disk is not allowed here")
    try:
        build_index(tiny_checkpoint, disk / "index", images[:2], None, SETTINGS)
        large = [
            ImageItem(id=item.id, path=item.path, uri=item.uri, metadata={"notes": "x" * 9000})
            for item in images
        ]
        with pytest.raises(IndexWriteError, match="live generation is unchanged"):
            build_index(tiny_checkpoint, disk / "index", large, None, SETTINGS)
        assert len(ids(disk / "index")) == 2
        verify_index(disk / "index")
        assert build_index(tiny_checkpoint, disk / "index", images[:3], None).generation == 2
    finally:
        subprocess.run(["umount", str(disk)], check=True)


def test_one_builder_at_a_time(
    tmp_path: Path, tiny_checkpoint: Path, texts: list[TextItem]
) -> None:
    with (
        only_builder(tmp_path / "index"),
        pytest.raises(IndexWriteError, match="another build of this index is running"),
    ):
        build_index(tiny_checkpoint, tmp_path / "index", None, texts)
    build_index(tiny_checkpoint, tmp_path / "index", None, texts)


@pytest.mark.parametrize("ann", ["HNSW8,Flat", "IVF4,SQ8", "exact"])
def test_the_manifest_tells_how_the_first_stage_was_built_and_measured(
    tmp_path: Path, tiny_checkpoint: Path, images: list[ImageItem], ann: str
) -> None:
    build_index(tiny_checkpoint, tmp_path / "index", images, None, BuildSettings(ann=ann))
    with open_index(tmp_path / "index") as opened:
        entry = opened.collection("images").entry.ann
        assert entry.factory == ("Flat" if ann == "exact" else ann)
        assert (entry.search_width is None) == (ann == "exact")
        assert entry.recall_at == entry.recall_queries == len(images)
        assert entry.recall > 0.99


def test_the_checkpoints_calibration_goes_into_the_index(
    tmp_path: Path,
    tiny_checkpoint: Path,
    texts: list[TextItem],
    make_calibration: Callable[..., Calibration],
) -> None:
    checkpoint, out = tmp_path / "checkpoint", tmp_path / "index"
    shutil.copytree(tiny_checkpoint, checkpoint)
    resumed = dataclasses.replace(SETTINGS, resume=True)
    build_index(checkpoint, out, None, texts[:3], resumed)
    assert read_manifest(generation_folder(out, 1)).calibration is None
    calibration = make_calibration(load_checkpoint(checkpoint).model_id)
    write_calibration(checkpoint, calibration)
    # The same items, yet another index: its hits have probabilities.
    assert build_index(checkpoint, out, None, texts[:3], resumed).generation == 2
    assert read_manifest(generation_folder(out, 2)).calibration == calibration
    assert build_index(checkpoint, out, None, texts[:3], resumed).generation == 2
    data = json.loads((checkpoint / "calibration.json").read_text())
    (checkpoint / "calibration.json").write_text(json.dumps(data | {"model_id": "f00d"}))
    with pytest.raises(CheckpointError, match="found one of f00d"):
        build_index(checkpoint, out, None, texts[:3], SETTINGS)
    # The index's own copy of the checkpoint has none: what the live generation has stays.
    assert build_index(out / "model", out, None, texts[:4], resumed).generation == 3
    assert read_manifest(generation_folder(out, 3)).calibration == calibration


@pytest.mark.parametrize(
    ("data", "marked"),
    [
        (range(60), False),  # all 23 photos are among those of the data
        (range(11, 60), False),  # 12 of them
        (range(12, 60), True),
        (range(23, 60), True),
    ],
)
@pytest.mark.parametrize("target", ["images", "texts"])
def test_a_calibration_of_other_photos_is_marked(
    tmp_path: Path,
    tiny_checkpoint: Path,
    images: list[ImageItem],
    make_calibration: Callable[..., Calibration],
    data: range,
    marked: bool,
    target: str,
) -> None:
    checkpoint, out = tmp_path / "checkpoint", tmp_path / "index"
    shutil.copytree(tiny_checkpoint, checkpoint)
    model_id = load_checkpoint(checkpoint).model_id
    made = make_calibration(model_id, data=[f"photo {each}" for each in data])
    write_calibration(checkpoint, made)
    texts = [TextItem(id=f"{image.id}#0", text="some words") for image in images]
    collections: tuple[Any, Any] = (images, None) if target == "images" else (None, texts)
    build_index(checkpoint, out, *collections, SETTINGS)
    stored = read_manifest(generation_folder(out, 1)).calibration
    assert stored is not None
    assert stored.other_photos is marked
    # One that is fitted to the index is of its photos, whatever its data, also in the next build.
    on_index = dataclasses.replace(stored.fitted_on, searched="index")
    store_calibration(out, dataclasses.replace(made, fitted_on=on_index))
    (checkpoint / "calibration.json").unlink()
    rebuilt = build_index(checkpoint, out, *collections, SETTINGS).generation
    stored = read_manifest(generation_folder(out, rebuilt)).calibration
    assert stored is not None
    assert stored.other_photos is False


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
