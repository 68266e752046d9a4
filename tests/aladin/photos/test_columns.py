"""What rows become metadata."""

from __future__ import annotations

from datetime import date, time

from aladin_network.photos.files import first_of, metadata_of


def test_the_order_of_names_decides_and_not_that_of_the_columns() -> None:
    assert first_of(("a", "b"), ["c", "b", "a"]) == "a"
    assert first_of(("a", "b"), ["c"]) is None


def test_json_values_of_what_is_left() -> None:
    row = {
        "taken": "x",
        "n": 1,
        "nan": float("nan"),
        "none": None,
        "bytes": b"x",
        "day": date(2020, 1, 2),
        "time": time(3, 4),
        "list": [1, b"x", [2.5]],
        "exif": "where it was",
        "status": "success",
    }
    assert metadata_of(row, ["taken", None]) == {
        "n": 1,
        "day": "2020-01-02",
        "time": "03:04:00",
        "list": [1, None, [2.5]],
    }
