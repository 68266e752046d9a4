"""The formats, counted: against the files of a side."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from aladin_index.capacity.constants import Constants
from aladin_index.capacity.costs import embedding_bytes, first_stage_of, index_sizes, token_bytes
from aladin_index.capacity.workload import Workload
from aladin_index.format.layout import ANN, EMBEDDINGS
from aladin_index.search.live_collection import StoredCollection
from aladin_index.tokens.store import CENTROIDS, OFFSETS, token_files
from aladin_network.types import TOKEN_DTYPES, TokenDtype

# NumPy's header is this long, and FAISS's not much longer.
_NPY_HEADER, _ANN_HEADER = 128, 200
ITEMS, DIM, TOKENS, TOKEN_DIM = 60, 16, 5, 8


@pytest.mark.parametrize("dtype", TOKEN_DTYPES)
def test_the_sizes_are_those_of_the_files(
    dtype: TokenDtype, constants: Constants, make_side: Callable[..., StoredCollection]
) -> None:
    random = np.random.default_rng(0)
    side = make_side(
        random.standard_normal((ITEMS, DIM)).astype(np.float32),
        [random.standard_normal((TOKENS, TOKEN_DIM)).astype(np.float32) for _ in range(ITEMS)],
        dtype=dtype,
    )
    assert side.tokens.folder is not None
    folder: Path = side.tokens.folder
    workload = Workload(
        items=ITEMS, embedding_dim=DIM, tokens=TOKENS, token_dim=TOKEN_DIM, token_dtype=dtype
    )
    stage = first_stage_of(workload, constants.first_stage)
    sizes = index_sizes(workload, stage, constants.files)

    def size(name: str) -> int:
        return (folder / name).stat().st_size

    assert sizes.embeddings == size(EMBEDDINGS) - _NPY_HEADER
    arrays = [name for name in token_files(dtype) if name != CENTROIDS]
    stored = sum(size(name) - _NPY_HEADER for name in arrays)
    assert ITEMS * token_bytes(workload) == stored
    # There is one offset more than items.
    assert sizes.tokens == stored + size(OFFSETS) - _NPY_HEADER - 8
    assert 0 <= size(ANN) - sizes.first_stage < _ANN_HEADER
    assert sizes.items == 250 * ITEMS
    assert sizes.total == sizes.mapped + sizes.items


def test_a_token_takes_what_the_readme_says() -> None:
    expected = {"float16": 256, "int8": 132, "4bit": 70, "2bit": 38}
    for dtype in TOKEN_DTYPES:
        workload = Workload(items=1, tokens=1, token_dtype=dtype)
        assert token_bytes(workload) == expected[dtype]
        assert token_bytes(Workload(items=1, tokens=49, token_dtype=dtype)) == 49 * expected[dtype]
    assert embedding_bytes(Workload(items=1, embedding_dim=256)) == 1024
