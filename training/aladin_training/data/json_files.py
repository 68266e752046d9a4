"""JSON files of photos: JSON lines, and Karpathy's JSON of Flickr8k, Flickr30K and COCO.

JSON lines are the project's own format, one photo on each line:

{"image": "path relative to the file", "captions": ["..."], "split": "train",
 "id": "optional", "metadata": {}}

Karpathy's JSON holds all photos in one object.
"""

from __future__ import annotations

import codecs
import json
from collections.abc import Iterator
from pathlib import Path

from aladin_network.errors import DataError
from aladin_network.photos.files import PhotoFile
from aladin_training.data.fields import Fields, Place, parse_json
from aladin_training.data.records import LocatedRecord, Record

_KNOWN = frozenset({"image", "captions", "split", "id", "metadata"})

# Photos of COCO's official validation set that Karpathy uses for training.
_JOINED = {"restval": "train"}
# COCO's own number of a photo, which names its regions in other files.
_COCO_ID = "cocoid"


def read_jsonl(file: Path) -> Iterator[LocatedRecord]:
    """Read the photos of a JSONL file.

    Raises:
        DataError: If a line is not JSON, lacks a field, or has an unknown or ill-typed one.
    """
    folder = file.absolute().parent
    for line in read_lines(file, _KNOWN):
        uri = line.text("image")
        yield LocatedRecord(
            line.place,
            Record(
                id=line.optional_text("id") or uri,
                photo=PhotoFile(folder / uri),
                uri=uri,
                captions=line.texts("captions"),
                split=line.optional_text("split"),
                metadata=line.mapping("metadata"),
            ),
        )


def read_lines(file: Path, known: frozenset[str] | None) -> Iterator[Fields]:
    """Parse a JSONL file; blank lines are skipped.

    Args:
        file: File in UTF-8, with any line ends.
        known: Fields that a line may have, or None to permit any.

    Raises:
        DataError: If the file cannot be read, or a line is not a JSON object.
    """
    try:
        # As bytes, so that the number of a line that is not UTF-8 is known.
        with file.open("rb") as lines:
            for number, raw in enumerate(lines, start=1):
                if number == 1:
                    raw = raw.removeprefix(codecs.BOM_UTF8)
                if raw.strip():
                    place = Place(file, number)
                    yield Fields(parse_json(raw, place), place, known)
    except OSError as error:
        raise DataError(file, None, error.strerror or "cannot be read") from error


def read_karpathy(file: Path, images: Path | None = None) -> Iterator[LocatedRecord]:
    """Read the photos of a Karpathy JSON; its "restval" joins "train".

    Args:
        file: E.g. ``dataset_flickr8k.json``.
        images: Folder of the photos, or None for ``images/`` beside the file if it exists, and
            otherwise the file's own folder.

    Raises:
        DataError: If the file is not JSON of this format.
    """
    beside = file.absolute().parent
    if images is None:
        images = beside / "images" if (beside / "images").is_dir() else beside
    for photo in _load(file).objects("images"):
        # COCO's photos are in subfolders named by `filepath`; the others have none.
        subfolder = photo.optional_text("filepath")
        filename = photo.text("filename")
        uri = f"{subfolder}/{filename}" if subfolder else filename
        split = photo.text("split")
        coco_id = photo.optional_number(_COCO_ID)
        yield LocatedRecord(
            photo.place,
            Record(
                id=uri,
                photo=PhotoFile(images.absolute() / uri),
                uri=uri,
                captions=tuple(sentence.text("raw") for sentence in photo.objects("sentences")),
                split=_JOINED.get(split, split),
                metadata={} if coco_id is None else {_COCO_ID: coco_id},
            ),
        )


def _load(file: Path) -> Fields:
    try:
        data: object = json.loads(file.read_bytes())
    except OSError as error:
        raise DataError(file, None, error.strerror or "cannot be read") from error
    except json.JSONDecodeError as error:
        hint = "; give JSON lines the suffix .jsonl" if error.msg == "Extra data" else ""
        raise DataError(file, error.lineno, f"not JSON ({error}){hint}") from None
    except (ValueError, RecursionError) as error:
        raise DataError(file, None, f"not JSON ({error})") from None
    return Fields(data, Place(file))
