"""Ready-made regions of many photos, read one photo at a time."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from aladin.regions.region_set import RegionSet
from training.data.fields import Place

FloatArray = npt.NDArray[np.float32]


class RegionStore(Protocol):
    """The regions of many photos; `read` may be called by several threads at once.

    Attributes:
        path: the source, named in errors.
        fingerprint: another one for other content; the same wherever the files lie.
    """

    path: Path
    fingerprint: str

    def __contains__(self, key: object) -> bool:
        """Tell whether a photo's regions are there."""
        ...

    def __len__(self) -> int:
        """Return the number of photos."""
        ...

    def keys(self) -> Iterable[str]:
        """Return the name of each photo, in the order of the source."""
        ...

    def read(self, key: str) -> RegionSet:
        """Read the regions of one photo; nothing else is read.

        Raises:
            DataError: there is no such photo, or its regions cannot be used.
        """
        ...


class RawRegions(NamedTuple):
    """What a file says of one photo, before it is checked.

    Attributes:
        place: that it was read from; named in errors.
        vectors: (regions, numbers) as stored.
        boxes: (regions, 4), x0, y0, x1, y1; in pixels if one is beyond 1, else in fractions.
        size_px: width and height of the photo; None: the file does not say.
        labels: the class of each region; empty: the file does not say.
        detector: that found the regions; None: the file does not say.
    """

    place: Place
    vectors: FloatArray
    boxes: FloatArray | None = None
    size_px: tuple[int, int] | None = None
    labels: tuple[str, ...] = ()
    detector: str | None = None


class RegionLayout(Protocol):
    """One way to keep regions in files: finds photos and takes their numbers apart.

    Attributes:
        path: of the file or folder.
        fingerprint: see `RegionStore`.
    """

    path: Path
    fingerprint: str

    def keys(self) -> Iterable[str]:
        """Return the name of each photo, in the order of the source."""
        ...

    def __contains__(self, key: object) -> bool:
        """Tell whether a photo is there."""
        ...

    def read(self, key: str) -> RawRegions:
        """Read one photo that is there.

        Raises:
            DataError: what is there cannot be taken apart.
        """
        ...
