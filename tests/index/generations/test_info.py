import time
from pathlib import Path

import pytest

from aladin_index.building.builder import build_index
from aladin_index.encode.source_items import ImageItem
from aladin_index.generations.info import describe
from aladin_network.checkpoint import load_checkpoint
from aladin_network.errors import IndexNotReadyError


def test_the_live_generation_is_described(
    index_copy: Path, tiny_checkpoint: Path, images: list[ImageItem]
) -> None:
    info = describe(index_copy)
    assert (info.generation, info.generations) == (1, [1])
    assert {target: collection.count for target, collection in info.collections.items()} == {
        "images": 23,
        "texts": 16,
    }
    assert info.collections["images"].token_count == 23 * 16  # 4 x 4 regions each
    assert info.collections["images"].ann.factory == "Flat"
    assert info.model_id == load_checkpoint(tiny_checkpoint).model_id
    assert (info.metric, info.default_candidates) == ("inner_product", 100)
    folder = index_copy / "generations" / "000001"
    data = [path for path in folder.glob("*/*") if path.is_file()]
    model = list((index_copy / "model").iterdir())
    assert info.total_bytes == sum(path.stat().st_size for path in data + model)
    build_index(tiny_checkpoint, index_copy, images[:2], None)
    info = describe(index_copy)
    assert (info.generation, info.generations) == (2, [1, 2])
    assert list(info.collections) == ["images"]
    assert abs(info.built_at_s - time.time()) < 60


def test_no_index_has_no_description(tmp_path: Path) -> None:
    with pytest.raises(IndexNotReadyError):
        describe(tmp_path)
