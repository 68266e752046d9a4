"""Folders that clip-retrieval's inference, or a user's own program, has written."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from aladin_index.exchange.importer import import_index
from aladin_index.generations.reader import open_index
from aladin_index.items.tables import StoredItem
from aladin_index.search.searcher import TwoStageSearcher
from aladin_index.settings import BuildSettings
from aladin_network.checkpoint_files import Checkpoint
from aladin_network.errors import DataError, IndexMismatchError, InputError
from aladin_network.inference import encode_texts
from aladin_network.types import Target
from tests.index.searching import run_search
from tests.index.vectors import unit_vectors

WriteFolder = Callable[..., Path]


def items(index: Path, target: Target) -> list[StoredItem]:
    """All items of an index, by row."""
    with open_index(index, encodes=False) as opened:
        return opened.collection(target).items.by_rows(range(opened.collection(target).count))


def test_clip_retrievals_own_output(
    tmp_path: Path, tiny_checkpoint: Path, write_folder: WriteFolder
) -> None:
    photos, captions = unit_vectors(5), unit_vectors(5, seed=1)
    folder = write_folder(
        {
            "img_emb/img_emb_0.npy": photos[:3].astype(np.float16),
            "img_emb/img_emb_1.npy": photos[3:].astype(np.float16),
            "text_emb/text_emb_0.npy": captions[:3].astype(np.float16),
            "text_emb/text_emb_1.npy": captions[3:].astype(np.float16),
        },
        {
            "metadata/metadata_0.parquet": {
                "image_path": ["/photos/a.jpg", "b.jpg", "c.jpg"],
                "caption": ["a dog", "", "a cat"],
                "url": ["http://host/a", None, "http://host/c"],
                "width": [640, 320, 200],
            },
            "metadata/metadata_1.parquet": {
                "image_path": ["d.jpg", "e.jpg"],
                "caption": ["a bird", None],
                "url": ["http://host/d", "http://host/e"],
                "width": [1, 2],
            },
        },
    )
    index = tmp_path / "index"
    report = import_index(folder, tiny_checkpoint, index, BuildSettings(ann="exact"))
    assert report.counts == {"images": 5, "texts": 3}
    assert report.skipped == [("b.jpg#0", "has no caption"), ("e.jpg#0", "has no caption")]
    found = items(index, "images")
    assert [item.id for item in found] == ["/photos/a.jpg", "b.jpg", "c.jpg", "d.jpg", "e.jpg"]
    assert found[0].path == "/photos/a.jpg"
    assert found[1].path is None  # nobody knows from which folder it is to be counted
    assert (found[0].text, found[1].text) == ("a dog", None)
    assert found[0].metadata == {"url": "http://host/a", "width": 640}
    texts = items(index, "texts")
    assert [(item.id, item.text, item.image_id) for item in texts] == [
        ("/photos/a.jpg#0", "a dog", "/photos/a.jpg"),
        ("c.jpg#0", "a cat", "c.jpg"),
        ("d.jpg#0", "a bird", "d.jpg"),
    ]
    with open_index(index) as opened:
        assert opened.images is not None
        assert opened.texts is not None
        norms = np.linalg.norm(opened.images.embeddings, axis=1)
        np.testing.assert_allclose(norms, 1, atol=1e-6)  # float16 had rounded them
        np.testing.assert_allclose(opened.images.embeddings, photos, atol=1e-3)
        np.testing.assert_allclose(opened.texts.embeddings, captions[[0, 2, 3]], atol=1e-3)


def test_without_tokens_hits_are_ordered_by_embeddings_and_degraded(
    tmp_path: Path, tiny_checkpoint: Path, tiny: Checkpoint, write_folder: WriteFolder
) -> None:
    photos = unit_vectors(30)
    index = tmp_path / "index"
    import_index(write_folder({"img_emb/img_emb_0.npy": photos}), tiny_checkpoint, index)
    with torch.inference_mode():
        query = encode_texts(tiny.model, ["two dogs run"])
    with open_index(index) as opened:
        result = run_search(TwoStageSearcher(opened), query, "text", "images", k=30)
    assert (result.reranked, result.degraded) == (False, ["rerank"])
    cosines = photos @ query.embedding[0]
    assert [hit.id for hit in result.hits] == [str(row) for row in np.argsort(-cosines)]
    assert [hit.score for hit in result.hits] == pytest.approx(np.sort(cosines)[::-1], abs=1e-6)


@pytest.mark.parametrize("dtype", [np.float16, np.float32])
def test_tokens_of_a_users_own_program(
    tmp_path: Path,
    tiny_checkpoint: Path,
    write_folder: WriteFolder,
    dtype: type,
) -> None:
    tokens = unit_vectors(7, dim=8)
    folder = write_folder(
        {
            "img_emb/img_emb_0.npy": unit_vectors(3),
            "img_tokens/img_tokens_0.npy": tokens.astype(dtype),
            "img_tokens/img_lengths_0.npy": np.array([2, 4, 1], dtype=np.int32),
        },
        {"metadata/metadata_0.parquet": {"id": ["x", "y", "z"], "image_path": ["1", "2", "3"]}},
    )
    import_index(folder, tiny_checkpoint, tmp_path / "index")
    with open_index(tmp_path / "index") as opened:
        collection = opened.collection("images")
        assert [item.id for item in collection.items.by_rows([0, 1, 2])] == ["x", "y", "z"]
        np.testing.assert_array_equal(collection.tokens(1), tokens[2:6].astype(np.float16))
        assert collection.entry.token_dtype == "float16"


def test_items_without_a_token_of_their_own(
    tmp_path: Path, tiny_checkpoint: Path, write_folder: WriteFolder
) -> None:
    folder = write_folder(
        {
            "img_emb/img_emb_0.npy": unit_vectors(3),
            "img_tokens/img_tokens_0.npy": np.zeros((0, 8), dtype=np.float16),
            "img_tokens/img_lengths_0.npy": np.zeros(3, dtype=np.int64),
        }
    )
    import_index(folder, tiny_checkpoint, tmp_path / "index", token_dtype="4bit")
    with open_index(tmp_path / "index") as opened:
        assert not opened.collection("images").has_tokens
        assert opened.collection("images").entry.token_dtype == "float16"


def test_texts_of_their_own(
    tmp_path: Path, tiny_checkpoint: Path, write_folder: WriteFolder
) -> None:
    folder = write_folder(
        {"texts/text_emb/text_emb_0.npy": unit_vectors(2)},
        {"texts/metadata/metadata_0.parquet": {"id": ["s", "t"], "caption": ["a dog", "a cat"]}},
    )
    import_index(folder, tiny_checkpoint, tmp_path / "index")
    found = items(tmp_path / "index", "texts")
    assert [(item.id, item.text, item.image_id) for item in found] == [
        ("s", "a dog", None),
        ("t", "a cat", None),
    ]


def test_parts_are_in_the_order_of_their_numbers(
    tmp_path: Path, tiny_checkpoint: Path, write_folder: WriteFolder
) -> None:
    photos = unit_vectors(11)
    arrays = {f"img_emb/img_emb_{row}.npy": photos[[row]] for row in range(11)}
    tables = {
        f"metadata/metadata_{row}.parquet": {"image_path": [f"{row}.jpg"]} for row in range(11)
    }
    import_index(write_folder(arrays, tables), tiny_checkpoint, tmp_path / "index")
    assert [item.id for item in items(tmp_path / "index", "images")] == [
        f"{row}.jpg" for row in range(11)
    ]


def damaged(photos: np.ndarray, row: int, value: object) -> np.ndarray:
    """A copy with one row that is `value`."""
    copy = photos.copy()
    copy[row] = value
    return copy


def test_each_fault_is_one_clear_error(
    tmp_path: Path, tiny_checkpoint: Path, write_folder: WriteFolder
) -> None:
    good, tokens = unit_vectors(4), unit_vectors(6, dim=8)
    emb, meta = "img_emb/img_emb_0.npy", "metadata/metadata_0.parquet"
    values, lengths = "img_tokens/img_tokens_0.npy", "img_tokens/img_lengths_0.npy"
    four = {"image_path": ["a", "b", "c", "d"]}
    counts = np.array([1, 2, 0, 3])
    cases: list[tuple[dict[str, np.ndarray], dict[str, dict[str, list[str]]], type, str]] = [
        (
            {emb: unit_vectors(4, dim=512)},
            {},
            IndexMismatchError,
            "embedding: expected 16, got 512",
        ),
        ({emb: good * 3}, {}, DataError, "row 0: expected a vector of norm 1, got one of 3$"),
        (
            {emb: damaged(good, 2, 0)},
            {},
            DataError,
            "row 2: expected a vector of norm 1, got one of 0$",
        ),
        ({emb: damaged(good, 3, np.nan)}, {}, DataError, "row 3: .* got one of nan"),
        ({emb: damaged(good, 1, np.inf)}, {}, DataError, "row 1: .* got one of inf"),
        ({emb: good.astype(np.int64)}, {}, DataError, "expected float32 or float16, got int64"),
        ({emb: good[0]}, {}, DataError, "expected 2 dimensions, got 1"),
        (
            {emb: good},
            {meta: {"image_path": ["a", "b", "c"]}},
            DataError,
            r"metadata_0\.parquet: expected 4 rows, as img_emb_0\.npy has, got 3",
        ),
        (
            {emb: good},
            {meta: {"image_path": ["a", "b", "a", "d"]}},
            InputError,
            "id 'a' repeats, row 2 after row 0",
        ),
        (
            {emb: good},
            {meta: {"image_path": ["a", "b", "c\nd", "e"]}},
            InputError,
            r"expected an id without control characters, got 'c\\nd'",
        ),
        (
            {emb: good, "img_emb/img_emb_1.npy": good},
            {meta: four},
            DataError,
            r"metadata_1\.parquet: cannot be read as parquet",
        ),
        (
            {emb: good, "img_emb/img_emb_00.npy": good},
            {},
            DataError,
            "parts 00? and 00? have the same number",
        ),
        (
            {emb: good, values: tokens, lengths: counts[:3]},
            {meta: four},
            DataError,
            r"img_lengths_0\.npy: expected 4 rows, as img_emb_0\.npy has, got 3",
        ),
        (
            {emb: good, values: tokens, lengths: counts + 1},
            {meta: four},
            DataError,
            r"expected 6 tokens, as img_tokens_0\.npy has, got 10",
        ),
        (
            {emb: good, values: tokens, lengths: np.array([4, -1, 0, 3])},
            {meta: four},
            DataError,
            "got 6, the least -1",
        ),
        ({emb: good, values: tokens}, {}, DataError, r"img_lengths_0\.npy: cannot be read"),
        (
            {emb: good, values: unit_vectors(6, dim=128), lengths: counts},
            {},
            IndexMismatchError,
            "size of a token: expected 8, got 128",
        ),
        (
            {emb: good, values: damaged(tokens, 4, 1), lengths: counts},
            {},
            DataError,
            r"img_tokens_0\.npy: token 4: expected a norm of 1, got 2\.828",
        ),
        ({"text_emb/text_emb_0.npy": good}, {}, DataError, "missing, and with it the texts"),
        ({"other/a.npy": good}, {}, DataError, "holds no embeddings"),
        (
            {"text_emb/text_emb_0.npy": good, "texts/text_emb/text_emb_0.npy": good},
            {},
            DataError,
            "has texts in two places",
        ),
    ]
    for number, (arrays, tables, kind, reason) in enumerate(cases):
        folder = write_folder(arrays, tables).rename(tmp_path / f"case {number}")
        with pytest.raises(kind, match=reason):
            import_index(folder, tiny_checkpoint, tmp_path / "index")
        assert not (tmp_path / "index" / "CURRENT").exists(), reason


def test_a_folder_that_is_not_there(tmp_path: Path, tiny_checkpoint: Path) -> None:
    with pytest.raises(DataError, match="no such folder"):
        import_index(tmp_path / "none", tiny_checkpoint, tmp_path / "index")


def test_a_failed_import_leaves_the_live_generation(
    tmp_path: Path, tiny_checkpoint: Path, write_folder: WriteFolder
) -> None:
    good = unit_vectors(4)
    index = tmp_path / "index"
    folder = write_folder({"img_emb/img_emb_0.npy": good})
    import_index(folder, tiny_checkpoint, index)
    np.save(folder / "img_emb" / "img_emb_0.npy", damaged(good, 3, 0))
    with pytest.raises(DataError):
        import_index(folder, tiny_checkpoint, index)
    assert [item.id for item in items(index, "images")] == ["0", "1", "2", "3"]
    np.save(folder / "img_emb" / "img_emb_0.npy", unit_vectors(2))
    assert import_index(folder, tiny_checkpoint, index).counts == {"images": 2}
    assert [item.id for item in items(index, "images")] == ["0", "1"]
