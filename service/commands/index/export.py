"""``aladin index export``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from service.commands.index.arguments import IndexArgument
from service.progress import stderr_progress


def export(
    index: IndexArgument,
    out: Annotated[Path, typer.Option("--out", metavar="FOLDER", help="The new folder.")],
) -> None:
    """Write embeddings, tokens and metadata out, in the layout of clip-retrieval.

    In: INDEX, with all that was added to it and removed from it. Out: in the new folder --out,
    img_emb/, img_tokens/ and metadata/ of the photos, the same of the texts below texts/, and a
    manifest.json; aladin index import makes the same index of them. On stdout, what was written.
    """
    from index.exchange.exporter import export_index

    with stderr_progress() as progress:
        counts = export_index(index, out, progress)
    typer.echo(f"{out}: " + ", ".join(f"{count} {target}" for target, count in counts.items()))
