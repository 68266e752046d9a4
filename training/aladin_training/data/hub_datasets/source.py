"""The Arrow files that a data set of `datasets` consists of."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, cast

from aladin_network.errors import ConfigError, DataError
from aladin_training.data.hub_datasets.arrow_files import count_rows, read_schema
from aladin_training.data.hub_datasets.columns import Columns, choose_columns
from aladin_training.data.hub_datasets.names import (
    DatasetName,
    first_line,
    is_saved,
    parse_name,
)

# The hub's usual name of the split that is called "val" everywhere else.
_NAMES = {"validation": "val"}
# Options of names on the hub only.
_OF_NAMES = ("config", "revision", "streaming")


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
    for split, files, features in _splits(source, name):
        tables += _tables(source, name, split, files, features)
    if not tables:
        raise DataError(source, None, "holds no rows")
    return tables


def _splits(
    source: Path, name: DatasetName
) -> Iterator[tuple[str | None, Sequence[Path], Mapping[str, Any]]]:
    """Yield each split with its Arrow files and its features."""
    try:
        import datasets
    except ImportError as error:
        raise ConfigError(
            "datasets: not installed; pip install 'aladin-search[datasets]'"
        ) from error
    if is_saved(Path(name.name)):
        unused = [option for option in _OF_NAMES if option in name.options]
        if unused:
            raise DataError(source, None, f"a saved folder has no {unused[0]}")
        load = partial(datasets.load_from_disk, name.name)
    elif name.is_streamed:
        from aladin_training.data.hub_datasets.streamed import streamed_splits

        for split, streamed in streamed_splits(source, name).items():
            yield _NAMES.get(split, split), streamed.files, streamed.features
        return
    else:
        config, revision = map(name.options.get, ("config", "revision"))
        load = partial(datasets.load_dataset, name.name, config, revision=revision)
    for split, dataset in _loaded(source, load).items():
        files = _whole_files(source, split, dataset)
        yield split, files, cast(Mapping[str, Any], dataset.features)


def _loaded(source: Path, load: Callable[[], Any]) -> dict[str | None, Any]:
    """Return the data sets by split."""
    from datasets import Dataset, DatasetDict

    try:
        loaded = load()
    except Exception as error:  # the library raises errors of many kinds, also its parts' own
        raise DataError(source, None, f"cannot be opened by datasets ({first_line(error)})") from (
            error
        )
    if isinstance(loaded, Dataset):
        split = None if loaded.split is None else str(loaded.split)
        return {None if split is None else _NAMES.get(split, split): loaded}
    if not isinstance(loaded, DatasetDict):
        raise DataError(source, None, f"expected tables, got {type(loaded).__name__}")
    return {_NAMES.get(str(split), str(split)): each for split, each in loaded.items()}


def _whole_files(source: Path, split: str | None, dataset: Any) -> list[Path]:
    """Return the Arrow files of a data set that consists of all of their rows."""
    files = [Path(str(each["filename"])).absolute() for each in dataset.cache_files]
    on_disk = sum(map(count_rows, files))
    if on_disk != len(dataset):
        raise DataError(
            source,
            None,
            f"{len(dataset)} rows of split {split!r} are in memory, or selected from "
            f"{on_disk} rows on disk; save them with save_to_disk and name that folder",
        )
    return files


def _tables(
    source: Path,
    name: DatasetName,
    split: str | None,
    files: Sequence[Path],
    features: Mapping[str, Any],
) -> Iterator[DatasetTable]:
    saved = Path(name.name)
    row = 0
    for file in files:
        count = count_rows(file)
        if count:
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
