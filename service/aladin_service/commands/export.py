"""``aladin export``: checkpoints as folders for other programs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from aladin_service.commands.help_style import CommandApp

app = CommandApp(
    help="Export checkpoints for other programs.",
)
CheckpointArgument = Annotated[
    Path, typer.Argument(metavar="CHECKPOINT", help="Folder of the checkpoint.")
]
OutOption = Annotated[
    Path, typer.Option("--out", metavar="DIR", help="Folder to write; must be new.")
]


@app.command("sentence-transformers")
def sentence_transformers(
    checkpoint: CheckpointArgument,
    out: OutOption,
    kind: Annotated[
        Literal["multi-vector", "embedding"],
        typer.Option(
            "--kind",
            help="multi-vector: a vector for every word and region, for MultiVectorEncoder; "
            "embedding: one vector for each text and photo, for SentenceTransformer.",
        ),
    ] = "multi-vector",
) -> None:
    """Write a folder that sentence-transformers 6 loads.

    In: CHECKPOINT. Out: the folder --out, a checkpoint with two more files, which are loaded with
    trust_remote_code=True, as all modules that are not part of sentence-transformers; it contains
    no code, only the name of a class of this package, which has to be installed. The similarity of
    multi-vector is the alignment score, that of embedding the matching score. The folder is
    printed on stdout.
    """
    from aladin_service.export.sentence_transformers import export_sentence_transformers

    export_sentence_transformers(checkpoint, out, kind)
    typer.echo(str(out))
