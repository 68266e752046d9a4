"""``aladin index sync``: an index that follows folders of photos."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from aladin_service.commands.index.build_options import (
    BuildDeviceOption,
    ExcludeOption,
    ExifOption,
    MaxPixelsOption,
    ReadersOption,
    image_limits,
)
from aladin_service.commands.options import (
    DetectorOption,
    IndexArgument,
    JsonOption,
    MaxMetadataOption,
    PhotosRootOption,
    detector_for,
    metadata_limits,
    network_device,
)
from aladin_service.commands.progress import stderr_progress

if TYPE_CHECKING:
    from aladin_index.sync.apply import SyncReport
    from aladin_service.folders.folder_sync import FolderSync


def sync(
    index: IndexArgument,
    folders: Annotated[
        list[Path], typer.Argument(metavar="FOLDER...", help="Folders of photos, all of them.")
    ],
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Change nothing; print what would be done.")
    ] = False,
    allow_empty: Annotated[
        bool,
        typer.Option(
            "--allow-empty",
            help="Remove all photos of a folder from the index if it is missing or has none. "
            "Without the option that is an error, since the folder may not be mounted.",
        ),
    ] = False,
    exclude: ExcludeOption = None,
    photos_root: PhotosRootOption = None,
    max_pixels: MaxPixelsOption = None,
    exif: ExifOption = True,
    detector: DetectorOption = None,
    max_metadata: MaxMetadataOption = None,
    readers: ReadersOption = None,
    device: BuildDeviceOption = "cpu",
    as_json: JsonOption = False,
) -> None:
    """Make an index hold exactly the photos of folders, without a rebuild.

    In: INDEX, whose model encodes the photos, and the folders. Out: new photos are added, those
    whose file has other content are encoded again, those that were renamed or moved keep their
    encoding, and those that are gone are removed; their numbers are printed on stdout. Running
    services see each step at once. Photos that cannot be used are named on stderr. Not touched:
    texts, uploads, and photos of other folders.

    A file is compared by its size and time, then by its content. A kill loses nothing: the next
    pass goes on from there. A subfolder that cannot be read keeps its photos in the index.
    """
    from aladin_index.encode.item_changer import AddSettings
    from aladin_index.format.layout import MODEL, live_generation
    from aladin_network.checkpoint import load_checkpoint
    from aladin_network.errors import InputError
    from aladin_service.folders.folder_sync import FolderSettings, FolderSync
    from aladin_service.settings import engine_options

    if engine_options(index) is not None:
        raise InputError(f"{index}: expected an index in files, got one in a vector database")
    live_generation(index)  # raises if there is no index
    settings = FolderSettings(
        folders=folders,
        exclude=tuple(exclude or ()),
        photos_root=photos_root,
        add=AddSettings(
            readers=readers or os.cpu_count() or 1,
            limits=image_limits(max_pixels),
            metadata=metadata_limits(max_metadata),
            exif=exif,
        ),
        allow_missing=allow_empty,
    )
    on = network_device(device)
    checkpoint = load_checkpoint(index / MODEL, on)
    finder = detector_for(checkpoint.model.image.encoder, detector, on)
    folder_sync = FolderSync(index, settings, checkpoint=checkpoint, detector=finder)
    _one_pass(folder_sync, index, dry_run=dry_run, as_json=as_json)


def _one_pass(folder_sync: FolderSync, index: Path, *, dry_run: bool, as_json: bool) -> None:
    with stderr_progress() as progress:
        report = folder_sync.run(progress, dry_run=dry_run)
    for item_id, reason in report.left_out:
        typer.echo(f"left out {item_id}: {reason}", err=True)
    for warning in folder_sync.warnings:
        typer.echo(warning, err=True)
    if as_json:
        typer.echo(json.dumps(_facts(report), ensure_ascii=False))
    else:
        typer.echo(f"{index}: images: {_summary(report)}{' (dry run)' if dry_run else ''}")


def _summary(report: SyncReport) -> str:
    """Return the numbers of a pass in one line."""
    return (
        f"{len(report.added)} added, {len(report.changed)} changed, {len(report.moved)} moved, "
        f"{len(report.deleted)} deleted, {report.unchanged} unchanged, "
        f"{len(report.left_out)} left out"
    )


def _facts(report: SyncReport) -> dict[str, object]:
    """Return a pass for --json."""
    return {
        "added": report.added,
        "changed": report.changed,
        "moved": report.moved,
        "deleted": report.deleted,
        "unchanged": report.unchanged,
        "encoded": report.encoded,
        "left_out": [skipped._asdict() for skipped in report.left_out],
    }
