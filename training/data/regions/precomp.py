"""The arrays of SCAN's "precomp" folders, as regions; see `training.data.precomp`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np

from training.data.fields import Place
from training.data.precomp import map_images, open_precomp
from training.data.regions.fingerprint import file_fingerprint, joint_fingerprint
from training.data.regions.store import RawRegions


class _Row(NamedTuple):
    """Where a photo is.

    Attributes:
        file: of the array.
        row: in it.
    """

    file: Path
    row: int


class PrecompRegions:
    """All splits of one folder; see `RegionLayout`."""

    def __init__(self, path: Path) -> None:
        """Find the photos.

        Args:
            path: the folder.

        Raises:
            DataError: see `open_precomp`.
        """
        self.path = path
        self._rows: dict[str, _Row] = {}
        self._images: dict[Path, np.ndarray] = {}
        for split in open_precomp(path):
            self._images[split.images] = map_images(split.images)
            for number, key in enumerate(split.keys):
                self._rows[key] = _Row(split.images, number * split.rows_a_photo)
        self.fingerprint = joint_fingerprint(*map(file_fingerprint, self._images))

    def keys(self) -> Iterator[str]:
        """Return ``SPLIT/ID`` of each photo."""
        return iter(self._rows)

    def __contains__(self, key: object) -> bool:
        """Tell whether a photo is there."""
        return key in self._rows

    def read(self, key: str) -> RawRegions:
        """Read the row of one photo."""
        file, row = self._rows[key]
        vectors = np.array(self._images[file][row], dtype=np.float32)
        return RawRegions(Place(file, part=f"row {row}"), vectors)
