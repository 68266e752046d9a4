"""Picture files of requests, which are read while they are sent.

They are not loaded into memory as a whole unless they already were.
"""

from __future__ import annotations

import base64
import io
import json
import os
from collections.abc import Generator, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

from aladin_index.search.request import PictureSource
from aladin_service.client.connection import Again

# A multiple of 3, which base64 encodes without padding, so that chunks can be concatenated.
_CHUNK_BYTES = 3 * 2**14


@contextmanager
def open_picture(source: PictureSource) -> Generator[BinaryIO]:
    """Open a picture for one request; a file that the caller opened stays open."""
    if isinstance(source, bytes):
        yield io.BytesIO(source)
    elif isinstance(source, (str, os.PathLike)):
        with Path(source).open("rb") as file:
            yield file
    else:
        if source.seekable():
            source.seek(0)
        yield source


def can_be_sent_again(source: PictureSource) -> bool:
    """Return whether a picture can be read more than once."""
    return isinstance(source, (bytes, str, os.PathLike)) or source.seekable()


def again_with(files: Iterable[PictureSource]) -> Again:
    """Return when a harmless request may be sent again: never if it has a file that cannot."""
    return "always" if all(map(can_be_sent_again, files)) else "never"


def given_files(
    image: PictureSource | None, regions: PictureSource | None
) -> dict[str, PictureSource]:
    """Return the files of a query or an item that are given, by field."""
    files = {"image": image, "regions": regions}
    return {name: source for name, source in files.items() if source is not None}


def picture_name(source: PictureSource) -> str:
    """Return the file's name, for the form; it does not affect the answer."""
    return Path(source).name if isinstance(source, (str, os.PathLike)) else "image"


def picture_bytes(source: PictureSource) -> int | None:
    """Return the size of a picture without reading it, or None if that is impossible."""
    if isinstance(source, bytes):
        return len(source)
    if isinstance(source, (str, os.PathLike)):
        return Path(source).stat().st_size
    return source.seek(0, io.SEEK_END) if source.seekable() else None


def base64_chunks(source: PictureSource) -> Iterator[bytes]:
    """Read a picture in chunks, as base64."""
    with open_picture(source) as file:
        rest = b""
        while chunk := file.read(_CHUNK_BYTES):
            whole = rest + chunk
            end = len(whole) - len(whole) % 3  # a pipe gives what it has, of any length
            rest = whole[end:]
            yield base64.b64encode(whole[:end])
        yield base64.b64encode(rest)


def json_list_chunks(
    name: str, entries: Iterable[tuple[Mapping[str, Any], Mapping[str, PictureSource]]]
) -> Iterator[bytes]:
    """Write a JSON object with one list, whose entries may have files, in chunks."""
    yield b'{"' + name.encode() + b'":['
    for place, (fields, files) in enumerate(entries):
        written = json.dumps(fields).encode()
        yield b"," + written[:-1] if place else written[:-1]
        for field_name, source in files.items():
            yield b',"' + field_name.encode() + b'":"'
            yield from base64_chunks(source)
            yield b'"'
        yield b"}"
    yield b"]}"
