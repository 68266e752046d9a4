"""``aladin photos``: folders of photos, searchable in the browser by one command."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from aladin_network.conversion.named_models import DEFAULT_MODEL
from aladin_network.errors import InputError
from aladin_service.commands.index.build_options import (
    MODEL_HELP,
    ExcludeOption,
    ExifOption,
    MaxPixelsOption,
    image_limits,
)
from aladin_service.commands.options import set_log_format
from aladin_service.commands.photo_messages import photo_lines, photo_progress
from aladin_service.commands.serve import HostOption
from aladin_service.library.places import (
    checked_folders,
    libraries_folder,
    model_folder,
    models_folder,
)

if TYPE_CHECKING:
    from aladin_service.library.keeper import KeepPlan
    from aladin_service.library.libraries import Library


FoldersArgument = Annotated[
    list[Path] | None, typer.Argument(metavar="FOLDER...", help="Folders of photos.")
]
ModelOption = Annotated[
    str | None,
    typer.Option(
        "--model",
        metavar="MODEL",
        help=f"{MODEL_HELP} [default: that of the library, if these folders have one, else "
        f"{DEFAULT_MODEL}]",
    ),
]
IndexOption = Annotated[
    Path | None,
    typer.Option(
        "--index",
        metavar="DIR",
        help="Folder of the index; an existing one keeps its model. [default: in the user's data "
        "folder]",
    ),
]
WatchOption = Annotated[
    bool, typer.Option("--watch/--no-watch", help="Follow changes of the folders.")
]
BrowserOption = Annotated[
    bool, typer.Option("--browser/--no-browser", help="Open the page in the browser.")
]
PortOption = Annotated[
    int | None,
    typer.Option(
        "--port",
        min=0,
        max=65535,
        help="Port to listen on; 0 takes a free one. [default: 8000, or the next free one]",
    ),
]
ListOption = Annotated[
    bool, typer.Option("--list", help="List the libraries, and do nothing else.")
]
RemoveOption = Annotated[
    str | None,
    typer.Option(
        "--remove",
        metavar="NAME",
        help="Remove a library of --list with its index, and do nothing else. Photos are not "
        "touched.",
    ),
]
ModelsOption = Annotated[
    bool,
    typer.Option(
        "--models", help="List the models that were downloaded or converted, with their sizes."
    ),
]
RemoveModelOption = Annotated[
    str | None,
    typer.Option(
        "--remove-model",
        metavar="NAME",
        help="Remove a model of --models, and do nothing else. Libraries keep the one that they "
        "have.",
    ),
]


def photos(
    folders: FoldersArgument = None,
    model: ModelOption = None,
    index: IndexOption = None,
    exclude: ExcludeOption = None,
    max_pixels: MaxPixelsOption = None,
    exif: ExifOption = True,
    watch: WatchOption = True,
    browser: BrowserOption = True,
    host: HostOption = "127.0.0.1",
    port: PortOption = None,
    list_them: ListOption = False,
    remove: RemoveOption = None,
    list_models: ModelsOption = False,
    remove_model: RemoveModelOption = None,
) -> None:
    """Search folders of photos in the browser.

    In: FOLDER..., with all their subfolders. Out: the address of the page on stdout, which is
    served until ^C; messages and progress on stderr. The photos stay where they are and are not
    changed. Their index is kept as a library: one for each set of folders and model. The first
    start opens the page with the first photos and adds the others while it is served; each later
    one serves what is there, and takes over what has changed since. An interruption loses nothing.
    If another process serves the library, the address of its page is printed.

    The model is downloaded and converted once. Searches need no network, and nothing leaves this
    machine.
    """
    if list_them:
        _print_libraries()
        return
    if list_models:
        _print_models()
        return
    if remove is not None:
        _remove(remove)
        return
    if remove_model is not None:
        _remove_model(remove_model)
        return
    places = checked_folders(folders or [])  # a wrong path is named before heavy imports
    limits = image_limits(max_pixels)
    library = _library(places, model, index, exclude)
    set_log_format(brief=True)
    checkpoint = None
    if not _has_index(library):
        _check_photos(places, library.exclude)  # before a model is downloaded for them
        checkpoint = _for_photos(library.model)
    from aladin_service.library.keeper import KeepPlan

    plan = KeepPlan(
        index=library.index,
        checkpoint=checkpoint,
        folders=library.folders,
        exclude=library.exclude,
        limits=limits,
        exif=exif,
        watch=watch,
    )
    _serve(library, plan, host, port, browser=browser and _has_browser())


def _for_photos(model: str) -> Path:
    """Return the checkpoint of a model that can search photos."""
    from aladin_network.checkpoint_files import read_config
    from aladin_network.errors import CheckpointError
    from aladin_network.heads.trained import useless_on_photos

    checkpoint = model_folder(model)
    provenance = read_config(checkpoint).provenance
    reason = useless_on_photos(provenance.recipe, provenance.stage)
    if reason is not None:
        raise CheckpointError(f"{model}: {reason}")
    return checkpoint


def _has_index(library: Library) -> bool:
    from aladin_index.format.layout import CURRENT

    return (library.index / CURRENT).exists()


def _check_photos(folders: Sequence[Path], exclude: Sequence[str]) -> None:
    """Check that one of the folders has a file that looks like a photo."""
    from aladin_network.photos.formats import PHOTO_SUFFIXES, UNREADABLE_SUFFIXES
    from aladin_training.data.folder import walk_files
    from aladin_training.data.folder_rules import FolderRules

    unreadable = ""
    for folder in folders:
        files = walk_files(folder, lambda path, reason: None, FolderRules(exclude))  # noqa: ARG005
        for path, _ in files:
            suffix = path.suffix.lower()
            if suffix in PHOTO_SUFFIXES:
                return
            if suffix in UNREADABLE_SUFFIXES:
                unreadable = f"; {path}: {UNREADABLE_SUFFIXES[suffix]}"
    places = ", ".join(map(str, folders))
    raise InputError(f"{places}: expected photos here or in a subfolder, found none{unreadable}")


def _serve(library: Library, plan: KeepPlan, host: str, port: int | None, *, browser: bool) -> None:
    """Serve a library until SIGINT or SIGTERM, or print the address where it is served."""
    from aladin_service.library.libraries import LibraryInUseError, all_libraries
    from aladin_service.library.opening import open_library

    def show(address: str) -> None:
        typer.echo(address)
        if browser:
            _show_in_browser(address)

    def show_own(address: str) -> None:
        show(address)
        typer.echo("this page is served until Ctrl-C", err=True)

    try:
        open_library(
            library,
            plan,
            host=host,
            port=port,
            show_progress=photo_progress,
            on_pass=photo_lines(),
            on_address=show_own,
        )
    except LibraryInUseError as error:
        if error.address is None:
            raise
        typer.echo("another process serves these photos already", err=True)
        libraries, _ = all_libraries(libraries_folder())
        served = next(each for each in libraries if each.place == library.place)
        if library.exclude != served.exclude:
            excluded = ", ".join(served.exclude) or "nothing"
            typer.echo(f"it excludes {excluded}; stop it and start again to change that", err=True)
        show(error.address)


def _library(
    folders: Sequence[Path], model: str | None, index: Path | None, exclude: Sequence[str] | None
) -> Library:
    """Return the library of some folders; without a model or patterns, with those that it has."""
    from aladin_service.library.libraries import LibraryPlace, all_libraries, library_of

    place = libraries_folder()
    library = library_of(folders, model or DEFAULT_MODEL, place, index)
    libraries, faults = all_libraries(place)
    known = {each.place: each for each in libraries}
    same = [
        each
        for each in known.values()
        if each.folders == library.folders and (index is None or each.index == library.index)
    ]
    if model is None and same and library.place not in known:
        if len(same) > 1:
            names = ", ".join(each.model for each in same)
            raise InputError(
                f"these folders have a library of each of several models: {names}; "
                "choose one with --model"
            )
        library = same[0]
    fault = faults.get(LibraryPlace(place=library.place))
    if fault is not None:  # it must not be replaced by a new description
        raise fault
    if exclude is None:
        return known.get(library.place, library)
    return replace(library, exclude=tuple(pattern for pattern in exclude if pattern))


def _print_libraries() -> None:
    from aladin_network.errors import IndexNotReadyError, SearchIndexError
    from aladin_service.library.libraries import all_libraries

    libraries, faults = all_libraries(libraries_folder())
    for place, fault in faults.items():
        hint = f"`aladin photos --remove {place.name}` removes it"
        typer.echo(f"warning: {fault}; {hint}", err=True)
    if not libraries and not faults:
        typer.echo("no libraries yet: `aladin photos FOLDER` makes one", err=True)
        return
    from aladin_index.generations.info import describe

    for library in libraries:
        try:
            info = describe(library.index)
            photos = f"{info.collections['images'].count:,}"
        except IndexNotReadyError:
            photos = "none yet"
        except (SearchIndexError, KeyError) as error:
            photos = f"none ({error})"
        size = sum(file.stat().st_size for file in library.index.rglob("*") if file.is_file())
        typer.echo(library.name)
        for folder in library.folders:
            typer.echo(f"  folder  {folder}")
        typer.echo(f"  photos  {photos}")
        typer.echo(f"  model   {library.model}")
        typer.echo(f"  index   {library.index} ({size / 1e6:,.1f} MB)")
        address = library.served_at()
        if address is not None:
            typer.echo(f"  page    {address}")


def _print_models() -> None:
    from aladin_service.library.libraries import all_libraries
    from aladin_service.library.models import hub_bytes, kept_models

    models, (libraries, _) = kept_models(models_folder()), all_libraries(libraries_folder())
    if not models:
        typer.echo("no models yet: the first start of `aladin photos` gets one", err=True)
    for each in models:
        typer.echo(each.name)
        typer.echo(f"  size    {_megabytes(each.size)}, {_megabytes(each.own)} of it here alone")
        if in_hub := hub_bytes(each.name):
            again = f"`hf cache rm model/{each.name.partition(':')[0]}` removes it"
            typer.echo(f"  hub     {_megabytes(in_hub)} in the hub's own cache; {again}")
        for library in libraries:
            if library.model == each.name:
                typer.echo(f"  library {library.name}")
        typer.echo(f"  folder  {each.folder}")


def _remove_model(name: str) -> None:
    from aladin_service.library.models import remove_model

    removed = remove_model(models_folder(), name)
    typer.echo(f"{name}: removed ({_megabytes(sum(each.own for each in removed))} freed)")


def _megabytes(count: int) -> str:
    return f"{count / 1e6:,.1f} MB"


def _remove(name: str) -> None:
    from aladin_service.library.libraries import Library, all_libraries

    usable, faults = all_libraries(libraries_folder())
    libraries = {each.name: each for each in (*usable, *faults)}
    if name not in libraries:
        known = ", ".join(libraries) or "none"
        raise InputError(f"--remove: expected the name of a library, got {name!r}; known: {known}")
    library = libraries[name]
    library.remove()
    kept = ""
    if isinstance(library, Library) and library.is_elsewhere:
        kept = f"; its index stays at {library.index}"
    typer.echo(f"{name}: removed{kept}")


def _has_browser() -> bool:
    """Tell whether this user sees a browser that this process opens."""
    if os.environ.keys() & {"SSH_CONNECTION", "SSH_TTY"}:
        return False
    if sys.platform == "darwin":
        return True
    return bool(os.environ.keys() & {"DISPLAY", "WAYLAND_DISPLAY"})


def _show_in_browser(address: str) -> None:
    """Open the page without waiting for the browser."""
    import webbrowser

    threading.Thread(target=webbrowser.open, args=(address,), daemon=True).start()
