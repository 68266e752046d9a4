"""``aladin index add``."""

from __future__ import annotations

from contextlib import closing
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from service.commands.detector_option import DetectorOption, detector_for
from service.commands.index.arguments import IndexArgument, PhotosRootOption
from service.commands.index.metadata_option import MaxMetadataOption, metadata_limits
from service.commands.index.reports import warn_of_places
from service.commands.region_options import RegionLabelsOption, RegionsOption, opened_regions
from service.progress import stderr_progress

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
    from aladin.checkpoint import load_checkpoint
    from aladin.errors import InputError
    from index.building.item_encoders import LeftOut, RegionReader
    from index.building.photo_places import PhotoPlaces
    from index.building.source_items import SourceItem
    from index.changes.additions import AddSettings, add_items, check_new
    from index.layout import MODEL, live_generation
    from index.open import open_writer
    from index.settings import Target
    from service.detected_regions import DetectedRegions, with_photo_keys
    from service.engine_options import engine_options
    from service.sources import image_items, photo_places, text_items
    from training.data.skipped import ignore_skipped, log_skipped

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

    def items(target: Target, *, first: bool = False) -> Iterable[SourceItem | LeftOut]:
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
