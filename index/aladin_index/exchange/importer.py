"""Import of ready-made encodings, from an export or from clip-retrieval, into an index.

Each collection of the folder is checked and streamed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np

from aladin_index.ann.first_stage_build import check_first_stages
from aladin_index.building.builder import BuildReport
from aladin_index.building.resume import fingerprint_of
from aladin_index.encode.encoded import PackedBatch
from aladin_index.encode.source_items import PhotoPlaces
from aladin_index.exchange.arrays import (
    StoredTokens,
    check_kind,
    check_tokens,
    map_array,
    unit_vectors,
)
from aladin_index.exchange.items import (
    ItemSource,
    caption_fault,
    no_fault,
    place_fault,
    usable_part,
)
from aladin_index.exchange.layout import (
    METADATA,
    TEXTS_FOLDER,
    CollectionLayout,
    ExchangeManifest,
    check_files,
    describe_paths,
    read_exchange_manifest,
)
from aladin_index.format.disk import check_folder, disk_errors, only_builder
from aladin_index.format.skipped import SkippedItem
from aladin_index.generations.collection_writer import CollectionSource
from aladin_index.generations.writer import (
    NewGeneration,
    describe_model,
    install_model,
    write_generation,
)
from aladin_index.items.uploaded_photos import UploadedPhoto
from aladin_index.settings import BuildSettings
from aladin_index.tokens.codec import PackedTokens, TokenCodec
from aladin_index.tokens.store import QUERY_SAMPLE, TOKEN_SAMPLE
from aladin_network.calibration.fitted_files import read_fitted
from aladin_network.errors import DataError, IndexMismatchError, brief
from aladin_network.files import FileEntry
from aladin_network.graphs.loading import load_for_inference
from aladin_network.photos.files import PhotoFile
from aladin_network.types import NullProgress, Progress, Target, TokenDtype


class Dims(NamedTuple):
    """Sizes of a network's embeddings and tokens."""

    embedding: int
    token: int


class EncodedCollection:
    """Images or texts of a folder of encodings."""

    def __init__(self, layout: CollectionLayout, dims: Dims, *, own: bool) -> None:
        self._layout, self._dims = layout, dims
        names = layout.parts()
        self._embeddings = {name: map_array(layout.embeddings(name), 2) for name in names}
        for name, embeddings in self._embeddings.items():
            path = layout.embeddings(name)
            check_kind(path, embeddings, "float32", "float16")
            if embeddings.shape[1] != dims.embedding:
                found = embeddings.shape[1]
                raise IndexMismatchError(f"{path}: size of an embedding", dims.embedding, found)
        rows = [len(embeddings) for embeddings in self._embeddings.values()]
        self.count = sum(rows)
        self._items = ItemSource(layout, names, rows, own=own)
        if layout.target == "texts" and not self._items.has_metadata:
            place = layout.metadata(names[0])
            raise DataError(place, None, "missing, and with it the texts of the embeddings")
        has_tokens = layout.tokens.is_dir()
        self._tokens = StoredTokens(layout, names, rows, dims.token) if has_tokens else None

    @property
    def files(self) -> set[Path]:
        codec = None if self._tokens is None else self._tokens.codec
        files = {file for name in self._embeddings for file in self._layout.files(name, codec)}
        if not self._items.has_metadata:
            files -= {self._layout.metadata(name) for name in self._embeddings}
        return files

    def source(
        self,
        dtype: TokenDtype | None,
        other: EncodedCollection | None = None,
        places: PhotoPlaces | None = None,
    ) -> CollectionSource:
        """Describe the collection as the source of a generation."""
        self._items.check_ids()
        skipped: list[SkippedItem] = []
        fault = caption_fault
        if self._layout.target == "images":
            fault = no_fault if places is None else partial(place_fault, places)
        codec = self._codec(dtype, other)
        return CollectionSource(
            embedding_dim=self._dims.embedding,
            codec=codec,
            parts=(usable_part(part, skipped, fault) for part in self._parts(codec)),
            skipped=skipped,
            count=self.count,
        )

    def _codec(self, dtype: TokenDtype | None, other: EncodedCollection | None) -> TokenCodec:
        if self._tokens is None:
            return TokenCodec("float16", self._dims.token)
        stored = self._tokens.codec
        if dtype is None or dtype == stored.dtype or self._tokens.count == 0:
            return stored
        asking = None if other is None else other._tokens
        return TokenCodec.train(
            dtype,
            self._tokens.sample(TOKEN_SAMPLE),
            queries=None if asking is None else asking.sample(QUERY_SAMPLE),
        )

    def _parts(self, codec: TokenCodec) -> Iterator[PackedBatch]:
        for name, embeddings in self._embeddings.items():
            row = token = 0
            for items in self._items.chunks(name):
                rows = slice(row, row + len(items))
                lengths = self._lengths(name, rows)
                tokens = slice(token, token + int(lengths.sum()))
                yield PackedBatch(
                    items=items,
                    embeddings=unit_vectors(self._layout.embeddings(name), row, embeddings[rows]),
                    tokens=self._packed(name, tokens, codec),
                    lengths=lengths,
                )
                row, token = rows.stop, tokens.stop

    def _lengths(self, name: str, rows: slice) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
        if self._tokens is None:
            return np.zeros(rows.stop - rows.start, dtype=np.int64)
        return np.asarray(self._tokens.lengths[name][rows], dtype=np.int64)

    def _packed(self, name: str, places: slice, codec: TokenCodec) -> PackedTokens:
        if self._tokens is None:
            return codec.pack(np.empty((0, codec.dim), dtype=np.float32))
        stored, packed = self._tokens.codec, self._tokens.packed[name].take(places)
        check_tokens(self._layout.token_array("values", name), places.start, packed, stored)
        if codec is stored and packed.values.dtype != np.float32:
            return packed
        return codec.pack(stored.unpack(packed))


