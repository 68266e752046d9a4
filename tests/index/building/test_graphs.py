"""An index built by graphs is that of torch, has the graphs, and verifies them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from aladin_index.building.builder import build_index
from aladin_index.encode.source_items import ImageItem, TextItem
from aladin_index.format.layout import EMBEDDINGS, MODEL, generation_folder
from aladin_index.generations.reader import open_index
from aladin_index.generations.verify import verify_index
from aladin_network.errors import IndexCorruptError
from aladin_network.graphs.network import GraphNetwork


def test_a_build_by_graphs(
    exported_checkpoint: Path,
    tmp_path: Path,
    images: list[ImageItem],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    texts = [TextItem(id=f"t{number}", text="a dog " * (1 + number)) for number in range(4)]
    for runtime in ("torch", "auto"):
        monkeypatch.setenv("ALADIN_RUNTIME", runtime)
        build_index(exported_checkpoint, tmp_path / runtime, images[:5], texts)
    by_torch, by_graphs = (generation_folder(tmp_path / name, 1) for name in ("torch", "auto"))
    for target in ("images", "texts"):
        ours, theirs = (np.load(each / target / EMBEDDINGS) for each in (by_graphs, by_torch))
        np.testing.assert_allclose(ours, theirs, atol=1e-4)
    with open_index(tmp_path / "auto") as index:
        assert isinstance(index.checkpoint.model, GraphNetwork)
    graphs = tmp_path / "auto" / MODEL / "onnx"
    files = sorted(path.name for path in graphs.iterdir() if path.name != "manifest.json")
    assert files == ["image.onnx", "image.onnx.data", "text.onnx", "text.onnx.data"]
    before = verify_index(tmp_path / "auto").files
    data = bytearray((graphs / "image.onnx.data").read_bytes())
    data[0] ^= 1
    (graphs / "image.onnx.data").write_bytes(data)
    with pytest.raises(IndexCorruptError, match=r"image\.onnx\.data"):
        verify_index(tmp_path / "auto")
    for path in graphs.iterdir():
        path.unlink()
    graphs.rmdir()
    assert verify_index(tmp_path / "auto").files == before - len(files)
