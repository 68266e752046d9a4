"""Regions in folders: one file for each photo, or the arrays of SCAN's "precomp" folders."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple
from urllib.parse import unquote

import numpy as np

from aladin_network.errors import DataError, RegionError, brief
from aladin_network.photos.region_files import RegionLimits, read_region_npz
from aladin_training.data.fields import Place
from aladin_training.data.precomp import map_images, open_precomp
from aladin_training.data.regions.store import (
    DetectedObjects,
    FloatArray,
    RawRegions,
    file_fingerprint,
    joint_fingerprint,
)

_NPZ, _NPY = ".npz", ".npy"
_VECTORS, _BOXES = "_att", "_box"
# These are the user's own files, so that only memory bounds their size.
_LIMITS = RegionLimits(max_bytes=2**31, max_regions=2**31)


class FolderRegions:
    """A folder of ``.npz`` with vectors and boxes, or of ``.npy`` with vectors; see `RegionLayout`.

    self-critical.pytorch keeps boxes in a folder of their own: ``NAME_att`` has the vectors and
    ``NAME_box`` the boxes, in pixels, each with one file for each photo.
    """

    def __init__(self, path: Path) -> None:
        """List the photos."""
        self.path = path
        vectors = _subfolder(path, _VECTORS)
        self._files, states = _list(vectors or path)
        self._boxes: dict[str, Path] | None = None
        if vectors is not None:
            boxes = vectors.with_name(vectors.name.removesuffix(_VECTORS) + _BOXES)
            self._boxes, states_of_boxes = _list(boxes)
            states += states_of_boxes
        if not self._files:
            raise DataError(vectors or path, None, f"holds no {_NPZ} and no {_NPY}")
        self.fingerprint = joint_fingerprint(*states)

    def keys(self) -> Iterator[str]:
        """Return the names of the files, without their suffix; %2F stands for a slash."""
        return iter(self._files)

    def __contains__(self, key: object) -> bool:
        """Tell whether a photo has a file."""
        return key in self._files

    def read(self, key: str) -> RawRegions:
        """Read the file of one photo, and that of its boxes."""
        file = self._files[key]
        place = Place(file)
        if self._boxes is not None:
            if key not in self._boxes:
                raise place.error(
                    f"expected the boxes of {brief(key)} in a {_BOXES!r} folder beside"
                )
            return RawRegions(place, _array(file), DetectedObjects(boxes=_array(self._boxes[key])))
        if file.suffix == _NPY:
            return RawRegions(place, _array(file))
        try:
            regions = read_region_npz(file, str(file), _LIMITS)
        except RegionError as error:
            raise place.error(str(error).removeprefix(f"{file}: ")) from None
        objects = DetectedObjects(regions.labels, regions.boxes, regions.size_px)
        return RawRegions(place, regions.vectors, objects, regions.detector)


def _subfolder(path: Path, suffix: str) -> Path | None:
    try:
        return next((each for each in sorted(path.glob(f"*{suffix}")) if each.is_dir()), None)
    except OSError as error:
        raise DataError(path, None, error.strerror or "cannot be read") from error


def _list(folder: Path) -> tuple[dict[str, Path], list[str]]:
    """Return the files by photo, and what distinguishes one listing from another.

    That is each file's name, size and time: regions of equal number take equal space, and reading
    every file would take too long.
    """
    files: dict[str, Path] = {}
    states: list[str] = []
    try:
        with os.scandir(folder) as listing:
            for entry in sorted(listing, key=lambda entry: entry.name):
                file = folder / entry.name
                if file.suffix not in (_NPZ, _NPY) or entry.name.startswith("."):
                    continue
                # An id may be a path, which `aladin regions extract` encodes as in a URL.
                key = unquote(file.stem)
                if key in files:
                    raise DataError(file, None, f"there is {files[key].name}, too")
                files[key] = file
                state = entry.stat()
                states.append(f"{entry.name}:{state.st_size}:{state.st_mtime_ns}")
    except OSError as error:
        raise DataError(folder, None, error.strerror or "cannot be read") from error
    return files, states


def _array(file: Path) -> FloatArray:
    """Read the only array of a file; never a pickle."""
    try:
        loaded = np.load(file, allow_pickle=False)
        if isinstance(loaded, np.ndarray):
            return loaded.astype(np.float32)
        with loaded:
            if len(loaded.files) != 1:
                raise DataError(file, None, f"expected one array, found {sorted(loaded.files)}")
            return loaded[loaded.files[0]].astype(np.float32)
    except OSError as error:
        raise DataError(file, None, error.strerror or "cannot be read") from error
    except (ValueError, EOFError, TypeError) as error:
        raise DataError(file, None, f"expected an array of numbers ({error})") from None


class _Row(NamedTuple):
    """Location of a photo's regions.

    Attributes:
        file: File of the array.
        row: Row in it.
    """

    file: Path
    row: int


class PrecompRegions:
    """All splits of one folder; see `RegionLayout`."""

    def __init__(self, path: Path) -> None:
        """Find the photos."""
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
        """Tell whether a photo exists."""
        return key in self._rows

    def read(self, key: str) -> RawRegions:
        """Read the row of one photo."""
        file, row = self._rows[key]
        vectors = np.array(self._images[file][row], dtype=np.float32)
        return RawRegions(Place(file, part=f"row {row}"), vectors)