def import_index(
    folder: Path,
    checkpoint_folder: Path,
    out: Path,
    settings: BuildSettings | None = None,
    token_dtype: TokenDtype | None = None,
    progress: Progress | None = None,
    places: PhotoPlaces | None = None,
) -> BuildReport:
    """Create a live generation from precomputed encodings, without running the network.

    A collection without tokens is searched by its embeddings alone. All is read and checked a few
    thousand items at a time; until the last step, readers see what was live before.

    Args:
        folder: Folder of encodings, see `aladin_index.exchange.layout`.
        checkpoint_folder: Folder of the network that made the encodings and that will encode the
            queries. It is copied into a new index; an existing index accepts no other network. Its
            calibration is used if the manifest of the encodings has none.
        out: Folder of the index, new or existing.
        settings: Settings of the first stage, the filters and the candidates.
        token_dtype: Form in which tokens are to be stored, or None for their present form.
        progress: Receives the progress in items and vectors.
        places: Checks the location of each photo with an absolute path, and may skip the photo; or
            None to accept all photos.

    Raises:
        DataError: If a file is missing, has invalid content or does not match the other files, or
            an embedding or a token is not L2-normalised.
        IndexMismatchError: If the encodings differ in size from those of the checkpoint; if, by
            their manifest, they belong to another model or files have changed; or if the index
            belongs to another model.
        InputError: If an ID repeats or no text has a caption.
        CheckpointError: If the checkpoint cannot be loaded.
        ConfigError: If FAISS cannot build what the settings ask for, or `out` holds something other
            than an index.
        IndexWriteError: If the disk is full or cannot be written, or the index is being built.
    """
    settings = settings or BuildSettings()
    progress = progress or NullProgress()
    check_folder(out)
    checkpoint = load_for_inference(checkpoint_folder)
    dims = Dims(checkpoint.model.embedding_dim, checkpoint.model.token_dim)
    manifest = _manifest_of(folder, checkpoint.model_id)
    calibration, correction = read_fitted(checkpoint_folder, checkpoint.model_id)
    if manifest is not None and correction is None:  # that of the folder is of uncorrected scores
        calibration = manifest.calibration or calibration
    collections: dict[Target, EncodedCollection] = {
        layout.target: EncodedCollection(layout, dims, own=manifest is not None)
        for layout in _layouts(folder)
    }
    check_first_stages(
        {target: (collection.count, dims.embedding) for target, collection in collections.items()},
        settings,
    )
    files = {
        target: describe_paths(folder, collection.files)
        for target, collection in collections.items()
    }
    if manifest is not None:
        check_files(folder, manifest, {k: v for each in files.values() for k, v in each.items()})
    sources = _sources(collections, token_dtype, places, folder, out)
    fingerprints: dict[Target, str] = {
        target: _fingerprint(files[target], token_dtype) for target in collections
    }
    with disk_errors(out), only_builder(out):
        model = describe_model(checkpoint_folder, checkpoint.model_id)
        install_model(out, checkpoint_folder, model)
        fingerprint = fingerprint_of(model, fingerprints, settings, calibration, correction)
        new = NewGeneration(
            collections=sources,
            model=model,
            settings=settings,
            fingerprint=fingerprint,
            made_by="import",
            calibration=calibration,
            correction=correction,
        )
        generation = write_generation(out, new, progress)
    skipped = [entry for source in sources.values() for entry in source.skipped]
    counts: dict[Target, int] = {
        target: collection.count - len(sources[target].skipped)
        for target, collection in collections.items()
    }
    return BuildReport(generation=generation, counts=counts, skipped=skipped)


