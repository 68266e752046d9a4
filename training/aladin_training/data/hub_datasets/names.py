"""Names of data sets that the library `datasets` opens.

A source is a folder of ``save_to_disk``, or ``datasets:NAME`` with the name of a data set on the
hub, which ``load_dataset`` downloads once and takes from its cache from then on, also offline.
Options follow after commas: ``datasets:NAME,config=CONFIG,image=COLUMN,captions=COLUMN+COLUMN``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from aladin_network.errors import DataError

PREFIX = "datasets:"
OPTIONS = ("config", "revision", "image", "captions", "id")
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
        DataError: If the name is missing, or an option is empty or given twice.
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
    return DatasetName(name, options)
