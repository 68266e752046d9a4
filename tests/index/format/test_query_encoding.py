"""The choice among measured ways to encode queries."""

from __future__ import annotations

from typing import Any

import pytest

from aladin_index.format.query_encoding import MeasuredWay, choose_way
from aladin_network.config import dump_config, parse_config
from aladin_network.types import Way

FLOAT32, OTHER, BFLOAT16 = (
    Way("onnxruntime", "float32"),
    Way("openvino", "float32"),
    Way("openvino", "bfloat16"),
)


def measured(
    way: Way, alone_ms: float, batch_ms: float | None, overlap: float = 1.0
) -> MeasuredWay:
    return MeasuredWay(
        way=way, alone_ms=alone_ms, batch_ms=batch_ms, overlap=overlap, difference=0.01
    )


@pytest.mark.parametrize(
    ("others", "chosen"),
    [
        ([], FLOAT32),
        # Alone and in batches: the square root of 6 / 5 * 4 / 2 is 1.55.
        ([measured(BFLOAT16, 5.0, 2.0)], BFLOAT16),
        # As fast alone, twice as fast in batches: 1.41.
        ([measured(BFLOAT16, 6.0, 2.0)], BFLOAT16),
        # The square root of 6 / 5 * 4 / 3.4 is 1.19.
        ([measured(BFLOAT16, 5.0, 3.4)], FLOAT32),
        # Four times as fast in batches, but slower alone by a sixth.
        ([measured(BFLOAT16, 7.0, 1.0)], FLOAT32),
        ([measured(BFLOAT16, 6.6, 2.0)], BFLOAT16),
        ([measured(BFLOAT16, 5.0, 2.0, overlap=0.96)], FLOAT32),
        ([measured(BFLOAT16, 5.0, 2.0, overlap=0.97)], BFLOAT16),
        # The fastest of those that agree, in either order.
        ([measured(OTHER, 4.0, 3.0), measured(BFLOAT16, 4.0, 2.0)], BFLOAT16),
        ([measured(BFLOAT16, 4.0, 2.0), measured(OTHER, 4.0, 3.0)], BFLOAT16),
        ([measured(OTHER, 4.0, 3.0), measured(BFLOAT16, 4.0, 2.0, overlap=0.5)], OTHER),
    ],
)
def test_the_fastest_way_that_agrees_is_chosen(others: list[MeasuredWay], chosen: Way) -> None:
    assert choose_way([measured(FLOAT32, 6.0, 4.0), *others], 0.97) == chosen


@pytest.mark.parametrize(("alone_ms", "chosen"), [(15.0, BFLOAT16), (21.0, FLOAT32)])
def test_photos_have_one_time(alone_ms: float, chosen: Way) -> None:
    ways = [measured(FLOAT32, 24.0, None), measured(BFLOAT16, alone_ms, None)]
    assert choose_way(ways, 0.97) == chosen


def test_a_way_is_read_as_it_was_written() -> None:
    way = measured(BFLOAT16, 5.0, None)
    data: dict[str, Any] = dump_config(way)
    assert data["way"] == {"runtime": "openvino", "precision": "bfloat16"}
    assert parse_config(MeasuredWay, data, "here") == way
