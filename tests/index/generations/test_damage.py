"""Damage of an index is one error of ours that names the file, whatever reads it."""

from __future__ import annotations

import contextlib
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from aladin_index.building.builder import build_index
from aladin_index.changes.writer import ChangesWriter
from aladin_index.encode.encoded import ItemBatch
from aladin_index.encode.source_items import TextItem
from aladin_index.exchange.exporter import export_index
from aladin_index.format.layout import generation_folder
from aladin_index.format.manifest import DIGEST, MANIFEST, read_manifest
from aladin_index.generations.compact import compact_index
from aladin_index.generations.info import describe
from aladin_index.generations.merge import merge_indexes
from aladin_index.generations.reader import open_index
from aladin_index.generations.verify import probe_index, verify_index
from aladin_index.items.uploaded_photos import UploadedPhoto
from aladin_index.open import open_writer
from aladin_network.checkpoint_files import read_model_id
from aladin_network.errors import IndexCorruptError, IndexNotReadyError, SearchIndexError
from tests.index.progress import CountedProgress


def add_item(index: Path) -> None:
    with closing(open_writer(index, "0" * 64)) as writer:
        writer.known("images", ["photo 1"])


def probe(index: Path) -> None:
    with open_index(index) as opened:
        probe_index(opened)


# What reads an index, with the folder beside it that a command writes to.
READERS: dict[str, Callable[[Path], object]] = {
    "search": lambda index: open_index(index).close(),
    "probe": probe,
    "verify": verify_index,
    "merge": lambda index: merge_indexes([index], index.with_name("out")),
    "export": lambda index: export_index(index, index.with_name("out")),
    "info": describe,
    "add": add_item,
    "compact": compact_index,
}
# All but what need not read the files of a generation.
OF_FILES = ("search", "probe", "verify", "merge", "export")


@pytest.mark.parametrize("reader", [each for each in READERS if each != "add"])
def test_no_index_is_not_ready(tmp_path: Path, reader: str) -> None:
    with pytest.raises(IndexNotReadyError):
        READERS[reader](tmp_path / "index")


def files(index: Path) -> list[Path]:
    folder = generation_folder(index, 1)
    manifest = read_manifest(folder)
    return [folder / name for name in manifest.files] + [
        index / "model" / name for name in manifest.model.files
    ]


@pytest.mark.parametrize("name", [MANIFEST, DIGEST])
@pytest.mark.parametrize("reader", READERS)
def test_a_changed_manifest_is_noticed_by_all(index_copy: Path, reader: str, name: str) -> None:
    path = generation_folder(index_copy, 1) / name
    content = path.read_bytes()
    path.write_bytes(content[:20] + bytes([content[20] ^ 1]) + content[21:])
    with pytest.raises(IndexCorruptError, match=r"manifest\.json"):
        READERS[reader](index_copy)


@pytest.mark.parametrize("reader", OF_FILES)
def test_a_wrong_length_or_a_missing_file_is_refused_by_name(index_copy: Path, reader: str) -> None:
    for path in files(index_copy):
        content = path.read_bytes()
        for changed in (content[:-1], content + b"\0", b"", None):
            if changed is None:
                path.unlink()
            else:
                path.write_bytes(changed)
            with pytest.raises(IndexCorruptError, match=r"bytes|missing|No such file") as caught:
                READERS[reader](index_copy)
            assert caught.value.file.name == path.name
            assert not index_copy.with_name("out").exists()
        path.write_bytes(content)
    READERS[reader](index_copy)


def test_bytes_that_cannot_be_read_are_an_error_of_the_index(index_copy: Path) -> None:
    """Opening hashes nothing, so that a changed byte may pass; but no foreign error comes out."""
    for path in files(index_copy):
        content = path.read_bytes()
        path.write_bytes(bytes(byte ^ 0xFF for byte in content[:256]) + content[256:])
        with contextlib.suppress(SearchIndexError):
            open_index(index_copy, encodes=path.parent.name == "model").close()
        path.write_bytes(content)


