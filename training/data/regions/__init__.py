"""Ready-made regions: one layout a file, chosen by what the path is."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from aladin.errors import DataError
from training.data.patterns import expand
from training.data.regions.checked import CheckedRegions
from training.data.regions.joined import JoinedRegions
from training.data.regions.labels import open_labels
from training.data.regions.matching import region_key, region_keys
from training.data.regions.store import RegionLayout, RegionStore
from training.data.regions.tsv import TsvRegions

__all__ = ["KNOWN_REGIONS", "RegionStore", "open_regions", "region_key", "region_keys"]

KNOWN_REGIONS = "a .tsv of VinVL or of bottom-up attention"
_FEATURES = ("features.tsv", "feature.tsv")
_LABELS = ("predictions.tsv", "label.tsv", "labels.tsv")


def open_regions(path: Path, labels: Path | None = None) -> RegionStore:
    """Open ready-made regions, of which each photo is read when it is asked for.

    Args:
        path: of `KNOWN_REGIONS`, or a pattern of such files, which are taken together.
        labels: where the labels of the regions lie, if not with them: see `open_labels`.

    Raises:
        DataError: a file cannot be used.
    """
    stores = [_open(file, labels) for file in expand(path)]
    return stores[0] if len(stores) == 1 else JoinedRegions(path, stores)


def _open(path: Path, labels: Path | None) -> RegionStore:
    if path.is_dir():
        features = next((path / name for name in _FEATURES if (path / name).is_file()), None)
        if features is None:
            raise DataError(path, None, f"expected {KNOWN_REGIONS}")
        beside = next((path / name for name in _LABELS if (path / name).is_file()), None)
        return _open(features, labels or beside)
    layout = _LAYOUTS.get(path.suffix.lower())
    if layout is None:
        raise DataError(path, None, f"expected {KNOWN_REGIONS}")
    return CheckedRegions(layout(path), None if labels is None else open_labels(labels))


_LAYOUTS: Mapping[str, Callable[[Path], RegionLayout]] = {".tsv": TsvRegions}
