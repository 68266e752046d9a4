"""Small files of regions in the forms that people have, and what they say, told by plain loops."""

from __future__ import annotations

import base64
from pathlib import Path

import numpy as np
import numpy.typing as npt

from aladin_network.photos.regions import RegionSet

Array = npt.NDArray[np.float32]


def encoded(values: npt.ArrayLike) -> str:
    """Base64 of little-endian float32, as all tables have it."""
    return base64.b64encode(np.asarray(values, dtype="<f4").tobytes()).decode()


def vectors(regions: int, numbers: int = 5, seed: int = 0) -> Array:
    return np.random.default_rng(seed).normal(size=(regions, numbers)).astype(np.float32)


def pixel_boxes(count: int, width: int, height: int, seed: int = 0) -> Array:
    """Boxes inside of a photo, none of them empty."""
    rng = np.random.default_rng(seed)
    low = rng.uniform(0, 0.5, (count, 2))
    high = low + rng.uniform(0.1, 0.5, (count, 2))
    return (np.hstack([low, high]) * [width, height, width, height]).astype(np.float32)


def geometry(boxes: Array, width: int, height: int) -> Array:
    """The six numbers of objectives 2.1, number by number."""
    rows = [
        [x0 / width, y0 / height, x1 / width, y1 / height, (x1 - x0) / width, (y1 - y0) / height]
        for x0, y0, x1, y1 in boxes.tolist()
    ]
    return np.array(rows, dtype=np.float32)


def write_lines(path: Path, rows: list[list[str]], *, lineidx: bool = False) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    starts: list[int] = []
    with path.open("wb") as file:
        for row in rows:
            starts.append(file.tell())
            file.write("\t".join(row).encode() + b"\n")
    if lineidx:
        text = "".join(f"{start}\n" for start in starts)
        path.with_suffix(".lineidx").write_text(text, encoding="utf-8")
    return path


def assert_regions(found: RegionSet, expected: Array, boxes: Array | None) -> None:
    """Compare a photo's regions with what was written; boxes in fractions."""
    np.testing.assert_allclose(found.vectors, expected, atol=1e-6)
    if boxes is None:
        assert found.boxes is None
    else:
        assert found.boxes is not None
        np.testing.assert_allclose(found.boxes, boxes, atol=1e-6)
