import contextlib
import dataclasses
import json
import shutil
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from aladin_index.building.builder import build_index
from aladin_index.changes.writer import ChangesWriter
from aladin_index.encode.encoded import ItemBatch
from aladin_index.encode.source_items import ImageItem, TextItem
from aladin_index.format.layout import generation_folder, published_generations
from aladin_index.format.manifest import read_manifest
from aladin_index.generations.merge import check_ids_differ, merge_indexes
from aladin_index.generations.published import store_calibration
from aladin_index.generations.reader import open_index
from aladin_index.generations.verify import verify_index
from aladin_index.search.collection import FirstStageQuery
from aladin_index.settings import BuildSettings
from aladin_network.calibration.calibration import Calibration
from aladin_network.checkpoint_files import read_model_id
from aladin_network.errors import IndexMismatchError, IndexNotReadyError, InputError
from aladin_network.types import NullProgress
from tests.index.written import contents

MakeItems = Callable[..., ItemBatch]
SETTINGS = BuildSettings(shard_items=6, batch_size=3, token_dtype="int8")


def files(index: Path) -> dict[str, bytes]:
    """All files of the live generation of a new index but its manifest."""
    folder = generation_folder(index, 1)
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file() and "manifest" not in path.name
    }


def test_the_parts_of_a_source_make_the_whole(
    tmp_path: Path, tiny_checkpoint: Path, images: list[ImageItem], texts: list[TextItem]
) -> None:
    broken = ImageItem(id="broken", path=tmp_path / "none", uri="none")
    photos = [*images[:7], broken, *images[7:]]
    # The other forms are rounded with what the queries of each part are like.
    whole = dataclasses.replace(SETTINGS, token_dtype="float16")
    build_index(tiny_checkpoint, tmp_path / "whole", photos, texts, whole)
    parts: list[Path] = []
    for number in (1, 2, 3):
        parts.append(tmp_path / f"part {number}")
        settings = dataclasses.replace(whole, part=(number, 3), shards=number)
        build_index(tiny_checkpoint, parts[-1], iter(photos), iter(texts), settings)
    merged = tmp_path / "merged"
    report = merge_indexes(parts, merged)
    assert (report.generation, report.counts) == (1, {"images": 23, "texts": 16})
    assert files(merged) == files(tmp_path / "whole")
    verify_index(merged)
    assert {path.name for path in merged.iterdir() if path.is_dir()} == {"generations", "model"}
    merge_indexes(parts, tmp_path / "again")  # and elsewhere: the same
    assert (generation_folder(merged, 1) / "manifest.json").read_bytes() == (
        generation_folder(tmp_path / "again", 1) / "manifest.json"
    ).read_bytes()
    assert merge_indexes(parts, merged).generation == 2
    skipped = generation_folder(merged, 1) / "images" / "skipped.json"
    assert [item_id for item_id, _ in json.loads(skipped.read_text())] == ["broken"]
    shutil.rmtree(parts[0])
    verify_index(merged)  # which needs the parts no more


@pytest.mark.parametrize("dtype", ["float16", "int8", "4bit"])
def test_tokens_are_as_they_were_in_the_parts_and_the_whole_is_searched(
    tmp_path: Path, made_up: MakeItems, write_made_up: Callable[..., int], dtype: Any
) -> None:
    parts = [tmp_path / "a", tmp_path / "b"]
    settings = BuildSettings(filter_fields=("n",))
    texts = made_up(["s", "t"])
    write_made_up(parts[0], dtype, images=made_up(list("abcd"), n=[1, 2, 3, 4]), settings=settings)
    write_made_up(parts[1], dtype, images=made_up(["e", "f"]), texts=texts, settings=settings)
    merge_indexes(parts, tmp_path / "merged")
    expected = contents(parts[0], "images") | contents(parts[1], "images")
    assert contents(tmp_path / "merged", "images") == expected
    assert contents(tmp_path / "merged", "texts") == contents(parts[1], "texts")
    with open_index(tmp_path / "merged") as opened:
        collection = opened.collection("images")
        assert collection.entry.filter_fields == ["n"]
        for row in dict(collection.items.ids()).values():
            assert collection.order(
                FirstStageQuery(collection.embedding(row), 1, 1)
            ).rows.tolist() == [row]
        if dtype == "4bit":
            books = [np.load(generation_folder(part, 1) / "images/centroids.npy") for part in parts]
            merged = np.load(generation_folder(tmp_path / "merged", 1) / "images/centroids.npy")
            np.testing.assert_array_equal(merged, np.concatenate(books))


