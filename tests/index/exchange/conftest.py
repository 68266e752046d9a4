"""An index with changes, and folders of encodings as other programs write them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from aladin_index.exchange.exporter import export_index
from aladin_network.checkpoint import load_checkpoint
from aladin_network.checkpoint_files import Checkpoint

Arrays = Mapping[str, np.ndarray]


@pytest.fixture(scope="session")
def tiny(tiny_checkpoint: Path) -> Checkpoint:
    """The network of `tiny_checkpoint`: embeddings of 16, tokens of 8 dimensions."""
    return load_checkpoint(tiny_checkpoint)


@pytest.fixture(autouse=True)
def network_loaded_once(tiny: Checkpoint, tiny_checkpoint: Path) -> Iterator[None]:
    """Load the network of an import once for all tests."""

    def load(folder: Path) -> Checkpoint:
        return tiny if folder == tiny_checkpoint else load_checkpoint(folder)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("aladin_index.exchange.importer.load_for_inference", load)
        yield


@pytest.fixture(scope="session")
def exported(published: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An export of `published` in parts of ten; not to be written to."""
    out = tmp_path_factory.mktemp("exported") / "out"
    assert export_index(published, out, rows_a_part=10) == {"images": 23, "texts": 16}
    return out


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
