"""Photos of a few bytes, and tars and tables of them."""

from __future__ import annotations

import io
import tarfile
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

import pytest
from PIL import Image

Members = Iterable[tuple[str, bytes]]
WriteTar = Callable[..., Path]


@pytest.fixture(scope="session")
def picture() -> Callable[[int], bytes]:
    """The bytes of a PNG, another one for every number."""

    def write(number: int) -> bytes:
        target = io.BytesIO()
        Image.new("RGB", (4, 3), (number % 256, 7, 9)).save(target, "PNG")
        return target.getvalue()

    return write


@pytest.fixture
def write_tar(tmp_path: Path) -> WriteTar:
    """Write a tar of (name, bytes): ``write_tar("a.tar", members, format=tarfile.PAX_FORMAT)``."""

    def write(name: str, members: Members, format: int = tarfile.USTAR_FORMAT) -> Path:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        with tarfile.open(path, "w", format=format) as tar:
            for member, content in members:
                info = tarfile.TarInfo(member)
                info.size = len(content)
                tar.addfile(info, io.BytesIO(content))
        return path

    return write


@pytest.fixture
def write_parquet(tmp_path: Path) -> Callable[..., Path]:
    """Write columns: ``write_parquet("a.parquet", {"path": [...]}, row_group_size=2)``."""
    import pyarrow
    from pyarrow.parquet import write_table

    def write(name: str, columns: Mapping[str, list[object]], **options: int) -> Path:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        write_table(pyarrow.table(dict(columns)), path, **options)
        return path

    return write
