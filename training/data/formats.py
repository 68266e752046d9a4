"""Which reader takes which source."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from aladin.errors import DataError
from training.data.delimited import open_csv, open_tsv
from training.data.folder import read_folder
from training.data.jsonl import read_jsonl
from training.data.karpathy import read_karpathy
from training.data.parquet import open_parquet
from training.data.patterns import common_folder, expand
from training.data.precomp import is_precomp, read_precomp
from training.data.records import Entry
from training.data.skipped import OnSkip, log_skipped
from training.data.table import Table, table_entries
from training.data.webdataset import is_tar, read_tar

TABLES: Mapping[str, Callable[[Path], Table]] = {
    ".csv": open_csv,
    ".tsv": open_tsv,
    ".parquet": open_parquet,
}
KNOWN_FORMATS = (
    "a folder, .jsonl, Karpathy .json, .csv, .tsv, .parquet, a precomp folder of SCAN "
    "or webdataset .tar"
)


def read_entries(
    source: Path, images: Path | None = None, on_skip: OnSkip = log_skipped
) -> Iterator[Entry]:
    """Read the photos of any source.

    Args:
        source: a folder, a file, or a pattern of files, each read by its own suffix.
        images: folder of a Karpathy JSON's photos; None: beside the file.
        on_skip: called with each file of a folder, and each member of a tar, that looks like a
            photo and cannot be read.

    Raises:
        DataError: there is no such source, or its format is none that is known; while reading,
            a photo cannot be used.
    """
    if source.is_dir():
        return read_precomp(source) if is_precomp(source) else read_folder(source, on_skip)
    files = expand(source)
    for file in files:
        if file.suffix.lower() not in (".jsonl", ".json", *TABLES) and not is_tar(file):
            raise DataError(file, None, f"expected {KNOWN_FORMATS}")
    root = common_folder(source)
    return (entry for file in files for entry in _read_file(file, root, images, on_skip))


def _read_file(file: Path, root: Path, images: Path | None, on_skip: OnSkip) -> Iterator[Entry]:
    if is_tar(file):
        return read_tar(file, root, on_skip)
    suffix = file.suffix.lower()
    if suffix == ".jsonl":
        return read_jsonl(file)
    if suffix == ".json":
        return read_karpathy(file, images)
    return table_entries(TABLES[suffix](file))