def test_one_changed_byte_anywhere_is_named_by_verify(index_copy: Path) -> None:
    paths = [path for path in index_copy.rglob("*") if path.is_file() and path.stat().st_size]
    assert len(paths) == 3 + 2 * 6 + 2 + 1  # the model, collections, manifest, checksum, CURRENT
    for path in paths:
        content = path.read_bytes()
        changed = bytearray(content)
        changed[len(content) // 2] ^= 1
        path.write_bytes(changed)
        with pytest.raises(IndexCorruptError) as caught:
            verify_index(index_copy)
        named = MANIFEST if path.name == DIGEST else path.name
        assert caught.value.file.name == named and named in str(caught.value)
        path.write_bytes(content)
    progress = CountedProgress()
    report = verify_index(index_copy, progress)
    assert (report.generations, report.files) == ([1], 3 + 2 * 6)
    assert progress.pieces == [("bytes", report.bytes, report.bytes)]


def test_all_damaged_files_of_all_generations_are_named(
    index_copy: Path, tiny_checkpoint: Path, texts: list[TextItem]
) -> None:
    build_index(tiny_checkpoint, index_copy, None, texts)
    assert verify_index(index_copy).generations == [1, 2]
    folder = index_copy / "generations" / "000001"
    (folder / "images" / "tokens.npy").unlink()
    (folder / "texts" / "ann.faiss").write_bytes(b"")
    with pytest.raises(IndexCorruptError) as caught:
        verify_index(index_copy)
    assert "000001/images/tokens.npy: cannot be read (No such file" in str(caught.value)
    assert "texts/ann.faiss: expected" in str(caught.value)


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
    zero(index_copy / "changes" / "000001" / "images.sqlite", 4096, 4096)
    with pytest.raises(IndexCorruptError, match=r"changes/000001/images\.sqlite"):
        verify_index(index_copy)


def test_a_generation_stays_while_it_is_verified(published: Path, tmp_path: Path) -> None:
    root = Path(shutil.copytree(published, tmp_path / "index"))
    with closing(ChangesWriter(root, read_model_id(root / "model"))) as writer:
        writer.delete("images", ["photo 3"])

    class Compacting(CountedProgress):
        def start(self, total: int | None, unit: str) -> None:
            super().start(total, unit)
            assert compact_index(root, keep=0).in_use == [1]

    assert verify_index(root, Compacting()).generations == [1]
    assert verify_index(root).generations == [1, 2]
    compact_index(root, keep=0)
    assert verify_index(root).generations == [2]


def zero(file: Path, start: int, count: int | None = None) -> None:
    """Overwrite a part of a file with zeros; its length stays."""
    content = bytearray(file.read_bytes())
    end = len(content) if count is None else start + count
    content[start:end] = bytes(end - start)
    file.write_bytes(content)


def without_numbers(file: Path) -> None:
    tokens = np.load(file)
    tokens[:] = np.nan
    np.save(file, tokens)


def without_an_item(file: Path) -> None:  # a page keeps its room
    with closing(sqlite3.connect(file)) as connection, connection:
        connection.execute("DELETE FROM items WHERE row = 0")


# What opens with the lengths that the manifest says; a part of zeros as of a copy of which some
# blocks never came: 16 numbers of 4 bytes an embedding.
PROBED: list[tuple[str, Callable[[Path], None], str]] = [
    ("embeddings.npy", lambda file: zero(file, 128), "expected a length of 1, got 0"),
    ("embeddings.npy", lambda file: zero(file, 128 + 64 * 5, 64 * 5), "a length of 1"),
    ("ann.faiss", lambda file: zero(file, 128), "of 8 items by their own embeddings"),
    ("items.sqlite", lambda file: zero(file, 100), "items.sqlite"),
    ("items.sqlite", without_an_item, "KeyError"),
    ("tokens.npy", without_numbers, "found scores"),
]


@pytest.mark.parametrize(("name", "damage", "says"), PROBED)
@pytest.mark.parametrize("target", ["images", "texts"])
def test_damage_of_the_right_length_is_found_before_a_generation_answers(
    index_copy: Path, target: str, name: str, damage: Callable[[Path], None], says: str
) -> None:
    file = generation_folder(index_copy, 1) / target / name
    damage(file)
    with pytest.raises(IndexCorruptError, match=says) as caught:
        probe(index_copy)
    assert caught.value.file in (file, file.parent)
