"""The method of each collection with its bridge, see `aladin_index.format.upgrade_methods`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load_file, save

from aladin_index.format.layout import UPGRADE
from aladin_index.format.upgrade_methods import (
    BRIDGE,
    RestMethod,
    read_rest_methods,
    write_rest_methods,
)
from aladin_index.upgrade.bridge import Bridge
from aladin_network.errors import IndexCorruptError
from aladin_network.files import atomic_folder
from aladin_network.types import Target


@dataclass(frozen=True)
class ChosenMethod:
    """The method of one collection, with its bridge if that is the method."""

    rest: RestMethod
    bridge: Bridge | None = None


def write_methods(root: Path, methods: Mapping[Target, ChosenMethod]) -> None:
    """Write the methods of all collections, atomically."""
    with atomic_folder(root / UPGRADE / BRIDGE) as partial:
        for target, chosen in methods.items():
            bridge = chosen.bridge
            if bridge is not None:
                arrays = {"embedding": bridge.embedding}
                if bridge.tokens is not None:
                    arrays["tokens"] = bridge.tokens
                (partial / f"{target}.safetensors").write_bytes(
                    save({name: np.ascontiguousarray(array) for name, array in arrays.items()})
                )
        write_rest_methods(partial, {target: each.rest for target, each in methods.items()})


def read_methods(root: Path) -> dict[Target, ChosenMethod] | None:
    """Return the methods with their bridges, or None if they are not chosen yet.

    Raises:
        IndexCorruptError: If a file cannot be read.
    """
    rests = read_rest_methods(root)
    if rests is None:
        return None
    return {
        target: ChosenMethod(rest, _read_bridge(root, target) if rest.method == "bridge" else None)
        for target, rest in rests.items()
    }


def _read_bridge(root: Path, target: Target) -> Bridge:
    path = root / UPGRADE / BRIDGE / f"{target}.safetensors"
    try:
        arrays = load_file(path)
        return Bridge(arrays["embedding"], arrays.get("tokens"))
    except (OSError, KeyError, SafetensorError) as error:
        raise IndexCorruptError(path, f"not a bridge ({error})") from error
