"""Times of the first stage, added up by hand from round constants."""

import dataclasses
import math

import pytest

from aladin_index.ann.first_stage_build import ann_options
from aladin_index.capacity.constants import Constants
from aladin_index.capacity.costs import (
    build_s,
    compared_rows,
    first_stage_of,
    search_s,
    training_bytes,
)
from aladin_index.capacity.workload import Workload
from aladin_network.errors import ConfigError


@pytest.mark.parametrize("items", [500, 50_000, 50_001, 100_000, 3_000_000, 10**9])
def test_it_is_the_one_that_a_build_chooses(items: int, constants: Constants) -> None:
    stage = first_stage_of(Workload(items=items), constants.first_stage)
    first = ann_options(items, 256)[0]
    assert (stage.factory, stage.memory_bytes) == (first.factory, first.memory_bytes)
    assert (stage.lists > 0) == (items > 50_000)


def test_few_vectors_are_compared_one_and_all(constants: Constants) -> None:
    costs = constants.first_stage

    def seconds(items: int) -> float:
        workload = Workload(items=items)
        return search_s(first_stage_of(workload, costs), workload, costs)

    assert seconds(100) == 1e-5  # less than was measured takes no less than a call
    # 1,024 bytes each: half way from 1 MB to 10 MB, between 10 and 200 microseconds.
    assert seconds(round(5.5e6 / 1024)) == pytest.approx(1.05e-4, rel=1e-3)
    assert compared_rows(first_stage_of(Workload(items=100), costs), Workload(items=100)) == 0


def test_beyond_the_largest_that_was_measured_a_vector_takes_as_long(
    constants: Constants,
) -> None:
    workload = Workload(items=50_000, embedding_dim=512)  # 102.4 MB
    costs = constants.first_stage
    found = search_s(first_stage_of(workload, costs), workload, costs)
    assert found == pytest.approx(2e-3 * 102.4 / 50)


def test_lists_are_searched_as_was_measured(constants: Constants) -> None:
    workload = Workload(items=100_000, candidates=50)
    costs = constants.first_stage
    stage = first_stage_of(workload, costs)
    assert stage.factory == "IVF256,PQ256x4fs"
    # 25 lists are needed, and powers of two are tried.
    assert (stage.lists, stage.width, stage.oversample, stage.skew) == (256, 32, 2, 1.2)
    codes = 100_000 * 32 / 256 * 1.2
    expected = 1e-10 * 256 * 256 + 1e-5 + 2e-7 * 32 + 5e-11 * codes * 128 + 1e-7 * 50 * 2
    assert search_s(stage, workload, costs) == pytest.approx(expected)


def test_wider_searches_are_expected_of_more_lists(constants: Constants) -> None:
    costs = constants.first_stage

    def width(items: int) -> int:
        return first_stage_of(Workload(items=items), costs).width

    # 40 of 512 lists; beyond, the square root of the lists: 113.1 of 4,096, 320 of 32,768.
    assert [width(items) for items in (400_000, 16_000_000, 10**9)] == [64, 128, 512]
    widths = [width(10**power) for power in range(5, 13)]
    assert widths == sorted(widths)


def test_no_more_lists_are_searched_than_there_are(constants: Constants) -> None:
    wide = dataclasses.replace(constants.first_stage.widths[0], width=5000.0)
    costs = dataclasses.replace(constants.first_stage, widths=[wide])
    assert first_stage_of(Workload(items=100_000), costs).width == 256


def test_what_was_not_measured_is_refused(constants: Constants) -> None:
    with pytest.raises(ConfigError, match=r"codes of 4 bits divide.*; 255 values get IVF256,SQ8"):
        first_stage_of(Workload(items=100_000, embedding_dim=255), constants.first_stage)


def test_a_build_trains_fills_and_calibrates(constants: Constants) -> None:
    workload = Workload(items=400_000)
    costs = constants.first_stage
    stage = first_stage_of(workload, costs)
    sample, lists, dim = 2**16, 512, 256
    expected = sample * dim * (1e-10 * lists + 3e-7)
    expected += 400_000 * dim * (2e-11 * lists + 4e-9)
    expected += 400_000 * dim * 5e-9
    assert build_s(stage, workload, costs) == pytest.approx(expected)
    assert training_bytes(stage, workload) == sample * dim * 4


def test_exact_search_is_only_calibrated(constants: Constants) -> None:
    workload = Workload(items=1000)
    stage = first_stage_of(workload, constants.first_stage)
    assert build_s(stage, workload, constants.first_stage) == pytest.approx(1000 * 256 * 5e-9)
    assert training_bytes(stage, workload) == 0


def test_more_items_never_take_less(constants: Constants) -> None:
    costs = constants.first_stage
    times: list[tuple[float, float]] = []
    for power in range(17, 34):
        workload = Workload(items=2**power)
        stage = first_stage_of(workload, costs)
        times.append((search_s(stage, workload, costs), build_s(stage, workload, costs)))
    for searches in zip(*times, strict=True):
        assert all(math.isfinite(each) for each in searches)
    assert [build for _, build in times] == sorted(build for _, build in times)
