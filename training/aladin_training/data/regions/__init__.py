"""Readers of ready-made regions, chosen by the path."""

from __future__ import annotations

from pathlib import Path

from aladin_network.errors import DataError
from aladin_training.data.formats import expand
from aladin_training.data.precomp import is_precomp
from aladin_training.data.regions.checked import CheckedRegions, JoinedRegions
from aladin_training.data.regions.folder import FolderRegions, PrecompRegions
from aladin_training.data.regions.labels import open_labels
from aladin_training.data.regions.store import RegionLayout, RegionStore, region_key, region_keys
from aladin_training.data.regions.tsv import TsvRegions

__all__ = ["KNOWN_REGIONS", "RegionStore", "open_regions", "region_key", "region_keys"]

KNOWN_REGIONS = (
    "a .tsv of VinVL or of bottom-up attention, a folder with one, a folder of .npz or .npy files, "
    "or a folder of SCAN's arrays"
)
_FEATURES = ("features.tsv", "feature.tsv")
_LABELS = ("predictions.tsv", "label.tsv", "labels.tsv", "labels.json")


def open_regions(path: Path, labels: Path | None = None) -> RegionStore:
    """Open ready-made regions; those of each photo are read on demand.

    Args:
        path: File or folder of the `KNOWN_REGIONS`, or a pattern of such files, which are joined.
        labels: Labels that are in a file of their own, see `open_labels`; or None if they are with
            the regions, in the same folder as OSCAR's ``features.tsv``, or nowhere.

    Raises:
        DataError: If a file cannot be used.
    """
    stores = [_open(file, labels) for file in expand(path)]
    return stores[0] if len(stores) == 1 else JoinedRegions(path, stores)


def _open(path: Path, labels: Path | None) -> RegionStore:
    if path.is_dir():
        features = _beside(path, _FEATURES)
        if features is not None:
            return _open(features, labels or _beside(path, _LABELS))
    return CheckedRegions(_layout(path), None if labels is None else open_labels(labels))


def _layout(path: Path) -> RegionLayout:
    if path.is_dir():
        return PrecompRegions(path) if is_precomp(path) else FolderRegions(path)
    # The parts of bottom-up attention's downloads are named .tsv.0, .tsv.1 ...
    if ".tsv" in path.suffixes:
        return TsvRegions(path)
    raise DataError(path, None, f"expected {KNOWN_REGIONS}")


def _beside(folder: Path, names: tuple[str, ...]) -> Path | None:
    return next((folder / name for name in names if (folder / name).is_file()), None)
