"""Costs of an index: bytes and times of both stages, bytes of its files, and build time."""

from __future__ import annotations

import math
import re
from typing import NamedTuple

import numpy as np

from aladin_index.ann.ann_index import training_vectors
from aladin_index.ann.first_stage_build import ann_options, fitting_factories
from aladin_index.capacity.constants import (
    Constants,
    EngineConstants,
    FileConstants,
    FirstStageConstants,
    FormConstants,
)
from aladin_index.capacity.workload import Latency, Workload
from aladin_index.tokens.codec import CODE_BITS, TokenCodec
from aladin_network.errors import ConfigError

# Default recall target of `aladin index build`.
ANN_RECALL = 0.99
_VALUE_BYTES = 4
_ROW_VALUES = 256

# The kernel compares with this many words at a time; fewer take as long
# (`index/aladin_index/kernel`).
_WORDS_AT_A_TIME = 16

_EMBEDDING_VALUE_BYTES = 4
_OFFSET_BYTES = 8
_PAGE_BYTES = 4096


class PlannedFirstStage(NamedTuple):
    """The index that ``--ann auto`` builds, and its search settings.

    Attributes:
        factory: FAISS's description.
        memory_bytes: Memory of the index in bytes.
        lists: Number of inverted lists, or 0 if every vector is compared.
        width: Number of lists that a search scans.
        oversample: Number of rows that are compared exactly for each candidate.
        skew: Number of codes in the scanned lists, relative to lists of equal length.
        code_bytes: Bytes of the code of a vector.
    """

    factory: str
    memory_bytes: int
    lists: int = 0
    width: int = 0
    oversample: float = 0.0
    skew: float = 1.0
    code_bytes: int = 0


def first_stage_of(workload: Workload, constants: FirstStageConstants) -> PlannedFirstStage:
    """Choose the first stage as `aladin_index.ann.first_stage_build` does; expect its width.

    Raises:
        ConfigError: If the kind of index was not measured.
    """
    count, dim = workload.items, workload.embedding_dim
    factory = fitting_factories(count, dim, None, ANN_RECALL)[0]
    option = next(each for each in ann_options(count, dim) if each.factory == factory)
    if factory == "Flat":
        return PlannedFirstStage(factory, option.memory_bytes)
    found = re.fullmatch(r"IVF(\d+),PQ(\d+)x4fs", factory)
    if found is None:
        raise ConfigError(
            f"embedding_dim: expected one that codes of 4 bits divide, for only those were "
            f"measured; {dim} values get {factory}"
        )
    lists, codes = int(found[1]), int(found[2])
    width, oversample, skew = _width(lists, constants)
    return PlannedFirstStage(
        factory, option.memory_bytes, lists, width, oversample, skew, code_bytes=codes // 2
    )


def search_s(stage: PlannedFirstStage, workload: Workload, constants: FirstStageConstants) -> float:
    """Return the seconds of one search with all of its pages in memory.

    Exact: the vectors are read once. Inverted lists: the query meets every centroid, then the
    codes of the lists that are nearest, then the vectors of what looked best.
    """
    dim = workload.embedding_dim
    if stage.lists == 0:
        sizes, seconds = zip(*constants.flat_s, strict=True)
        wanted = _VALUE_BYTES * dim * workload.items
        return float(np.interp(wanted, sizes, seconds)) * max(1.0, wanted / sizes[-1])
    codes = workload.items * stage.width / stage.lists * stage.skew
    return (
        constants.coarse_s * stage.lists * dim
        + constants.scan_s
        + constants.list_s * stage.width
        + constants.code_byte_s * codes * stage.code_bytes
        + constants.row_s * compared_rows(stage, workload) * dim / _ROW_VALUES
    )


def compared_rows(stage: PlannedFirstStage, workload: Workload) -> float:
    """Return how many vectors a search compares exactly, at random locations."""
    return min(workload.candidates * stage.oversample, workload.items)


def build_s(stage: PlannedFirstStage, workload: Workload, constants: FirstStageConstants) -> float:
    """Return the seconds to train, fill and calibrate it, with the measured threads."""
    items, dim = workload.items, workload.embedding_dim
    calibrated = constants.calibrate_s * items * dim
    if stage.lists == 0:
        return calibrated
    sample = min(training_vectors(stage.lists, dim), items)
    return (
        sample * dim * (constants.train_s * stage.lists + constants.train_fixed_s)
        + items * dim * (constants.assign_s * stage.lists + constants.encode_s)
        + calibrated
    )


def training_bytes(stage: PlannedFirstStage, workload: Workload) -> int:
    """Return the bytes of the vectors that training copies."""
    if stage.lists == 0:
        return 0
    sample = min(training_vectors(stage.lists, workload.embedding_dim), workload.items)
    return _VALUE_BYTES * workload.embedding_dim * sample


def _width(lists: int, constants: FirstStageConstants) -> tuple[int, float, float]:
    """Return the search width for so many lists, the rows compared, and the skew.

    Between two numbers of lists that were measured the width is interpolated, both in logarithms.
    Beyond the largest it grows with the square root of the lists, which nothing here has measured:
    on these photos it grew more slowly. A calibration tries powers of two, so the next one it is.
    """
    measured = constants.widths
    known = np.log([each.lists for each in measured])
    at = math.log(lists)
    width = math.exp(np.interp(at, known, np.log([each.width for each in measured])))
    width *= max(1.0, lists / measured[-1].lists) ** 0.5
    oversample = float(np.interp(at, known, [each.oversample for each in measured]))
    skew = float(np.interp(at, known, [each.skew for each in measured]))
    return min(2 ** math.ceil(math.log2(width)), lists), oversample, skew


