"""Costs measured on one machine, which plans are computed from.

``constants.json`` beside this module was written by ``python -m benchmarks.search.constants``,
which also writes one for another machine. Every constant is the cost of one unit of work, in
seconds or bytes, which the formulas of this package scale; docs/PLAN.md explains each.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from pydantic import ConfigDict

from aladin_network.config import STRICT, parse_config
from aladin_network.errors import ConfigError, InputError
from aladin_network.types import TOKEN_DTYPES, TokenDtype

SCHEMA_VERSION = 1
PACKAGED_CONSTANTS = Path(__file__).with_name("constants.json")


@dataclass(frozen=True, kw_only=True)
class Machine:
    """Where something was measured.

    Attributes:
        processor: as the system names it.
        cores: that the process might use.
        threads: that FAISS built on.
        memory_bytes: of the machine.
    """

    processor: str
    cores: int
    threads: int
    memory_bytes: int


@dataclass(frozen=True, kw_only=True)
class ProcessConstants:
    """Resident memory of processes before the index is in it.

    Attributes:
        serving_bytes: one that searches, without a network to speak of.
        building_bytes: one that builds, likewise.
        building_s: seconds that a build takes whatever its size: memory that is touched for the
            first time, libraries that are used for the first time.
    """

    serving_bytes: int
    building_bytes: int
    building_s: float


@dataclass(frozen=True, kw_only=True)
class FileConstants:
    """What it takes to write an index's files.

    Attributes:
        item_bytes: of an item in the database: id, address, text, three fields of metadata.
        item_s: to insert it, its lines for filters included.
        byte_s: to write a byte of an array, and to read it again for its checksum.
    """

    item_bytes: float
    item_s: float
    byte_s: float


@dataclass(frozen=True, kw_only=True)
class SearchWidth:
    """How wide an index of inverted lists has to be searched, on synthetic photos.

    Attributes:
        items: in the index.
        lists: of the index.
        width: lists that have to be searched for an ann_recall of 0.99.
        oversample: rows that are compared exactly, for each one wanted.
        skew: codes in the lists that queries meet, over those of lists of equal length.
    """

    items: int
    lists: int
    width: float
    oversample: float
    skew: float


@dataclass(frozen=True, kw_only=True)
class FirstStageConstants:
    """What it takes to build and search the first stage.

    Attributes:
        flat_s: [bytes of all vectors, seconds of one exact search], ascending; what lies between
            is interpolated.
        coarse_s: to compare a query with one value of one list's centroid.
        scan_s: of a search of lists, however many there are.
        list_s: to begin with a list.
        code_byte_s: to scan one byte of fast-scan codes.
        row_s: to compare a query with a row of 256 values that lies anywhere.
        train_s: of training, for each value of each vector of the sample and each list.
        train_fixed_s: of training the codes, for each value of each vector of the sample.
        assign_s: to assign a vector to its list, for each value and list.
        encode_s: to encode a vector, for each value.
        calibrate_s: of measuring recall, for each value of each vector.
        widths: ascending by items.
    """

    flat_s: list[tuple[float, float]]
    coarse_s: float
    scan_s: float
    list_s: float
    code_byte_s: float
    row_s: float
    train_s: float
    train_fixed_s: float
    assign_s: float
    encode_s: float
    calibrate_s: float
    widths: list[SearchWidth]


@dataclass(frozen=True, kw_only=True)
class FormConstants:
    """What one stored form of the tokens takes.

    Attributes:
        pack_s: to bring one value of a token into the form.
        value_s: to read one value of a candidate's token, whatever it is compared with.
        score_s: to compare it with one word.
    """

    pack_s: float
    value_s: float
    score_s: float


@dataclass(frozen=True, kw_only=True)
class SearchConstants:
    """What a search takes beside its two stages, of an index whose pages are in memory.

    Attributes:
        around_s: of all the rest: checks, the fusion, looking ten hits up.
        spread: p95 over p50 of whole searches, one at a time.
        page_s: to read a page that is not in memory from the disk, at a random place.
    """

    around_s: float
    spread: float
    page_s: float


@dataclass(frozen=True, kw_only=True)
class EncodingConstants:
    """What the network takes, on one core.

    Attributes:
        network: that was measured.
        photo_s: to read, decode and encode a photo, many at a time.
        text_s: to encode one query alone.
    """

    network: str
    photo_s: float
    text_s: float


@dataclass(frozen=True, kw_only=True)
class EngineConstants:
    """What an engine takes, measured with one server on the same machine.

    Attributes:
        engine: name and version.
        items: that were in it.
        index: its kind, and how far a search looks.
        call_s: of a search beside the search itself: client, server, the way between them.
        segment_s: to search one segment of `items`.
        spread: p95 over p50.
        byte_s: to hand a byte of tokens out, the client's decoding included.
        token_expansion: bytes that the engine keeps for a byte of tokens.
        vector_overhead_bytes: that the index adds to a vector.
        item_bytes: that it keeps of an item beside vector and tokens.
        insert_byte_s: to take a byte of an item in.
        index_s: to index a vector, on one core.
    """

    engine: str
    items: int
    index: str
    call_s: float
    segment_s: float
    spread: float
    byte_s: float
    token_expansion: float
    vector_overhead_bytes: float
    item_bytes: float
    insert_byte_s: float
    index_s: float


@dataclass(frozen=True, kw_only=True)
class Constants:
    """All that was measured.

    Attributes:
        schema_version: of this form.
        command: that measured it.
        measured_on: the day, as YYYY-MM-DD.
        machine: where.
        process: memory of processes.
        files: writing.
        first_stage: FAISS.
        forms: of tokens.
        search: the rest of a search.
        encoding: the network.
        engine: an engine on other machines.
    """

    __pydantic_config__: ClassVar[ConfigDict] = STRICT

    schema_version: int
    command: str
    measured_on: str
    machine: Machine
    process: ProcessConstants
    files: FileConstants
    first_stage: FirstStageConstants
    forms: dict[TokenDtype, FormConstants]
    search: SearchConstants
    encoding: EncodingConstants
    engine: EngineConstants


def read_constants(path: Path = PACKAGED_CONSTANTS) -> Constants:
    """Read constants.

    Raises:
        InputError: the file cannot be read, or is no JSON.
        ConfigError: of another version, or a constant is missing, unknown or impossible.
    """
    try:
        data: Any = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise InputError(f"{path}: expected constants in JSON, got {error}") from error
    if not isinstance(data, dict) or data.get("schema_version") != SCHEMA_VERSION:
        found = data.get("schema_version") if isinstance(data, dict) else type(data).__name__
        raise ConfigError(f"{path}: expected schema_version {SCHEMA_VERSION}, got {found}")
    constants = parse_config(Constants, data, str(path))
    missing = [form for form in TOKEN_DTYPES if form not in constants.forms]
    if missing:
        raise ConfigError(f"{path}: forms: expected all of {TOKEN_DTYPES}, got no {missing[0]}")
    if not constants.first_stage.flat_s or not constants.first_stage.widths:
        raise ConfigError(f"{path}: first_stage: expected flat_s and widths, got an empty list")
    for name, number in _numbers("", data):
        if not 0 <= number < math.inf:
            raise ConfigError(f"{path}: {name}: expected a finite number, at least 0, got {number}")
    if constants.engine.items < 2:  # the logarithm is divided by
        raise ConfigError(
            f"{path}: engine.items: expected at least 2, got {constants.engine.items}"
        )
    if constants.encoding.photo_s == 0:
        raise ConfigError(f"{path}: encoding.photo_s: expected more than 0, got 0")
    return constants


def _numbers(name: str, data: Any) -> Iterator[tuple[str, float]]:
    """Yield every number in JSON data, with where it is."""
    if isinstance(data, (int, float)):
        yield name, data
    elif isinstance(data, (dict, list)):
        each = data.items() if isinstance(data, dict) else enumerate(data)
        for key, value in each:
            yield from _numbers(f"{name}.{key}".lstrip("."), value)
