"""Reading of the live generation of an index, including the changes made since it was built.

Also how much of a file the operating system keeps in memory.
"""

from __future__ import annotations

import threading
from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import TracebackType

import numpy as np

from aladin_index.ann.ann_index import AnnIndex
from aladin_index.ann.first_stage import first_stages
from aladin_index.ann.hub_correction import open_correction
from aladin_index.changes.database import changes_database
from aladin_index.changes.reader import ChangesReader
from aladin_index.devices.search_device import SearchDevice
from aladin_index.format.disk import (
    GenerationLease,
    lease_generation,
    lease_live_generation,
    read_file_ahead,
)
from aladin_index.format.layout import ANN, EMBEDDINGS, ITEMS, generation_folder
from aladin_index.format.manifest import (
    CollectionEntry,
    Manifest,
    check_lengths,
    model_folder,
    read_manifest,
)
from aladin_index.format.npy import map_npy, map_pages
from aladin_index.format.skipped import FOLLOWED
from aladin_index.generations.collection_writer import collection_files
from aladin_index.items.filters import Filter
from aladin_index.items.store import ItemStore
from aladin_index.search.file_collection import FileCollection, StoredCollection
from aladin_index.search.listing import NamedValues
from aladin_index.search.word_filters import KnownValues
from aladin_index.settings import EXACT_ALIGN
from aladin_index.tokens.bound_files import open_bounds
from aladin_index.tokens.lazy_bounds import LazyBounds
from aladin_index.tokens.maxsim import TokenAlignment
from aladin_index.tokens.store import TokenStore
from aladin_network.checkpoint_files import Checkpoint
from aladin_network.errors import (
    CheckpointError,
    IndexCorruptError,
    IndexMismatchError,
    NoSuchTargetError,
)
from aladin_network.graphs.loading import load_for_inference
from aladin_network.scoring.hub_correction import HubCorrection
from aladin_network.types import TARGETS, Target


@dataclass(frozen=True, kw_only=True)
class SearchIndex:
    """One generation, memory-mapped, with its changes; unaffected by newer generations.

    Attributes:
        path: Index folder.
        manifest: Manifest of the generation.
        loaded: Model that the index was built with, or None if it was opened to encode nothing.
        images: Images in their state after the build, or None if the index has no images.
        texts: Texts in their state after the build, or None if the index has no texts.
        changes: Changes of each collection since.
        lease: Lease that prevents the removal of the generation while it is open.
    """

    path: Path
    manifest: Manifest
    loaded: Checkpoint | None
    images: StoredCollection | None
    texts: StoredCollection | None
    changes: Mapping[Target, ChangesReader]
    lease: GenerationLease
    _known: Mapping[Target, NamedValues] = field(
        default_factory=lambda: {target: NamedValues() for target in TARGETS}, init=False
    )

    @property
    def generation(self) -> int:
        return self.manifest.generation

    @property
    def place(self) -> Hashable:
        """Identity of the generation's files, other than of a copy; None once closed."""
        return self.lease.place

    @property
    def checkpoint(self) -> Checkpoint:
        """Model that the index was built with; of an index that was opened to encode."""
        assert self.loaded is not None
        return self.loaded

    @property
    def follows_folders(self) -> bool:
        return (self.path / FOLLOWED).exists()

    def correction(self) -> HubCorrection | None:
        """Read the hubness correction of the generation, or return None if it has none.

        Raises:
            IndexCorruptError: If the file is not a correction.
        """
        if self.manifest.correction is None:
            return None
        return open_correction(generation_folder(self.path, self.generation))

    def collection(self, target: Target, filter: Filter | None = None) -> FileCollection:
        """Return one collection as it is now, with all committed changes of any process.

        Args:
            target: Images or texts.
            filter: Filter that found items have to pass, or None for no filter.

        Raises:
            NoSuchTargetError: If the index was built without this collection.
            IndexCorruptError: If the changes of the collection cannot be read.
        """
        base = self.images if target == "images" else self.texts
        if base is None:
            raise NoSuchTargetError(target, " and ".join(self.manifest.targets))
        return FileCollection(base=base, changes=self.changes[target].snapshot(), filter=filter)

    def known_values(self, target: Target) -> KnownValues:
        collection = self.collection(target)
        return self._known[target].get(collection.base.items, collection.changes)

    def check_health(self) -> None:
        """Do nothing: the files are available for as long as the index is open."""

    def warm(self) -> None:
        """Start reading the generation's files into memory and mapping them, without waiting.

        The bounds of an index of `exact-align` that has none on disk are computed meanwhile, too.
        """
        folder = generation_folder(self.path, self.generation)
        for name in self.manifest.files:
            read_file_ahead(folder / name)
        for collection in (self.images, self.texts):
            if collection is not None:
                stored = [array for array in collection.tokens.stored if array is not None]
                map_pages([collection.embeddings, *stored])
                if collection.bounds is not None and collection.entry.ann.asked == EXACT_ALIGN:
                    threading.Thread(
                        target=collection.bounds.get, name="bounds", daemon=True
                    ).start()

    def close(self) -> None:
        """Close the databases and release the generation; no search may be running or follow."""
        for collection in (self.images, self.texts):
            if collection is not None:
                collection.items.close()
        for reader in self.changes.values():
            reader.close()
        self.lease.release()

    def __enter__(self) -> SearchIndex:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def open_index(
    path: Path,
    *,
    checkpoint: Checkpoint | None = None,
    device: SearchDevice | None = None,
    generation: int | None = None,
    encodes: bool = True,
) -> SearchIndex:
    """Open the live generation; fast, since files are mapped and only their sizes checked.

    Its changes are read at the first search.

    Args:
        path: Index folder.
        checkpoint: Loaded checkpoint to use instead of the copy in the index; for opening a new
            generation alongside the one that is being searched.
        device: Device of the network and the searches, or None for the CPU.
        generation: Generation to open instead of the live one.
        encodes: Whether anything will be encoded; otherwise no model is loaded, and what computes
            it, such as torch, need not be installed.

    Raises:
        IndexNotReadyError: If nothing was published yet.
        IndexMismatchError: If the schema version differs, or the index was built with another
            model.
        IndexCorruptError: If a file is missing or has the wrong length.
    """
    lease = (
        lease_live_generation(path) if generation is None else lease_generation(path, generation)
    )
    generation = lease.generation
    opened: dict[Target, StoredCollection] = {}
    try:
        folder = generation_folder(path, generation)
        manifest = read_manifest(folder)
        if manifest.generation != generation:
            raise IndexMismatchError(f"{folder}: generation", generation, manifest.generation)
        check_lengths(folder, manifest.files)
        model = model_folder(path, manifest.model.id)
        check_lengths(model, manifest.model.files)
        device = device or SearchDevice()
        if checkpoint is None and encodes:
            checkpoint = load_model(model, device.device)
        if checkpoint is not None and checkpoint.model_id != manifest.model.id:
            raise IndexMismatchError(f"{path}: model", manifest.model.id, checkpoint.model_id)
        for target in manifest.targets:
            opened[target] = _open(folder, manifest, target)
        placed = device.place({
            target: _with_bounds(folder, collection, opened)
            for target, collection in opened.items()
        })  # fmt: skip
    except BaseException:
        for collection in opened.values():
            collection.items.close()
        lease.release()
        raise
    return SearchIndex(
        path=path,
        manifest=manifest,
        loaded=checkpoint,
        images=placed.get("images"),
        texts=placed.get("texts"),
        changes={
            target: ChangesReader(
                changes_database(path, generation, target),
                collection.entry.count,
                collection.entry.vector_dim,
                collection.tokens.codec,
            )
            for target, collection in opened.items()
        },
        lease=lease,
    )


