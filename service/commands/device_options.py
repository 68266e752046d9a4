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


def network_device(device: Device) -> str:
    """Return the name by which torch knows the device that a network is to run on.

    Raises:
        ConfigError: there is no CUDA card, and one is asked for.
    """
    import torch

    from aladin.errors import ConfigError

    if device is Device.cpu or torch.cuda.is_available():
        return "cpu" if device is Device.cpu else "cuda"
    if device is Device.cuda:
        raise ConfigError("--device cuda: PyTorch finds no CUDA device here; give cpu or auto")
    return "cpu"
