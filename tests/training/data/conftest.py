"""Data sets of every format, written in one call."""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

Build = Callable[[str, Any], Path]


@pytest.fixture(scope="session")
def png() -> bytes:
    """The bytes of a photo."""
    target = io.BytesIO()
    Image.new("RGB", (4, 3), (1, 2, 3)).save(target, "PNG")
    return target.getvalue()


@pytest.fixture
def build(
    tmp_path: Path,
    png: bytes,
    write_tar: Callable[..., Path],
    write_parquet: Callable[..., Path],
) -> Build:
    """Write a data set beside the photos a.png and b/ü.png.

    Its content is a text, the columns of a parquet, or the files of a tar or of a folder; None in
    the place of a file is a photo.
    """
    (tmp_path / "b").mkdir()
    for name in ("a.png", "b/ü.png"):
        (tmp_path / name).write_bytes(png)

    def write(name: str, content: str | bytes | Mapping[str, Any]) -> Path:
        path = tmp_path / name
        if isinstance(content, str | bytes):
            path.write_bytes(content.encode() if isinstance(content, str) else content)
        elif path.suffix == ".parquet":
            write_parquet(name, content)
        else:
            files = {each: png if data is None else data for each, data in content.items()}
            if path.suffix == ".tar":
                write_tar(name, files.items())
            for each, data in files.items() if path.suffix != ".tar" else ():
                (path / each).parent.mkdir(parents=True, exist_ok=True)
                (path / each).write_bytes(data)
        return path

    return write
