"""Readers of ready-made regions, each chosen by the path: a table, as of the data sets."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from aladin_network.errors import DataError
from aladin_training.data.folder import expand
from aladin_training.data.precomp import is_precomp
from aladin_training.data.regions.folder import open_arrays, open_folder
from aladin_training.data.regions.store import (
    CheckedRegions,
    JoinedRegions,
    RegionLayout,
    RegionStore,
    region_key,
    region_keys,
)
from aladin_training.data.regions.tables import open_labels, open_tsv

__all__ = ["KNOWN_REGIONS", "LAYOUTS", "RegionStore", "open_regions", "region_key", "region_keys"]


class Layout(NamedTuple):
    """A format of regions, some of which have labels beside them."""

    name: str
    reads: Callable[[Path], bool]
    open: Callable[[Path], RegionLayout]
    labels: Callable[[Path], Path | None] | None = None


def _is_table(path: Path) -> bool:
    # The parts of bottom-up attention's downloads are named .tsv.0, .tsv.1 ...
    return ".tsv" in path.suffixes and not path.is_dir()


def _table_in(folder: Path) -> Path | None:
    return _beside(folder, ("features.tsv", "feature.tsv"))


def _labels_in(folder: Path) -> Path | None:
    return _beside(folder, ("predictions.tsv", "label.tsv", "labels.tsv", "labels.json"))


def _has_table(path: Path) -> bool:
    return _table_in(path) is not None


def _open_table(path: Path) -> RegionLayout:
    return open_tsv(_table_in(path) or path)


def _is_folder(path: Path) -> bool:
    return path.is_dir() and not is_precomp(path)


def _beside(folder: Path, names: tuple[str, ...]) -> Path | None:
    return next((folder / name for name in names if (folder / name).is_file()), None)


# The first that reads a path is taken.
LAYOUTS = (
    Layout("a .tsv of VinVL or of bottom-up attention", _is_table, open_tsv),
    Layout("a folder with one", _has_table, _open_table, _labels_in),
    Layout("a folder of .npz or .npy files", _is_folder, open_folder),
    Layout("a folder of SCAN's arrays", is_precomp, open_arrays),
)
KNOWN_REGIONS = f"{', '.join(each.name for each in LAYOUTS[:-1])}, or {LAYOUTS[-1].name}"


def open_regions(path: Path, labels: Path | None = None) -> RegionStore:
    """Open ready-made regions of the `KNOWN_REGIONS`, or a pattern of such; read on demand.

    Labels in a file of their own are those of `open_labels`; otherwise they are with the regions,
    or beside OSCAR's ``features.tsv``.
    """
    stores = [_open(file, labels) for file in expand(path)]
    return stores[0] if len(stores) == 1 else JoinedRegions(path, stores)


def _open(path: Path, labels: Path | None) -> RegionStore:
    layout = next((each for each in LAYOUTS if each.reads(path)), None)
    if layout is None:
        raise DataError(path, None, f"expected {KNOWN_REGIONS}")
    if labels is None and layout.labels is not None:
        labels = layout.labels(path)
    return CheckedRegions(layout.open(path), None if labels is None else open_labels(labels))
