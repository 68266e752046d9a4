"""Checked access to the fields of JSON objects and to the columns of tables.

Every error names the place of its cause.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple, cast

from aladin_network.errors import DataError, brief
from aladin_network.photos.files import CAPTIONS, FAILED, ID, SPLIT, STATUS, first_of, metadata_of

_KINDS: Mapping[type, str] = {
    type(None): "null",
    bool: "true or false",
    int: "a number",
    float: "a number",
    str: "a text",
    list: "a list",
    dict: "an object",
}


class Place(NamedTuple):
    """The place of a record: a line from 1, or a part such as ``images[3]``."""

    file: Path
    line: int | None = None
    part: str = ""

    def __str__(self) -> str:
        if self.part:
            return self.part
        return str(self.file) if self.line is None else f"line {self.line}"

    def error(self, reason: str) -> DataError:
        """Return the error to raise about this place."""
        return DataError(self.file, self.line, f"{self.part}: {reason}" if self.part else reason)


@contextmanager
def readable(file: Path) -> Generator[None]:
    """Turn an error of the operating system inside the block into one about this file."""
    try:
        yield
    except OSError as error:
        raise DataError(file, None, error.strerror or "cannot be read") from error


def parse_json(raw: bytes, place: Place) -> object:
    """Parse JSON."""
    try:
        return json.loads(raw.decode("utf-8"))
    except UnicodeDecodeError as error:
        raise place.error(f"not UTF-8 at byte {error.start + 1} of the line") from None
    except (ValueError, RecursionError) as error:
        raise place.error(f"not JSON ({error})") from None


# Called with the error of each element that cannot be used.
OnFault = Callable[[DataError], None]


class Fields:
    """The fields of one JSON object."""

    def __init__(self, data: object, place: Place, known: frozenset[str] | None = None) -> None:
        """Check that `data` is an object, with no other fields than those known, if given."""
        if not isinstance(data, dict):
            raise place.error(f"expected a JSON object, got {_kind(data)}")
        self._data = cast(dict[str, Any], data)
        self.place = place
        unknown = sorted(self._data.keys() - known) if known is not None else []
        if known is not None and unknown:
            raise place.error(f"unknown field {brief(unknown[0])}, known are {sorted(known)}")

    def text(self, name: str) -> str:
        """Return a required text that is not blank."""
        if name not in self._data:
            raise self.place.error(f"lacks the field {brief(name)}")
        return self._checked(self._data[name], name)

    def optional_text(self, name: str) -> str | None:
        """Return a text, or None if the field is missing or null."""
        value = self._data.get(name)
        return None if value is None else self._checked(value, name)

    def optional_number(self, name: str) -> int | None:
        """Return a whole number, or None if the field is missing or null."""
        value = self._data.get(name)
        if value is not None and (isinstance(value, bool) or not isinstance(value, int)):
            raise self.place.error(f"{name}: expected a whole number, got {_kind(value)}")
        return value

    def texts(self, name: str, on_fault: OnFault) -> dict[int, str]:
        """Return the texts of a list by their numbers, none if it is missing; see `OnFault`."""
        found: dict[int, str] = {}
        for number, value in enumerate(self._list(name)):
            try:
                found[number] = self._checked(value, f"{name}[{number}]")
            except DataError as error:
                on_fault(error)
        return found

    def objects(self, name: str, on_fault: OnFault) -> dict[int, Fields]:
        """Return the objects of a required list by their numbers; see `OnFault`."""
        if name not in self._data:
            raise self.place.error(f"lacks the field {brief(name)}")
        prefix = f"{self.place.part}." if self.place.part else ""
        found: dict[int, Fields] = {}
        for number, value in enumerate(self._list(name)):
            try:
                place = self.place._replace(part=f"{prefix}{name}[{number}]")
                found[number] = Fields(value, place)
            except DataError as error:
                on_fault(error)
        return found

    @property
    def split(self) -> str | None:
        """The split, or None if there is none, or no text."""
        value = self._data.get(SPLIT)
        return value if isinstance(value, str) else None

    def mapping(self, name: str) -> dict[str, Any]:
        """Return an object, empty if the field is missing or null."""
        value = self._data.get(name)
        if value is not None and not isinstance(value, dict):
            raise self.place.error(f"{name}: expected an object, got {_kind(value)}")
        return cast(dict[str, Any], value or {})

    def __contains__(self, name: str) -> bool:
        return name in self._data

    def _list(self, name: str) -> list[object]:
        value = self._data.get(name)
        if value is not None and not isinstance(value, list):
            raise self.place.error(f"{name}: expected a list, got {_kind(value)}")
        return cast(list[object], value or [])

    def _checked(self, value: object, name: str) -> str:
        if not isinstance(value, str):
            raise self.place.error(f"{name}: expected a text, got {_kind(value)}")
        if not value.strip():
            raise self.place.error(f"{name}: is blank")
        if any("\ud800" <= character <= "\udfff" for character in value):
            # JSON can escape half of a surrogate pair; no tokenizer or database takes it.
            raise self.place.error(f"{name}: is not valid Unicode")
        return value


def _kind(value: object) -> str:
    return _KINDS[type(value)]


def download_failed(row: Mapping[str, Any]) -> bool:
    """Tell whether img2dataset could not download the photo of a row."""
    # Other programs have states of their own, such as "published".
    return str(row.get(STATUS)).startswith(FAILED)


class Row:
    """Checked access to a row; of several names for one column the first with a value counts."""

    def __init__(
        self,
        values: Mapping[str, Any],
        place: Place,
        *,
        ids: Sequence[str] = ID,
        captions: Sequence[str] = CAPTIONS,
    ) -> None:
        """Find the columns of the id and of the captions by their possible names."""
        self._values, self._place = values, place
        present = [name for name, value in values.items() if value is not None]
        self._id, self._captions = first_of(ids, present), first_of(captions, present)

    @property
    def id(self) -> str | None:
        """The id, or None if there is no such column."""
        return None if self._id is None else self._word(self._id)

    @property
    def captions(self) -> tuple[str, ...]:
        """Any number of captions: a text, or a list of texts, without blank ones."""
        if self._captions is None:
            return ()
        return _captions_of(self._values[self._captions], self._captions, self._place)

    @property
    def split(self) -> str | None:
        """The split, or None if there is no such column."""
        return None if self._values.get(SPLIT) is None else self._word(SPLIT)

    def metadata(self, photo_column: str | None = None) -> dict[str, Any]:
        """Return all other columns than those above and the photo's."""
        return metadata_of(self._values, [self._captions, self._id, photo_column, SPLIT])

    def _word(self, name: str) -> str:
        """Return an id or a split; in tables it may also be a number."""
        value = self._values[name]
        if isinstance(value, bool) or not isinstance(value, str | int):
            raise self._place.error(f"{name}: expected a text, got {type(value).__name__}")
        if not str(value).strip():
            raise self._place.error(f"{name}: is blank")
        return str(value)


def _captions_of(value: object, name: str, place: Place) -> tuple[str, ...]:
    values = cast(list[object], value) if isinstance(value, list) else [value]
    captions: list[str] = []
    for caption in values:
        if not isinstance(caption, str):
            kind = type(caption).__name__
            raise place.error(f"{name}: expected a text or a list of texts, got {kind}")
        captions.append(caption.strip())
    return tuple(caption for caption in captions if caption)
