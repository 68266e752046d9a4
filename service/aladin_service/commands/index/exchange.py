"""``aladin index import``.

``aladin index export``.

``aladin index merge``.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from aladin_service.commands.index.build import (
    AnnOption,
    FieldsOption,
    MemoryOption,
    RecallOption,
    Tokens,
    fields_of,
)
from aladin_service.commands.options import IndexArgument, PhotosRootOption
from aladin_service.commands.progress import stderr_progress
from aladin_service.reports.index_facts import print_generation, warn_of_places


def import_(
    folder: Annotated[
        Path, typer.Argument(metavar="FOLDER", help="Embeddings, tokens and metadata.")
    ],
    model: Annotated[
        Path,
        typer.Option(
            "--model", metavar="CHECKPOINT", help="Network that made them; it encodes the queries."
        ),
    ],
    out: Annotated[
        Path, typer.Option("--out", help="Folder of the index; a new one, or one to replace.")
    ],
    ann: AnnOption = "auto",
    memory_budget: MemoryOption = None,
    ann_recall: RecallOption = 0.99,
    tokens: Annotated[
        Tokens | None,
        typer.Option("--tokens", help="How tokens are to be stored. [default: as they are]"),
    ] = None,
    filter_fields: FieldsOption = None,
    photos_root: PhotosRootOption = None,
) -> None:
    """Make an index of ready-made embeddings and tokens; nothing is encoded.

    In: FOLDER, as aladin index export or clip-retrieval inference writes it: img_emb/,
    text_emb/ and metadata/, with img_tokens/ and text_tokens/ where there are tokens; without
    them, a search is by the embeddings alone. Out: in the folder --out, a new generation of the
    index, live once it is whole; on stdout, what it holds. Embeddings have to be L2-normalised
    and of the size of CHECKPOINT's; an export has to be of CHECKPOINT itself.

    The metadata may name any picture of this machine, which whoever searches the index can then
    see: with --photos-root, photos outside of that folder are left out and named on stderr.
    """
    from aladin_index.encode.source_items import PhotoPlaces
    from aladin_index.exchange.importer import import_index
    from aladin_index.settings import BuildSettings

    settings = BuildSettings(
        ann=ann,
        memory_budget_bytes=memory_budget,
        ann_recall=ann_recall,
        filter_fields=fields_of(filter_fields),
    )
    token_dtype = None if tokens is None else tokens.value
    places = PhotoPlaces(folder, photos_root)
    with stderr_progress() as progress:
        report = import_index(folder, model, out, settings, token_dtype, progress, places)
    print_generation(out, report.generation, report.counts, report.left_out)
    warn_of_places(places)


def export(
    index: IndexArgument,
    out: Annotated[Path, typer.Option("--out", metavar="FOLDER", help="The new folder.")],
) -> None:
    """Write embeddings, tokens and metadata out, in the layout of clip-retrieval.

    In: INDEX, with all that was added to it and removed from it. Out: in the new folder --out,
    img_emb/, img_tokens/ and metadata/ of the photos, the same of the texts below texts/, and a
    manifest.json; aladin index import makes the same index of them. On stdout, what was written.
    """
    from aladin_index.exchange.exporter import export_index

    with stderr_progress() as progress:
        counts = export_index(index, out, progress)
    typer.echo(f"{out}: " + ", ".join(f"{count} {target}" for target, count in counts.items()))


def merge(
    parts: Annotated[
        list[Path], typer.Argument(metavar="PART...", help="Folders of indexes of the same model.")
    ],
    out: Annotated[
        Path, typer.Option("--out", help="Folder of the index; a new one, or one to replace.")
    ],
    ann: AnnOption = "auto",
    memory_budget: MemoryOption = None,
    ann_recall: RecallOption = 0.99,
    filter_fields: FieldsOption = None,
) -> None:
    """Put indexes together that were built on different machines.

    In: PART..., built with the same model and the same --tokens; no id may be in two of them.
    Out: in the folder --out, a new generation with all their items, in the order of the parts,
    live once it is whole; on stdout, what it holds. Items that were added to a part, or removed
    from it, count. Nothing is encoded again. The parts stay as they are.

    The parts 1/N to N/N of `aladin index build --part`, given in this order, make the index that
    a build of the whole source would be: the same rows with the same encodings, and with float16
    tokens the same files; other tokens were rounded part by part. Fields for filters are those of
    the first part, unless --filter-fields is given. A merge that was killed is run again.
    """
    from aladin_index.generations.merge import merge_indexes
    from aladin_index.settings import BuildSettings

    settings = BuildSettings(
        ann=ann,
        memory_budget_bytes=memory_budget,
        ann_recall=ann_recall,
        filter_fields=fields_of(filter_fields),
    )
    with stderr_progress() as progress:
        report = merge_indexes(parts, out, settings, progress)
    print_generation(out, report.generation, report.counts, more=f", from {len(parts)} parts")
