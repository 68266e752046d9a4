import shutil
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from aladin_index.building.builder import build_index
from aladin_index.changes.encoded import ItemBatch
from aladin_index.changes.writer import ChangesWriter
from aladin_index.encode.source_items import TextItem
from aladin_index.format.layout import generation_folder
from aladin_index.format.manifest import read_manifest
from aladin_index.generations.compact import compact_index
from aladin_index.generations.verify import verify_index
from aladin_index.items.uploaded_photos import UploadedPhoto
from aladin_network.checkpoint_files import read_model_id
from aladin_network.errors import IndexCorruptError, IndexNotReadyError
from tests.index.progress import CountedProgress


def test_a_sound_index_is_read_whole(published: Path) -> None:
    progress = CountedProgress()
    report = verify_index(published, progress)
    assert report.generations == [1]
    assert report.files == 3 + 2 * 6  # the model's, and six of each collection
    assert progress.pieces == [("bytes", report.bytes, report.bytes)]


def test_one_changed_byte_anywhere_is_named(index_copy: Path) -> None:
    paths = [path for path in index_copy.rglob("*") if path.is_file() and path.stat().st_size]
    assert len(paths) == 3 + 2 * 6 + 2 + 1  # manifest, its checksum and CURRENT
    for path in paths:
        content = path.read_bytes()
        changed = bytearray(content)
        changed[len(content) // 2] ^= 1
        path.write_bytes(changed)
        with pytest.raises(IndexCorruptError) as caught:
            verify_index(index_copy)
        named = "manifest.json" if path.name == "manifest.sha256" else path.name
        assert caught.value.file.name == named
        assert named in str(caught.value)
        path.write_bytes(content)
    verify_index(index_copy)


def test_all_damaged_files_are_named(index_copy: Path) -> None:
    folder = index_copy / "generations" / "000001"
    (folder / "images" / "tokens.npy").unlink()
    (folder / "texts" / "ann.faiss").write_bytes(b"")
    with pytest.raises(IndexCorruptError) as caught:
        verify_index(index_copy)
    assert "images/tokens.npy: cannot be read (No such file" in str(caught.value)
    assert "texts/ann.faiss: expected" in str(caught.value)


def test_older_generations_are_read_too(
    index_copy: Path, tiny_checkpoint: Path, texts: list[TextItem]
) -> None:
    build_index(tiny_checkpoint, index_copy, None, texts)
    assert verify_index(index_copy).generations == [1, 2]
    (index_copy / "generations" / "000001" / "images" / "tokens.npy").write_bytes(b"")
    with pytest.raises(IndexCorruptError, match=r"000001/images/tokens\.npy"):
        verify_index(index_copy)


def test_a_generation_stays_while_it_is_verified(published: Path, tmp_path: Path) -> None:
    root = Path(shutil.copytree(published, tmp_path / "index"))
    model_id = read_manifest(generation_folder(root, 1)).model.id
    with closing(ChangesWriter(root, model_id)) as writer:
        writer.delete("images", ["photo 3"])

    class Compacting(CountedProgress):
        def start(self, total: int | None, unit: str) -> None:
            super().start(total, unit)
            assert compact_index(root, keep=0).in_use == [1]

    assert verify_index(root, Compacting()).generations == [1]
    assert verify_index(root).generations == [1, 2]
    compact_index(root, keep=0)
    assert verify_index(root).generations == [2]


def test_added_items_and_photos_are_verified(
    index_copy: Path, made_up: Callable[..., ItemBatch]
) -> None:
    photo = UploadedPhoto(b"bytes of a photo")
    new = made_up(["uploaded"])
    new = replace(new, items=[new.items[0]._replace(path=photo.path)], photos=[photo])
    before = verify_index(index_copy)
    with closing(ChangesWriter(index_copy, read_model_id(index_copy / "model"))) as writer:
        writer.add("images", new, "error")
    report = verify_index(index_copy)
    assert report.files == before.files + 2  # a database and a photo
    assert report.bytes == before.bytes + len(photo.data)
    (index_copy / photo.path).write_bytes(photo.data[:-1] + b"x")
    with pytest.raises(IndexCorruptError, match=f"{photo.path}: expected sha256"):
        verify_index(index_copy)
    (index_copy / photo.path).unlink()
    with pytest.raises(IndexCorruptError, match=f"{photo.path}: cannot be read"):
        verify_index(index_copy)
    photo.write(index_copy)
    database = index_copy / "changes" / "000001" / "images.sqlite"
    content = bytearray(database.read_bytes())
    content[4096:8192] = bytes(4096)
    database.write_bytes(content)
    with pytest.raises(IndexCorruptError, match=r"changes/000001/images\.sqlite"):
        verify_index(index_copy)


def test_no_index_is_not_sound(tmp_path: Path) -> None:
    with pytest.raises(IndexNotReadyError):
        verify_index(tmp_path)
