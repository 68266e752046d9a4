"""The functions of a request are those of this repository, or none are counted."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks import house
from benchmarks.lib.recorded_calls import record_requests


def test_packages_of_another_place_are_refused_and_not_counted_as_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(SystemExit, match=f"expected the packages of {tmp_path}, got those of /"):
        record_requests(tmp_path)
    monkeypatch.setattr(house, "ROOT", tmp_path)
    monkeypatch.setattr("sys.argv", ["house", "--query"])
    with pytest.raises(SystemExit, match="install this repository"):
        house.main()
