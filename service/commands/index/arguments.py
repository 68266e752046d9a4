"""Arguments that several commands of ``aladin index`` take."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

IndexArgument = Annotated[Path, typer.Argument(metavar="INDEX", help="Folder of an index.")]
PhotosRootOption = Annotated[
    Path | None,
    typer.Option(
        "--photos-root",
        metavar="DIR",
        exists=True,
        file_okay=False,
        help="Take only photos inside of this folder, after all links are followed. [default: "
        "photos from anywhere, with a warning of those outside of the source's folder]",
    ),
]
PlotOption = Annotated[
    Path | None,
    typer.Option(
        "--plot", metavar="FILE.png", dir_okay=False, help="Draw both curves of each side."
    ),
]
