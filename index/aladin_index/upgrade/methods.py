"""How items that the new model has not encoded yet are asked: by the old model, or over a bridge.

upgrade/bridge/
  methods.json         the method of each collection, and the recalls that it was chosen by
  images.safetensors   the matrices of a bridge

The folder appears when the samples of all collections are encoded and measured. Until then the old
model answers alone.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
from pydantic import ConfigDict
from safetensors import SafetensorError
from safetensors.numpy import load_file, save

from aladin_index.format.layout import UPGRADE
from aladin_index.upgrade.bridge import Bridge
from aladin_network.config import STRICT, dump_config, parse_config
from aladin_network.errors import ConfigError, IndexCorruptError
from aladin_network.files import atomic_folder, write_json
from aladin_network.scoring.fusion import DirectionFusion
from aladin_network.types import Target

BRIDGE, METHODS = "bridge", "methods.json"

Method = Literal["old", "bridge"]


@dataclass(frozen=True, kw_only=True)
class MeasuredRecalls:
    """Recalls at 10 of both stages among sample items that the bridge was not fitted on.

    Attributes:
        truth: What counts as right: the items of a photo's own captions, or the ten items that the
            new model finds first.
        queries: Number of queries.
        items: Number of items that were searched.
        new: Recall of the new model on its own encodings.
        old: Recall of the old model.
        bridge: Recall of the new model over the bridge.
    """

    truth: Literal["captions", "agreement"]
    queries: int
    items: int
    new: float
    old: float
    bridge: float


@dataclass(frozen=True, kw_only=True)
class RestMethod:
    """How the items of one collection that are not encoded yet are asked.

    Attributes:
        method: By the old model, or by the new one over a bridge.
        recalls: What was measured, or None without queries, or if no bridge is possible.
        fusion: Constants of the fusion of scores over the bridge, or None without one.
    """

    method: Method
    recalls: MeasuredRecalls | None = None
    fusion: DirectionFusion | None = None


@dataclass(frozen=True)
class _File:
    """Content of methods.json."""

    __pydantic_config__: ClassVar[ConfigDict] = STRICT

    methods: dict[Target, RestMethod]


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
        file = _File({target: chosen.rest for target, chosen in methods.items()})
        write_json(partial / METHODS, dump_config(file))


def read_rest_methods(root: Path) -> dict[Target, RestMethod] | None:
    """Return the methods of an unfinished upgrade, or None if they are not chosen yet.

    Raises:
        IndexCorruptError: If the file cannot be read.
    """
    path = root / UPGRADE / BRIDGE / METHODS
    try:
        data: Any = json.loads(path.read_text(encoding="utf-8"))
        return parse_config(_File, data, path.name).methods
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, ValueError, ConfigError) as error:
        raise IndexCorruptError(path, f"cannot be read ({error})") from error


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
