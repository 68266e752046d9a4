"""The Arrow files that a data set of `datasets` consists of."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

from aladin_network.errors import ConfigError, DataError
from aladin_training.data.hub_datasets.arrow_files import count_rows, read_schema
from aladin_training.data.hub_datasets.columns import Columns, choose_columns
from aladin_training.data.hub_datasets.names import DatasetName, is_saved, parse_name

# The hub's usual name of the split that is called "val" everywhere else.
_NAMES = {"validation": "val"}


@dataclass(frozen=True, kw_only=True)
class DatasetTable:
    """One Arrow file of a data set.

    Attributes:
        file: The file, whose photos are read in place.
        root: Folder that relative paths of photos refer to.
        split: Split of its rows, or None if the data set does not name it.
        first_row: Number of its first row in the split.
        columns: Columns of photos, captions and ids.
        labels: Names of the classes of each column that holds class numbers.
    """

    file: Path
    root: Path
    split: str | None
    first_row: int
    columns: Columns
    labels: Mapping[str, Sequence[str]] = field(default_factory=dict[str, Sequence[str]])


def dataset_folder(source: Path) -> Path:
    """Return the folder that contains a data set: the saved one, or that of the cached files.

    Raises:
        ConfigError: If `datasets` is not installed.
        DataError: If the data set cannot be opened.
    """
    name = parse_name(source).name
    return Path(name).absolute() if is_saved(Path(name)) else open_tables(source)[0].root


def open_tables(source: Path) -> list[DatasetTable]:
    """Open a data set, and choose its columns.

    Args:
        source: Folder, or ``datasets:NAME``.

    Returns:
        The Arrow files in order, split by split.

    Raises:
        ConfigError: If `datasets` is not installed.
        DataError: If the data set cannot be opened or has no column of photos or texts, or if its
            rows are not whole Arrow files.
    """
    name = parse_name(source)
    tables: list[DatasetTable] = []
    for split, dataset in _loaded(source, name).items():
        tables += _tables(source, name, split, dataset)
    if not tables:
        raise DataError(source, None, "holds no rows")
    return tables


def _loaded(source: Path, name: DatasetName) -> dict[str | None, Any]:
    """Return the data sets by split."""
    try:
        from datasets import Dataset, DatasetDict, load_dataset, load_from_disk
    except ImportError as error:
        raise ConfigError(
            "datasets: not installed; pip install 'aladin-search[datasets]'"
        ) from error
    load: Callable[[], Any]
    if Path(name.name).is_dir() and is_saved(Path(name.name)):
        unused = [option for option in ("config", "revision") if option in name.options]
        if unused:
            raise DataError(source, None, f"a saved folder has no {unused[0]}")
        load = lambda: load_from_disk(name.name)  # noqa: E731
    else:
        options = name.options
        load = lambda: load_dataset(  # noqa: E731
            name.name, options.get("config"), revision=options.get("revision")
        )
    try:
        loaded = load()
    except Exception as error:  # the library raises errors of many kinds, also its parts' own
        lines = str(error).strip().splitlines()
        reason = lines[0] if lines else type(error).__name__
        raise DataError(source, None, f"cannot be opened by datasets ({reason})") from error
    if isinstance(loaded, Dataset):
        split = None if loaded.split is None else str(loaded.split)
        return {None if split is None else _NAMES.get(split, split): loaded}
    if not isinstance(loaded, DatasetDict):
        raise DataError(source, None, f"expected tables, got {type(loaded).__name__}")
    return {_NAMES.get(str(split), str(split)): each for split, each in loaded.items()}


def _tables(
    source: Path, name: DatasetName, split: str | None, dataset: Any
) -> Iterator[DatasetTable]:
    files = [Path(str(each["filename"])).absolute() for each in dataset.cache_files]
    counts = [count_rows(file) for file in files]
    if sum(counts) != len(dataset):
        raise DataError(
            source,
            None,
            f"{len(dataset)} rows of split {split!r} are in memory, or selected from "
            f"{sum(counts)} rows on disk; save them with save_to_disk and name that folder",
        )
    saved = Path(name.name)
    row = 0
    for file, count in zip(files, counts, strict=True):
        if count:
            features = cast(Mapping[str, Any], dataset.features)
            yield DatasetTable(
                file=file,
                root=saved.absolute() if is_saved(saved) else file.parent,
                split=split,
                first_row=row,
                columns=choose_columns(source, read_schema(file), features, name.options),
                labels={
                    column: list(feature.names)
                    for column, feature in features.items()
                    if type(feature).__name__ == "ClassLabel"
                },
            )
        row += count
