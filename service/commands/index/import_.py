"""``aladin index import``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from service.commands.index.arguments import PhotosRootOption
from service.commands.index.build import (
    AnnOption,
    FieldsOption,
    MemoryOption,
    RecallOption,
    Tokens,
    fields_of,
)
from service.commands.index.reports import print_generation, warn_of_places
from service.progress import stderr_progress


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
    from index.building.photo_places import PhotoPlaces
    from index.exchange.importer import import_index
    from index.settings import BuildSettings

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
