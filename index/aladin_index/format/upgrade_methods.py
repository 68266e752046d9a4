"""How items that the new model has not encoded yet are asked: by the old model, or over a bridge.

upgrade/bridge/
  methods.json         the method of each collection, and the recalls that it was chosen by
  images.safetensors   the matrices of a bridge, see `aladin_index.upgrade.methods`

The folder appears when the samples of all collections are encoded and measured. Until then the old
model answers alone.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal

from pydantic import ConfigDict

from aladin_index.format.layout import UPGRADE
from aladin_network.config import STRICT, dump_config, parse_config
from aladin_network.errors import ConfigError, IndexCorruptError
from aladin_network.files import write_json
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


def write_rest_methods(folder: Path, methods: Mapping[Target, RestMethod]) -> None:
    """Write the methods of all collections into the folder of the bridges."""
    write_json(folder / METHODS, dump_config(_File(dict(methods))))


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
