"""Arguments that several commands of ``aladin index`` take."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

IndexArgument = Annotated[Path, typer.Argument(metavar="INDEX", help="Folder of an index.")]
PlotOption = Annotated[
    Path | None,
    typer.Option(
        "--plot", metavar="FILE.png", dir_okay=False, help="Draw both curves of each side."
    ),
]
