"""Karpathy's JSON of Flickr8k, Flickr30K and COCO: all photos in one object."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

from aladin.errors import DataError
from aladin.photo_file import PhotoFile
from training.data.fields import Fields, Place
from training.data.records import Entry, Record

# COCO's photos of the official validation part that Karpathy trains on.
_JOINED = {"restval": "train"}
# COCO's own number of a photo, by which others name its regions.
_COCO_ID = "cocoid"


def read_karpathy(file: Path, images: Path | None = None) -> Iterator[Entry]:
    """Read the photos of a Karpathy JSON; its "restval" joins "train".

    Args:
        file: e.g. ``dataset_flickr8k.json``.
        images: folder of the photos; None: ``images/`` beside the file if it exists, else the
            file's own folder.

    Raises:
        DataError: the file is not JSON of this format.
    """
    beside = file.absolute().parent
    if images is None:
        images = beside / "images" if (beside / "images").is_dir() else beside
    for photo in _load(file).objects("images"):
        # COCO's photos lie in subfolders named by `filepath`; the others have none.
        subfolder = photo.optional_text("filepath")
        filename = photo.text("filename")
        uri = f"{subfolder}/{filename}" if subfolder else filename
        split = photo.text("split")
        coco_id = photo.optional_number(_COCO_ID)
        yield Entry(
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
