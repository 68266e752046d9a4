"""Names of data sets that the library `datasets` opens.

A source is a folder of ``save_to_disk``, or ``datasets:NAME`` with the name of a data set on the
hub, which ``load_dataset`` downloads once and takes from its cache from then on, also offline.
Options follow after commas: ``datasets:NAME,config=CONFIG,image=COLUMN,captions=COLUMN+COLUMN``.
With ``streaming=true`` only the selected rows are fetched, see `streamed`:
``datasets:NAME,streaming=true,split=train,rows=10000``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from aladin_network.errors import DataError

PREFIX = "datasets:"
OPTIONS = ("config", "revision", "image", "captions", "id", "streaming", "split", "rows")
# Options of a streamed data set only.
_OF_STREAM = ("split", "rows")
# As the library requires it.
_SPLIT = re.compile(r"\w+(\.\w+)*")
# Files of `save_to_disk`: of a data set with splits, and of one without.
_SPLITS, _STATE, _INFO = "dataset_dict.json", "state.json", "dataset_info.json"
_OPTION = re.compile(rf",({'|'.join(OPTIONS)})=([^,]*)$")


class DatasetName(NamedTuple):
    """A source as given.

    Attributes:
        name: Folder of ``save_to_disk``, or name on the hub.
        options: Values of the options that were given, by name.
    """

    name: str
    options: Mapping[str, str]

    @property
    def is_streamed(self) -> bool:
        """Whether only the selected rows are fetched."""
        return self.options.get("streaming") == "true"


def is_dataset(source: Path) -> bool:
    """Tell whether a source is to be opened by `datasets`."""
    return str(source).startswith(PREFIX) or is_saved(source)


def is_saved(folder: Path) -> bool:
    """Tell whether a folder was written by ``save_to_disk``."""
    if (folder / _SPLITS).is_file():
        return True
    return (folder / _STATE).is_file() and (folder / _INFO).is_file()


def parse_name(source: Path) -> DatasetName:
    """Separate the name of a source from its options.

    Raises:
        DataError: If the name is missing, or an option is empty, given twice or impossible.
    """
    name = str(source)
    if not name.startswith(PREFIX):
        return DatasetName(name, {})
    name = name.removeprefix(PREFIX)
    options: dict[str, str] = {}
    while (found := _OPTION.search(name)) is not None:
        option, value = found.groups()
        if not value or option in options:
            fault = "is given twice" if value else "has no value"
            raise DataError(source, None, f"the option {option!r} {fault}")
        options[option] = value
        name = name[: found.start()]
    if not name or "=" in name.rpartition(",")[2]:
        raise DataError(
            source,
            None,
            f"expected {PREFIX}NAME, and after commas any of "
            f"{', '.join(f'{option}=' for option in OPTIONS)}",
        )
    parsed = DatasetName(name, options)
    _check(source, parsed)
    return parsed


def _check(source: Path, name: DatasetName) -> None:
    options = name.options
    if options.get("streaming", "true") not in ("true", "false"):
        reason = f"streaming: expected true or false, got {options['streaming']!r}"
        raise DataError(source, None, reason)
    unused = [option for option in _OF_STREAM if option in options]
    if unused and not name.is_streamed:
        raise DataError(source, None, f"{unused[0]}= needs streaming=true")
    if not _SPLIT.fullmatch(options.get("split", "all")):
        reason = f"split: expected the name of one split, got {options['split']!r}"
        raise DataError(source, None, reason)
    rows = options.get("rows", "1")
    if not (rows.isascii() and rows.isdigit() and int(rows) > 0):
        raise DataError(source, None, f"rows: expected a number of at least 1, got {rows!r}")


def first_line(error: Exception) -> str:
    """Return the first line of the message of an error of the library, or the error's type."""
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__
