"""``aladin index add``, ``delete``, ``compact`` and ``rollback``: changes of an index."""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from aladin_network.types import Target
from aladin_service.commands.flags import Flags, with_flags
from aladin_service.commands.index.build_options import (
    ExcludeOption,
    settings_flags,
)
from aladin_service.commands.index.info import print_generation, warn_of_places
from aladin_service.commands.options import (
    DetectorOption,
    IndexArgument,
    PartOfDataOption,
    PhotosRootOption,
    RegionLabelsOption,
    RegionsOption,
    opened_regions,
)
from aladin_service.commands.progress import stderr_progress

if TYPE_CHECKING:
    from collections.abc import Iterable

    from aladin_index.encode.region_sources import RegionSource
    from aladin_index.encode.source_items import PhotoPlaces, SourceItem
    from aladin_index.format.layout import EngineLocation
    from aladin_index.format.skipped import SkippedItem
    from aladin_index.settings import AddSettings
    from aladin_network.detectors.base import Detector
    from aladin_training.data.folder_rules import FolderRules
    from aladin_training.data.regions import RegionStore


def _settings() -> Flags:
    from aladin_index.settings import AddSettings

    return settings_flags(AddSettings, "limits", "exif", "metadata", "strict", "on_duplicate")


@with_flags(settings=_settings)
def add(
    index: IndexArgument,
    images: Annotated[
        list[Path] | None,
        typer.Option("--images", metavar="SRC", help="Photos, as of `index build`."),
    ] = None,
    texts: Annotated[
        list[Path] | None,
        typer.Option("--texts", metavar="SRC", help="Texts, as of `index build`."),
    ] = None,
    split: PartOfDataOption = None,
    photos_root: PhotosRootOption = None,
    exclude: ExcludeOption = None,
    regions: RegionsOption = None,
    region_labels: RegionLabelsOption = None,
    detector: DetectorOption = None,
    *,
    settings: AddSettings,
) -> None:
    """Add photos, texts or both to an index, without a rebuild.

    In: INDEX, whose model encodes them, and --images, --texts or both. Out: every search that
    starts later finds the items, in running services too; their number is printed on stdout.
    What cannot be used is skipped and named on stderr, as with `index build`.

    Items are encoded in batches of 64. Each batch is applied atomically and is on disk before the
    next one starts: a kill loses at most the current batch, as a whole. To continue, run the
    command again with --on-duplicate skip. With --on-duplicate error the source is read twice: all
    ids are checked before the first item is added.
    """
    from aladin_index.changes.item_changer import add_items, check_new
    from aladin_index.open import live_model, open_writer
    from aladin_network.errors import InputError
    from aladin_network.graphs.loading import load_for_inference
    from aladin_network.photos.skipped import skipped_lines
    from aladin_service.door import detector_for
    from aladin_service.settings import engine_options

    if not images and not texts:
        raise InputError("expected --images, --texts or both, got neither")
    store = opened_regions(regions, region_labels)
    engine = engine_options(index)
    checkpoint = load_for_inference(live_model(index, engine))  # raises if there is no index
    finder = None
    if images and store is None:
        finder = detector_for(checkpoint.model.image.encoder, detector)
    source = _NewItems(images, texts, split, photos_root, exclude, store, finder, settings.exif)
    with closing(open_writer(index, checkpoint.model_id, engine=engine)) as writer:
        if settings.on_duplicate == "error":
            for target in source.targets:
                check_new(writer, target, source.read(target, report=False), settings)
        for target in source.targets:
            items, regions_of = source.read(target), source.regions
            with stderr_progress() as progress:
                counts = add_items(
                    writer, checkpoint.model, target, items, settings, progress, regions_of
                )
            for line in skipped_lines(counts.skipped):
                typer.echo(line, err=True)
            typer.echo(
                f"{index}: {target}: {counts.added} added, {counts.replaced} replaced, "
                f"{counts.kept} already there, {len(counts.skipped)} skipped"
            )
    if source.places is not None and source.rules is not None:
        warn_of_places(source.places, source.rules)


