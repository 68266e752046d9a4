"""An index that is exported and imported is the same index."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from aladin_index.building.builder import BuildReport
from aladin_index.changes.writer import ChangesWriter
from aladin_index.encode.encoded import ItemBatch
from aladin_index.exchange.exporter import export_index
from aladin_index.exchange.importer import import_index
from aladin_index.format.layout import generation_folder
from aladin_index.format.manifest import read_manifest
from aladin_index.generations.published import store_calibration
from aladin_index.generations.reader import open_index
from aladin_index.generations.verify import verify_index
from aladin_index.items.uploaded_photos import UploadedPhoto
from aladin_index.settings import BuildSettings
from aladin_index.tokens.store import codec_for
from aladin_network.calibration.calibration import Calibration, write_calibration
from aladin_network.checkpoint_files import read_model_id
from aladin_network.errors import ConfigError, IndexMismatchError, IndexWriteError, InputError
from aladin_network.types import Target, TokenDtype
from tests.index.written import contents

TARGETS: tuple[Target, Target] = ("images", "texts")


@pytest.mark.parametrize("dtype", ["float16", "int8", "4bit"])
def test_nothing_is_lost_in_any_form(
    tmp_path: Path,
    tiny_checkpoint: Path,
    made_up: Callable[..., ItemBatch],
    write_made_up: Callable[..., int],
    dtype: TokenDtype,
) -> None:
    settings = BuildSettings(filter_fields=("n",))
    images = made_up([f"photo {n}" for n in range(23)], n=range(23))
    texts = made_up([f"text {n}" for n in range(16)], n=range(16))
    write_made_up(tmp_path / "index", dtype, images=images, texts=texts, settings=settings)
    export_index(tmp_path / "index", tmp_path / "out", rows_a_part=10)
    report = import_index(tmp_path / "out", tiny_checkpoint, tmp_path / "again", settings)
    assert report == BuildReport(generation=1, counts={"images": 23, "texts": 16}, skipped=[])
    # All that a search reads is the same, file by file.
    for target in TARGETS:
        before = generation_folder(tmp_path / "index", 1) / target
        after = generation_folder(tmp_path / "again", 1) / target
        names = {path.name for path in before.iterdir()}
        assert names == {path.name for path in after.iterdir()}
        for name in names:
            assert (after / name).read_bytes() == (before / name).read_bytes(), name
    verify_index(tmp_path / "again")


def test_the_folder_has_bounded_parts_that_add_up(exported: Path, published: Path) -> None:
    from pyarrow.parquet import read_table

    out = exported
    manifest = json.loads((out / "manifest.json").read_text())
    assert (manifest["images"]["count"], manifest["texts"]["count"]) == (23, 16)
    names = {path.relative_to(out).as_posix() for path in out.rglob("*") if path.is_file()}
    assert names == {"manifest.json", *manifest["files"]}
    with open_index(published) as index:
        collection = index.collection("images")
        assert index.images is not None
        parts = [np.load(out / f"img_emb/img_emb_{part}.npy") for part in range(3)]
        assert [len(part) for part in parts] == [10, 10, 3]
        assert np.array_equal(np.concatenate(parts), index.images.embeddings)
        lengths = [np.load(out / f"img_tokens/img_lengths_{part}.npy") for part in range(3)]
        tokens = [np.load(out / f"img_tokens/img_tokens_{part}.npy") for part in range(3)]
        assert [len(part) for part in tokens] == [part.sum() for part in lengths]
        first = tokens[1][: lengths[1][0]].astype(np.float32)
        assert np.array_equal(first, collection.tokens(10))
    rows = read_table(out / "metadata" / "metadata_1.parquet").to_pylist()
    assert [row["image_path"] for row in rows] == [f"album/{n:02d}.png" for n in range(10, 20)]
    assert rows[1]["caption"] == "caption of 11"
    assert rows[1]["id"] == "photo 11"
    assert json.loads(rows[1]["metadata"]) == {"number": 11, "parity": "odd"}
    lines = read_table(out / "texts" / "metadata" / "metadata_0.parquet").to_pylist()
    assert (lines[3]["id"], lines[3]["image_id"], lines[3]["caption"]) == (
        "text 3",
        "photo 1",
        "star",
    )


def test_changes_and_uploaded_photos_are_exported(
    tmp_path: Path, index_copy: Path, tiny_checkpoint: Path, made_up: Callable[..., ItemBatch]
) -> None:
    photo = UploadedPhoto(b"bytes of a photo")
    new = made_up(["new"])
    new = replace(new, items=[new.items[0]._replace(path=photo.path)], photos=[photo])
    with closing(ChangesWriter(index_copy, read_model_id(tiny_checkpoint))) as writer:
        writer.add("images", new, "error")
        writer.add("texts", made_up(["new 0", "new 1", "new 2"]), "error")
        writer.delete("texts", ["text 4", "new 1"])
        writer.delete("images", ["photo 0"])
    out, again = tmp_path / "out", tmp_path / "again"
    assert export_index(index_copy, out, rows_a_part=7) == {"images": 23, "texts": 17}
    import_index(out, tiny_checkpoint, again)
    for target in TARGETS:
        expected, found = contents(index_copy, target), contents(again, target)
        assert list(found) == list(expected)
        assert found == expected
    assert (again / photo.path).read_bytes() == photo.data
    (out / photo.path).write_bytes(b"something else")
    with pytest.raises(IndexMismatchError, match="photo 'new'"):
        import_index(out, tiny_checkpoint, again)


@pytest.mark.parametrize("dtype", ["int8", "4bit"])
def test_another_token_form_is_rounded_as_a_build_does_it(
    tmp_path: Path, published: Path, exported: Path, tiny_checkpoint: Path, dtype: TokenDtype
) -> None:
    """With what the other collection asks, that is."""
    import_index(exported, tiny_checkpoint, tmp_path / "again", token_dtype=dtype)
    with (
        open_index(published, encodes=False) as before,
        open_index(tmp_path / "again", encodes=False) as after,
    ):
        for target, other in (TARGETS, TARGETS[::-1]):
            tokens, asking = (
                before.collection(each).base.tokens.stored.values.astype(np.float32)
                for each in (target, other)
            )
            stored = after.collection(target).base.tokens.stored
            expected = codec_for(dtype, [tokens], [asking]).pack(tokens)
            np.testing.assert_array_equal(stored.values, expected.values)
            plain = codec_for(dtype, [tokens]).pack(tokens)
            assert (stored.values != plain.values).any()


def test_an_export_that_cannot_be_leaves_nothing_and_touches_nothing(
    tmp_path: Path,
    published: Path,
    made_up: Callable[..., ItemBatch],
    write_made_up: Callable[..., int],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def full_disk(*_: object) -> None:
        raise OSError(28, "No space left on device")

    (tmp_path / "out").mkdir()
    with pytest.raises(ConfigError, match="already exists"):
        export_index(published, tmp_path / "out")
    with monkeypatch.context() as patch, pytest.raises(IndexWriteError, match="nothing was export"):
        patch.setattr("aladin_index.exchange.exporter.describe_paths", full_disk)
        export_index(published, tmp_path / "other")
    assert list(tmp_path.rglob("*")) == [tmp_path / "out"]
    index = tmp_path / "index"
    write_made_up(index, texts=made_up(["1"]))
    with closing(ChangesWriter(index, read_model_id(index / "model"))) as writer:
        writer.delete("texts", ["1"])
    with pytest.raises(InputError, match="nothing to export"):
        export_index(index, tmp_path / "empty")


def test_a_changed_file_a_missing_one_and_another_network_are_refused(
    tmp_path: Path, exported: Path, tiny_checkpoint: Path
) -> None:
    out = Path(shutil.copytree(exported, tmp_path / "out"))
    file, listed = out / "img_emb" / "img_emb_2.npy", out / "manifest.json"
    manifest, content = json.loads(listed.read_text()), file.read_bytes()

    def refused(message: str) -> None:
        with pytest.raises(IndexMismatchError, match=message):
            import_index(out, tiny_checkpoint, tmp_path / "again")
        assert not (tmp_path / "again").exists()

    for changes, message in (
        ({"model_id": "0" * 64}, r"out: model: expected \w{64}, got 0{64}"),
        ({"schema_version": 2}, "schema version: expected 1, got 2"),
        ({}, r"img_emb_2\.npy: sha256: expected \w{64}, got"),
    ):
        listed.write_text(json.dumps(manifest | changes))
        file.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
        refused(message)
    for path in out.rglob("img_*_2.npy"):
        path.unlink()
    refused("got no such file")


def test_a_calibration_is_exported_and_comes_before_the_checkpoints(
    tmp_path: Path,
    published: Path,
    exported: Path,
    tiny_checkpoint: Path,
    make_calibration: Callable[..., Calibration],
) -> None:
    checkpoint = Path(shutil.copytree(tiny_checkpoint, tmp_path / "checkpoint"))
    root = Path(shutil.copytree(published, tmp_path / "index"))
    model_id = read_model_id(checkpoint)
    of_index, of_checkpoint = make_calibration(model_id, 40), make_calibration(model_id, 50)
    store_calibration(root, of_index)
    export_index(root, tmp_path / "calibrated")
    write_calibration(checkpoint, of_checkpoint)
    for folder, expected in ((exported, of_checkpoint), (tmp_path / "calibrated", of_index)):
        again = tmp_path / f"{folder.name} again"
        import_index(folder, checkpoint, again)
        assert read_manifest(generation_folder(again, 1)).calibration == expected
