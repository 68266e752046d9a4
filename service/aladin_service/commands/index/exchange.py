"""``aladin index import``, ``export`` and ``merge``: indexes made from encoded items."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from aladin_network.types import TokenDtype
from aladin_service.commands.flags import Flags, with_flags
from aladin_service.commands.index.build_options import OutOption, settings_flags
from aladin_service.commands.index.info import print_generation, warn_of_places
from aladin_service.commands.options import IndexArgument, PhotosRootOption
from aladin_service.commands.progress import stderr_progress
from aladin_service.library.places import libraries_folder, model_folder

if TYPE_CHECKING:
    from aladin_index.settings import BuildSettings


def _settings() -> Flags:
    from aladin_index.settings import BuildSettings

    first_stage = ("ann", "memory_budget_bytes", "ann_recall")
    return settings_flags(BuildSettings, *first_stage, "filter_fields", "replace")


@with_flags(settings=_settings)
def import_(
    folder: Annotated[
        Path, typer.Argument(metavar="FOLDER", help="Embeddings, tokens and metadata.")
    ],
    model: Annotated[
        Path,
        typer.Option(
            "--model",
            metavar="MODEL",
            help="Network that computed them, as of `index build`; it encodes the queries.",
        ),
    ],
    out: OutOption,
    tokens: Annotated[
        TokenDtype | None,
        typer.Option("--tokens", help="Stored form of the tokens. [default: as in FOLDER]"),
    ] = None,
    photos_root: PhotosRootOption = None,
    *,
    settings: BuildSettings,
) -> None:
    """Create an index from precomputed embeddings and tokens.

    In: FOLDER, as written by aladin index export or clip-retrieval inference: img_emb/, text_emb/
    and metadata/, and optionally img_tokens/ and text_tokens/; without tokens, searches use the
    embeddings alone. Out: in the folder --out, a new generation of the index, live once it is
    complete; its contents are printed on stdout. Embeddings have to be L2-normalised and of
    MODEL's size; an export has to be from MODEL itself.

    The metadata may name any picture on this machine, and whoever searches the index can see it:
    with --photos-root, photos outside that folder are skipped and named on stderr.
    """
    from aladin_service.library.libraries import check_output

    check_output(out, libraries_folder(), replace=settings.replace)
    checkpoint = model_folder(model)
    from aladin_index.encode.source_items import PhotoPlaces
    from aladin_index.exchange.importer import import_index

    places = PhotoPlaces(folder, photos_root)
    with stderr_progress() as progress:
        report = import_index(folder, checkpoint, out, settings, tokens, progress, places)
    print_generation(out, report.generation, report.counts, report.skipped)
    warn_of_places(places)


def export(
    index: IndexArgument,
    out: Annotated[Path, typer.Option("--out", metavar="FOLDER", help="The new folder.")],
) -> None:
    """Export embeddings, tokens and metadata, as clip-retrieval does.

    In: INDEX, additions and deletions included. Out: in the new folder --out, img_emb/,
    img_tokens/ and metadata/ of the photos, the same of the texts below texts/, and a
    manifest.json; aladin index import makes the same index from it. The numbers of items are
    printed on stdout.
    """
    from aladin_index.exchange.exporter import export_index
    from aladin_network.files import check_folder_writable

    check_folder_writable(out)
    with stderr_progress() as progress:
        counts = export_index(index, out, progress)
    typer.echo(f"{out}: " + ", ".join(f"{count} {target}" for target, count in counts.items()))


@with_flags(settings=_settings)
def merge(
    parts: Annotated[
        list[Path], typer.Argument(metavar="PART...", help="Folders of indexes of the same model.")
    ],
    out: OutOption,
    *,
    settings: BuildSettings,
) -> None:
    """Merge indexes that were built on different machines.

    In: PART..., built with the same model and the same --tokens; no id may be in two of them.
    Out: in the folder --out, a new generation with all their items, in the order of the parts,
    live once it is complete; its contents are printed on stdout. Additions to the parts and
    deletions from them are included. Nothing is encoded again. The parts stay as they are.

    The parts 1/N to N/N of `aladin index build --part`, given in this order, make the index that
    a build of the whole source would make: the same rows with the same encodings, and with float16
    tokens the same files; other tokens were rounded part by part. Filter fields are those of the
    first part, unless --filter-fields is given. If a merge is killed, run it again.
    """
    from aladin_index.generations.merge import merge_indexes
    from aladin_service.library.libraries import check_output

    check_output(out, libraries_folder(), replace=settings.replace)
    with stderr_progress() as progress:
        report = merge_indexes(parts, out, settings, progress)
    print_generation(out, report.generation, report.counts, more=f", from {len(parts)} parts")
