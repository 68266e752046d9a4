"""Makes an index of ready-made encodings, exported before or written by clip-retrieval."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from aladin.calibration.store import read_calibration
from aladin.checkpoint import load_checkpoint
from aladin.errors import DataError, IndexMismatchError
from aladin.photo_file import PhotoFile
from aladin.progress import NullProgress, Progress
from index.ann.first_stage import check_first_stages
from index.building.generation_writer import SideSource, write_generation
from index.building.item_encoders import LeftOut
from index.building.photo_places import PhotoPlaces
from index.building.plan import fingerprint_of
from index.building.publish import describe_model, install_model
from index.building.side_writer import EncodedPart
from index.changes.uploaded_photos import UploadedPhoto
from index.disk import check_folder, disk_errors, only_builder
from index.exchange.encoded_side import Dims, EncodedSide
from index.exchange.layout import METADATA, TEXTS_FOLDER, SideLayout
from index.exchange.manifest import check_files, describe_paths, read_exchange_manifest
from index.manifest import FileEntry
from index.settings import BuildSettings, Target, TokenDtype


class ImportReport(NamedTuple):
    """What an import made.

    Attributes:
        generation: the new live generation.
        counts: number of items of each side.
        left_out: what was not taken: texts without a caption, photos outside of the root.
    """

    generation: int
    counts: dict[Target, int]
    left_out: list[LeftOut]


def import_index(
    folder: Path,
    checkpoint_folder: Path,
    out: Path,
    settings: BuildSettings | None = None,
    token_dtype: TokenDtype | None = None,
    progress: Progress | None = None,
    places: PhotoPlaces | None = None,
) -> ImportReport:
    """Make a new generation of ready-made encodings, and make it live; the network does not run.

    A side without tokens is searched by its embeddings alone. All is read and checked a few
    thousand items at a time; until the last step, readers see what was live before.

    Args:
        folder: of encodings, see `index.exchange.layout`.
        checkpoint_folder: the network that made them, and that will encode the queries; copied
            into a new index, and the only one that an existing index takes. Its calibration is
            taken where the encodings' manifest has none.
        out: folder of the index, new or existing.
        settings: of the first stage, the filters and the candidates.
        token_dtype: form in which tokens are to be stored; None: the one they are in.
        progress: told of items and vectors.
        places: looks where each photo with an absolute path lies, and may have it left out;
            None: all are taken.

    Raises:
        DataError: a file is missing, is not what it should be, or is out of step with the others;
            an embedding or a token is not L2-normalised.
        IndexMismatchError: the encodings are of another size than the checkpoint's; by their
            manifest, they are another model's or files have changed; or the index is another
            model's.
        InputError: an id repeats, or no text has a caption.
        CheckpointError: the checkpoint cannot be loaded.
        ConfigError: FAISS cannot build what the settings ask for, or `out` holds something else
            than an index.
        IndexWriteError: the disk is full or cannot be written, or the index is being built.
    """
    settings = settings or BuildSettings()
    progress = progress or NullProgress()
    check_folder(out)
    checkpoint = load_checkpoint(checkpoint_folder)
    dims = Dims(checkpoint.model.matching.dim, checkpoint.model.alignment.dim)
    manifest = read_exchange_manifest(folder)
    if manifest is not None and manifest.model_id != checkpoint.model_id:
        raise IndexMismatchError(f"{folder}: model", checkpoint.model_id, manifest.model_id)
    calibration = None if manifest is None else manifest.calibration
    calibration = calibration or read_calibration(checkpoint_folder, checkpoint.model_id)
    sides: dict[Target, EncodedSide] = {}
    for layout in _layouts(folder):
        sides[layout.target] = EncodedSide(layout, dims, own=manifest is not None)
    check_first_stages(
        {target: (side.count, dims.embedding) for target, side in sides.items()}, settings
    )
    files = {target: describe_paths(folder, side.files) for target, side in sides.items()}
    if manifest is not None:
        check_files(folder, manifest, {k: v for each in files.values() for k, v in each.items()})
    sources: dict[Target, SideSource] = {}
    fingerprints: dict[Target, str] = {}
    for target, side in sides.items():
        other = next((sides[each] for each in sides if each != target), None)
        source = side.source(token_dtype, other, places if target == "images" else None)
        sources[target] = replace(source, parts=_with_photos(source.parts, folder, out))
        fingerprints[target] = _fingerprint(files[target], token_dtype)
    with disk_errors(out), only_builder(out):
        model = describe_model(checkpoint_folder, checkpoint.model_id)
        install_model(out, checkpoint_folder, model)
        fingerprint = fingerprint_of(model, fingerprints, settings, calibration)
        generation = write_generation(
            out,
            sources,
            model,
            settings,
            fingerprint,
            progress,
            made_by="import",
            calibration=calibration,
        )
    left_out = [entry for source in sources.values() for entry in source.left_out]
    counts: dict[Target, int] = {
        target: side.count - len(sources[target].left_out) for target, side in sides.items()
    }
    return ImportReport(generation=generation, counts=counts, left_out=left_out)


def _with_photos(parts: Iterable[EncodedPart], folder: Path, root: Path) -> Iterator[EncodedPart]:
    """Hand photos on that came over the network, and that the exported index kept in itself."""
    for part in parts:
        for item in part.items:
            if item.path is not None and not Path(item.path).is_absolute():
                uploaded = UploadedPhoto(PhotoFile(folder / item.path).read())
                if uploaded.path != item.path:
                    found = uploaded.path
                    raise IndexMismatchError(f"{folder}: photo {item.id!r}", item.path, found)
                uploaded.write(root)
        yield part


def _fingerprint(files: dict[str, FileEntry], token_dtype: TokenDtype | None) -> str:
    return f"{token_dtype} " + " ".join(f"{name} {files[name].sha256}" for name in sorted(files))


def _layouts(folder: Path) -> list[SideLayout]:
    """Find the sides that a folder has embeddings of.

    Raises:
        DataError: it has none, or texts in two places.
    """
    if not folder.is_dir():
        raise DataError(folder, None, "no such folder")
    places = [
        SideLayout(folder, "images"),
        SideLayout(folder, "texts"),
        SideLayout(folder / TEXTS_FOLDER, "texts"),
    ]
    found = [layout for layout in places if layout.parts()]
    if not found:
        expected = f"{places[0].embeddings('0').relative_to(folder)}, {METADATA}/ beside it"
        raise DataError(folder, None, f"holds no embeddings, expected {expected}")
    if [layout.target for layout in found].count("texts") > 1:
        two = " and ".join(str(layout.embeddings("0").parent) for layout in found[-2:])
        raise DataError(folder, None, f"has texts in two places, {two}")
    return found
