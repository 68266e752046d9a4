"""What a stage goes on from after an interruption: one file, whole or not there."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from aladin.atomic import atomic_file
from aladin.errors import CheckpointError


def save_state(path: Path, state: dict[str, Any], fingerprint: str) -> None:
    """Write a state.

    Args:
        path: of the file.
        state: numbers, tensors, and lists and dicts of them.
        fingerprint: of all that the state belongs to.
    """
    with atomic_file(path) as partial:
        torch.save(state | {"fingerprint": fingerprint}, partial)


def load_state(path: Path, fingerprint: str, device: torch.device) -> dict[str, Any] | None:
    """Read a state.

    Args:
        path: of the file; None is returned if there is none.
        fingerprint: that it must have.
        device: where tensors go.

    Raises:
        CheckpointError: the file is damaged, or belongs to other data or another recipe.
    """
    if not path.exists():
        return None
    try:
        state: dict[str, Any] = torch.load(path, weights_only=True, map_location=device)
    except Exception as error:  # whatever a damaged file makes the reader raise
        raise CheckpointError(f"{path}: cannot be read ({error})") from error
    if state["fingerprint"] != fingerprint:
        raise CheckpointError(
            f"{path}: the state of another recipe or other data; resume with those, "
            "or train into another folder"
        )
    return state
