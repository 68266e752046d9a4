"""Measurements of real indexes that plans are compared with.

``measurements.json`` beside this module was written by ``python -m benchmarks.search.plan_check``.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from pydantic import ConfigDict

from aladin_index.plan.constants import Machine
from aladin_network.config import STRICT, parse_config
from aladin_network.errors import InputError
from aladin_network.types import TokenDtype

PACKAGED_MEASUREMENTS = Path(__file__).with_name("measurements.json")


@dataclass(frozen=True, kw_only=True)
class MeasuredRun:
    """One run of ``python -m benchmarks.search.scale``: embeddings of 256, 49 tokens of 128 values.

    Attributes:
        command: Command that made the measurement.
        measured_on: the day, as YYYY-MM-DD.
        items: photos.
        token_dtype: Storage format of the tokens.
        disk_bytes: Disk space of the index.
        serving_bytes: resident in the process that searched.
        building_bytes: resident in the process that built.
        build_s: Seconds to pack, write and index, without drawing the photos.
        p50_s: Median latency of sequential searches with 100 candidates.
        p95_s: 95th percentile of the same latency.
    """

    command: str
    measured_on: str
    items: int
    token_dtype: TokenDtype
    disk_bytes: int
    serving_bytes: int
    building_bytes: int
    build_s: float
    p50_s: float
    p95_s: float


@dataclass(frozen=True, kw_only=True)
class Measurements:
    """All runs on one machine.

    Attributes:
        machine: Machine of the measurements.
        runs: ascending by items.
    """

    __pydantic_config__: ClassVar[ConfigDict] = STRICT

    machine: Machine
    runs: list[MeasuredRun]


def read_measurements(path: Path = PACKAGED_MEASUREMENTS) -> Measurements:
    """Read measurements.

    Raises:
        InputError: the file cannot be read, or is no JSON.
        ConfigError: a value is missing, unknown or impossible.
    """
    try:
        data: Any = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise InputError(f"{path}: expected measurements in JSON, got {error}") from error
    return parse_config(Measurements, data, str(path))