@dataclass
class _NewItems:
    """The items to add, which may be read more than once.

    Attributes:
        images: Sources of photos, or None.
        texts: Sources of texts, or None.
        split: Split of the sources, or None for all of them.
        photos_root: Folder that photos have to be in, or None.
        exclude: Patterns of what is skipped in a folder, or None.
        store: Precomputed regions, or None.
        finder: Detector of regions, or None.
        sidecars: Whether the files of other programs beside photos are read.
        places: Where the photos of the last reading are; None before the first.
        rules: What the last reading skipped; None before the first.
    """

    images: list[Path] | None
    texts: list[Path] | None
    split: str | None
    photos_root: Path | None
    exclude: list[str] | None
    store: RegionStore | None
    finder: Detector | None
    sidecars: bool
    places: PhotoPlaces | None = None
    rules: FolderRules | None = None

    @property
    def targets(self) -> list[Target]:
        """Images, texts or both."""
        sources: list[tuple[Target, object]] = [("images", self.images), ("texts", self.texts)]
        return [target for target, given in sources if given]

    @property
    def regions(self) -> RegionSource | None:
        """The reader of photo regions, or None if the network reads photos."""
        return self.store if self.finder is None else self.finder

    def read(self, target: Target, *, report: bool = True) -> Iterable[SourceItem | SkippedItem]:
        """Read the images or the texts."""
        from aladin_service.item_sources import images_of_all, photo_places, texts_of_all
        from aladin_training.data.folder_rules import FolderRules

        images, texts = self.images or [], self.texts or []
        if target == "texts":
            return texts_of_all(texts, self.split, images if report else texts)
        # Both count, so there is one for each reading.
        self.places = photo_places(images, self.photos_root)
        self.rules = FolderRules(tuple(self.exclude or ()), sidecars=self.sidecars)
        return images_of_all(images, self.split, self.store, self.places, self.rules)


def delete(
    index: IndexArgument,
    target: Annotated[Target, typer.Option("--target", help="Images or texts.")],
    ids: Annotated[
        list[str] | None, typer.Argument(metavar="ID...", help="Items to remove.")
    ] = None,
    file: Annotated[
        Path | None,
        typer.Option(
            "--ids",
            metavar="FILE",
            exists=True,
            dir_okay=False,
            help="File of more ids, one per line.",
        ),
    ] = None,
    ignore_missing: Annotated[
        bool, typer.Option("--ignore-missing", help="Ignore ids that are not in the index.")
    ] = False,
) -> None:
    """Remove items from an index, without a rebuild.

    In: INDEX, --target, and ids on the command line or in a file. Out: no search that starts
    later finds the items, running services included; their number is printed on stdout. The ids
    are removed all at once or not at all: an id that is not in the index is an error unless
    --ignore-missing is given. The photos themselves are not touched.
    """
    from aladin_index.format.layout import generation_folder, live_generation
    from aladin_index.format.manifest import read_manifest
    from aladin_index.open import live_model, open_writer
    from aladin_network.checkpoint_files import read_model_id
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
        model_id = read_model_id(live_model(index, engine))
    with closing(open_writer(index, model_id, engine=engine)) as writer:
        report = writer.delete(target, wanted, ignore_missing=ignore_missing)
    missing = f", {len(report.missing)} were not there" if report.missing else ""
    typer.echo(f"{index}: {target}: {len(report.deleted)} deleted{missing}")


def compact(
    index: IndexArgument,
    keep: Annotated[
        int,
        typer.Option("--keep", min=0, help="Earlier generations to keep for `index rollback`."),
    ] = 1,
) -> None:
    """Merge additions and deletions into a new generation.

    In: INDEX, which can be searched and changed meanwhile; changes made during the compaction are
    carried over and stay pending. Out: a new live generation, picked up by running services.
    Removed from the disk: earlier generations beyond --keep, generations that were rolled back
    with all their additions, and uploaded photos that no generation has. Stdout lists what was
    done; changes about to be lost with a generation that was rolled back are listed on stderr
    first. A kill leaves the index as it was; the next command that writes a generation cleans up.
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
        typer.Option(
            "--to", metavar="N", help="Generation to make live. [default: the previous one]"
        ),
    ] = None,
) -> None:
    """Make an earlier generation live again, with its changes.

    In: INDEX. Out: the generation is live with the changes it had, and picked up by running
    services; what this undoes is printed on stdout. Nothing is deleted yet: `--to` with the
    generation left behind restores it, with its changes, until the next `aladin index compact`
    removes it from the disk.
    """
    from aladin_index.format.layout import location_of
    from aladin_index.generations.history import describe_changes, rolled_back_changes
    from aladin_index.generations.published import rollback_index

    location = location_of(index)
    if location is not None:
        _rollback_in_engine(index, location, to)
        return
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


def _rollback_in_engine(index: Path, location: EngineLocation, to: int | None) -> None:
    from aladin_index.engines.push import rollback_engine
    from aladin_index.open import connect
    from aladin_service.settings import read_settings

    with closing(connect(location, read_settings().engine_options)) as client:
        left = client.live_generation()
        generation = rollback_engine(client, to)
    typer.echo(f"{index}: generation {generation} is live again, with its own changes")
    typer.echo(f"  to bring generation {left} back: aladin index rollback {index} --to {left}")
