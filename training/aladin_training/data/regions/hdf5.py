"""Regions in HDF5 files, which need the package h5py.

ID/features, ID/boxes, ID/img_w, ID/img_h       one group for each photo, as VL-T5 writes them
ID_features, ID_boxes, ID_size (height, width)  arrays by name, as in meshed-memory transformers
image_features, image_bb, spatial_features      all photos in one array; with pos_boxes (first
                                                row, one past the last) if their numbers of
                                                regions differ, as in BAN and related projects
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, cast

import numpy as np

from aladin_network.errors import ConfigError, DataError, missing_package
from aladin_training.data.fields import Place
from aladin_training.data.regions.store import (
    FloatArray,
    RawRegions,
    RegionLayout,
    file_fingerprint,
    parse_count,
)

_FEATURES = "features"
_FLAT = "image_features"
_IDS = ("image_ids", "ids", "image_id", "img_id")
_SIZES = (("img_w", "img_h"), ("image_w", "image_h"))
# In spatial_features the first four numbers are the box, in fractions of the photo.
_BOX = 4


def open_hdf5(path: Path) -> RegionLayout:
    """Open a file of regions in one of the known layouts.

    Raises:
        ConfigError: If h5py is not installed.
        DataError: If the file is not HDF5, or has no known layout.
    """
    try:
        import h5py
    except ImportError:
        raise ConfigError(missing_package(f"{path}: reading HDF5", "h5py", "hdf5")) from None
    try:
        file: Any = h5py.File(path, "r")
    except OSError as error:
        raise DataError(path, None, f"cannot be read as HDF5 ({error})") from None
    if _FLAT in file:
        return FlatRegions(path, file)
    first = next(iter(file), None)
    if first is not None and isinstance(file[first], h5py.Group) and _FEATURES in file[first]:
        return NamedRegions(path, file, "/")
    if any(name.endswith(f"_{_FEATURES}") for name in file):
        return NamedRegions(path, file, "_")
    expected = f"a group with {_FEATURES!r} a photo, ID_{_FEATURES}, or {_FLAT!r}"
    raise DataError(path, None, f"expected {expected}; found {list(file)[:5]}")


class NamedRegions:
    """Arrays of each photo by name; see `RegionLayout`."""

    def __init__(self, path: Path, file: Any, separator: str) -> None:
        """List the photos.

        Args:
            path: Path of the file.
            file: The open file; h5py lets one thread read at a time.
            separator: Text between a photo's id and the name of an array.
        """
        self.path = path
        self._file = file
        self._separator = separator
        suffix = f"_{_FEATURES}"
        names: list[str] = list(file)
        if separator == "_":
            names = [name.removesuffix(suffix) for name in names if name.endswith(suffix)]
        self._keys = dict.fromkeys(names)
        self.fingerprint = file_fingerprint(path)

    def keys(self) -> Iterator[str]:
        """Return the ids of the photos."""
        return iter(self._keys)

    def __contains__(self, key: object) -> bool:
        """Tell whether a photo exists."""
        return key in self._keys

    def read(self, key: str) -> RawRegions:
        """Read the arrays of one photo.

        Raises:
            DataError: If one is missing or not an array of numbers.
        """
        place = Place(self.path, part=f"photo {key!r}")
        found = self._arrays(key)
        if _FEATURES not in found:
            raise place.error(f"lacks {_FEATURES!r}, has {sorted(found)}")
        boxes = found.get("boxes")
        return RawRegions(
            place,
            _numbers(found[_FEATURES], place),
            None if boxes is None else _numbers(boxes, place),
            _size(found, place),
            tuple(_word(each) for each in found["labels"][()]) if "labels" in found else (),
        )

    def _arrays(self, key: str) -> Mapping[str, Any]:
        if self._separator == "/":
            return cast(Mapping[str, Any], self._file[key])
        names = (_FEATURES, "boxes", "size", "labels")
        return {
            name: self._file[f"{key}_{name}"] for name in names if f"{key}_{name}" in self._file
        }


class FlatRegions:
    """All photos in one array; see `RegionLayout`."""

    def __init__(self, path: Path, file: Any) -> None:
        """Find the rows of the photos.

        Args:
            path: Path of the file. If it has no array of ids, a JSON file beside it has the row of
                each id, or a list of the ids: ``NAME_imgid2idx.json``, ``imageid2idx.json``.
            file: The open file; h5py lets one thread read at a time.

        Raises:
            DataError: If there are no ids, or numbers of rows differ.
        """
        self.path = path
        self._file = file
        self._features = file[_FLAT]
        self._bounds: np.ndarray | None = None
        rows = len(self._features)
        for name in ("image_bb", "spatial_features"):
            if name in file and len(file[name]) != rows:
                reason = f"{name}: expected {rows} rows, as {_FLAT!r} has, found {len(file[name])}"
                raise DataError(path, None, reason)
        if "pos_boxes" in file:
            self._bounds = _bounds(path, np.array(file["pos_boxes"]), rows)
            rows = len(self._bounds)
        elif self._features.ndim != 3:
            expected = "(photos, regions, numbers), or 'pos_boxes' beside it"
            raise DataError(path, None, f"{_FLAT}: expected {expected}; {self._features.shape}")
        self._rows = _ids(path, file, rows)
        self.fingerprint = file_fingerprint(path)

    def keys(self) -> Iterator[str]:
        """Return the ids of the photos."""
        return iter(self._rows)

    def __contains__(self, key: object) -> bool:
        """Tell whether a photo exists."""
        return key in self._rows

    def read(self, key: str) -> RawRegions:
        """Read the rows of one photo.

        Raises:
            DataError: If they hold no numbers.
        """
        row = self._rows[key]
        place = Place(self.path, part=f"photo {key!r}, row {row}")
        where = row if self._bounds is None else slice(*self._bounds[row])
        boxes = None
        if "spatial_features" in self._file:
            boxes = _numbers(self._file["spatial_features"][where], place)[:, :_BOX]
        elif "image_bb" in self._file:
            boxes = _numbers(self._file["image_bb"][where], place)
        size = {
            name: self._file[name][row] for names in _SIZES for name in names if name in self._file
        }
        return RawRegions(place, _numbers(self._features[where], place), boxes, _size(size, place))


def _bounds(path: Path, bounds: np.ndarray, rows: int) -> np.ndarray:
    """Check the first row of each photo and the row after its last."""
    fits = bounds.ndim == 2 and bounds.shape[1] == 2
    if fits:
        starts, stops = bounds.T
        faulty = np.flatnonzero((starts < 0) | (stops <= starts) | (stops > rows))
        if not len(faulty):
            return bounds
        found = f"row {faulty[0]} has {bounds[faulty[0]].tolist()}"
        expected = f"first and last rows inside of the {rows} of {_FLAT!r}"
        raise DataError(path, None, f"pos_boxes: expected {expected}, {found}")
    raise DataError(path, None, f"pos_boxes: expected shape (photos, 2), found {bounds.shape}")


def _ids(path: Path, file: Any, rows: int) -> dict[str, int]:
    """Return the row of each photo."""
    name = next((name for name in _IDS if name in file), None)
    if name is not None:
        found, where = [_word(each) for each in file[name][()]], name
    else:
        beside = [f"{path.stem}_imgid2idx.json", "imageid2idx.json", "imgid2idx.json"]
        json_file = next(
            (path.with_name(each) for each in beside if path.with_name(each).is_file()), None
        )
        if json_file is None:
            raise DataError(
                path,
                None,
                f"nothing says which photo a row is: expected one of {', '.join(_IDS)} in the "
                f"file, or beside it {beside[0]} with the row of each id (of a pickle: python -c "
                f"\"import json, pickle; json.dump(pickle.load(open('{path.stem}_imgid2idx.pkl', "
                f"'rb')), open('{beside[0]}', 'w'))\")",
            )
        found, where = _read_ids(json_file), json_file.name
    if isinstance(found, list):
        found = dict(zip(found, range(len(found)), strict=True)) if len(set(found)) == rows else {}
    if len(found) != rows or sorted(found.values()) != list(range(rows)):
        reason = f"{where}: expected each of the {rows} rows once, found {len(found)} photos"
        raise DataError(path, None, reason)
    return dict(sorted(found.items(), key=lambda item: item[1]))


def _read_ids(file: Path) -> list[str] | dict[str, int]:
    try:
        data: object = json.loads(file.read_bytes())
    except (OSError, ValueError, RecursionError) as error:
        raise DataError(file, None, f"cannot be read as JSON ({error})") from None
    if isinstance(data, list):
        return [str(each) for each in cast(list[object], data)]
    if isinstance(data, dict):
        rows = cast(dict[str, object], data)
        if all(isinstance(row, int) for row in rows.values()):
            return cast(dict[str, int], rows)
    raise DataError(file, None, "expected the row of each id, or a list of ids")


def _size(found: Mapping[str, Any], place: Place) -> tuple[int, int] | None:
    """Return width and height, from two numbers or from one array, which has the height first."""
    for names in _SIZES:
        if all(name in found for name in names):
            width, height = (
                parse_count(int(np.asarray(found[name]).flat[0]), name, place) for name in names
            )
            return width, height
    if "size" not in found:
        return None
    size = np.asarray(found["size"]).reshape(-1)
    if len(size) != 2:
        raise place.error(f"size: expected height and width, found {size.tolist()}")
    return int(size[1]), int(size[0])


def _numbers(values: Any, place: Place) -> FloatArray:
    try:
        return np.array(values, dtype=np.float32)
    except (TypeError, ValueError, OSError) as error:
        raise place.error(f"expected numbers ({error})") from None


def _word(value: object) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)
