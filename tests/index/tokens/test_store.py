import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from aladin_index.format.npy import write_npy
from aladin_index.kernel import blocks_read, load_kernel
from aladin_index.tokens.codec import PackedTokens, TokenCodec
from aladin_index.tokens.maxsim import alignment_with_candidates
from aladin_index.tokens.store import (
    CENTROIDS,
    FILE_OF,
    OFFSETS,
    TOKENS,
    TokenStore,
    token_files,
)
from aladin_network.errors import IndexCorruptError, ShapeError
from aladin_network.types import TOKEN_DTYPES
from tests.index.vectors import unit_vectors

LENGTHS = [3, 0, 1, 5, 0, 2]
COUNT, TOTAL, DIM = len(LENGTHS), sum(LENGTHS), 8


def write(folder: Path, dtype: Any) -> list[NDArray[np.float32]]:
    """Write six items, and return the tokens of each."""
    flat = unit_vectors(TOTAL, DIM)
    codec = TokenCodec.train(dtype, flat)
    packed = codec.pack(flat)
    for array in codec.arrays:
        values = getattr(packed, array.field)
        write_npy(folder / FILE_OF[array.field], array.dtype, values.shape, [values])
    if codec.centroids is not None:
        np.save(folder / CENTROIDS, codec.centroids)
    offsets = np.cumsum([0, *LENGTHS])
    write_npy(folder / OFFSETS, np.int64, offsets.shape, [offsets])
    return np.split(codec.unpack(packed), offsets[1:-1])


def open_store(folder: Path, dtype: Any) -> TokenStore:
    return TokenStore.open(folder, COUNT, TOTAL, DIM, dtype)


@pytest.mark.parametrize("dtype", TOKEN_DTYPES)
def test_items_come_back_in_the_order_asked_for(tmp_path: Path, dtype: Any) -> None:
    items = write(tmp_path, dtype)
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(
        [*token_files(dtype), OFFSETS]
    )
    store = open_store(tmp_path, dtype)
    rows = np.array([5, 0, 1, 3, 0])
    block = store.read(rows)
    assert store.count == COUNT
    assert block.lengths.tolist() == store.lengths(rows).tolist() == [2, 3, 0, 5, 3]
    expected = np.concatenate([items[row] for row in rows])
    np.testing.assert_allclose(block.values, expected, rtol=1e-6)
    packed = store.packed(rows)
    assert packed.count == 13
    np.testing.assert_allclose(store.codec.unpack(packed), expected, rtol=1e-6)

    for none in ([], [1], [4, 1]):  # items without tokens
        block = store.read(np.array(none, dtype=np.int64))
        assert (block.values.shape, block.lengths.tolist()) == ((0, DIM), [0] * len(none))
    every = np.arange(COUNT)
    held = TokenStore.from_arrays(store.codec, store.packed(every), LENGTHS)
    np.testing.assert_array_equal(held.read(every).values, store.read(every).values)
    assert held.lengths(every).tolist() == LENGTHS


@pytest.mark.parametrize(
    ("form", "stored", "lengths", "message"),
    [
        ("float16", np.float16, [1, 1, 1], r"2 tokens in all, got 3 by the lengths"),
        # The kernel would read other memory than the arrays'.
        ("float16", np.float32, [2], r"values float16 \(2, 8\), got float32"),
        ("int8", np.int8, [2], r"scales float32 \(2,\), got nothing"),
    ],
)
def test_arrays_have_to_be_of_the_form(
    form: Any, stored: Any, lengths: list[int], message: str
) -> None:
    with pytest.raises(ShapeError, match=message):
        packed = PackedTokens(np.zeros((2, DIM), dtype=stored))
        TokenStore.from_arrays(TokenCodec(form, DIM), packed, lengths)


@pytest.mark.parametrize(
    ("offsets", "message"),
    [
        (list(range(7)), r"offsets\.npy: expected 0 to 11, got 0 to 6"),
        *(([0, 2, middle, 6, 7, 8, 11], "ends before it begins") for middle in (7, 2**62, -1)),
    ],
)
def test_offsets_of_other_tokens_are_named(
    tmp_path: Path, offsets: list[int], message: str
) -> None:
    write(tmp_path, "float16")
    write_npy(tmp_path / OFFSETS, np.int64, (7,), [np.array(offsets)])
    with pytest.raises(IndexCorruptError, match=message):
        open_store(tmp_path, "float16")


