"""What the first stage takes: which index is built, its bytes, and its times."""

from __future__ import annotations

import math
import re
from typing import NamedTuple

import numpy as np

from aladin.errors import ConfigError
from index.ann.choice import ann_options, fitting_factories
from index.ann.construction import training_vectors
from index.plan.constants import FirstStageConstants
from index.plan.workload import Workload

# What `aladin index build` aims at unless it is told otherwise.
ANN_RECALL = 0.99
_VALUE_BYTES = 4
_ROW_VALUES = 256


class FirstStage(NamedTuple):
    """The index that ``--ann auto`` builds, and how it is searched.

    Attributes:
        factory: FAISS's description.
        memory_bytes: of the index.
        lists: inverted lists; 0: every vector is compared.
        width: lists that a search looks into.
        oversample: rows that are compared exactly, for each candidate.
        skew: codes that it meets there, over those of lists of equal length.
        code_bytes: of a vector.
    """

    factory: str
    memory_bytes: int
    lists: int = 0
    width: int = 0
    oversample: float = 0.0
    skew: float = 1.0
    code_bytes: int = 0


def first_stage_of(workload: Workload, constants: FirstStageConstants) -> FirstStage:
    """Choose as a build does, see `index.ann.choice`, and expect the width that it will find.

    Raises:
        ConfigError: the kind of index was not measured.
    """
    count, dim = workload.items, workload.embedding_dim
    factory = fitting_factories(count, dim, None, ANN_RECALL)[0]
    option = next(each for each in ann_options(count, dim) if each.factory == factory)
    if factory == "Flat":
        return FirstStage(factory, option.memory_bytes)
    found = re.fullmatch(r"IVF(\d+),PQ(\d+)x4fs", factory)
    if found is None:
        raise ConfigError(
            f"embedding_dim: expected one that codes of 4 bits divide, for only those were "
            f"measured; {dim} values get {factory}"
        )
    lists, codes = int(found[1]), int(found[2])
    width, oversample, skew = _width(lists, constants)
    return FirstStage(
        factory, option.memory_bytes, lists, width, oversample, skew, code_bytes=codes // 2
    )


def search_s(stage: FirstStage, workload: Workload, constants: FirstStageConstants) -> float:
    """Return the seconds of one search, all of its pages being in memory.

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


def compared_rows(stage: FirstStage, workload: Workload) -> float:
    """Return how many vectors a search compares exactly, wherever they lie."""
    return min(workload.candidates * stage.oversample, workload.items)


def build_s(stage: FirstStage, workload: Workload, constants: FirstStageConstants) -> float:
    """Return the seconds to train, fill and calibrate it, on as many threads as were measured."""
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


def training_bytes(stage: FirstStage, workload: Workload) -> int:
    """Return the bytes of the vectors that training copies."""
    if stage.lists == 0:
        return 0
    sample = min(training_vectors(stage.lists, workload.embedding_dim), workload.items)
    return _VALUE_BYTES * workload.embedding_dim * sample


def _width(lists: int, constants: FirstStageConstants) -> tuple[int, float, float]:
    """Return how wide so many lists are searched, how many rows are compared, and the skew.

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
