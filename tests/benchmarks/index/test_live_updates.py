"""The quick form of the benchmark that kills writers, and whether it would see what is wrong."""

from __future__ import annotations

import json
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from aladin_index.changes.writer import ChangesWriter
from aladin_index.generations.reader import open_index
from benchmarks.index.live_groups import build_groups, group_ids, make_group, new_group, read_groups
from benchmarks.index.live_updates import Call, Figures, compare

ROOT = Path(__file__).parents[3]


def test_quick_loses_nothing_and_finds_nothing_else() -> None:
    command = [sys.executable, "-m", "benchmarks.index.live_updates", "--quick", "--json"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    figures = json.loads(done.stdout)
    assert figures["kills"] == sum(figures["in_flight"].values()) == 4
    assert figures["acknowledged"] > 0
    assert figures["acknowledged_lost"] == 0
    assert figures["unacknowledged_found"] == 0
    assert figures["searches"] > 0
    assert figures["broken_searches"] == 0


GROUPS = {0: 0, 1: 0, 2: 0}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    build_groups(tmp_path / "index", GROUPS)
    return tmp_path / "index"


@pytest.mark.parametrize(
    ("acknowledged", "pending", "counted"),
    [
        ({0: 0, 1: 5, 3: 1}, None, (0, 0, 0)),  # as it is
        ({0: 0, 1: 0}, Call("add", 3, 1), (3, 0, 1)),  # a replacement that nobody asked for
        ({0: 0, 1: 5}, Call("add", 3, 1), (0, 0, 1)),  # in flight, and there
        ({0: 0, 1: 5}, None, (0, 3, 0)),  # there, and never asked for
        ({0: 0, 1: 5, 2: 0, 3: 1}, None, (3, 0, 0)),  # not there, and acknowledged
        ({0: 0, 1: 5, 2: 0, 3: 1}, Call("delete", 2, 9), (0, 0, 1)),
    ],
)
def test_what_is_wrong_is_counted(
    root: Path, acknowledged: dict[int, int], pending: Call | None, counted: tuple[int, int, int]
) -> None:
    with closing(open_index(root)) as index:
        model_id = index.manifest.model.id
    with closing(ChangesWriter(root, model_id)) as writer:
        writer.add("images", new_group(1, 5), "replace")
        writer.add("images", new_group(3, 1), "error")
        writer.delete("images", group_ids(2))
    figures = Figures()
    compare(root, acknowledged, set(), pending, figures)
    assert counted == (
        figures.acknowledged_lost,
        figures.unacknowledged_found,
        figures.in_flight_applied,
    )


def test_half_a_call_and_a_wrong_photo_are_seen(root: Path) -> None:
    with closing(open_index(root)) as index:
        model_id = index.manifest.model.id
    with closing(ChangesWriter(root, model_id)) as writer:
        whole = new_group(3, 1)
        writer.add("images", whole, "error")
        writer.delete("images", group_ids(3)[:1])
    (root / make_group(0, 0).photos[1].path).write_bytes(b"something else")
    figures = Figures()
    compare(root, GROUPS, set(), Call("add", 3, 1), figures)
    assert (figures.acknowledged_lost, figures.unacknowledged_found) == (1, 2)
    with closing(open_index(root)) as index:
        assert read_groups(index)["0-1"] is None
