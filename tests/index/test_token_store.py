from pathlib import Path

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from aladin.errors import IndexCorruptError
from index.npy import write_npy
from index.token_store import OFFSETS, SCALES, TOKENS, TokenStore, pack


def unit_vectors(count: int, dim: int, seed: int = 0) -> np.ndarray:
    """Random directions, float32."""
    generator = torch.Generator().manual_seed(seed)
    return F.normalize(torch.randn(count, dim, generator=generator), dim=1).numpy()


LENGTHS = [3, 0, 1, 5, 0, 2]


def write(folder: Path, dtype: str) -> list[np.ndarray]:
    """Write six items, and return the tokens of each."""
    flat = unit_vectors(sum(LENGTHS), 8)
    packed = pack(flat, dtype)  # type: ignore[arg-type]
    write_npy(folder / TOKENS, dtype, flat.shape, [packed.values])
    if packed.scales is not None:
        write_npy(folder / SCALES, np.float32, (len(flat),), [packed.scales])
    offsets = np.cumsum([0, *LENGTHS])
    write_npy(folder / OFFSETS, np.int64, offsets.shape, [offsets])
    return np.split(flat, offsets[1:-1])


@pytest.mark.parametrize(("dtype", "error"), [("float16", 5e-4), ("int8", 4e-3)])
def test_items_come_back_in_the_order_asked_for(tmp_path: Path, dtype: str, error: float) -> None:
    items = write(tmp_path, dtype)
    store = TokenStore.open(tmp_path, 6, sum(LENGTHS), 8, dtype)  # type: ignore[arg-type]
    rows = np.array([5, 0, 1, 3, 0])
    block = store.read(rows)
    assert block.lengths.tolist() == store.lengths(rows).tolist() == [2, 3, 0, 5, 3]
    expected = np.concatenate([items[row] for row in rows])
    np.testing.assert_allclose(block.tokens().numpy(), expected, atol=error)
    assert block.values.dtype == torch.float32


@pytest.mark.parametrize("rows", [[], [1], [4, 1]])
def test_items_without_tokens_give_none(tmp_path: Path, rows: list[int]) -> None:
    write(tmp_path, "float16")
    block = TokenStore.open(tmp_path, 6, sum(LENGTHS), 8, "float16").read(np.array(rows, dtype=np.int64))
    assert block.tokens().shape == (0, 8)
    assert block.lengths.tolist() == [0] * len(rows)


def test_int8_spends_its_range_on_each_token() -> None:
    packed = pack(np.float32([[0.5, -1.0], [0.01, 0.002], [0, 0]]), "int8")
    assert packed.values.tolist() == [[64, -127], [127, 25], [0, 0]]
    assert packed.scales is not None
    np.testing.assert_allclose(packed.scales, [1 / 127, 0.01 / 127, 1])


def test_offsets_that_do_not_span_the_tokens_are_named(tmp_path: Path) -> None:
    write(tmp_path, "float16")
    write_npy(tmp_path / OFFSETS, np.int64, (7,), [np.arange(7)])
    with pytest.raises(IndexCorruptError, match=r"offsets\.npy: expected 0 to 11, got 0 to 6"):
        TokenStore.open(tmp_path, 6, sum(LENGTHS), 8, "float16")
