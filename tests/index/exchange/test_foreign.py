"""Folders that clip-retrieval's inference, or a user's own program, has written."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from aladin_index.exchange.importer import import_index
from aladin_index.generations.reader import open_index
from aladin_index.items.tables import StoredItem
from aladin_index.search.evidence import score_pair
from aladin_index.search.query import Term
from aladin_index.search.searcher import TwoStageSearcher
from aladin_index.settings import BuildSettings
from aladin_network.errors import DataError, IndexMismatchError, InputError
from aladin_network.types import Target
from tests.index.contract_items import made_up_query
from tests.index.searching import run_search
from tests.index.vectors import unit_vectors

WriteFolder = Callable[..., Path]
EMB, META = "img_emb/img_emb_0.npy", "metadata/metadata_0.parquet"
TOKENS, LENGTHS = "img_tokens/img_tokens_0.npy", "img_tokens/img_lengths_0.npy"


def items(index: Path, target: Target) -> list[StoredItem]:
    """All items of an index, by row."""
    with open_index(index, encodes=False) as opened:
        return opened.collection(target).items.by_rows(range(opened.collection(target).count))


def test_clip_retrievals_own_output_is_imported_and_searched_without_tokens(
    tmp_path: Path, tiny_checkpoint: Path, write_folder: WriteFolder
) -> None:
    photos, captions = unit_vectors(5), unit_vectors(5, seed=1)
    columns = {
        "image_path": ["/photos/a.jpg", "b.jpg", "c.jpg", "d.jpg", "e.jpg"],
        "caption": ["a dog", "", "a cat", "a bird", None],
        "url": ["http://host/a", None, "http://host/c", "http://host/d", "http://host/e"],
        "width": [640, 320, 200, 1, 2],
    }
    arrays: dict[str, np.ndarray] = {}
    tables: dict[str, Any] = {}
    for part, rows in enumerate((slice(3), slice(3, 5))):
        arrays[f"img_emb/img_emb_{part}.npy"] = photos[rows].astype(np.float16)
        arrays[f"text_emb/text_emb_{part}.npy"] = captions[rows].astype(np.float16)
        tables[f"metadata/metadata_{part}.parquet"] = {k: v[rows] for k, v in columns.items()}
    index = tmp_path / "index"
    folder = write_folder(arrays, tables)
    report = import_index(folder, tiny_checkpoint, index, BuildSettings(ann="exact"))
    assert report.counts == {"images": 5, "texts": 3}
    assert report.skipped == [("b.jpg#0", "has no caption"), ("e.jpg#0", "has no caption")]
    found = items(index, "images")
    assert [item.id for item in found] == columns["image_path"]
    # Nobody knows from which folder a path is to be counted.
    assert (found[0].path, found[1].path) == ("/photos/a.jpg", None)
    assert (found[0].text, found[1].text) == ("a dog", None)
    assert found[0].metadata == {"url": "http://host/a", "width": 640}
    assert [(item.id, item.text, item.image_id) for item in items(index, "texts")] == [
        ("/photos/a.jpg#0", "a dog", "/photos/a.jpg"),
        ("c.jpg#0", "a cat", "c.jpg"),
        ("d.jpg#0", "a bird", "d.jpg"),
    ]
    query = made_up_query(np.random.default_rng(0))
    with open_index(index) as opened:
        assert opened.images is not None and opened.texts is not None
        norms = np.linalg.norm(opened.images.embeddings, axis=1)
        np.testing.assert_allclose(norms, 1, atol=1e-6)  # float16 had rounded them
        np.testing.assert_allclose(opened.images.embeddings, photos, atol=1e-3)
        np.testing.assert_allclose(opened.texts.embeddings, captions[[0, 2, 3]], atol=1e-3)
        result = run_search(TwoStageSearcher(opened), query, "text", "images", k=30)
        collection, model = opened.collection("images"), opened.checkpoint.model
        with pytest.raises(InputError, match="imported without tokens"):
            score_pair(model, Term(query, "text", "a dog"), collection, found[0])
    assert (result.reranked, result.degraded) == (False, ["rerank"])
    order = np.argsort(-(photos @ query.embedding[0]))
    assert [hit.id for hit in result.hits] == [columns["image_path"][row] for row in order]


@pytest.mark.parametrize(
    ("lengths", "dtype"),
    [([2, 4, 1], np.float16), ([2, 4, 1], np.float32), ([0, 0, 0], np.float16)],
)
def test_tokens_of_a_users_own_program(
    tmp_path: Path,
    tiny_checkpoint: Path,
    write_folder: WriteFolder,
    lengths: list[int],
    dtype: type,
) -> None:
    tokens = unit_vectors(sum(lengths), dim=8)
    folder = write_folder(
        {EMB: unit_vectors(3), TOKENS: tokens.astype(dtype), LENGTHS: np.array(lengths)},
        {META: {"id": ["x", "y", "z"], "image_path": ["1", "2", "3"]}},
    )
    # Without a token there is nothing that 4 bits could be learnt from.
    form = None if sum(lengths) else "4bit"
    import_index(folder, tiny_checkpoint, tmp_path / "index", token_dtype=form)
    with open_index(tmp_path / "index", encodes=False) as opened:
        collection = opened.collection("images")
        assert [item.id for item in collection.items.by_rows([0, 1, 2])] == ["x", "y", "z"]
        assert (collection.has_tokens, collection.entry.token_dtype) == (len(tokens) > 0, "float16")
        if len(tokens):
            np.testing.assert_array_equal(collection.tokens(1), tokens[2:6].astype(np.float16))


def test_texts_of_their_own_and_parts_in_the_order_of_their_numbers(
    tmp_path: Path, tiny_checkpoint: Path, write_folder: WriteFolder
) -> None:
    photos = unit_vectors(11)
    arrays = {f"img_emb/img_emb_{row}.npy": photos[[row]] for row in range(11)}
    arrays["texts/text_emb/text_emb_0.npy"] = unit_vectors(2)
    tables = {f"metadata/metadata_{n}.parquet": {"image_path": [f"{n}.jpg"]} for n in range(11)}
    tables["texts/metadata/metadata_0.parquet"] = {"id": ["s", "t"], "caption": ["a dog", "a cat"]}
    import_index(write_folder(arrays, tables), tiny_checkpoint, tmp_path / "index")
    found = items(tmp_path / "index", "images")
    assert [item.id for item in found] == [f"{row}.jpg" for row in range(11)]
    found = items(tmp_path / "index", "texts")
    assert [(item.id, item.text) for item in found] == [("s", "a dog"), ("t", "a cat")]


def damaged(photos: np.ndarray, row: int, value: object) -> np.ndarray:
    """A copy with one row that is `value`."""
    copy = photos.copy()
    copy[row] = value
    return copy


GOOD, WORDS, COUNTS = unit_vectors(4), unit_vectors(6, dim=8), np.array([1, 2, 0, 3])
PATHS = {META: {"image_path": ["a", "b", "c", "d"]}}
TEXTS = {"text_emb/text_emb_0.npy": GOOD}
TWICE, CONTROL = ["a", "b", "a", "d"], ["a", "b", "c\nd", "e"]
Case = tuple[dict[str, np.ndarray], dict[str, dict[str, list[str]]], type[Exception], str]
# Arrays, tables, and what is said of them.
FAULTS: list[Case] = [
    ({EMB: unit_vectors(4, dim=512)}, {}, IndexMismatchError, "embedding: expected 16, got 512"),
    ({EMB: GOOD * 3}, {}, DataError, "row 0: expected a vector of norm 1, got one of 3$"),
    ({EMB: damaged(GOOD, 2, 0)}, {}, DataError, "row 2: expected .* norm 1, got one of 0$"),
    ({EMB: damaged(GOOD, 3, np.nan)}, {}, DataError, "row 3: .* got one of nan"),
    ({EMB: damaged(GOOD, 1, np.inf)}, {}, DataError, "row 1: .* got one of inf"),
    ({EMB: GOOD.astype(int)}, {}, DataError, "expected float32 or float16, got int64"),
    ({EMB: GOOD[0]}, {}, DataError, "expected 2 dimensions, got 1"),
    ({EMB: GOOD}, {META: {"image_path": TWICE[:3]}}, DataError, r"0\.parquet: expected 4 .* got 3"),
    ({EMB: GOOD}, {META: {"image_path": TWICE}}, InputError, "'a' repeats, row 2 after row 0"),
    ({EMB: GOOD}, {META: {"image_path": CONTROL}}, InputError, r"control characters, got 'c\\nd'"),
    ({EMB: GOOD, "img_emb/img_emb_1.npy": GOOD}, PATHS, DataError, r"1\.parquet: cannot be read"),
    ({EMB: GOOD, "img_emb/img_emb_00.npy": GOOD}, {}, DataError, "00? and 00? have the same num"),
    ({EMB: GOOD, TOKENS: WORDS, LENGTHS: COUNTS[:3]}, {}, DataError, r"lengths_0.* 4 .* got 3"),
    ({EMB: GOOD, TOKENS: WORDS, LENGTHS: COUNTS + 1}, {}, DataError, "6 tokens, as .* got 10"),
    ({EMB: GOOD, TOKENS: WORDS, LENGTHS: COUNTS - [0, 3, 0, 0]}, {}, DataError, "the least -1"),
    ({EMB: GOOD, TOKENS: WORDS}, {}, DataError, r"img_lengths_0\.npy: cannot be read"),
    (
        {EMB: GOOD, TOKENS: unit_vectors(6, dim=128), LENGTHS: COUNTS},
        {},
        IndexMismatchError,
        "size of a token: expected 8, got 128",
    ),
    (
        {EMB: GOOD, TOKENS: damaged(WORDS, 4, 1), LENGTHS: COUNTS},
        {},
        DataError,
        r"img_tokens_0\.npy: token 4: expected a norm of 1, got 2\.828",
    ),
    (TEXTS, {}, DataError, "missing, and with it the texts"),
    ({"other/a.npy": GOOD}, {}, DataError, "holds no embeddings"),
    (TEXTS | {"texts/text_emb/text_emb_0.npy": GOOD}, {}, DataError, "has texts in two places"),
]


@pytest.mark.parametrize(
    ("arrays", "tables", "kind", "reason"), FAULTS, ids=[case[3] for case in FAULTS]
)
def test_each_fault_is_one_clear_error_and_leaves_no_index(
    tmp_path: Path,
    tiny_checkpoint: Path,
    write_folder: WriteFolder,
    arrays: dict[str, np.ndarray],
    tables: dict[str, dict[str, list[str]]],
    kind: type[Exception],
    reason: str,
) -> None:
    with pytest.raises(kind, match=reason):
        import_index(write_folder(arrays, tables), tiny_checkpoint, tmp_path / "index")
    assert not (tmp_path / "index" / "CURRENT").exists()


def test_a_failed_import_leaves_the_live_generation(
    tmp_path: Path, tiny_checkpoint: Path, write_folder: WriteFolder
) -> None:
    index, folder = tmp_path / "index", write_folder({EMB: GOOD})
    import_index(folder, tiny_checkpoint, index)
    np.save(folder / EMB, damaged(GOOD, 3, 0))
    for failing in (folder, tmp_path / "none"):
        with pytest.raises(DataError):
            import_index(failing, tiny_checkpoint, index)
    assert [item.id for item in items(index, "images")] == ["0", "1", "2", "3"]
    np.save(folder / EMB, unit_vectors(2))
    assert import_index(folder, tiny_checkpoint, index).counts == {"images": 2}
    assert [item.id for item in items(index, "images")] == ["0", "1"]
