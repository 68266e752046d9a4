"""``aladin index sync``: an index that follows folders of photos."""

from __future__ import annotations

import json
import os
import signal
import threading
from dataclasses import replace
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Annotated

import typer

from aladin_service.commands.flags import Flags, with_flags
from aladin_service.commands.index.build_options import (
    BuildDeviceOption,
    ExcludeOption,
    settings_flags,
)
from aladin_service.commands.options import (
    DetectorOption,
    IndexArgument,
    JsonOption,
    PhotosRootOption,
    network_device,
)
from aladin_service.commands.pass_lines import PassLines
from aladin_service.commands.progress import stderr_progress

if TYPE_CHECKING:
    from aladin_index.settings import EncodeSettings
    from aladin_index.sync.apply import SyncReport
    from aladin_service.library.watching import FolderWatch


FoldersArgument = Annotated[
    list[Path], typer.Argument(metavar="FOLDER...", help="Folders of photos, all of them.")
]
DryRunOption = Annotated[
    bool, typer.Option("--dry-run", help="Change nothing; print what would be done.")
]
AllowEmptyOption = Annotated[
    bool,
    typer.Option(
        "--allow-empty",
        help="Remove all photos of a folder from the index if it is missing or has none. "
        "Without the option that is an error, since the folder may not be mounted.",
    ),
]
WatchOption = Annotated[
    bool,
    typer.Option("--watch", help="Go on, and take over each change within seconds, until ^C."),
]
PollOption = Annotated[
    float | None,
    typer.Option(
        "--poll",
        min=0.1,
        metavar="SECONDS",
        help="With --watch: look at the files at this interval instead of waiting for events "
        "of the system. [default: events; every 10 s on file systems of a network]",
    ),
]


def _settings() -> Flags:
    from aladin_index.settings import EncodeSettings

    return settings_flags(EncodeSettings, "limits", "exif", "metadata", "readers")


@with_flags(add=_settings)
def sync(
    index: IndexArgument,
    folders: FoldersArgument,
    dry_run: DryRunOption = False,
    allow_empty: AllowEmptyOption = False,
    exclude: ExcludeOption = None,
    watch: WatchOption = False,
    poll: PollOption = None,
    photos_root: PhotosRootOption = None,
    detector: DetectorOption = None,
    *,
    add: EncodeSettings,
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

    With --watch, a line is printed for each pass that changed something. A new file is taken once
    it has stopped growing. A folder that is unmounted changes nothing, and is followed again when
    it is back. SIGINT and SIGTERM end the command after the batch at hand.
    """
    from aladin_index.format.manifest import live_model_folder
    from aladin_network.errors import InputError
    from aladin_network.graphs.loading import load_for_inference
    from aladin_service.door import detector_for
    from aladin_service.library.folder_sync import FolderSettings, FolderSync
    from aladin_service.library.watching import FolderWatch, WatchSettings
    from aladin_service.settings import engine_options

    if watch and (dry_run or allow_empty):
        raise InputError("--watch: expected neither --dry-run nor --allow-empty with it")
    if poll is not None and not watch:
        raise InputError("--poll: expected --watch with it")
    if engine_options(index) is not None:
        raise InputError(f"{index}: expected an index in files, got one in a vector database")
    model = live_model_folder(index)  # raises if there is no index
    settings = FolderSettings(
        folders=folders,
        exclude=tuple(exclude or ()),
        photos_root=photos_root,
        add=replace(add, readers=add.readers or os.cpu_count() or 1),
        allow_missing=allow_empty,
    )
    on = network_device(device)
    checkpoint = load_for_inference(model, on)
    finder = detector_for(checkpoint.model.image.encoder, detector, on)
    if watch:
        folder_watch = FolderWatch(
            index,
            settings,
            WatchSettings(poll_s=poll),
            checkpoint=checkpoint,
            detector=finder,
            on_pass=_pass_lines(str(index), as_json=as_json),
            show_progress=stderr_progress,
        )
        _watch(folder_watch)
        return
    folder_sync = FolderSync(index, settings, checkpoint=checkpoint, detector=finder)
    with stderr_progress() as progress:
        report = folder_sync.run(progress, dry_run=dry_run)
    for warning in folder_sync.warnings:
        typer.echo(warning, err=True)
    _pass_lines(str(index), " (dry run)" if dry_run else "", as_json=as_json)(report)


def _pass_lines(name: str, note: str = "", *, as_json: bool) -> PassLines:
    """Return what prints passes over the folders of an index, each with `note` at its end."""

    def print_pass(report: SyncReport) -> None:
        if as_json:
            typer.echo(json.dumps(_facts(report), ensure_ascii=False))
        else:
            typer.echo(f"{name}: images: {_summary(report)}{note}")

    return PassLines(print_pass, "skipped")


def _watch(folder_watch: FolderWatch) -> None:
    """Watch until SIGINT or SIGTERM; a second one ends the process at once."""
    stop = threading.Event()

    def end(number: int, frame: FrameType | None) -> None:
        del frame
        stop.set()
        signal.signal(number, signal.SIG_DFL)

    before = {number: signal.signal(number, end) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        folder_watch.run(stop)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _summary(report: SyncReport) -> str:
    """Return the numbers of a pass in one line."""
    return (
        f"{len(report.added)} added, {len(report.changed)} changed, {len(report.moved)} moved, "
        f"{len(report.deleted)} deleted, {report.unchanged} unchanged, "
        f"{len(report.skipped)} skipped"
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
        "skipped": [skipped._asdict() for skipped in report.skipped],
    }
