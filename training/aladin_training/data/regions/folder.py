"""Regions in folders: one file for each photo, or the arrays of SCAN's "precomp" folders."""

from __future__ import annotations

import os
from pathlib import Path
from urllib.parse import unquote

import numpy as np

from aladin_network.errors import DataError, RegionError, brief
from aladin_network.photos.region_files import RegionLimits, read_region_npz
from aladin_training.data.fields import Place, readable
from aladin_training.data.precomp import map_images, open_precomp
from aladin_training.data.regions.store import (
    DetectedObjects,
    FloatArray,
    RawRegions,
    RegionLayout,
    file_fingerprint,
    joint_fingerprint,
)

_NPZ, _NPY = ".npz", ".npy"
_VECTORS, _BOXES = "_att", "_box"
# These are the user's own files, so that only memory bounds their size.
_LIMITS = RegionLimits(max_bytes=2**31, max_regions=2**31)


def open_folder(path: Path) -> RegionLayout:
    """Open a folder of ``.npz`` with vectors and boxes, or of ``.npy`` with vectors.

    self-critical.pytorch has vectors in ``NAME_att`` and boxes, in pixels, in ``NAME_box``.
    """
    vectors = _subfolder(path, _VECTORS)
    files, states = _list(vectors or path)
    boxes: dict[str, Path] | None = None
    if vectors is not None:
        boxes, more = _list(vectors.with_name(vectors.name.removesuffix(_VECTORS) + _BOXES))
        states += more
    if not files:
        raise DataError(vectors or path, None, f"holds no {_NPZ} and no {_NPY}")

    def read(key: str) -> RawRegions:
        if boxes is None:
            return _read_file(files[key])
        place = Place(files[key])
        if key not in boxes:
            raise place.error(f"expected the boxes of {brief(key)} in a {_BOXES!r} folder beside")
        return RawRegions(place, _array(files[key]), DetectedObjects(boxes=_array(boxes[key])))

    return RegionLayout(path, joint_fingerprint(*states), files.keys(), read)


def _read_file(file: Path) -> RawRegions:
    place = Place(file)
    if file.suffix == _NPY:
        return RawRegions(place, _array(file))
    try:
        regions = read_region_npz(file, str(file), _LIMITS)
    except RegionError as error:
        raise place.error(str(error).removeprefix(f"{file}: ")) from None
    objects = DetectedObjects(regions.labels, regions.boxes, regions.size_px)
    return RawRegions(place, regions.vectors, objects, regions.detector)


def _subfolder(path: Path, suffix: str) -> Path | None:
    with readable(path):
        return next((each for each in sorted(path.glob(f"*{suffix}")) if each.is_dir()), None)


def _list(folder: Path) -> tuple[dict[str, Path], list[str]]:
    """Return the files by photo, and each one's name, size and time, which tell listings apart."""
    files: dict[str, Path] = {}
    states: list[str] = []
    with readable(folder), os.scandir(folder) as listing:
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
    return files, states


def _array(file: Path) -> FloatArray:
    """Read the only array of a file; never a pickle."""
    try:
        with readable(file):
            loaded = np.load(file, allow_pickle=False)
            if isinstance(loaded, np.ndarray):
                return loaded.astype(np.float32)
            with loaded:
                if len(loaded.files) != 1:
                    raise DataError(file, None, f"expected one array, found {sorted(loaded.files)}")
                return loaded[loaded.files[0]].astype(np.float32)
    except (ValueError, EOFError, TypeError) as error:
        raise DataError(file, None, f"expected an array of numbers ({error})") from None


def open_arrays(path: Path) -> RegionLayout:
    """Open all splits of a "precomp" folder; a key is ``SPLIT/ID``."""
    rows: dict[str, tuple[Path, int]] = {}
    images: dict[Path, np.ndarray] = {}
    for split in open_precomp(path):
        images[split.images] = map_images(split.images)
        for number, key in enumerate(split.keys):
            rows[key] = split.images, number * split.rows_a_photo

    def read(key: str) -> RawRegions:
        file, row = rows[key]
        vectors = np.array(images[file][row], dtype=np.float32)
        return RawRegions(Place(file, part=f"row {row}"), vectors)

    fingerprint = joint_fingerprint(*map(file_fingerprint, images))
    return RegionLayout(path, fingerprint, rows.keys(), read)
