"""Options of the commands that can use a graphics card."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer


class Device(StrEnum):
    """Where the network runs, and searches."""

    auto = "auto"
    cpu = "cpu"
    cuda = "cuda"


class FirstStage(StrEnum):
    """What finds the candidates."""

    faiss = "faiss"
    torch = "torch"


SearchDeviceOption = Annotated[
    Device,
    typer.Option(
        "--device",
        help="Where the network and the searches run; auto takes a CUDA card if there is one. A "
        "card that cannot search is left to itself with one warning.",
    ),
]
FirstStageOption = Annotated[
    FirstStage,
    typer.Option(
        "--first-stage",
        help="faiss searches the index as it was built, on a card a copy of it; torch compares "
        "with every item, and re-ranks on the card too.",
    ),
]
WarmOption = Annotated[
    bool,
    typer.Option("--warm", help="Have the index's files read into memory before the first query."),
]
