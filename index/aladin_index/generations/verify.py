"""Verification of an index: trial searches when it is opened, and checksums of every byte.

Opening checks lengths and headers only. A copy that was truncated and filled with zeros, an ANN
index of another generation or a database with corrupt pages fails only in use, so some items of
each collection, from all over its files, are read and searched for through both stages.

Checksums were taken when the index was built. Items added later have none: SQLite reads the
databases of the changes from end to end, which detects a corrupt page but not a changed value; an
uploaded photo is named by the sha256 of its bytes.
"""

from __future__ import annotations

import hashlib
import math
import sqlite3
from contextlib import ExitStack, closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

from aladin_index.changes.database import changes_folder, named_photos
from aladin_index.changes.opening import open_to_read
from aladin_index.format.disk import lease_generation
from aladin_index.format.layout import (
    ANN,
    CHANGES,
    EMBEDDINGS,
    GENERATIONS,
    ITEMS,
    generation_folder,
    live_generation,
    published_generations,
)
from aladin_index.format.manifest import model_folder, read_manifest
from aladin_index.generations.reader import SearchIndex
from aladin_index.search.file_collection import StoredCollection
from aladin_index.search.options import SearchOptions
from aladin_index.search.query import Term
from aladin_index.search.searcher import TwoStageSearcher
from aladin_network.checkpoint_files import GRAPHS, read_model_id
from aladin_network.errors import AladinError, CheckpointError, IndexCorruptError, brief
from aladin_network.files import FileEntry
from aladin_network.graphs.files import read_graphs
from aladin_network.scoring.encoding import Encoding
from aladin_network.types import NullProgress, Progress, Target

_BYTES_AT_A_TIME = 2**22

_PROBES = 8
_HITS = 10
# A graph or inverted lists may miss an item occasionally; an index of other vectors misses nearly
# all.
_FOUND_SHARE = 0.5
# Embeddings are normalised in float32 before they are written.
_NORM_TOLERANCE = 1e-3


@dataclass(frozen=True, kw_only=True)
class VerifyReport:
    """Summary of a valid index.

    Attributes:
        generations: Generations that were verified, oldest first.
        files: Number of files.
        bytes: Number of bytes read.
    """

    generations: list[int]
    files: int
    bytes: int


def verify_index(path: Path, progress: Progress | None = None) -> VerifyReport:
    """Verify every file of every published generation, of its changes, and of the model.

    Args:
        path: Index folder.
        progress: Progress, advanced by the number of bytes read.

    Raises:
        IndexNotReadyError: If nothing was published yet.
        IndexMismatchError: If a generation has another schema version.
        IndexCorruptError: If files have changed since they were built; the message names all of
            them.
    """
    progress = progress or NullProgress()
    live_generation(path)
    with ExitStack() as stack:
        generations = _leased(path, stack)
        return _verify(path, generations, progress)


def _leased(root: Path, stack: ExitStack) -> list[int]:
    """Keep compactions from removing generations until the stack is closed."""
    while True:
        generations = published_generations(root)
        try:
            for generation in generations:
                stack.callback(lease_generation(root, generation).release)
        except IndexCorruptError:
            if published_generations(root) == generations:
                raise
            stack.close()
        else:
            return generations


def _verify(path: Path, generations: list[int], progress: Progress) -> VerifyReport:
    expected: dict[Path, FileEntry] = {}
    models: set[Path] = set()
    for generation in generations:
        folder = generation_folder(path, generation)
        manifest = read_manifest(folder)
        model = model_folder(path, manifest.model.id)
        models.add(model)
        expected |= {model / name: entry for name, entry in manifest.model.files.items()}
        expected |= {folder / name: entry for name, entry in manifest.files.items()}
    expected |= _uploaded_photos(path)
    for model in sorted(models):
        expected |= _graphs(model)
    total = sum(entry.bytes for entry in expected.values())
    progress.start(total, "bytes")
    damaged: dict[Path, str] = {}
    for file, entry in expected.items():
        fault = _fault(file, entry, progress)
        if fault is not None:
            damaged[file] = fault
    folders = [changes_folder(path, generation) for generation in generations]
    databases = sorted(file for folder in folders for file in folder.glob("*.sqlite"))
    damaged |= {file: fault for file in databases if (fault := _database_fault(file))}
    if damaged:
        first, *others = damaged
        also = "".join(f"; {file}: {damaged[file]}" for file in others)
        raise IndexCorruptError(first, damaged[first] + also)
    return VerifyReport(generations=generations, files=len(expected) + len(databases), bytes=total)


def _uploaded_photos(root: Path) -> dict[Path, FileEntry]:
    """Find the uploaded photos that items refer to, existing or not."""
    generations = root.glob(f"{GENERATIONS}/*/images/{ITEMS}")
    names: set[str] = set()
    for file in (*generations, *root.glob(f"{CHANGES}/*/images.sqlite")):
        try:
            names |= named_photos(file)
        except sqlite3.Error:
            continue  # the database is compared by itself, and named
    photos: dict[Path, FileEntry] = {}
    for name in sorted(names):
        file = root / name
        length = file.stat().st_size if file.exists() else 0
        photos[file] = FileEntry(bytes=length, sha256=file.name)
    return photos