def align_s(workload: Workload, form: FormConstants) -> float:
    """Return the seconds to score the candidates with all of their pages in memory.

    Every word meets every token of every candidate.
    """
    values = workload.candidates * workload.tokens * workload.token_dim
    words = _WORDS_AT_A_TIME * math.ceil(workload.words / _WORDS_AT_A_TIME)
    return values * (form.value_s + form.score_s * words)


def pack_s(workload: Workload, form: FormConstants) -> float:
    """Return the seconds to convert all tokens to their storage format."""
    return form.pack_s * workload.items * workload.tokens * workload.token_dim


class IndexSizes(NamedTuple):
    """Bytes of one generation of one collection.

    Attributes:
        first_stage: FAISS's index.
        embeddings: Size of the embeddings: float32, used to compare candidates exactly.
        tokens: Bytes of the tokens in their storage format, including the offset of each item.
        items: Size of the IDs, texts, metadata and filter data.
    """

    first_stage: int
    embeddings: int
    tokens: int
    items: int

    @property
    def total(self) -> int:
        """Bytes of all parts."""
        return sum(self)

    @property
    def mapped(self) -> int:
        """Bytes that searches read through memory maps; items are looked up in their database."""
        return self.first_stage + self.embeddings + self.tokens


def embedding_bytes(workload: Workload) -> int:
    """Return the bytes of one embedding."""
    return _EMBEDDING_VALUE_BYTES * workload.embedding_dim


def token_bytes(workload: Workload) -> int:
    """Return the bytes of all stored tokens of one item."""
    dim, dtype = workload.token_dim, workload.token_dtype
    # Some formats have a codebook, which is not counted per token.
    codebook = np.zeros((1, dim), dtype=np.float32) if dtype in CODE_BITS else None
    return workload.tokens * TokenCodec(dtype, dim, codebook).token_bytes


def index_sizes(workload: Workload, stage: PlannedFirstStage, files: FileConstants) -> IndexSizes:
    """Compute the file sizes of an index."""
    return IndexSizes(
        first_stage=stage.memory_bytes,
        embeddings=workload.items * embedding_bytes(workload),
        tokens=workload.items * (token_bytes(workload) + _OFFSET_BYTES),
        items=round(files.item_bytes * workload.items),
    )


class BuildTime(NamedTuple):
    """Seconds of a build.

    Attributes:
        begin_s: Seconds that are independent of the size.
        encode_s: Seconds to read, decode and encode the photos.
        pack_s: Seconds to convert their tokens to the storage format.
        write_s: Seconds to write everything, with checksums.
        first_stage_s: Seconds to train, fill and calibrate the first stage.
    """

    begin_s: float
    encode_s: float
    pack_s: float
    write_s: float
    first_stage_s: float

    @property
    def indexing_s(self) -> float:
        """Seconds after the network: what `benchmarks.search.scale` measures."""
        return self.begin_s + self.pack_s + self.write_s + self.first_stage_s

    @property
    def total_s(self) -> float:
        """Seconds of all stages, one after the other."""
        return sum(self)


def build_time(
    workload: Workload, stage: PlannedFirstStage, sizes: IndexSizes, constants: Constants
) -> BuildTime:
    """Estimate the times of a build.

    Encoding and packing are divided among the machines that build (``--part i/n``); one of them
    writes the whole and builds its first stage (``aladin index merge``), on all of its cores.
    """
    photos_per_s = workload.photos_per_s
    if photos_per_s is None:
        photos_per_s = workload.machine_cores / constants.encoding.photo_s
    threads = constants.machine.threads
    files = constants.files
    return BuildTime(
        begin_s=constants.process.building_s,
        encode_s=workload.items / photos_per_s / workload.build_machines,
        pack_s=pack_s(workload, constants.forms[workload.token_dtype]) / workload.build_machines,
        write_s=files.item_s * workload.items + files.byte_s * sizes.mapped,
        first_stage_s=build_s(stage, workload, constants.first_stage)
        * threads
        / workload.machine_cores,
    )


def search_latency(
    workload: Workload, stage: PlannedFirstStage, resident: float, constants: Constants
) -> Latency:
    """Estimate the time of a single search."""
    around = constants.search
    seconds = (
        search_s(stage, workload, constants.first_stage)
        + align_s(workload, constants.forms[workload.token_dtype])
        + around.around_s
    )
    # Each candidate, and each row that is compared exactly, is on separate pages.
    pages = workload.candidates * _pages_of(token_bytes(workload))
    pages += compared_rows(stage, workload) * _pages_of(embedding_bytes(workload))
    missing_s = (1 - resident) * pages * around.page_s
    return Latency.spread_by(seconds + missing_s, around.spread)


def _pages_of(size: int) -> float:
    """Return the mean number of pages that a block of bytes at a random offset spans."""
    return 1 + (size - 1) / _PAGE_BYTES


def engine_item_bytes(workload: Workload, engine: EngineConstants) -> float:
    """Return the bytes per item in the vector database, without its place in the index."""
    tokens = token_bytes(workload) * engine.token_expansion
    return embedding_bytes(workload) + tokens + engine.item_bytes


def graph_growth(items: int, engine: EngineConstants) -> float:
    """Return the growth factor of searching and extending a graph since the measurement.

    Both take a time that grows with the logarithm of its size (Malkov and Yashunin, 2018,
    section 4.2).
    """
    return math.log(max(items, 2)) / math.log(engine.items)