def test_additions_to_a_part_and_deletions_from_it_count(
    tmp_path: Path, made_up: MakeItems, write_made_up: Callable[..., int]
) -> None:
    parts = [tmp_path / "a", tmp_path / "b"]
    write_made_up(parts[0], images=made_up(list("abcdef")))
    write_made_up(parts[1], images=made_up(list("ghi")))
    model_id = read_model_id(parts[0] / "model")
    with closing(ChangesWriter(parts[0], model_id)) as writer:
        writer.delete("images", ["a", "e"])
        writer.add("images", made_up(["x", "y"]), "error")
    # Removed there, so that it is in one part alone; a removed id may come from another part.
    with closing(ChangesWriter(parts[1], model_id)) as writer:
        writer.add("images", made_up(["a"], seed=1), "error")
    expected = contents(parts[0], "images") | contents(parts[1], "images")
    assert merge_indexes(parts, tmp_path / "merged").counts == {"images": 10}
    merged = contents(tmp_path / "merged", "images")
    assert merged == expected
    assert "".join(merged) == "bcdfxyghia"


@pytest.mark.parametrize(
    ("parts", "out", "kind", "message"),
    [
        ([], "out", InputError, "at least one index"),
        (["one", "two"], "two", InputError, "one of the indexes to merge"),
        (["one", "none"], "out", IndexNotReadyError, "no index here"),
        (["one", "two"], "out", InputError, r"images: id 'd' is in .*one and in .*two"),
        (["one", "one"], "out", InputError, "one: given twice"),
        (
            ["one", "float16"],
            "out",
            IndexMismatchError,
            r"float16: images: tokens .*expected int8, got fl",
        ),
    ],
)
def test_parts_that_do_not_belong_together_are_refused(
    small_parts: Path, parts: list[str], out: str, kind: type[Exception], message: str
) -> None:
    before = published_generations(small_parts / out)
    with pytest.raises(kind, match=message):
        merge_indexes([small_parts / part for part in parts], small_parts / out)
    assert published_generations(small_parts / out) == before


@pytest.fixture(scope="module")
def small_parts(
    tmp_path_factory: pytest.TempPathFactory,
    made_up: MakeItems,
    write_made_up: Callable[..., int],
) -> Path:
    """Indexes that share an item, or have another form of tokens."""
    root = tmp_path_factory.mktemp("parts")
    write_made_up(root / "one", "int8", images=made_up(list("abcd")))
    write_made_up(root / "two", "int8", images=made_up(list("de")), texts=made_up(["t"]))
    write_made_up(root / "float16", images=made_up(["f"]))
    return root


def test_another_model_is_refused(
    tmp_path: Path,
    new_checkpoint: Path,
    texts: list[TextItem],
    made_up: MakeItems,
    write_made_up: Callable[..., int],
) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    write_made_up(one, images=made_up(["a"]))
    build_index(new_checkpoint, two, None, texts[:2])
    with pytest.raises(IndexMismatchError, match=r"two: model of .*one: expected .*, got "):
        merge_indexes([one, two], tmp_path / "out")
    with pytest.raises(IndexMismatchError, match="model"):
        merge_indexes([one], two)
    assert not (tmp_path / "out").exists()


def test_a_calibration_stays_where_all_parts_have_the_same(
    tmp_path: Path,
    made_up: MakeItems,
    write_made_up: Callable[..., int],
    make_calibration: Callable[..., Calibration],
) -> None:
    parts = [tmp_path / name for name in "abc"]
    for part, photos in zip(parts, (40, 40, 50), strict=True):
        write_made_up(part, images=made_up([part.name]))
        store_calibration(part, make_calibration(read_model_id(part / "model"), photos))
    for merged, kept in ((parts[:2], True), (parts, False)):
        out = tmp_path / f"of {len(merged)}"
        merge_indexes(merged, out)
        found = read_manifest(generation_folder(out, 1)).calibration
        expected = read_manifest(generation_folder(parts[0], 2)).calibration
        assert found == (expected if kept else None)


def test_ids_in_two_indexes_are_named_with_both_wherever_they_are(tmp_path: Path) -> None:
    names = [Path("one"), Path("two"), Path("three")]
    last = [f"other {row}" for row in range(2500)]
    lists = [["a", "A", "a ", "ä"], [str(row) for row in range(10)], last]
    for place in (None, 0, 999, 1000, 2499):
        if place is not None:
            lists[2] = [*last[:place], "7", *last[place + 1 :]]
        ids = {name: iter(each) for name, each in zip(names, lists, strict=True)}
        expected: Any = contextlib.nullcontext()
        if place is not None:
            expected = pytest.raises(InputError, match="texts: id '7' is in two and in three")
        with expected:
            check_ids_differ(tmp_path, "texts", ids, NullProgress())
        assert list(tmp_path.iterdir()) == []
