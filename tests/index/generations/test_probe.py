"""What a generation is tried for before it answers."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from aladin_index.format.layout import generation_folder
from aladin_index.generations.reader import open_index
from aladin_index.generations.verify import probe_index
from aladin_network.errors import IndexCorruptError


def zero(file: Path, start: int, count: int | None = None) -> None:
    """Overwrite a part of a file with zeros; its length stays."""
    content = bytearray(file.read_bytes())
    end = len(content) if count is None else start + count
    content[start:end] = bytes(end - start)
    file.write_bytes(content)


def test_a_sound_index_passes(published: Path) -> None:
    with open_index(published) as index:
        probe_index(index)


@pytest.mark.parametrize(
    ("file", "start", "says"),
    [
        ("embeddings.npy", 128, "expected a length of 1, got 0"),
        ("ann.faiss", 128, "of 8 items by their own embeddings"),
        ("items.sqlite", 100, "items.sqlite"),
    ],
)
@pytest.mark.parametrize("target", ["images", "texts"])
def test_a_file_of_zeros_is_found(
    index_copy: Path, target: str, file: str, start: int, says: str
) -> None:
    path = generation_folder(index_copy, 1) / target / file
    zero(path, start)
    with pytest.raises(IndexCorruptError, match=says) as caught, open_index(index_copy) as opened:
        probe_index(opened)
    assert caught.value.file == path


def test_zeros_in_the_middle_are_found(index_copy: Path) -> None:
    """As of a copy of which some blocks never came."""
    path = generation_folder(index_copy, 1) / "images" / "embeddings.npy"
    rows, dim = np.load(path).shape
    zero(path, 128 + 4 * dim * (rows // 3), 4 * dim * (rows // 3))
    with open_index(index_copy) as opened, pytest.raises(IndexCorruptError, match="a length of 1"):
        probe_index(opened)


def test_tokens_that_are_no_numbers_are_found(index_copy: Path) -> None:
    path = generation_folder(index_copy, 1) / "images" / "tokens.npy"
    tokens = np.load(path)
    tokens[:] = np.nan
    np.save(path, tokens)
    with open_index(index_copy) as opened, pytest.raises(IndexCorruptError, match="found scores"):
        probe_index(opened)


def test_an_item_that_is_missing_is_found(index_copy: Path) -> None:
    path = generation_folder(index_copy, 1) / "images" / "items.sqlite"
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("DELETE FROM items WHERE row = 0")
    # Its length is what the manifest says: a page keeps its room.
    with open_index(index_copy) as opened, pytest.raises(IndexCorruptError, match="KeyError"):
        probe_index(opened)
