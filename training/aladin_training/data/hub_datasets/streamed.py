"""Data sets that are too large to download: their rows as `datasets` streams them, kept in files.

In streaming mode the library fetches only those parts of the remote files that the rows are in.
The rows are written to Arrow files as they arrive, with their photos, because an index and a
training run read photos again. Memory is bounded by the size of a file; an interrupted
download continues after its last file; what is complete is read without the network from then on.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import logging
from collections.abc import Callable, Generator, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa

from aladin_network.errors import DataError
from aladin_network.files import atomic_file, write_json
from aladin_training.data.hub_datasets.arrow_files import count_rows, read_schema
from aladin_training.data.hub_datasets.names import DatasetName, first_line

_LOG = logging.getLogger(__name__)

_FOLDER = "aladin-streamed"
_COMPLETE = "complete.json"
# Rows are fetched and written in batches; a file ends at either limit.
_BATCH_ROWS = 100
_FILE_ROWS = 10_000
_FILE_BYTES = 256 * 2**20


class StreamedSplit(NamedTuple):
    """The rows of one split.

    Attributes:
        files: Arrow files, in order.
        features: Features of `datasets` by column.
    """

    files: list[Path]
    features: Any


def streamed_splits(source: Path, name: DatasetName) -> dict[str, StreamedSplit]:
    """Stream the rows of a data set into files, unless they are there.

    Args:
        source: Source as given, for errors.
        name: Name with the option ``streaming``; ``split`` and ``rows`` select the rows.

    Returns:
        The splits by the library's names.

    Raises:
        DataError: If the rows cannot be streamed or written.
    """
    from datasets import Features, config

    folder = Path(config.HF_DATASETS_CACHE) / _FOLDER / _identity(name)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        # Another process may want the same rows; the system releases the lock of a killed one.
        with (folder / "lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not (folder / _COMPLETE).is_file():
                splits = _stream(name, folder)
                write_json(folder / _COMPLETE, {"source": str(source), "splits": splits})
    except DataError:
        raise
    except Exception as error:  # the library raises errors of many kinds, also its parts' own
        raise DataError(
            source, None, f"cannot be streamed by datasets ({first_line(error)})"
        ) from error
    found: dict[str, StreamedSplit] = {}
    for split in json.loads((folder / _COMPLETE).read_text(encoding="utf-8"))["splits"]:
        files = _files(folder / split)
        if files:
            found[split] = StreamedSplit(files, Features.from_arrow_schema(read_schema(files[0])))
    return found


def _identity(name: DatasetName) -> str:
    """Return a name for the rows that a source selects; a local folder is another one if changed.

    The columns are chosen when rows are read, so they make no difference.
    """
    selected = {each: name.options.get(each) for each in ("config", "revision", "split", "rows")}
    place = Path(name.name)
    files = sorted(each for each in place.rglob("*") if each.is_file()) if place.is_dir() else []
    states = [(str(each), each.stat().st_size, each.stat().st_mtime_ns) for each in files]
    text = json.dumps([name.name, selected, states])
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def _stream(name: DatasetName, folder: Path) -> list[str]:
    """Stream the missing rows of all selected splits; return the splits."""
    from datasets import load_dataset

    options = name.options
    load: Callable[..., Any] = load_dataset
    loaded = load(
        name.name,
        options.get("config"),
        revision=options.get("revision"),
        split=options.get("split"),
        streaming=True,
    )
    splits = {options["split"]: loaded} if "split" in options else dict(loaded)
    rows = int(options["rows"]) if "rows" in options else None
    for split, dataset in splits.items():
        _LOG.info("streaming split %r of %s", split, name.name)
        total = _stream_split(dataset, folder / str(split), rows)
        _LOG.info("streamed %d rows of split %r", total, split)
    return [str(split) for split in splits]


def _stream_split(dataset: Any, folder: Path, rows: int | None) -> int:
    """Append the missing rows of a split to its files; return the number of all."""
    folder.mkdir(exist_ok=True)
    total = sum(map(count_rows, _files(folder)))
    if total:
        dataset = dataset.skip(total)
    number = len(_files(folder))
    with closing(_batches(dataset, None if rows is None else rows - total)) as batches:
        while (first := next(batches, None)) is not None:
            total += _write(folder / f"{number:05d}.arrow", first, batches)
            number += 1
    return total


def _batches(dataset: Any, rows: int | None) -> Generator[Any]:
    """Yield the rows as tables of one schema, photos of the feature ``Image`` as bytes.

    Args:
        dataset: Iterable data set.
        rows: Maximum number of rows, or None for all. `IterableDataset.take` would read on into
            the next file before it ends.
    """
    from datasets.table import embed_table_storage

    schema = None if dataset.features is None else dataset.features.arrow_schema
    if rows == 0:
        return
    size = _BATCH_ROWS if rows is None else min(rows, _BATCH_ROWS)
    for table in dataset.with_format("arrow").iter(batch_size=size):
        # Some formats have no features before their first rows are read.
        schema = table.schema if schema is None else schema
        yield embed_table_storage(table[:rows].cast(schema))
        if rows is not None:
            rows -= min(rows, table.num_rows)
            if rows == 0:
                return


def _write(file: Path, first: Any, batches: Iterator[Any]) -> int:
    """Write the next rows to a file; return their number."""
    rows, size = 0, 0
    with (
        atomic_file(file) as partial,
        partial.open("wb") as sink,
        pa.ipc.new_stream(sink, first.schema) as writer,
    ):
        table = first
        while table is not None:
            writer.write_table(table)
            rows, size = rows + table.num_rows, size + table.nbytes
            if rows >= _FILE_ROWS or size >= _FILE_BYTES:
                break
            table = next(batches, None)
    return rows


def _files(folder: Path) -> list[Path]:
    return sorted(folder.glob("[0-9]*.arrow"))
