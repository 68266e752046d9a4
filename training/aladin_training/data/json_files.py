"""JSON files of photos: JSON lines, and Karpathy's JSON of Flickr8k, Flickr30K and COCO.

JSON lines are the project's own format, one photo on each line:

{"image": "path relative to the file", "captions": ["..."], "split": "train",
 "id": "optional", "metadata": {}}

Karpathy's JSON holds all photos in one object.
"""

from __future__ import annotations

import codecs
import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

from aladin_network.errors import DataError
from aladin_network.photos.files import PhotoFile
from aladin_training.data.fields import Fields, Place, parse_json, readable
from aladin_training.data.records import (
    LocatedRecord,
    OnSkip,
    Record,
    Source,
    log_skipped,
    unusable,
)

_KNOWN = frozenset({"image", "captions", "split", "id", "metadata"})

# Photos of COCO's official validation set that Karpathy uses for training.
_JOINED = {"restval": "train"}
# COCO's own number of a photo, which names its regions in other files.
_COCO_ID = "cocoid"


def read_jsonl(source: Source) -> Iterator[LocatedRecord]:
    """Read the photos of a JSONL file; lines and captions that cannot be used are skipped."""
    folder = source.path.absolute().parent
    for line in read_lines(source.path, _KNOWN, source.on_skip):
        try:
            yield LocatedRecord(line.place, _photo_of_line(line, folder, source.on_skip))
        except DataError as error:
            source.on_skip(unusable(error, line.split))


def _photo_of_line(line: Fields, folder: Path, on_skip: OnSkip) -> Record:
    uri, split = line.text("image"), line.optional_text("split")
    return captioned(
        Record(
            id=line.optional_text("id") or uri,
            photo=PhotoFile(folder / uri),
            uri=uri,
            captions=(),
            split=split,
            metadata=line.mapping("metadata"),
        ),
        line.texts("captions", lambda error: on_skip(unusable(error, split, is_part=True))),
    )


def captioned(record: Record, captions: Mapping[int, str]) -> Record:
    """Add captions to a photo; if some were skipped, the ids of the others stay what they were."""
    ids: tuple[str, ...] = ()
    if list(captions) != list(range(len(captions))):
        ids = tuple(f"{record.id}#{number}" for number in captions)
    return replace(record, captions=tuple(captions.values()), text_ids=ids)


def read_lines(
    file: Path, known: frozenset[str] | None, on_skip: OnSkip = log_skipped
) -> Iterator[Fields]:
    """Parse a JSONL file in UTF-8; blank lines and those that are no such object are skipped."""
    # As bytes, so that the number of a line that is not UTF-8 is known.
    with readable(file), file.open("rb") as lines:
        for number, raw in enumerate(lines, start=1):
            if number == 1:
                raw = raw.removeprefix(codecs.BOM_UTF8)
            if raw.strip():
                place = Place(file, number)
                try:
                    fields = Fields(parse_json(raw, place), place, known)
                except DataError as error:
                    on_skip(unusable(error))
                    continue
                yield fields


def read_karpathy(source: Source) -> Iterator[LocatedRecord]:
    """Read the photos of a Karpathy JSON; "restval" joins "train".

    Without a folder of photos, they are in ``images/`` beside the file if it exists, or beside it.
    """
    beside, on_skip = source.path.absolute().parent, source.on_skip
    images = source.images
    if images is None:
        images = beside / "images" if (beside / "images").is_dir() else beside
    listed = _load(source.path).objects("images", lambda error: on_skip(unusable(error)))
    for photo in listed.values():
        try:
            yield LocatedRecord(photo.place, _photo_of_karpathy(photo, images, on_skip))
        except DataError as error:
            on_skip(unusable(error, _JOINED.get(photo.split or "", photo.split)))


def _photo_of_karpathy(photo: Fields, images: Path, on_skip: OnSkip) -> Record:
    # COCO's photos are in subfolders named by `filepath`; the others have none.
    subfolder = photo.optional_text("filepath")
    filename = photo.text("filename")
    uri = f"{subfolder}/{filename}" if subfolder else filename
    split = photo.text("split")
    split = _JOINED.get(split, split)
    coco_id = photo.optional_number(_COCO_ID)
    captions: dict[int, str] = {}

    def skip(error: DataError) -> None:
        on_skip(unusable(error, split, is_part=True))

    for number, sentence in photo.objects("sentences", skip).items():
        try:
            captions[number] = sentence.text("raw")
        except DataError as error:
            skip(error)
    return captioned(
        Record(
            id=uri,
            photo=PhotoFile(images.absolute() / uri),
            uri=uri,
            captions=(),
            split=split,
            metadata={} if coco_id is None else {_COCO_ID: coco_id},
        ),
        captions,
    )


def _load(file: Path) -> Fields:
    try:
        with readable(file):
            data: object = json.loads(file.read_bytes())
    except json.JSONDecodeError as error:
        hint = "; give JSON lines the suffix .jsonl" if error.msg == "Extra data" else ""
        raise DataError(file, error.lineno, f"not JSON ({error}){hint}") from None
    except (ValueError, RecursionError) as error:
        raise DataError(file, None, f"not JSON ({error})") from None
    return Fields(data, Place(file))
