"""Run a detector once over a data set and store the regions of its photos in a folder."""

from __future__ import annotations

import json
import logging
from collections.abc import Generator, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple
from urllib.parse import quote

from PIL import Image

from aladin_network.detectors.base import Detector, detect_all
from aladin_network.errors import ConfigError, DataError, ImageError, InputError, brief
from aladin_network.files import atomic_file, write_json
from aladin_network.photos.decoding import read_image
from aladin_network.photos.region_files import write_region_npz
from aladin_network.photos.regions import RegionSet
from aladin_network.types import NullProgress, Progress
from aladin_training.data.records import Record
from aladin_training.parallel.threads import prefetch

_LOG = logging.getLogger(__name__)

MADE_BY = "detector.json"
_AHEAD = 2


class ExtractionReport(NamedTuple):
    """Photos detected now, those that had regions, and the ids skipped, with reasons."""

    written: int
    kept: int
    skipped: tuple[tuple[str, str], ...]


class _Read(NamedTuple):
    record: Record
    photo: Image.Image | InputError


def extract_regions(
    records: Iterable[Record],
    detector: Detector,
    out: Path,
    *,
    batch_size: int = 8,
    readers: int = 1,
    progress: Progress | None = None,
) -> ExtractionReport:
    """Write the regions of each photo into a file of its own, which `open_regions` reads.

    An extraction may be killed at any moment and run again: each file is written atomically, and a
    photo that has one is not read. A damaged or missing photo is skipped with a warning.
    """
    progress = progress or NullProgress()
    _claim(out, detector)
    kept = written = 0
    skipped: list[tuple[str, str]] = []
    wanted: list[Record] = []
    seen: set[str] = set()
    for record in records:
        if record.id in seen:
            raise DataError(out, None, f"two photos have the id {brief(record.id)}")
        seen.add(record.id)
        if region_file(out, record.id).exists():
            kept += 1
        else:
            wanted.append(record)
    progress.start(len(wanted), "photos")
    for batch in prefetch(_read_batches(wanted, batch_size, readers), _AHEAD):
        for record, found in _detected(detector, batch):
            if isinstance(found, RegionSet):
                with atomic_file(region_file(out, record.id)) as partial:
                    write_region_npz(partial, found)
                written += 1
            else:
                _LOG.warning("skipped %s: %s", record.id, found)
                skipped.append((record.id, str(found)))
        progress.advance(len(batch))
    return ExtractionReport(written, kept, tuple(skipped))


def region_file(out: Path, photo_id: str) -> Path:
    """Return the file of a photo's regions, directly in the folder even if the id is a path."""
    name = quote(photo_id, safe=" ")
    if name.startswith("."):  # a leading dot marks hidden and unfinished files
        name = "%2E" + name[1:]
    return out / f"{name}.npz"


def _claim(out: Path, detector: Detector) -> None:
    """Record whose regions a folder holds, or refuse to mix them with another detector's."""
    note = out / MADE_BY
    try:
        made_by = json.loads(note.read_text(encoding="utf-8"))["detector"]
    except FileNotFoundError:
        if next(out.glob("*.np[yz]"), None) is not None:
            raise ConfigError(f"{out}: holds regions of an unknown detector") from None
        write_json(note, {"detector": detector.id})
        return
    except (ValueError, KeyError, TypeError) as error:
        raise ConfigError(f"{note}: cannot be read ({error})") from error
    if made_by != detector.id:
        raise ConfigError(f"{out}: holds regions of {made_by}, this detector is {detector.id}")


def _read_batches(
    records: Sequence[Record], batch_size: int, readers: int
) -> Generator[list[_Read]]:
    with ThreadPoolExecutor(readers, thread_name_prefix="reader") as pool:
        for start in range(0, len(records), batch_size):
            yield list(pool.map(_read, records[start : start + batch_size]))


def _read(record: Record) -> _Read:
    try:
        return _Read(record, read_image(record.photo))
    except ImageError as error:
        return _Read(record, error)


def _detected(
    detector: Detector, batch: list[_Read]
) -> Iterator[tuple[Record, RegionSet | InputError]]:
    """Yield each photo's regions, or the reason why it has none."""
    photos = {place: read.photo for place, read in enumerate(batch)}
    good = {place: each for place, each in photos.items() if isinstance(each, Image.Image)}
    found: dict[int, RegionSet | InputError]
    try:
        found = dict(zip(good, detect_all(detector, list(good.values())), strict=True))
    except InputError:  # one photo failed: run each by itself, so that the others succeed
        found = {place: _detected_alone(detector, photo) for place, photo in good.items()}
    for place, read in enumerate(batch):
        yield read.record, read.photo if isinstance(read.photo, InputError) else found[place]


def _detected_alone(detector: Detector, photo: Image.Image) -> RegionSet | InputError:
    try:
        return detector.detect(photo)
    except InputError as error:
        return error
