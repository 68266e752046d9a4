"""A folder of photos, with captions in text files of the same name."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from aladin.errors import DataError
from training.data.fields import Place
from training.data.records import Record

PHOTO_SUFFIXES = frozenset(
    {".jpg", ".jpeg", ".png", ".webp", ".gif", ".bmp", ".tif", ".tiff", ".ppm"}
)
_SPLITS = frozenset({"train", "val", "test"})


def read_folder(folder: Path) -> Iterator[tuple[Place, Record]]:
    """Read all photos below a folder, sorted by path; hidden files are skipped.

    ``dog.txt`` beside ``dog.jpg`` holds its captions, one a line. Photos below the subfolders
    ``train``, ``val`` and ``test`` belong to these splits.

    Raises:
        DataError: a caption file is not UTF-8 text.
    """
    folder = folder.absolute()
    for path in sorted(folder.rglob("*")):
        relative = path.relative_to(folder)
        hidden = any(part.startswith(".") for part in relative.parts)
        if hidden or path.suffix.lower() not in PHOTO_SUFFIXES or not path.is_file():
            continue
        uri, top = relative.as_posix(), relative.parts[0]
        record = Record(
            id=uri,
            image=path,
            uri=uri,
            captions=_captions(path.with_suffix(".txt")),
            split=top if top in _SPLITS and len(relative.parts) > 1 else None,
        )
        yield Place(path), record


def _captions(file: Path) -> tuple[str, ...]:
    if not file.is_file():
        return ()
    try:
        lines = file.read_text(encoding="utf-8-sig").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(file, None, f"cannot be read as UTF-8 text ({error})") from error
    return tuple(line.strip() for line in lines if line.strip())