def _manifest_of(folder: Path, model_id: str) -> ExchangeManifest | None:
    """Read the folder's manifest, if it has one; refuse encodings of another model."""
    manifest = read_exchange_manifest(folder)
    if manifest is not None and manifest.model_id != model_id:
        raise IndexMismatchError(f"{folder}: model", model_id, manifest.model_id)
    return manifest


def _sources(
    collections: Mapping[Target, EncodedCollection],
    token_dtype: TokenDtype | None,
    places: PhotoPlaces | None,
    folder: Path,
    out: Path,
) -> dict[Target, CollectionSource]:
    """Stream the collections; photos that the exported index kept are copied on the way."""
    sources: dict[Target, CollectionSource] = {}
    for target, collection in collections.items():
        other = next((collections[each] for each in collections if each != target), None)
        source = collection.source(token_dtype, other, places if target == "images" else None)
        sources[target] = replace(source, parts=_with_photos(source.parts, folder, out))
    return sources


def _with_photos(parts: Iterable[PackedBatch], folder: Path, root: Path) -> Iterator[PackedBatch]:
    """Pass on the parts, and copy the uploaded photos that the exported index contains."""
    for part in parts:
        for item in part.items:
            if item.path is not None and not Path(item.path).is_absolute():
                uploaded = UploadedPhoto(PhotoFile(folder / item.path).read())
                if uploaded.path != item.path:
                    found = uploaded.path
                    raise IndexMismatchError(f"{folder}: photo {brief(item.id)}", item.path, found)
                uploaded.write(root)
        yield part


def _fingerprint(files: dict[str, FileEntry], token_dtype: TokenDtype | None) -> str:
    return f"{token_dtype} " + " ".join(f"{name} {files[name].sha256}" for name in sorted(files))


def _layouts(folder: Path) -> list[CollectionLayout]:
    if not folder.is_dir():
        raise DataError(folder, None, "no such folder")
    places = [
        CollectionLayout(folder, "images"),
        CollectionLayout(folder, "texts"),
        CollectionLayout(folder / TEXTS_FOLDER, "texts"),
    ]
    found = [layout for layout in places if layout.parts()]
    if not found:
        expected = f"{places[0].embeddings('0').relative_to(folder)}, {METADATA}/ beside it"
        raise DataError(folder, None, f"holds no embeddings, expected {expected}")
    if [layout.target for layout in found].count("texts") > 1:
        two = " and ".join(str(layout.embeddings("0").parent) for layout in found[-2:])
        raise DataError(folder, None, f"has texts in two places, {two}")
    return found
