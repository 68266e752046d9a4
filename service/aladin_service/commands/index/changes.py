"""``aladin index add``.

``aladin index delete``.

``aladin index compact``.

``aladin index rollback``.
"""

from __future__ import annotations

from contextlib import closing
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from aladin_service.commands.options import (
    DetectorOption,
    IndexArgument,
    MaxMetadataOption,
    PhotosRootOption,
    RegionLabelsOption,
    RegionsOption,
    detector_for,
    metadata_limits,
    opened_regions,
)
from aladin_service.commands.progress import stderr_progress
from aladin_service.commands.search import TargetName
from aladin_service.reports.index_facts import print_generation, warn_of_places

if TYPE_CHECKING:
    from collections.abc import Iterable


class Duplicates(StrEnum):
    """What to do where an id is there already."""

    ERROR = "error"
    REPLACE = "replace"
    SKIP = "skip"


def add(
    index: IndexArgument,
    images: Annotated[
        Path | None, typer.Option("--images", metavar="SRC", help="Photos, as of `index build`.")
    ] = None,
    texts: Annotated[
        Path | None, typer.Option("--texts", metavar="SRC", help="Texts, as of `index build`.")
    ] = None,
    split: Annotated[
        str | None, typer.Option("--split", help="Only this split of a data set; else all of it.")
    ] = None,
    photos_root: PhotosRootOption = None,
    regions: RegionsOption = None,
    region_labels: RegionLabelsOption = None,
    detector: DetectorOption = None,
    max_metadata: MaxMetadataOption = None,
    on_duplicate: Annotated[
        Duplicates,
        typer.Option(
            "--on-duplicate",
            help="Where an id is in the index: add nothing at all, put the new item in the place "
            "of the old, or keep the old.",
        ),
    ] = Duplicates.ERROR,
) -> None:
    """Add photos, texts or both to an index, without a rebuild.

    In: INDEX, whose own model encodes them, and --images, --texts or both. Out: the items can be
    found by every search that begins later, also in services that run; on stdout, how many.
    Photos that cannot be used are left out and named on stderr, as `index build` does it.

    Items are encoded in batches of 64. A batch is applied in one step and is on the disk before
    the next begins: a kill loses at most the batch that it falls into, all of it. Run again with
    --on-duplicate skip to go on. With --on-duplicate error the source is read twice: all ids are
    looked at before the first item is added.
    """
    from aladin_index.encode.add import AddSettings, add_items, check_new
    from aladin_index.encode.item_encoders import RegionReader
    from aladin_index.encode.source_items import PhotoPlaces, SourceItem
    from aladin_index.format.layout import MODEL, live_generation
    from aladin_index.format.records import SkippedItem
    from aladin_index.open import open_writer
    from aladin_network.checkpoint import load_checkpoint
    from aladin_network.errors import InputError
    from aladin_network.types import Target
    from aladin_service.intake.sources import (
        DetectedRegions,
        image_items,
        photo_places,
        text_items,
        with_photo_keys,
    )
    from aladin_service.settings import engine_options
    from aladin_training.data.records import ignore_skipped, log_skipped

    sources: dict[Target, Path] = {}
    if images is not None:
        sources["images"] = images
    if texts is not None:
        sources["texts"] = texts
    if not sources:
        raise InputError("expected --images, --texts or both, got neither")

    store = opened_regions(regions, region_labels)
    engine = engine_options(index)
    if engine is None:
        live_generation(index)  # says so where there is no index
    checkpoint = load_checkpoint(index / MODEL)
    finder = None
    if images is not None and store is None:
        finder = detector_for(checkpoint.model.image.encoder, detector)
    reader: RegionReader | None = store if finder is None else DetectedRegions(finder)

    places: PhotoPlaces | None = None

    def items(target: Target, *, first: bool = False) -> Iterable[SourceItem | SkippedItem]:
        nonlocal places
        source = sources[target]
        if target == "texts":
            # Named once: not while ids are looked at, nor where the photos are added, too.
            on_skip = ignore_skipped if first or texts == images else log_skipped
            return text_items(source, split, on_skip)
        places = photo_places(source, photos_root)  # of this reading: it counts
        photos = image_items(source, split, store, places)
        return photos if finder is None else with_photo_keys(photos)

    limits = metadata_limits(max_metadata)
    settings = AddSettings(on_duplicate=on_duplicate.value, metadata=limits)
    with closing(open_writer(index, checkpoint.model_id, engine=engine)) as writer:
        if on_duplicate is Duplicates.ERROR:
            for target in sources:
                check_new(writer, target, items(target, first=True), limits)
        for target in sources:
            with stderr_progress() as progress:
                counts = add_items(
                    writer, checkpoint.model, target, items(target), settings, progress, reader
                )
            for item_id, reason in counts.left_out:
                typer.echo(f"left out {item_id}: {reason}", err=True)
            typer.echo(
                f"{index}: {target}: {counts.added} added, {counts.replaced} replaced, "
                f"{counts.skipped} skipped, {len(counts.left_out)} left out"
            )
    if places is not None:
        warn_of_places(places)


