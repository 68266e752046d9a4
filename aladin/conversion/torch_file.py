"""Reading checkpoints that torch pickled, without running anything that is in them.

A pickle may call any function while it is read. torch's restricted reader builds tensors and plain
containers only, and stops at everything else.
"""

from __future__ import annotations

import pickle
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

import torch
from torch import Tensor

from aladin.errors import CheckpointError


def read_torch_file(path: Path, harmless: Sequence[type] = ()) -> object:
    """Read what ``torch.save`` wrote, in today's format or that of before torch 1.6.

    Args:
        path: the file.
        harmless: classes that may occur in it besides tensors and plain containers; they must do
            nothing when they are built.

    Returns:
        What was saved, its tensors on the CPU.

    Raises:
        CheckpointError: there is no such file, it is no checkpoint, it is cut short, or it holds
            something that only running its code could build.
    """
    if not path.is_file():
        raise CheckpointError(f"{path}: no such file")
    try:
        with torch.serialization.safe_globals(list(harmless)):
            return torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        raise CheckpointError(f"{path}: {_refusal(str(error))}") from None
    except Exception as error:  # a file made to do harm, or cut short, raises anything
        first = str(error).strip().split("\n")[0]
        reason = first or type(error).__name__
        raise CheckpointError(f"{path}: cannot be read as a torch checkpoint ({reason})") from None


def named_tensors(value: object, where: str) -> dict[str, Tensor]:
    """Take a state dict for what it has to be: tensors by name.

    Args:
        value: what stands in the file.
        where: names the source in the error.

    Raises:
        CheckpointError: it is something else.
    """
    if not isinstance(value, Mapping):
        raise CheckpointError(f"{where}: expected tensors by name, found {type(value).__name__}")
    tensors: dict[str, Tensor] = {}
    for name, tensor in value.items():
        if not isinstance(name, str) or not isinstance(tensor, Tensor):
            kind = type(tensor).__name__
            raise CheckpointError(f"{where}: expected tensors by name, {name!r} is a {kind}")
        tensors[name] = tensor
    if not tensors:
        raise CheckpointError(f"{where}: expected tensors by name, found none")
    return tensors


def _refusal(message: str) -> str:
    """Say in one line what torch's restricted reader stopped at."""
    culprit = re.search(r"GLOBAL (\S+)", message)
    if culprit is None:
        return "refused: it is no checkpoint of tensors and plain values"
    return (
        f"refused: it holds {culprit[1]}, which only running the file's own code could build; "
        "tensors and plain values are read, nothing else"
    )