def _database_fault(file: Path) -> str | None:
    """Have SQLite read a whole database; return what is wrong with it, or None."""
    try:
        with closing(open_to_read(file)) as connection:
            found = [line for (line,) in connection.execute("PRAGMA integrity_check(1)")]
    except sqlite3.Error as error:
        return f"cannot be read ({error})"
    return None if found == ["ok"] else "; ".join(found)


def _graphs(model: Path) -> dict[Path, FileEntry]:
    if not (model / GRAPHS).exists():
        return {}
    try:
        graphs = read_graphs(model, read_model_id(model))
    except CheckpointError as error:
        raise IndexCorruptError(model, str(error)) from error
    folder, files = model / GRAPHS, {} if graphs is None else graphs.files
    return {folder / name: entry for name, entry in files.items()}


def _fault(file: Path, entry: FileEntry, progress: Progress) -> str | None:
    digest, length = hashlib.sha256(), 0
    try:
        with file.open("rb") as stream:
            while part := stream.read(_BYTES_AT_A_TIME):
                digest.update(part)
                length += len(part)
                progress.advance(len(part))
    except OSError as error:
        return f"cannot be read ({error.strerror})"
    if length != entry.bytes:
        return f"expected {entry.bytes} bytes, got {length}"
    if digest.hexdigest() != entry.sha256:
        return f"expected sha256 {entry.sha256}, got {digest.hexdigest()}"
    return None


def probe_index(index: SearchIndex) -> None:
    """Read and search some items of each collection, without the network; takes milliseconds.

    Raises:
        IndexCorruptError: If a part of the index cannot be used; the message names it.
    """
    folder = generation_folder(index.path, index.generation)
    for target in index.manifest.targets:
        collection = index.images if target == "images" else index.texts
        assert collection is not None  # the manifest has it
        rows, place = _spread(collection.entry.count), folder / target
        for path, probe in (
            (place / ITEMS, partial(_probe_items, collection)),
            (place / EMBEDDINGS, partial(_probe_embeddings, collection)),
            (place / ANN, partial(_probe_ann, collection)),
            (place, partial(_probe_search, index, target)),
        ):
            try:
                fault = probe(rows)
            except AladinError:
                raise
            except Exception as error:  # damaged data can raise any exception
                fault = f"cannot be used ({type(error).__name__}: {error})"
            if fault is not None:
                raise IndexCorruptError(path, fault)


def _spread(count: int) -> list[int]:
    """Choose evenly spread rows, including the first and the last."""
    return sorted(set(np.linspace(0, count - 1, _PROBES).astype(int).tolist()))


def _probe_items(collection: StoredCollection, rows: list[int]) -> str | None:
    for item in collection.items.by_rows(rows):
        by_id = collection.items.by_id(item.id)
        if by_id is None or by_id.row != item.row:
            found = "none" if by_id is None else f"row {by_id.row}"
            return f"id {brief(item.id)}: expected row {item.row}, found {found}"
    return None


def _probe_embeddings(collection: StoredCollection, rows: list[int]) -> str | None:
    norms = np.linalg.norm(collection.embeddings[rows, : collection.entry.embedding_dim], axis=1)
    for row, norm in zip(rows, norms, strict=True):
        if not abs(norm - 1) < _NORM_TOLERANCE:  # also rejects NaN
            return f"row {row}: expected a length of 1, got {norm:g}"
    return None


def _probe_ann(collection: StoredCollection, rows: list[int]) -> str | None:
    # A small share of all items, so that hardly any is found by chance.
    count = min(_HITS, max(1, collection.entry.count // 10))
    hits = 0
    for row in rows:
        query = np.array(collection.embeddings[row])
        query[collection.entry.embedding_dim :] = 0  # its own biases have no part in the comparison
        found = collection.ann.search(query, count)
        if len(found) and not (found.min() >= 0 and found.max() < collection.entry.count):
            return f"expected rows below {collection.entry.count}, found {found.tolist()}"
        # Another item may have an identical embedding.
        hits += bool(
            len(found) and (collection.embeddings[found] @ query).max() > 1 - _NORM_TOLERANCE
        )
    if hits < _FOUND_SHARE * len(rows):
        return f"it finds {hits} of {len(rows)} items by their own embeddings"
    return None


def _probe_search(index: SearchIndex, target: Target, rows: list[int]) -> str | None:
    """Search with stored items as if they were of the other modality, to run both stages."""
    searcher, collection = TwoStageSearcher(index), index.collection(target)
    modality = "text" if target == "images" else "image"
    expected = min(_HITS, collection.count)
    for row in rows:
        query = Encoding.of_item(collection.embedding(row), collection.tokens(row))
        hits = searcher.search(Term(query, modality), target, SearchOptions(k=_HITS)).hits
        if len(hits) != expected:
            return f"a search for row {row}: expected {expected} hits, got {len(hits)}"
        if not all(math.isfinite(hit.score) for hit in hits):
            return f"a search for row {row}: found scores {[hit.score for hit in hits]}"
    return None
