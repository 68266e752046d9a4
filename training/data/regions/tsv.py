"""Tables of regions, whose first line tells which of the known ones it is."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from training.data.fields import Place
from training.data.regions.bottom_up import COLUMNS, parse_bottom_up
from training.data.regions.fingerprint import file_fingerprint
from training.data.regions.line_file import LineFile
from training.data.regions.store import RawRegions
from training.data.regions.vinvl import parse_vinvl, parse_vinvl_json

# By their number of columns.
_LAYOUTS: Mapping[int, Callable[[list[bytes], Place], RawRegions]] = {
    2: parse_vinvl_json,
    3: parse_vinvl,
    len(COLUMNS): parse_bottom_up,
}


class TsvRegions:
    """One table; see `RegionLayout`."""

    def __init__(self, path: Path) -> None:
        """Find the photos of a table.

        Args:
            path: of the table; see `LineFile`.

        Raises:
            DataError: the table cannot be read, or is none that is known.
        """
        self.path = path
        self._lines = LineFile(path)
        first = next(self._lines.keys())
        self._columns = len(self._lines.read(first))
        if self._columns not in _LAYOUTS:
            known = ", ".join(map(str, _LAYOUTS))
            raise self._lines.place(first).error(
                f"expected a table of regions with {known} columns, found {self._columns}"
            )
        self.fingerprint = file_fingerprint(path)

    def keys(self) -> Iterator[str]:
        """Return the ids of the photos."""
        return self._lines.keys()

    def __contains__(self, key: object) -> bool:
        """Tell whether a photo is there."""
        return key in self._lines

    def read(self, key: str) -> RawRegions:
        """Read the line of one photo.

        Raises:
            DataError: the line cannot be taken apart.
        """
        place, cells = self._lines.place(key), self._lines.read(key)
        if len(cells) != self._columns:
            reason = f"expected {self._columns} columns, as on line 1, found {len(cells)}"
            raise place.error(reason)
        return _LAYOUTS[self._columns](cells, place)