def _with_bounds(
    folder: Path, collection: StoredCollection, collections: Mapping[Target, StoredCollection]
) -> StoredCollection:
    """Bound the alignment scores of a collection, whose queries resemble the other collection."""
    stored, entry = None, collection.entry.bounds
    if entry is not None:
        stored = open_bounds(folder / collection.target, entry, collection.tokens)
    other = collections.get("texts" if collection.target == "images" else "images")
    tokens = None if other is None else other.tokens
    are_texts = collection.target == "texts"
    return replace(
        collection, bounds=LazyBounds(collection.tokens, tokens, stored, are_texts=are_texts)
    )


def load_model(folder: Path, device: str) -> Checkpoint:
    """Load the checkpoint of an index; a damaged one is an error of the index."""
    try:
        return load_for_inference(folder, device)
    except CheckpointError as error:
        raise IndexCorruptError(folder, str(error)) from error


def _open(folder: Path, manifest: Manifest, target: Target) -> StoredCollection:
    entry = manifest.collection(target)
    assert entry is not None
    for name in collection_files(target, entry):
        if name not in manifest.files:
            raise IndexCorruptError(folder / name, "not named in the manifest")
    return open_collection(folder, target, entry)


def open_collection(folder: Path, target: Target, entry: CollectionEntry) -> StoredCollection:
    """Map the files of one collection of a generation."""
    place = folder / target
    ann = AnnIndex.open(place / ANN, entry.ann.search_width, entry.ann.oversample)
    if (ann.count, ann.dim) != (entry.count, entry.vector_dim):
        expected = f"{entry.count} vectors of {entry.vector_dim}"
        raise IndexCorruptError(place / ANN, f"expected {expected}, got {ann.count} of {ann.dim}")
    shape = (entry.count, entry.vector_dim)
    embeddings = map_npy(place / EMBEDDINGS, np.float32, shape)
    tokens = TokenStore.of(place, entry)
    items = ItemStore(place / ITEMS)
    if items.count != entry.count:
        items.close()
        reason = f"expected {entry.count} items, got {items.count}"
        raise IndexCorruptError(place / ITEMS, reason)
    return StoredCollection(
        target=target,
        entry=entry,
        ann=ann,
        first_stages=first_stages(ann, embeddings),
        second_stage=TokenAlignment(tokens),
        embeddings=embeddings,
        tokens=tokens,
        items=items,
    )
