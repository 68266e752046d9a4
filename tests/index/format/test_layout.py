from pathlib import Path

import pytest

from aladin_index.format.disk import only_builder
from aladin_index.format.layout import (
    CURRENT,
    EngineLocation,
    check_kept_in_files,
    generation_folder,
    live_generation,
    published_generations,
    set_live_generation,
    write_location,
)
from aladin_network.errors import IndexCorruptError, IndexNotReadyError, InputError


def test_the_live_generation_is_the_one_that_was_set(tmp_path: Path) -> None:
    for generation in (1, 2, 12):
        generation_folder(tmp_path, generation).mkdir(parents=True)
    (tmp_path / "generations" / "notes").mkdir()
    set_live_generation(tmp_path, 2)
    assert live_generation(tmp_path) == 2
    set_live_generation(tmp_path, 12)
    assert live_generation(tmp_path) == 12
    assert published_generations(tmp_path) == [1, 2, 12]
    assert (tmp_path / CURRENT).read_text() == "000012\n"


@pytest.mark.parametrize("name", ["missing", "."])
def test_no_index_is_not_ready(tmp_path: Path, name: str) -> None:
    with pytest.raises(IndexNotReadyError, match="no index here"):
        live_generation(tmp_path / name)
    assert published_generations(tmp_path / name) == []


@pytest.mark.parametrize("content", [b"", b"1\n", b"000001", b"000001\n\n", b"../001\n", b"\xff"])
def test_a_damaged_current_is_named(tmp_path: Path, content: bytes) -> None:
    generation_folder(tmp_path, 1).mkdir(parents=True)
    (tmp_path / CURRENT).write_bytes(content)
    with pytest.raises(IndexCorruptError, match="CURRENT"):
        live_generation(tmp_path)


def test_a_live_generation_that_is_not_there_is_named(tmp_path: Path) -> None:
    set_live_generation(tmp_path, 4)
    with pytest.raises(IndexCorruptError, match="generation 4, which does not exist"):
        live_generation(tmp_path)


def test_operations_on_files_refuse_an_index_in_an_engine(tmp_path: Path) -> None:
    location = EngineLocation(url="http://127.0.0.1:19530", name="photos")
    write_location(tmp_path, location)
    for refused in (live_generation, check_kept_in_files):
        with pytest.raises(InputError, match=r"expected an index of files.*engine\.json"):
            refused(tmp_path)
    with pytest.raises(InputError, match="expected an index of files"), only_builder(tmp_path):
        pytest.fail("a build began")
    assert [path.name for path in tmp_path.iterdir()] == ["engine.json"]