def test_files_of_another_form_are_named(tmp_path: Path) -> None:
    write(tmp_path, "4bit")
    with pytest.raises(IndexCorruptError, match=r"tokens\.npy: expected int8 .*, got uint8"):
        open_store(tmp_path, "int8")
    np.save(tmp_path / CENTROIDS, np.zeros((2, DIM + 1), dtype=np.float32))
    with pytest.raises(IndexCorruptError, match=r"centroids\.npy: expected shape"):
        open_store(tmp_path, "4bit")
    (tmp_path / CENTROIDS).write_bytes(b"no array")
    with pytest.raises(IndexCorruptError, match=r"centroids\.npy: not a readable array"):
        open_store(tmp_path, "4bit")


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[NDArray[Any]]:
    """Parts of arrays that the store asks the system for."""
    parts: list[NDArray[Any]] = []

    def ask(array: NDArray[Any], starts: Sequence[int], stops: Sequence[int]) -> None:
        parts.extend(array[start:stop] for start, stop in zip(starts, stops, strict=True))

    monkeypatch.setattr("aladin_index.tokens.store.read_ahead", ask)
    return parts


def test_warming_asks_for_the_pages_of_the_rows(
    tmp_path: Path, asked: list[NDArray[Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    items = write(tmp_path, "int8")
    store = open_store(tmp_path, "int8")
    store.warm(2, 4)
    assert [part.shape for part in asked] == [(6, DIM), (6,)]
    np.testing.assert_array_equal(asked[0], store.stored.values[3:9])
    asked.clear()
    store.warm(4, 5)  # an item without tokens
    assert [len(part) for part in asked] == [0, 0]
    asked.clear()
    store.warm()
    assert [len(part) for part in asked] == [TOTAL, TOTAL]
    monkeypatch.undo()
    # Asking changes nothing, whether the arrays lie in a file or in memory.
    store.warm()
    store.warm(4, 5)
    TokenStore.from_arrays(store.codec, store.packed(np.arange(COUNT)), LENGTHS).warm()
    np.testing.assert_allclose(store.read(np.array([3])).values, items[3], rtol=1e-6)
    assert (tmp_path / TOKENS).stat().st_size > 0


@pytest.mark.skipif(load_kernel() is None, reason="the native kernel was not compiled")
def test_candidates_are_read_ahead_at_first_and_while_they_come_from_a_disk(
    tmp_path: Path, asked: list[NDArray[Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path, "int8")
    store = open_store(tmp_path, "int8")
    blocks = iter([0, 8, 8, 16, 16, 16, 16, 16])  # before and after each call
    monkeypatch.setattr("aladin_index.tokens.maxsim.blocks_read", lambda: next(blocks))
    query, rows = unit_vectors(2, DIM), np.array([3, 0], dtype=np.int64)
    parts: list[int] = []
    scores: list[NDArray[np.float32]] = []
    for _ in range(4):
        scores.append(alignment_with_candidates(query, "text", store, rows))
        parts.append(len(asked))
        asked.clear()
    # The values and the scales of both items.
    assert parts == [4, 4, 4, 0]
    assert not store.is_cold
    for each in scores:
        np.testing.assert_array_equal(each, scores[0])


def test_rows_are_read_ahead_item_by_item(tmp_path: Path, asked: list[NDArray[Any]]) -> None:
    write(tmp_path, "int8")
    store = open_store(tmp_path, "int8")
    store.warm_rows(np.array([3, -1, 2, COUNT], dtype=np.int64))
    starts = store.offsets
    assert [len(part) for part in asked] == 2 * [starts[4] - starts[3], starts[3] - starts[2]]
    np.testing.assert_array_equal(asked[0], store.stored.values[starts[3] : starts[4]])


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux counts a thread's blocks")
def test_blocks_that_are_read_are_counted(tmp_path: Path) -> None:
    before = blocks_read()
    assert before >= 0
    (tmp_path / "file").write_bytes(bytes(2**16))
    assert (tmp_path / "file").read_bytes() == bytes(2**16)  # from the page cache
    assert blocks_read() == before
