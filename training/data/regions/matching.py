"""Which regions belong to which photo of a data set."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import PurePosixPath

from aladin.errors import RegionError
from training.data.records import Record
from training.data.regions.store import RegionStore

_NUMBER_AT_THE_END = re.compile(r"(\d+)$")
_SHOWN = 3


def region_key(record: Record, store: RegionStore) -> str:
    """Return the key of a photo's regions.

    Args:
        record: the photo.
        store: the regions.

    Returns:
        The first of these that the store knows: the ``cocoid`` of the metadata, the id, the uri,
        the file's name without its suffix, and the number that it ends in, with and without
        leading zeros: ``COCO_val2014_000000391895.jpg`` is 391895.

    Raises:
        RegionError: the store knows none of them.
    """
    key = _find(record, store)
    if key is None:
        raise _missing([record], 1, store)
    return key


def region_keys(records: Iterable[Record], store: RegionStore) -> list[str]:
    """Return the keys of all photos' regions; see `region_key`.

    Raises:
        RegionError: photos have no regions; says how many, and names the first.
    """
    keys: list[str] = []
    missing: list[Record] = []
    count = 0
    for record in records:
        count += 1
        key = _find(record, store)
        if key is None:
            missing.append(record)
        else:
            keys.append(key)
    if missing:
        raise _missing(missing, count, store)
    return keys


def _find(record: Record, store: RegionStore) -> str | None:
    return next((name for name in _names(record) if name in store), None)


def _names(record: Record) -> Iterator[str]:
    """Yield the names by which a photo's regions may be known, the surest first."""
    cocoid = record.metadata.get("cocoid")
    if cocoid is not None:
        yield str(cocoid)
    yield record.id
    yield record.uri
    stem = PurePosixPath(record.uri).stem
    yield stem
    number = _NUMBER_AT_THE_END.search(stem)
    if number is not None:
        yield number[1]
        yield str(int(number[1]))


def _missing(missing: list[Record], count: int, store: RegionStore) -> RegionError:
    photos = ", ".join(repr(record.id) for record in missing[:_SHOWN])
    more = ", ..." if len(missing) > _SHOWN else ""
    tried = ", ".join(repr(name) for name in dict.fromkeys(_names(missing[0])))
    known = ", ".join(repr(key) for key in islice(store.keys(), _SHOWN))
    return RegionError(
        f"{store.path}: {len(missing)} of {count} photos have no regions: {photos}{more}; looked "
        f"for {tried} among {len(store)} photos such as {known}"
    )
