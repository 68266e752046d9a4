"""``aladin export``: checkpoints for other programs."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Annotated

import typer

from aladin_service.commands.help_style import CommandApp
from aladin_service.library.places import model_folder

app = CommandApp(help="Export checkpoints for other programs.")


@app.command("onnx")
def onnx(
    checkpoint: Annotated[
        Path,
        typer.Argument(metavar="CHECKPOINT", help="Folder of the checkpoint, or a model by name."),
    ],
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
    """Write both towers as ONNX graphs, which encode faster on CPUs.

    In: CHECKPOINT, or INDEX/model of an index. Out: the folder onnx of the checkpoint, complete or
    not at all, printed on stdout. Its numbers are compared with those of torch, and kept if they
    agree to 1e-4. Indexing and searching on the CPU then use the graphs, without torch;
    ALADIN_RUNTIME=torch does without them. The export needs the extra `train`.
    """
    from aladin_network.checkpoint_files import GRAPHS
    from aladin_network.graphs.export import export_graphs

    folder = model_folder(checkpoint)
    if out is not None:
        from aladin_network.checkpoint import load_checkpoint
        from aladin_network.conversion.tensors import refuse_existing
        from aladin_network.files import atomic_folder

        refuse_existing(out)
        model_id = load_checkpoint(folder).model_id  # before anything is written
        with atomic_folder(out) as partial:
            _copy_checkpoint(folder, partial, model_id)
            export_graphs(partial)
        folder = out
    else:
        export_graphs(folder)
    typer.echo(str(folder / GRAPHS))


def _copy_checkpoint(checkpoint: Path, folder: Path, model_id: str) -> None:
    """Copy a checkpoint with what is fitted to its weights."""
    from aladin_network.calibration.fitted_files import copy_fitted
    from aladin_network.checkpoint_files import CHECKPOINT_FILES
    from aladin_network.errors import CheckpointError

    for name in CHECKPOINT_FILES:
        try:
            shutil.copyfile(checkpoint / name, folder / name)
        except FileNotFoundError as error:
            raise CheckpointError(f"{checkpoint / name}: no such file") from error
    copy_fitted(checkpoint, folder, model_id)
