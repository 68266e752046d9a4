"""An index with changes, and folders of encodings as other programs write them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from aladin_network.checkpoint import load_checkpoint
from aladin_network.checkpoint_files import Checkpoint

Arrays = Mapping[str, np.ndarray]


@pytest.fixture(scope="session")
def tiny(tiny_checkpoint: Path) -> Checkpoint:
    """The network of `tiny_checkpoint`: embeddings of 16, tokens of 8 dimensions."""
    return load_checkpoint(tiny_checkpoint)


@pytest.fixture
def write_folder(tmp_path: Path) -> Callable[..., Path]:
    """Write arrays and tables: ``write_folder({"a.npy": array}, {"b.parquet": columns})``."""
    import pyarrow
    from pyarrow.parquet import write_table

    def write(arrays: Arrays, tables: Mapping[str, Mapping[str, Any]] | None = None) -> Path:
        folder = tmp_path / "encodings"
        for name, array in arrays.items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            np.save(folder / name, array)
        for name, columns in (tables or {}).items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            write_table(pyarrow.table(dict(columns)), folder / name)
        return folder

    return write


@pytest.fixture
def unit_rows() -> Callable[..., np.ndarray]:
    """Random L2-normalised rows: ``unit_rows(5)`` or ``unit_rows(5, dim=8, seed=3)``."""

    def make(rows: int, dim: int = 16, seed: int = 0) -> np.ndarray:
        vectors = np.random.default_rng(seed).normal(size=(rows, dim))
        return (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float32)

    return make