def delete(
    index: IndexArgument,
    target: Annotated[TargetName, typer.Option("--target", help="Images or texts.")],
    ids: Annotated[
        list[str] | None, typer.Argument(metavar="ID...", help="Items to remove.")
    ] = None,
    file: Annotated[
        Path | None,
        typer.Option(
            "--ids", metavar="FILE", exists=True, dir_okay=False, help="More ids, one a line."
        ),
    ] = None,
    ignore_missing: Annotated[
        bool, typer.Option("--ignore-missing", help="Go on where an id is not in the index.")
    ] = False,
) -> None:
    """Remove items from an index, without a rebuild.

    In: INDEX, --target, and ids, in a file or in the command. Out: no search that begins later
    finds the items, in no service that runs; on stdout, how many are gone. All ids of the command
    are removed in one step, or none: an id that is not there is an error unless --ignore-missing.
    The photos themselves are not touched.
    """
    from aladin_index.format.layout import MODEL, generation_folder, live_generation
    from aladin_index.format.manifest import read_manifest
    from aladin_index.open import open_writer
    from aladin_network.checkpoint import read_model_id
    from aladin_network.errors import InputError
    from aladin_service.settings import engine_options

    wanted = list(ids or ())
    if file is not None:
        wanted += [line for line in file.read_text(encoding="utf-8").splitlines() if line]
    if not wanted:
        raise InputError("expected at least one ID, or --ids FILE, got none")
    engine = engine_options(index)
    if engine is None:
        model_id = read_manifest(generation_folder(index, live_generation(index))).model.id
    else:
        model_id = read_model_id(index / MODEL)
    with closing(open_writer(index, model_id, engine=engine)) as writer:
        report = writer.delete(target.value, wanted, ignore_missing=ignore_missing)
    missing = f", {len(report.missing)} were not there" if report.missing else ""
    typer.echo(f"{index}: {target.value}: {len(report.deleted)} deleted{missing}")


def compact(
    index: IndexArgument,
    keep: Annotated[
        int,
        typer.Option("--keep", min=0, help="Earlier generations that stay for `index rollback`."),
    ] = 1,
) -> None:
    """Fold what was added and deleted into a new generation.

    In: INDEX, which is searched and changed meanwhile as before; what comes during the compaction
    is carried over, and pending again. Out: a new live generation, taken up by services that run;
    earlier ones beyond --keep, those that were rolled back with all that was added to them, and
    uploaded photos that are in none, are removed from the disk; on stdout, what was done. Changes
    that will go with a generation that was rolled back are named on stderr beforehand. A kill
    leaves the index as it was; the next command that writes a generation clears up.
    """
    from aladin_index.generations.compact import compact_index
    from aladin_index.generations.history import describe_changes

    with stderr_progress() as progress:
        report = compact_index(index, keep=keep, progress=progress)
    print_generation(index, report.generation, report.counts)
    typer.echo(
        f"  {report.added} added and {report.removed} removed items folded in, "
        f"{report.carried} changes came meanwhile"
    )
    if report.dropped:
        typer.echo(f"  generations removed: {', '.join(map(str, report.dropped))}")
    for number, changes in report.lost.items():
        typer.echo(
            f"  with generation {number} went changes that no other has: "
            f"{describe_changes(changes)}"
        )
    if report.in_use:
        kept = ", ".join(map(str, report.in_use))
        typer.echo(f"  still open somewhere, and removed next time: {kept}", err=True)


def rollback(
    index: IndexArgument,
    to: Annotated[
        int | None,
        typer.Option("--to", metavar="N", help="Generation to go to; else the one before."),
    ] = None,
) -> None:
    """Make an earlier generation live again, as it was when it was replaced.

    In: INDEX. Out: the generation is live with the changes that it had, taken up by services that
    run; on stdout, what is undone by that. Nothing is deleted yet: `--to` the generation that was
    left brings it back, with its changes, until the next `aladin index compact` removes it from
    the disk.
    """
    from aladin_index.generations.earlier import rollback_index
    from aladin_index.generations.history import describe_changes, rolled_back_changes

    report = rollback_index(index, to)
    counts = ", ".join(f"{count} {target}" for target, count in report.counts.items())
    typer.echo(f"{index}: generation {report.generation} is live again: {counts}")
    typer.echo(f"  its own changes: {describe_changes(report.pending)}")
    undone = describe_changes(report.undone)
    typer.echo(f"  undone: generation {report.left} and its changes: {undone}")
    typer.echo(f"  to bring that back: aladin index rollback {index} --to {report.left}")

    for number, changes in rolled_back_changes(index).items():
        typer.echo(
            f"  no longer live, and removed by the next compaction: generation {number}, its "
            f"changes: {describe_changes(changes)}"
        )
