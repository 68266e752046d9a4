import dataclasses
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from aladin_index.building.builder import build_index
from aladin_index.changes.writer import ChangesWriter
from aladin_index.encode.item_changer import add_items
from aladin_index.encode.source_items import ImageItem, TextItem
from aladin_index.format.layout import generation_folder, published_generations
from aladin_index.generations.merge import merge_indexes
from aladin_index.generations.reader import open_index
from aladin_index.generations.verify import verify_index
from aladin_index.search.collection import FirstStageQuery
from aladin_index.settings import AddSettings, BuildSettings
from aladin_network.calibration.calibration import Calibration, write_calibration
from aladin_network.checkpoint import load_checkpoint, save_checkpoint
from aladin_network.errors import IndexMismatchError, IndexNotReadyError, InputError

SETTINGS = BuildSettings(shard_items=6, batch_size=3, token_dtype="int8")


def files(index: Path) -> dict[str, bytes]:
    """All files of the live generation of a new index but its manifest."""
    folder = generation_folder(index, 1)
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file() and "manifest" not in path.name
    }


def contents(index: Path, target: Any) -> dict[str, tuple[Any, ...]]:
    """All live items of an index by rows: what was said of each, embedding and tokens."""
    with open_index(index) as opened:
        collection = opened.collection(target)
        rows = dict(collection.items.ids())
        return {
            item_id: (
                collection.items.by_rows([row])[0]._replace(row=0),
                collection.embedding(row).tolist(),
                collection.tokens(row).tolist(),
            )
            for item_id, row in sorted(rows.items(), key=lambda entry: entry[1])
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
    # Again, and elsewhere: the same.
    merge_indexes(parts, tmp_path / "again")
    manifests = [
        generation_folder(out, 1) / "manifest.json" for out in (merged, tmp_path / "again")
    ]
    assert manifests[0].read_bytes() == manifests[1].read_bytes()
    assert merge_indexes(parts, merged).generation == 2


@pytest.mark.parametrize("dtype", ["float16", "int8", "4bit"])
def test_tokens_are_as_they_were_in_the_parts(
    tmp_path: Path,
    tiny_checkpoint: Path,
    images: list[ImageItem],
    texts: list[TextItem],
    dtype: Any,
) -> None:
    settings = BuildSettings(token_dtype=dtype, filter_fields=("number",))
    parts = [tmp_path / "a", tmp_path / "b"]
    build_index(tiny_checkpoint, parts[0], images[:9], None, settings)
    build_index(tiny_checkpoint, parts[1], images[9:], texts, settings)
    merge_indexes(parts, tmp_path / "merged")
    expected = contents(parts[0], "images") | contents(parts[1], "images")
    assert contents(tmp_path / "merged", "images") == expected
    assert contents(tmp_path / "merged", "texts") == contents(parts[1], "texts")
    with open_index(tmp_path / "merged") as opened:
        assert opened.collection("images").entry.filter_fields == ["number"]
        if dtype == "4bit":
            books = [np.load(generation_folder(part, 1) / "images/centroids.npy") for part in parts]
            merged = np.load(generation_folder(tmp_path / "merged", 1) / "images/centroids.npy")
            np.testing.assert_array_equal(merged, np.concatenate(books))


def test_what_was_added_to_a_part_and_removed_from_it_counts(
    tmp_path: Path, tiny_checkpoint: Path, images: list[ImageItem]
) -> None:
    parts = [tmp_path / "a", tmp_path / "b"]
    build_index(tiny_checkpoint, parts[0], images[:6], None, SETTINGS)
    build_index(tiny_checkpoint, parts[1], images[6:12], None, SETTINGS)
    checkpoint = load_checkpoint(tiny_checkpoint)
    writer = ChangesWriter(parts[0], checkpoint.model_id)
    writer.delete("images", [images[0].id, images[4].id])
    add_items(writer, checkpoint.model, "images", images[12:15], AddSettings())
    writer.close()
    writer = ChangesWriter(parts[1], checkpoint.model_id)
    # Removed there, so that it is in one part alone; a removed id may come from another part.
    add_items(writer, checkpoint.model, "images", [images[0]], AddSettings())
    writer.close()
    expected = contents(parts[0], "images") | contents(parts[1], "images")
    report = merge_indexes(parts, tmp_path / "merged")
    assert report.counts == {"images": 14}
    merged = contents(tmp_path / "merged", "images")
    assert merged == expected
    assert list(merged) == [
        item.id for item in (*images[1:4], images[5], *images[12:15], *images[6:12], images[0])
    ]


def test_a_merged_index_is_searched_as_a_whole(
    tmp_path: Path, tiny_checkpoint: Path, images: list[ImageItem], texts: list[TextItem]
) -> None:
    parts = [tmp_path / "a", tmp_path / "b"]
    build_index(tiny_checkpoint, parts[0], images[:12], texts[:3])
    build_index(tiny_checkpoint, parts[1], images[12:], texts[3:])
    merge_indexes(parts, tmp_path / "merged")
    with open_index(tmp_path / "merged") as opened:
        collection = opened.collection("images")
        for item in images:
            row = dict(collection.items.ids())[item.id]
            assert collection.order(
                FirstStageQuery(collection.embedding(row), 1, 1)
            ).rows.tolist() == [row]


def test_what_does_not_belong_together_is_refused(
    tmp_path: Path, tiny_checkpoint: Path, images: list[ImageItem], texts: list[TextItem]
) -> None:
    one, two, out = tmp_path / "one", tmp_path / "two", tmp_path / "out"
    build_index(tiny_checkpoint, one, images[:4], None, SETTINGS)
    with pytest.raises(InputError, match="at least one index"):
        merge_indexes([], out)
    with pytest.raises(InputError, match="one of the indexes to merge"):
        merge_indexes([one, two], two)
    with pytest.raises(IndexNotReadyError):
        merge_indexes([one, two], out)
    build_index(tiny_checkpoint, two, images[3:6], texts, SETTINGS)
    with pytest.raises(InputError, match=r"images: id 'photo 3' is in .*one and in .*two"):
        merge_indexes([one, two], out)
    with pytest.raises(InputError, match="one: given twice"):
        merge_indexes([one, one], out)
    float16 = tmp_path / "float16"
    build_index(tiny_checkpoint, float16, images[6:8], None, BuildSettings())
    with pytest.raises(
        IndexMismatchError, match=r"float16: images: tokens .*expected int8, got fl"
    ):
        merge_indexes([one, float16], out)
    assert published_generations(out) == []


def test_another_model_is_refused(
    tmp_path: Path, tiny_checkpoint: Path, images: list[ImageItem]
) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    build_index(tiny_checkpoint, one, images[:4], None, SETTINGS)
    model = load_checkpoint(tiny_checkpoint).model
    next(model.parameters()).data += 0.5
    save_checkpoint(tmp_path / "other", model)
    build_index(tmp_path / "other", two, images[4:8], None, SETTINGS)
    with pytest.raises(IndexMismatchError, match=r"two: model of .*one: expected .*, got "):
        merge_indexes([one, two], tmp_path / "out")
    with pytest.raises(IndexMismatchError, match="model"):
        merge_indexes([one], two)
    assert not (tmp_path / "out").exists()


def test_left_out_items_are_those_of_all_parts(
    tmp_path: Path, tiny_checkpoint: Path, images: list[ImageItem]
) -> None:
    parts = [tmp_path / "a", tmp_path / "b"]
    for part, name in zip(parts, ("x", "y"), strict=True):
        gone = ImageItem(id=name, path=tmp_path / name, uri=name)
        kept = images[0] if name == "x" else images[1]
        build_index(tiny_checkpoint, part, [gone, kept], None)
    merge_indexes(parts, tmp_path / "out")
    folder = generation_folder(tmp_path / "out", 1)
    skipped = json.loads((folder / "images" / "skipped.json").read_text())
    assert [item_id for item_id, _ in skipped] == ["x", "y"]
    shutil.rmtree(parts[0])
    verify_index(tmp_path / "out")  # which needs the parts no more


def test_a_calibration_stays_where_all_parts_have_the_same(
    tmp_path: Path,
    tiny_checkpoint: Path,
    images: list[ImageItem],
    make_calibration: Callable[..., Calibration],
) -> None:
    checkpoint = Path(shutil.copytree(tiny_checkpoint, tmp_path / "checkpoint"))
    model_id = load_checkpoint(checkpoint).model_id
    for number, photos in enumerate((40, 40, 50)):
        write_calibration(checkpoint, make_calibration(model_id, photos))
        part = images[2 * number : 2 * number + 2]
        build_index(checkpoint, tmp_path / f"part {number}", part, None, SETTINGS)
    same, other = [tmp_path / "part 0", tmp_path / "part 1"], tmp_path / "part 2"
    merge_indexes(same, tmp_path / "same")
    with open_index(tmp_path / "same") as index:
        assert index.manifest.calibration == make_calibration(model_id, 40)
    merge_indexes([*same, other], tmp_path / "different")
    with open_index(tmp_path / "different") as index:
        assert index.manifest.calibration is None
