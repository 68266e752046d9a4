"""Figures measured on one machine: the costs that plans are computed from, and real indexes.

``constants.json`` beside this module was written by ``python -m benchmarks.search.constants``,
which also writes one for another machine. Every constant is the cost of one unit of work, in
seconds or bytes, which the formulas of this package scale; docs/PLAN.md explains each.

``measurements.json`` beside this module was written by ``python -m benchmarks.search.plan_check``:
the measured sizes and times of real indexes that plans are compared with.
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

PACKAGED_MEASUREMENTS = Path(__file__).with_name("measurements.json")


@dataclass(frozen=True, kw_only=True)
class Machine:
    """The machine of a measurement.

    Attributes:
        processor: Processor name as the system reports it.
        cores: Cores available to the process.
        threads: Threads that FAISS used for building.
        memory_bytes: Memory of the machine.
    """

    processor: str
    cores: int
    threads: int
    memory_bytes: int


@dataclass(frozen=True, kw_only=True)
class ProcessConstants:
    """Resident memory of processes before the index is loaded.

    Attributes:
        serving_bytes: Memory of a process that searches, with a network of negligible size.
        building_bytes: Memory of a process that builds, with a network of negligible size.
        building_s: Seconds that a build takes regardless of its size: first use of memory and of
            libraries.
    """

    serving_bytes: int
    building_bytes: int
    building_s: float


@dataclass(frozen=True, kw_only=True)
class FileConstants:
    """Costs of writing an index's files.

    Attributes:
        item_bytes: Bytes of an item in the database: id, address, text, three metadata fields.
        item_s: Seconds to insert an item, including its rows for filters.
        byte_s: Seconds to write a byte of an array, and to read it again for its checksum.
    """

    item_bytes: float
    item_s: float
    byte_s: float


@dataclass(frozen=True, kw_only=True)
class SearchWidth:
    """Required search width of an inverted-list index on synthetic photos.

    Attributes:
        items: Number of items in the index.
        lists: Number of inverted lists of the index.
        width: Number of lists that must be searched for an ann_recall of 0.99.
        oversample: Number of rows that are compared exactly for each one wanted.
        skew: Number of codes in the lists that queries search, relative to lists of equal length.
    """

    items: int
    lists: int
    width: float
    oversample: float
    skew: float


@dataclass(frozen=True, kw_only=True)
class FirstStageConstants:
    """Costs of building and searching the first stage.

    Attributes:
        flat_s: [bytes of all vectors, seconds of one exact search], ascending; what lies between
            is interpolated.
        coarse_s: Seconds to compare a query with one value of one list's centroid.
        scan_s: Fixed seconds of a search of lists, regardless of their number.
        list_s: Seconds to start scanning a list.
        code_byte_s: Seconds to scan one byte of fast-scan codes.
        row_s: Seconds to compare a query with a row of 256 values at a random location.
        train_s: Seconds of training, for each value of each vector of the sample and each list.
        train_fixed_s: Seconds of training the codes, for each value of each vector of the sample.
        assign_s: Seconds to assign a vector to its list, for each value and list.
        encode_s: Seconds to encode a vector, for each value.
        calibrate_s: Seconds of measuring recall, for each value of each vector.
        widths: Search widths, ascending by number of items.
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
    """Costs of one storage format of the tokens.

    Attributes:
        pack_s: Seconds to convert one value of a token to the format.
        value_s: Seconds to read one value of a candidate's token, regardless of the query.
        score_s: Seconds to compare it with one word.
    """

    pack_s: float
    value_s: float
    score_s: float


@dataclass(frozen=True, kw_only=True)
class SearchConstants:
    """Costs of a search besides its two stages, for an index whose pages are in memory.

    Attributes:
        around_s: Seconds of everything else: checks, fusion, looking up ten hits.
        spread: Ratio of p95 to p50 of whole searches, one at a time.
        page_s: Seconds to read a page that is not in memory from the disk, at a random location.
    """

    around_s: float
    spread: float
    page_s: float


@dataclass(frozen=True, kw_only=True)
class EncodingConstants:
    """Encoding costs of the network, on one core.

    Attributes:
        network: Network that was measured.
        photo_s: Seconds to read, decode and encode a photo, in large batches.
        text_s: Seconds to encode a single query.
    """

    network: str
    photo_s: float
    text_s: float


@dataclass(frozen=True, kw_only=True)
class EngineConstants:
    """Costs of a vector database, measured with one server on the same machine.

    Attributes:
        engine: Name and version of the vector database.
        items: Number of items in the database.
        index: Kind of the index and its search width.
        call_s: Overhead of a search in seconds: client, server and transfer.
        segment_s: Seconds to search one segment of `items`.
        spread: Ratio of p95 to p50.
        byte_s: Seconds to return a byte of tokens, including the client's decoding.
        token_expansion: Bytes that the vector database stores per byte of tokens.
        vector_overhead_bytes: Bytes that the index adds per vector.
        item_bytes: Bytes stored per item besides vector and tokens.
        insert_byte_s: Seconds to insert a byte of an item.
        index_s: Seconds to index a vector, on one core.
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
    """All measured costs.

    Attributes:
        schema_version: Version of this schema.
        command: Command that made the measurement.
        measured_on: Day of the measurement, as YYYY-MM-DD.
        machine: Machine of the measurement.
        process: Memory of processes.
        files: Costs of writing files.
        first_stage: FAISS.
        forms: Costs by storage format of the tokens.
        search: Remaining costs of a search.
        encoding: Costs of the network.
        engine: Costs of a vector database on other machines.
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
        InputError: If the file cannot be read or is not JSON.
        ConfigError: If the file has another version, or a constant is missing, unknown or
            impossible.
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
    """Yield every number in JSON data with its path."""
    if isinstance(data, (int, float)):
        yield name, data
    elif isinstance(data, (dict, list)):
        each = data.items() if isinstance(data, dict) else enumerate(data)
        for key, value in each:
            yield from _numbers(f"{name}.{key}".lstrip("."), value)


@dataclass(frozen=True, kw_only=True)
class MeasuredRun:
    """One run of ``python -m benchmarks.search.scale``: embeddings of 256, 49 tokens of 128 values.

    Attributes:
        command: Command that made the measurement.
        measured_on: Day of the measurement, as YYYY-MM-DD.
        items: Number of photos.
        token_dtype: Storage format of the tokens.
        disk_bytes: Disk space of the index.
        serving_bytes: Resident memory of the process that searched.
        building_bytes: Resident memory of the process that built.
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
        runs: Measured runs, ascending by number of items.
    """

    __pydantic_config__: ClassVar[ConfigDict] = STRICT

    machine: Machine
    runs: list[MeasuredRun]


def read_measurements(path: Path = PACKAGED_MEASUREMENTS) -> Measurements:
    """Read measurements.

    Raises:
        InputError: If the file cannot be read or is not JSON.
        ConfigError: If a value is missing, unknown or impossible.
    """
    try:
        data: Any = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise InputError(f"{path}: expected measurements in JSON, got {error}") from error
    return parse_config(Measurements, data, str(path))
