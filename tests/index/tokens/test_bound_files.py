"""Short tokens on disk, against those computed in memory."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from aladin_index.changes.writer import ChangesWriter
from aladin_index.encode.encoded import ItemBatch
from aladin_index.format.layout import generation_folder
from aladin_index.format.manifest import read_manifest
from aladin_index.generations import writer
from aladin_index.generations.compact import compact_index
from aladin_index.generations.info import describe
from aladin_index.generations.reader import SearchIndex, open_index
from aladin_index.generations.verify import verify_index
from aladin_index.search.file_collection import StoredCollection
from aladin_index.settings import EXACT_ALIGN, BuildSettings
from aladin_index.tokens.bound_files import BOUND_FILES, BOUNDS
from aladin_index.tokens.bounds import TokenBounds
from aladin_index.tokens.lazy_bounds import query_sample
from aladin_network.checkpoint_files import read_model_id
from aladin_network.errors import IndexCorruptError
from aladin_network.types import TARGETS, TOKEN_DTYPES, Target, TokenDtype

MakeItems = Callable[..., ItemBatch]
EXACT = BuildSettings(ann=EXACT_ALIGN)


def collection_of(index: SearchIndex, target: Target) -> StoredCollection:
    collection = index.images if target == "images" else index.texts
    assert collection is not None
    return collection


def assert_as_computed(root: Path) -> None:
    """The bounds that an open index has at once are those that it would compute."""
    with open_index(root) as index:
        for target in TARGETS:
            collection = collection_of(index, target)
            other = collection_of(index, "texts" if target == "images" else "images")
            sample = query_sample(other.tokens)
            assert sample is not None and collection.bounds is not None
            computed = TokenBounds.build(collection.tokens, sample, are_texts=target == "texts")
            query = other.tokens.read(np.array([0])).values
            modality = "text" if target == "images" else "image"
            rows = np.arange(collection.entry.count)
            # None, were they not at hand.
            stored = collection.bounds.of_candidates(query, modality, rows)
            assert stored is not None
            assert stored.tolist() == computed.upper(query, modality).tolist()
            assert stored.tolist() == collection.bounds.get().upper(query, modality).tolist()


@pytest.fixture
def root(tmp_path: Path, made_up: MakeItems, write_made_up: Callable[..., int]) -> Path:
    """An index of `exact-align`."""
    collections = {"images": made_up(list("abcdef")), "texts": made_up(["s", "t", "u"])}
    write_made_up(tmp_path / "index", settings=EXACT, **collections)
    return tmp_path / "index"


@pytest.mark.parametrize("dtype", TOKEN_DTYPES)
def test_stored_bounds_are_the_computed_ones(
    dtype: TokenDtype, tmp_path: Path, made_up: MakeItems, write_made_up: Callable[..., int]
) -> None:
    collections = {"images": made_up([f"p{n}" for n in range(40)]), "texts": made_up(list("stu"))}
    write_made_up(tmp_path / "index", dtype=dtype, settings=EXACT, **collections)
    assert_as_computed(tmp_path / "index")
    verify_index(tmp_path / "index")


def test_a_compaction_writes_them_for_its_items(root: Path, made_up: MakeItems) -> None:
    with closing(ChangesWriter(root, read_model_id(root / "model"))) as changes:
        changes.add("images", made_up(["g", "h"]), "error")
        changes.delete("images", ["b"])
    compact_index(root)
    assert_as_computed(root)
    with open_index(root) as index:
        assert collection_of(index, "images").entry.count == 7


@pytest.mark.parametrize(
    ("settings", "most", "bounded"),
    [(BuildSettings(), 300_000, []), (EXACT, 2, ["texts"]), (EXACT, 3, ["images", "texts"])],
    ids=["another kind", "large", "small enough"],
)
def test_bounds_are_stored_for_exact_collections_that_are_not_too_large(
    tmp_path: Path,
    made_up: MakeItems,
    write_made_up: Callable[..., int],
    monkeypatch: pytest.MonkeyPatch,
    settings: BuildSettings,
    most: int,
    bounded: list[str],
) -> None:
    monkeypatch.setattr(writer, "MAX_ITEMS", most)
    collections = {"images": made_up(list("abc")), "texts": made_up(["s", "t"])}
    write_made_up(tmp_path / "index", settings=settings, **collections)
    files = read_manifest(generation_folder(tmp_path / "index", 1)).files
    assert sorted({name.split("/")[0] for name in files if "bound" in name}) == bounded
    with open_index(tmp_path / "index") as index:
        collection = collection_of(index, "images")
        query = collection_of(index, "texts").tokens.read(np.array([0])).values
        assert collection.bounds is not None
        at_hand = collection.bounds.of_candidates(query, "text", np.arange(3)) is not None
        assert at_hand == ("images" in bounded)
        assert len(collection.bounds.get().upper(query, "text")) == 3


def test_stored_bounds_are_verified_and_counted(root: Path) -> None:
    folder = generation_folder(root, 1)
    manifest = read_manifest(folder)
    sizes = {name: manifest.files[f"images/{name}"].bytes for name in BOUND_FILES}
    tokens = manifest.files["images/tokens.npy"].bytes
    memory = describe(root).collections["images"].memory
    assert memory is not None and memory.tokens_bytes == tokens + sum(sizes.values())
    with (folder / "images" / BOUNDS).open("r+b") as file:
        file.seek(-1, 2)
        file.write(b"\xff")
    with pytest.raises(IndexCorruptError, match=f"images/{BOUNDS}"):
        verify_index(root)
    (folder / "images" / BOUNDS).unlink()
    with pytest.raises(IndexCorruptError, match=f"images/{BOUNDS}: missing"):
        open_index(root)
