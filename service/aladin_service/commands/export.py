"""``aladin export``: checkpoints as folders for other programs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from aladin_service.commands.help_style import CommandApp
from aladin_service.library.places import model_folder

app = CommandApp(
    help="Export checkpoints for other programs.",
)
CheckpointArgument = Annotated[
    Path, typer.Argument(metavar="CHECKPOINT", help="Folder of the checkpoint, or a model by name.")
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

    export_sentence_transformers(model_folder(checkpoint), out, kind)
    typer.echo(str(out))


@app.command("onnx")
def onnx(
    checkpoint: CheckpointArgument,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            metavar="DIR",
            help="Folder for a copy of CHECKPOINT with its graphs; must be new. [default: the "
            "graphs are written into CHECKPOINT]",
            show_default=False,
        ),
    ] = None,
) -> None:
    """Write both towers with their heads as ONNX graphs, which encode faster on CPUs.

    In: CHECKPOINT, or INDEX/model of an index. Out: the folder onnx of the checkpoint, complete or
    not at all, printed on stdout. Its numbers are compared with those of torch, and kept if they
    agree to 1e-4. Indexing and searching on the CPU then use the graphs, with ONNX Runtime or
    OpenVINO, whichever is installed (extra `onnx`); ALADIN_RUNTIME=torch does without. The export
    needs the extra `onnx-export`.
    """
    from aladin_network.graphs.export import export_graphs
    from aladin_network.graphs.files import GRAPHS

    folder = model_folder(checkpoint)
    if out is not None:
        from aladin_network.conversion.tensors import refuse_existing
        from aladin_network.files import atomic_folder
        from aladin_service.export.sentence_transformers import copy_checkpoint

        refuse_existing(out)
        with atomic_folder(out) as partial:
            copy_checkpoint(folder, partial)
            export_graphs(partial)
        folder = out
    else:
        export_graphs(folder)
    typer.echo(str(folder / GRAPHS))


@app.command("hub")
def hub(
    checkpoint: CheckpointArgument,
    out: OutOption,
    name: Annotated[
        str | None,
        typer.Option(
            "--name",
            metavar="OWNER/NAME",
            help="Name on the hub. [default: that of DIR]",
            show_default=False,
        ),
    ] = None,
    index: Annotated[
        Path | None,
        typer.Option(
            "--index",
            metavar="INDEX",
            help="Index of CHECKPOINT whose evaluations the card shows.",
        ),
    ] = None,
    license: Annotated[
        str,
        typer.Option("--license", metavar="ID", help="Identifier of the licence, as on the hub."),
    ] = "unknown",
    license_name: Annotated[
        str | None,
        typer.Option("--license-name", help="Name of a licence without identifier (ID other)."),
    ] = None,
    license_link: Annotated[
        str | None, typer.Option("--license-link", help="Where the licence can be read.")
    ] = None,
    language: Annotated[
        list[str] | None,
        typer.Option("--language", metavar="CODE", help="Language of the texts; repeatable."),
    ] = None,
    dataset: Annotated[
        list[str] | None,
        typer.Option(
            "--dataset", metavar="NAME", help="Training data by its name on the hub; repeatable."
        ),
    ] = None,
    base_model: Annotated[
        list[str] | None,
        typer.Option(
            "--base-model",
            metavar="NAME",
            help="Network that training started from, by its name on the hub; repeatable. "
            "[default: those that CHECKPOINT names]",
            show_default=False,
        ),
    ] = None,
) -> None:
    """Write a folder for a model hub: the checkpoint, and a model card.

    In: CHECKPOINT, and the evaluations that aladin evaluate --index stored with INDEX. Out: in the
    folder --out, the files of the checkpoint and README.md with the hub's metadata: licence, data
    sets, networks that it started from, and figures as model-index. Only recorded figures are
    shown: those of the validation split in the checkpoint, and those of INDEX. The metadata are
    checked without the network. The folder is printed on stdout; --model of the other commands
    takes it, and its name on the hub once it is there.
    """
    from aladin_service.export.hub import export_hub
    from aladin_service.export.model_card import CardOptions

    options = CardOptions(
        name=name or out.absolute().name,
        license=license,
        license_name=license_name,
        license_link=license_link,
        languages=tuple(language or ()),
        datasets=tuple(dataset or ()),
        base_models=None if base_model is None else tuple(base_model),
    )
    figures = export_hub(model_folder(checkpoint), out, options, index)
    typer.echo(f"{len(figures)} figures on the card", err=True)
    typer.echo(str(out))
