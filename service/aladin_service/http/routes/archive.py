"""Several photos in one zip, written while it is sent.

Photos are stored as they come, one after the other, so that a download of any size takes the memory
of one photo.
"""

from __future__ import annotations

import asyncio
import io
import time
import unicodedata
import zipfile
from collections.abc import AsyncGenerator, Generator, Sequence
from pathlib import PurePath
from typing import Annotated

from fastapi import Depends, Request
from fastapi.responses import Response, StreamingResponse
from pydantic import Field, StringConstraints, ValidationError

from aladin_index.search.request import MAX_ASKED_ID_CHARS
from aladin_network.errors import InputError, OverloadedError, UnknownItemError
from aladin_service.http.access.rate_limits import charge
from aladin_service.http.bodies import StrictBody, json_request_docs, need_json, read_json_object
from aladin_service.http.error_responses import error_docs, invalid_input
from aladin_service.http.router import ServiceRouter
from aladin_service.http.shared_state import Service, ServiceState, until_disconnect
from aladin_service.photos.photo_bytes import PhotoGoneError
from aladin_service.work.jobs import GetItem, PhotoFileRead, ReadPhotoFile

router = ServiceRouter(prefix="/v1")

MAX_PHOTOS = 500
# How often a photo is asked for again while too many others wait for theirs.
_MOST_TRIES = 30
# A client has the time of an answer for each.
_PART_BYTES = 2**20
_MISSING = "not in this zip.txt"
_ZIP_DOCS = {"content": {"application/zip": {"schema": {"type": "string", "format": "binary"}}}}
# The years that a zip can tell.
_FIRST, _LAST = (1980, 1, 1, 0, 0, 0), (2107, 12, 31, 23, 59, 58)


class WantedPhotos(StrictBody):
    """Photos of the index."""

    ids: list[Annotated[str, StringConstraints(max_length=MAX_ASKED_ID_CHARS)]] = Field(
        min_length=1,
        max_length=MAX_PHOTOS,
        description="Ids of the photos; one that is named twice is sent once.",
    )


async def read_wanted(request: Request, service: Service) -> list[str]:
    """Read the ids of a request, which costs as much as a request for each of them."""
    need_json(request)
    body = await read_json_object(request, service)
    given = body.fields.get("ids")
    count = len(given) if isinstance(given, list) else 1
    if count > MAX_PHOTOS:
        raise InputError(f"ids: expected at most {MAX_PHOTOS} photos in a zip, got {count}")
    try:
        ids = WantedPhotos.model_validate(body.fields, strict=True).ids
    except ValidationError as error:
        raise invalid_input(error) from None
    charge(request, count)
    return list(dict.fromkeys(ids))


@router.post(
    "/images.zip",
    tags=["items"],
    summary="Download photos as a zip",
    response_class=StreamingResponse,
    openapi_extra=json_request_docs(WantedPhotos.model_json_schema()),
    responses={200: _ZIP_DOCS, **error_docs(404, 408, 413, 415, 422, 429, 503)},
)
async def get_photos_zip(
    request: Request, ids: Annotated[list[str], Depends(read_wanted)], service: Service
) -> Response:
    """Return photos in one zip, by the names of their files; equal names are numbered.

    Whoever may add and delete items gets the files as they are, others what `GET /v1/images/{id}`
    returns: upright and without metadata. A photo that can no longer be read is named in a text in
    the zip.
    """
    await until_disconnect(request, _check_known(service, ids))
    headers = {"Content-Disposition": 'attachment; filename="photos.zip"'}
    parts = _zip_parts(service, ids, bare=not _may_write(request, service))
    return StreamingResponse(parts, media_type="application/zip", headers=headers)


async def _check_known(service: ServiceState, ids: Sequence[str]) -> None:
    for item_id in ids:
        await service.workers.call(GetItem("images", item_id))


def _may_write(request: Request, service: ServiceState) -> bool:
    key = request.state.key
    return "write" in (service.policy.anonymous if key is None else key.scopes)


async def _zip_parts(
    service: ServiceState, ids: Sequence[str], *, bare: bool
) -> AsyncGenerator[bytes]:
    written = ZipTail()
    missing: list[str] = []
    taken = {_MISSING}
    with zipfile.ZipFile(written, "w", zipfile.ZIP_STORED) as archive:
        for item_id in ids:
            try:
                photo = await _read(service, ReadPhotoFile(item_id, bare=bare))
            except (PhotoGoneError, UnknownItemError) as error:
                missing.append(f"{error}\n")
                continue
            entry = zipfile.ZipInfo(_free_name(photo.name, taken), _moment(photo.modified_s))
            entry.external_attr = 0o644 << 16
            await asyncio.to_thread(archive.writestr, entry, photo.data)
            for part in written.take():
                yield part
        if missing:
            archive.writestr(_MISSING, "".join(missing))
    for part in written.take():
        yield part


async def _read(service: ServiceState, job: ReadPhotoFile) -> PhotoFileRead:
    """Read a photo; while too many jobs wait, wait as well: half a zip is none."""
    for _ in range(_MOST_TRIES):
        try:
            return await service.workers.call(job)
        except OverloadedError as error:
            await asyncio.sleep(error.retry_after_s)
    return await service.workers.call(job)


def _free_name(name: str, taken: set[str]) -> str:
    """Return a name that no other file has, in folders without upper and lower case either."""
    path, made, number = PurePath(name), name, 1
    while (key := unicodedata.normalize("NFC", made).casefold()) in taken:
        number += 1
        made = f"{path.stem} ({number}){path.suffix}"
    taken.add(key)
    return made


def _moment(time_s: float) -> tuple[int, int, int, int, int, int]:
    year, month, day, hour, minute, second, *_ = time.localtime(time_s)
    return min(max((year, month, day, hour, minute, second), _FIRST), _LAST)


class ZipTail(io.BytesIO):
    """The end of a file whose beginning was sent; its places are those of the whole file.

    So the header of an entry is completed in place, and readers need not look for its end.
    """

    _start = 0

    def tell(self) -> int:
        return self._start + super().tell()

    def seek(self, offset: int, whence: int = io.SEEK_SET, /) -> int:
        start = self._start if whence == io.SEEK_SET else 0
        return self._start + super().seek(offset - start, whence)

    def take(self) -> Generator[bytes]:
        """Yield what was not sent yet in parts, and keep none of it."""
        super().seek(0)
        while part := self.read(_PART_BYTES):
            self._start += len(part)
            yield part
        super().seek(0)
        self.truncate()
