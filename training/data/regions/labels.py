"""Labels of regions, where they lie apart from the vectors: a table or one JSON object."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol, cast

from aladin.errors import DataError
from training.data.fields import Place, parse_json
from training.data.regions.fingerprint import file_fingerprint
from training.data.regions.line_file import LineFile
from training.data.regions.objects import DetectedObjects, parse_objects


class RegionLabels(Protocol):
    """The objects of many photos; `read` may be called by several threads at once.

    Attributes:
        path: named in errors.
        fingerprint: see `RegionStore`.
    """

    path: Path
    fingerprint: str

    def __contains__(self, key: object) -> bool:
        """Tell whether a photo's labels are there."""
        ...

    def read(self, key: str) -> DetectedObjects:
        """Read the labels of a photo that is there.

        Raises:
            DataError: they cannot be used.
        """
        ...


def open_labels(path: Path) -> RegionLabels:
    """Open labels.

    Args:
        path: a table of ``id  JSON`` such as ``predictions.tsv``, read line by line; or one JSON
            object with the ids as keys, ``.json``, which is held in memory. What stands for a
            photo is said by `parse_objects`.

    Raises:
        DataError: the file cannot be read, or is of another kind.
    """
    if path.suffix.lower() == ".tsv":
        return TableOfLabels(path)
    if path.suffix.lower() == ".json":
        return JsonLabels(path)
    raise DataError(path, None, "expected labels of regions as .tsv or .json")


class TableOfLabels:
    """One photo a line: its id, a tab and JSON; see `RegionLabels`."""

    def __init__(self, path: Path) -> None:
        """Find the photos.

        Raises:
            DataError: see `LineFile`.
        """
        self.path = path
        self._lines = LineFile(path)
        self.fingerprint = file_fingerprint(path)

    def __contains__(self, key: object) -> bool:
        """Tell whether a photo has a line."""
        return key in self._lines

    def read(self, key: str) -> DetectedObjects:
        """Read the line of a photo.

        Raises:
            DataError: it is not of two columns, or not JSON of objects.
        """
        place, cells = self._lines.place(key), self._lines.read(key)
        if len(cells) != 2:
            raise place.error(f"expected an id and JSON, found {len(cells)} columns")
        return parse_objects(parse_json(cells[1], place), place)


class JsonLabels:
    """One JSON object, in memory; see `RegionLabels`."""

    def __init__(self, path: Path) -> None:
        """Read the file.

        Raises:
            DataError: it is not a JSON object.
        """
        self.path = path
        try:
            data: object = json.loads(path.read_bytes())
        except OSError as error:
            raise DataError(path, None, error.strerror or "cannot be read") from error
        except (ValueError, RecursionError) as error:
            raise DataError(path, None, f"not JSON ({error})") from None
        if not isinstance(data, dict):
            raise DataError(path, None, "expected a JSON object with the ids of photos as keys")
        self._photos = cast(Mapping[str, Any], data)
        self.fingerprint = file_fingerprint(path)

    def __contains__(self, key: object) -> bool:
        """Tell whether a photo is a key."""
        return key in self._photos

    def read(self, key: str) -> DetectedObjects:
        """Take a photo's value apart.

        Raises:
            DataError: it is none of objects.
        """
        return parse_objects(self._photos[key], Place(self.path, part=f"photo {key!r}"))
