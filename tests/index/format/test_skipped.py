"""What an index lacks of its sources: grouped by reason, by the last pass or by the build."""

from __future__ import annotations

import json
from dataclasses import astuple
from pathlib import Path

import pytest

from aladin_index.format.layout import SKIPPED, generation_folder
from aladin_index.format.manifest import Manifest
from aladin_index.format.skipped import (
    FOLLOWED,
    SkippedItem,
    by_reason,
    read_follow_record,
    read_skipped_summary,
    record_stop,
    write_follow_record,
)

HEIC = [SkippedItem(f"IMG_{number}.HEIC", "HEIC needs a package") for number in range(30)]
DAMAGED = SkippedItem("a.jpg", "damaged or cut short")


class Live:
    """The part of a manifest that is read."""

    generation = 3
    targets = ("images", "texts")


@pytest.fixture
def index(tmp_path: Path) -> Path:
    """An index whose build skipped a photo and a text."""
    for target, name in (("images", "built.jpg"), ("texts", "built")):
        folder = generation_folder(tmp_path, 3) / target
        folder.mkdir(parents=True)
        (folder / SKIPPED).write_text(json.dumps([[name, "damaged"]]), encoding="utf-8")
    return tmp_path


def lacking(index: Path) -> tuple[int, list[tuple[object, ...]], dict[str, int], str | None]:
    manifest: Manifest = Live()  # type: ignore[assignment]
    found = read_skipped_summary(index, manifest)
    return (
        found.total,
        [astuple(each) for each in found.reasons],
        found.other_files,
        found.not_followed,
    )


def test_the_most_frequent_reason_comes_first_with_some_names() -> None:
    [many, one] = by_reason([DAMAGED, *HEIC], most_names=2)
    assert astuple(many) == ("HEIC needs a package", 30, ["IMG_0.HEIC", "IMG_1.HEIC"])
    assert astuple(one) == ("damaged or cut short", 1, ["a.jpg"])
    assert by_reason([DAMAGED, *HEIC], most_groups=1, most_names=2) == [many]
    assert by_reason([]) == []


def test_without_a_pass_it_is_what_the_build_skipped(index: Path) -> None:
    assert lacking(index) == (2, [("damaged", 2, ["built.jpg", "built"])], {}, None)


def test_after_a_pass_it_is_what_the_pass_left_out_of_the_folders(index: Path) -> None:
    write_follow_record(index, [DAMAGED], {"videos": 8})
    total, reasons, others, stopped = lacking(index)
    assert (total, others, stopped) == (2, {"videos": 8}, None)
    assert reasons == [("damaged or cut short", 1, ["a.jpg"]), ("damaged", 1, ["built"])]
    written = (index / FOLLOWED).stat().st_mtime_ns
    write_follow_record(index, [DAMAGED], {"videos": 8})
    assert (index / FOLLOWED).stat().st_mtime_ns == written  # nothing is written for nothing
    write_follow_record(index, [], {})
    assert lacking(index)[0] == 1


def test_an_end_of_the_following_is_known_until_the_next_pass(index: Path) -> None:
    write_follow_record(index, [DAMAGED], {"videos": 8})
    record_stop(index, "it was killed")
    assert lacking(index)[2:] == ({"videos": 8}, "it was killed")
    write_follow_record(index, [DAMAGED], {"videos": 8})
    assert lacking(index)[2:] == ({"videos": 8}, None)


def test_a_damaged_record_counts_as_none_and_hides_nothing_else(index: Path) -> None:
    for content in ("{", "[]", '{"schema_version": 9}'):
        (index / FOLLOWED).write_text(content, encoding="utf-8")
        assert (read_follow_record(index), lacking(index)[0]) == (None, 2)
    (generation_folder(index, 3) / "texts" / SKIPPED).write_text("{", encoding="utf-8")
    assert lacking(index)[0] == 1
