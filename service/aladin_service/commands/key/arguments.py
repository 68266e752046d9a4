"""Arguments that the commands of ``aladin key`` share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

NameArgument = Annotated[str, typer.Argument(metavar="NAME", help="Name of the key.")]
KeysOption = Annotated[
    Path,
    typer.Option(
        "--keys",
        metavar="FILE",
        dir_okay=False,
        envvar="ALADIN_KEYS_FILE",
        help="File of the API keys.",
    ),
]
