"""Several sources as one: the files of the splits, or the chunks of a large download."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from aladin.errors import DataError
from aladin.regions.region_set import RegionSet
from training.data.regions.fingerprint import joint_fingerprint
from training.data.regions.store import RegionStore


class JoinedRegions:
    """Photos of several sources; see `RegionStore`."""

    def __init__(self, path: Path, stores: Sequence[RegionStore]) -> None:
        """Join sources.

        Args:
            path: that names them all.
            stores: at least one.

        Raises:
            DataError: two have the same photo.
        """
        self.path = path
        self._store_of: dict[str, RegionStore] = {}
        for store in stores:
            keys = store.keys()
            for key in keys:
                first = self._store_of.setdefault(key, store)
                if first is not store:
                    raise DataError(store.path, None, f"the photo {key!r} is in {first.path}, too")
        self.fingerprint = joint_fingerprint(*(store.fingerprint for store in stores))

    def __contains__(self, key: object) -> bool:
        """Tell whether one of the sources has a photo."""
        return key in self._store_of

    def __len__(self) -> int:
        """Return the number of photos."""
        return len(self._store_of)

    def keys(self) -> Iterator[str]:
        """Return the name of each photo."""
        return iter(self._store_of)

    def read(self, key: str) -> RegionSet:
        """Read a photo from the source that has it.

        Raises:
            DataError: none has it, or its regions cannot be used.
        """
        if key not in self._store_of:
            raise DataError(self.path, None, f"no regions of a photo {key!r}")
        return self._store_of[key].read(key)
