import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from aladin_index.changes.database import changes_database
from aladin_index.changes.writer import ChangesWriter, NewItems
from aladin_index.format.layout import CURRENT, generation_folder
from aladin_index.format.manifest import MANIFEST, read_manifest
from aladin_index.format.records import Evaluation, evaluations_file, store_evaluation
from aladin_index.generations.compact import compact_index
from aladin_index.generations.history import DamagedFile, read_history
from aladin_index.generations.info import ItemCounts, count_items, disk_use
from aladin_index.generations.published import rollback_index
from aladin_index.generations.reader import open_index
from aladin_network.errors import IndexNotReadyError

MakeItems = Callable[..., NewItems]


@pytest.fixture(scope="module")
def built(
    tmp_path_factory: pytest.TempPathFactory,
    made_up: MakeItems,
    write_made_up: Callable[..., int],
) -> Path:
    """An index of four images and two texts."""
    out = tmp_path_factory.mktemp("built") / "index"
    write_made_up(out, images=made_up(list("abcd")), texts=made_up(["s", "t"]))
    return out


@pytest.fixture
def root(built: Path, tmp_path: Path) -> Path:
    """A copy of `built` to change."""
    return Path(shutil.copytree(built, tmp_path / "index"))


@pytest.fixture
def writer(root: Path) -> Iterator[ChangesWriter]:
    model = read_manifest(generation_folder(root, 1)).model
    with closing(ChangesWriter(root, model.id)) as opened:
        yield opened


def test_every_generation_is_told_the_newest_first(
    root: Path, writer: ChangesWriter, made_up: MakeItems
) -> None:
    writer.add("images", made_up(["e", "a"], seed=1), "replace")
    compact_index(root)
    writer.add("texts", made_up(["u"]), "error")
    os.utime(generation_folder(root, 2) / MANIFEST, (2000, 2000))
    os.utime(root / CURRENT, (3000, 3000))
    history = read_history(root)
    assert (history.current, history.current_since_s, history.damaged) == (2, 3000, [])
    second, first = history.generations
    assert (second.manifest.generation, second.manifest.made_by) == (2, "compact")
    assert (first.manifest.generation, first.manifest.made_by) == (1, "build")
    assert second.published_at_s == 2000
    assert second.pending == {"images": (0, 0), "texts": (1, 0)}
    assert first.pending == {"images": (2, 1), "texts": (0, 0)}
    rollback_index(root)
    assert read_history(root).current == 1


def test_evaluations_are_told_with_their_generation(root: Path) -> None:
    model_id = read_manifest(generation_folder(root, 1)).model.id
    evaluation = Evaluation(
        generation=1,
        model_id=model_id,
        data="data",
        split=None,
        images=1,
        texts=1,
        measured_at_s=1.0,
        figures={},
    )
    store_evaluation(root, evaluation)
    assert read_history(root).generations[0].evaluations == [evaluation]


def test_what_is_damaged_is_named_and_hides_nothing_else(root: Path, writer: ChangesWriter) -> None:
    writer.delete("images", ["b"])
    compact_index(root)
    compact_index(root)
    evaluations_file(root, 2).parent.mkdir()
    evaluations_file(root, 2).write_text("{")
    (generation_folder(root, 1) / MANIFEST).write_text("{}")
    writer.delete("texts", ["t"])
    writer.close()
    changes_database(root, 2, "texts").write_bytes(b"no database, and long enough to be looked at")
    for suffix in ("-wal", "-shm"):
        file = changes_database(root, 2, "texts")
        file.with_name(file.name + suffix).unlink(missing_ok=True)
    history = read_history(root)
    assert [record.manifest.generation for record in history.generations] == [2]
    assert history.generations[0].pending == {}
    assert history.generations[0].evaluations == []
    names = [each.name for each in history.damaged]
    assert names == [
        "changes/000002",
        "evaluations/000002.json",
        "generations/000001/manifest.json",
    ]
    assert history.damaged[1].reason == "no evaluations"
    assert not any(str(root) in each.reason for each in history.damaged)


def test_a_generation_without_a_manifest_is_damaged(root: Path, writer: ChangesWriter) -> None:
    writer.delete("images", ["b"])
    compact_index(root)
    (generation_folder(root, 1) / MANIFEST).unlink()
    history = read_history(root)
    assert history.damaged == [DamagedFile("generations/000001/manifest.json", "missing")]


def test_without_an_index_there_is_no_history(tmp_path: Path) -> None:
    with pytest.raises(IndexNotReadyError):
        read_history(tmp_path)


def test_built_added_deleted_and_live_add_up(
    root: Path, writer: ChangesWriter, made_up: MakeItems
) -> None:
    def counts() -> ItemCounts:
        with open_index(root) as index:
            counted = count_items(index.side("images"))
            assert counted.live == len(dict(index.side("images").items.ids()))
        assert counted.built + counted.added - counted.deleted == counted.live
        return counted

    assert counts() == (4, 0, 0, 4)
    writer.add("images", made_up(["e", "f", "g"]), "error")
    writer.delete("images", ["f", "a"])  # an added one, and one of the build
    assert counts() == (4, 2, 1, 5)
    writer.add("images", made_up(["b", "e"], seed=2), "replace")
    assert counts() == (4, 3, 2, 5)


def test_every_file_counts_once(root: Path, writer: ChangesWriter, made_up: MakeItems) -> None:
    manifest = read_manifest(generation_folder(root, 1))
    parts = disk_use(root, manifest)
    files = [file for file in root.rglob("*") if file.is_file()]
    beside = {CURRENT, ".lock", ".changes.lock", MANIFEST, "manifest.sha256"}
    known = sum(file.stat().st_size for file in files if file.name not in beside)
    assert sum(parts.values()) == known
    assert (
        parts["images: embeddings"]
        == (generation_folder(root, 1) / "images" / "embeddings.npy").stat().st_size
    )
    assert "changes" not in parts
    writer.add("images", made_up(["e"]), "error")
    assert disk_use(root, manifest)["changes"] > 0


def test_files_that_generations_share_are_of_one(root: Path) -> None:
    first = generation_folder(root, 1)
    second = generation_folder(root, 2)
    for file in sorted(first.rglob("*")):
        copy = second / file.relative_to(first)
        copy.parent.mkdir(parents=True, exist_ok=True)
        if file.is_file():
            os.link(file, copy)
    (second / "own").write_bytes(b"12345")
    manifest = read_manifest(first)
    assert disk_use(root, manifest)["other generations"] == 5
