from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from aladin_index.changes.database import changes_folder
from aladin_index.changes.writer import ChangesWriter
from aladin_index.encode.encoded import ItemBatch
from aladin_index.format.layout import (
    PUBLISHING,
    generation_folder,
    live_generation,
    published_generations,
)
from aladin_index.format.manifest import MANIFEST, read_manifest
from aladin_index.generations.compact import compact_index
from aladin_index.generations.history import (
    generations_before,
    rolled_back_changes,
    with_changes_of,
)
from aladin_index.generations.published import rollback_index, store_calibration
from aladin_network.checkpoint_files import read_model_id
from aladin_network.errors import IndexCorruptError, InputError
from tests.conftest import made_up_calibration
from tests.index.written import contents

MakeItems = Callable[..., ItemBatch]


def test_back_and_forth_with_the_changes_of_each(
    root: Path, writer: ChangesWriter, made_up: MakeItems
) -> None:
    writer.add("images", made_up(["x"]), "error")
    writer.delete("images", ["a"])
    compact_index(root)
    writer.add("images", made_up(["y"]), "error")
    report = rollback_index(root)
    nothing = (0, 0)
    assert report == (
        2,
        {"images": (1, 0), "texts": nothing},
        1,
        {"images": (1, 1), "texts": nothing},
        {"images": 6, "texts": 2},
    )
    assert contents(root).keys() == set("bcdefx")
    writer.delete("images", ["b"])  # goes to generation 1
    assert rollback_index(root, 2).counts["images"] == 7
    assert contents(root).keys() == set("bcdefxy")
    rollback_index(root)
    assert contents(root).keys() == set("cdefx")


@pytest.fixture
def rejected(root: Path, writer: ChangesWriter, made_up: MakeItems) -> Path:
    """Generation 2 with an addition was rolled back to 1, of which 3 was made."""
    calibration = made_up_calibration(read_model_id(root / "model"))
    store_calibration(root, calibration)
    writer.add("images", made_up(["rejected"]), "error")
    rollback_index(root)
    store_calibration(root, calibration)
    assert published_generations(root) == [1, 2, 3]
    return root


LOST = {2: {"images": (1, 0), "texts": (0, 0)}}


def test_a_rollback_skips_generations_that_were_rolled_back(rejected: Path) -> None:
    assert read_manifest(generation_folder(rejected, 3)).replaces == 1
    assert rolled_back_changes(rejected) == LOST
    assert rollback_index(rejected).generation == 1
    assert contents(rejected).keys() == set("abcdef")
    # A damaged manifest counts as replacing the generation before.
    (generation_folder(rejected, 3) / MANIFEST).write_text("{")
    assert generations_before(rejected, 3) == [2, 1]


@pytest.mark.parametrize(
    ("changed", "dropped", "back_to"), [(True, [1, 2], 3), (False, [2], 1)], ids=str
)
def test_a_compaction_removes_and_reports_what_was_rejected(
    rejected: Path,
    writer: ChangesWriter,
    caplog: pytest.LogCaptureFixture,
    changed: bool,
    dropped: list[int],
    back_to: int,
) -> None:
    if changed:
        writer.delete("images", ["a"])
    report = compact_index(rejected)
    assert (report.dropped, report.lost) == (dropped, LOST)
    assert caplog.text.count("generation 2 was rolled back") == int(changed)
    assert rollback_index(rejected).generation == back_to


@pytest.mark.parametrize(
    ("to", "message"),
    [
        (None, "no generation before 1 to roll back to; others: none"),
        (1, "generation 1 is already live; others: none"),
        (7, "generation 7 is missing; others: none"),
    ],
)
def test_there_has_to_be_something_to_go_to(root: Path, to: int | None, message: str) -> None:
    with pytest.raises(InputError, match=message):
        rollback_index(root, to)


def test_a_damaged_generation_is_not_made_live(root: Path, writer: ChangesWriter) -> None:
    writer.delete("images", ["a"])
    compact_index(root)
    (generation_folder(root, 1) / "images" / "embeddings.npy").write_bytes(b"")
    with pytest.raises(IndexCorruptError, match="bytes, got 0"):
        rollback_index(root)
    assert live_generation(root) == 2


def test_a_generation_that_was_never_live_is_not_gone_back_to(
    root: Path,
    writer: ChangesWriter,
    made_up: MakeItems,
    write_made_up: Callable[..., int],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    writer.delete("images", ["a"])
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr("aladin_index.generations.writer.set_live_generation", killed)
        images, texts = made_up(list("abcdef")), made_up(["s", "t"])
        write_made_up(root, images=images, texts=texts, going_live=with_changes_of(root, 1))
    assert published_generations(root) == [1, 2]
    assert changes_folder(root, 2).exists()
    with pytest.raises(InputError, match="no generation before 1 to roll back to; others: none"):
        rollback_index(root)
    assert published_generations(root) == [1]
    assert not changes_folder(root, 2).exists()
    assert not (root / PUBLISHING).exists()
    writer.add("images", made_up(["x"]), "error")
    assert compact_index(root).generation == 2
    assert contents(root).keys() == set("bcdefx")
    # One that was live when its builder died stays.
    (root / PUBLISHING).write_text("2\n", encoding="utf-8")
    assert rollback_index(root).generation == 1
    assert published_generations(root) == [1, 2]
