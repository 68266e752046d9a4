"""The one way in which a generation comes to be: from encoded items to what is live.

A build, a merge, an import and a compaction differ in where the encoded items come from:

    with disk_errors(root), only_builder(root):
        install_model(root, checkpoint_folder, model)
        write_generation(root, {"images": SideSource(...)}, model, settings, fingerprint)
"""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from aladin.atomic import write_json
from aladin.calibration.calibration import Calibration
from aladin.errors import InputError
from aladin.progress import NullProgress, Progress
from index.ann.first_stage import first_stages
from index.building.fitted_photos import FittedPhotos
from index.building.item_encoders import LeftOut
from index.building.publish import GoingLive, publish_generation
from index.building.side_writer import EncodedPart, SideCounts, write_side
from index.building.stage_seconds import StageSeconds
from index.layout import NEW_GENERATION, published_generations
from index.manifest import (
    SCHEMA_VERSION,
    AnnEntry,
    MadeBy,
    Manifest,
    ModelEntry,
    SideEntry,
    Tuning,
    describe_files,
    write_manifest,
)
from index.settings import BuildSettings, Target
from index.side import LEFT_OUT, side_files
from index.tokens.codec import TokenCodec


@dataclass(frozen=True, kw_only=True)
class SideSource:
    """Where one side of a new generation comes from.

    Attributes:
        embedding_dim: size of an embedding.
        codec: that packed the tokens of the parts.
        parts: the items in the order of their rows; read once. Ids are unique, which whoever
            makes the parts has seen to.
        left_out: items that could not be used; read when all parts were.
        count: number of items, if it is known; for the progress alone.
        tuning: of the second stage, to be kept from an earlier generation; None: not tuned.
    """

    embedding_dim: int
    codec: TokenCodec
    parts: Iterable[EncodedPart]
    left_out: Sequence[LeftOut] = ()
    count: int | None = None
    tuning: Tuning | None = None


def write_generation(
    root: Path,
    sides: Mapping[Target, SideSource],
    model: ModelEntry,
    settings: BuildSettings,
    fingerprint: str,
    progress: Progress | None = None,
    seconds: StageSeconds | None = None,
    going_live: GoingLive | None = None,
    made_by: MadeBy = "build",
    calibration: Calibration | None = None,
    fitted_photos_indexed: float | None = None,
) -> int:
    """Write a new generation of an index, one part in memory at a time, and make it live.

    The same parts and settings make the same files, byte by byte. To be called by the only
    builder of the index (`index.disk.only_builder`) and after
    `index.building.publish.install_model`; what a killed process leaves is cleared away by the
    next builder.

    Args:
        root: of the index.
        sides: images, texts or both.
        model: of the index.
        settings: of the first stage, the filters and the candidates; tokens are as the codecs
            say.
        fingerprint: of all that the generation is made from.
        progress: told of items and vectors.
        seconds: gets the time of the stages "write" and "ann".
        going_live: for what has to change in the same step, see `publish_generation`.
        made_by: noted in the manifest.
        calibration: of the model's scores among such items; None: there is none.
        fitted_photos_indexed: see `Manifest`; only a compaction gives it, because its images are
            those of the generation before. Everything else has them counted here.

    Returns:
        The number of the new generation.

    Raises:
        InputError: a side has no item.
        ConfigError: FAISS cannot build what the settings ask for.
        OSError: the disk is full, or cannot be written.
        sqlite3.Error: the same, met by the database.
    """
    progress = progress or NullProgress()
    seconds = seconds or StageSeconds()
    generation = max(published_generations(root), default=0) + 1
    folder = root / NEW_GENERATION
    fitted_photos = FittedPhotos(None if made_by == "compact" else calibration)
    shutil.rmtree(folder, ignore_errors=True)
    try:
        with seconds.measure("write"):
            counts = _write_sides(folder, fitted_photos.watch(sides), settings, progress)
        progress.note(**seconds.notes())
        with seconds.measure("ann"):
            shapes: dict[Target, tuple[int, int]] = {
                target: (counts[target].items, side.embedding_dim) for target, side in sides.items()
            }
            anns = first_stages(folder, shapes, settings, progress)
        progress.note(**seconds.notes())
        entries: dict[Target, SideEntry] = {
            target: _side_entry(side, counts[target], anns[target], settings)
            for target, side in sides.items()
        }
        names = [name for target, entry in entries.items() for name in side_files(target, entry)]
        with seconds.measure("write"):
            manifest = Manifest(
                schema_version=SCHEMA_VERSION,
                generation=generation,
                metric="inner_product",
                default_candidates=settings.default_candidates,
                fingerprint=fingerprint,
                made_by=made_by,
                model=model,
                images=entries.get("images"),
                texts=entries.get("texts"),
                calibration=calibration,
                fitted_photos_indexed=(
                    fitted_photos_indexed if made_by == "compact" else fitted_photos.share
                ),
                files=describe_files(folder, names),
            )
            write_manifest(folder, manifest)
            publish_generation(root, folder, generation, going_live)
    finally:  # what failed leaves nothing; what did not is elsewhere by now
        shutil.rmtree(folder, ignore_errors=True)
    return generation


def _write_sides(
    folder: Path,
    sides: Mapping[Target, SideSource],
    settings: BuildSettings,
    progress: Progress,
) -> dict[Target, SideCounts]:
    """Write all of each side but its ANN."""
    counts: dict[Target, SideCounts] = {}
    for target, side in sides.items():
        (folder / target).mkdir(parents=True)
        progress.start(side.count, f"{target} written")
        counts[target] = write_side(
            folder / target,
            side.parts,
            side.embedding_dim,
            side.codec,
            settings.filter_fields,
            progress,
        )
        if counts[target].items == 0:
            first = next(iter(side.left_out), None)
            but = ""
            if first is not None:
                but = f"; {len(side.left_out)} left out, e.g. {first.id!r}: {first.reason}"
            raise InputError(f"{target}: expected at least one item, got none{but}")
        write_json(folder / target / LEFT_OUT, side.left_out)
    return counts


def _side_entry(
    side: SideSource, counts: SideCounts, ann: AnnEntry, settings: BuildSettings
) -> SideEntry:
    return SideEntry(
        count=counts.items,
        left_out=len(side.left_out),
        embedding_dim=side.embedding_dim,
        token_dim=side.codec.dim,
        token_count=counts.tokens,
        token_dtype=side.codec.dtype,
        filter_fields=None if settings.filter_fields is None else list(settings.filter_fields),
        ann=ann,
        tuning=side.tuning,
    )
