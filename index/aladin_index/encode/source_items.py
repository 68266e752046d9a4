"""Items of a source: photos and texts with the user's ids, read for a build or an addition.

If a photos root is given, photos outside of it are skipped.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePosixPath
from types import MappingProxyType
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from aladin_index.format.skipped import SkippedItem
from aladin_index.items.tables import StoredItem, pack_boxes
from aladin_index.items.uploaded_photos import UploadedPhoto
from aladin_index.settings import (
    DEFAULT_METADATA_LIMITS,
    EncodeSettings,
    MetadataLimits,
    check_metadata,
)
from aladin_network.errors import InputError, brief
from aladin_network.photos.dates import moment_of_file, moment_of_name
from aladin_network.photos.fields import Details, Value, date_details, over
from aladin_network.photos.files import (
    CONTROL_CHARACTER,
    ListedPhotos,
    PhotoFile,
    PhotosRoot,
    printable,
)
from aladin_network.types import (
    MAX_CAPTION_CHARS,
    MAX_NAME_CHARS,
    MAX_STORED_BYTES,
    Target,
    TextItem,
)

# Contents of uploads and states of files, which are in no list of a build's items, and the path,
# written by itself.
_NOT_LISTED = frozenset({"path", "upload", "region_file", "file_state"})

_EXAMPLES = 3
OUTSIDE = "the photo's file lies outside of the folder to which photos are restricted"
LINKED_OUTSIDE = "a link to a file outside of the followed folders, which is not followed"


@dataclass(frozen=True, kw_only=True)
class ImageItem:
    """A photo to be indexed.

    Attributes:
        id: ID assigned by the user, unique among the images.
        uri: Name that is shown for the photo.
        path: Absolute path of the photo's file, never shown to clients; not used for uploads.
        text: Caption that is shown with the photo; not used by the search.
        metadata: JSON values by field name; scalars and lists of scalars can be filtered by.
        offset: Offset of the photo in a file that contains several, such as a tar.
        length: Length of the photo in that file, in bytes, or None if the file is the photo.
        regions_key: Key of the photo's regions, for a network that reads regions, which then needs
            no photo.
        upload: Bytes of an uploaded photo, which the index keeps, or None.
        region_file: Uploaded npz file of the photo's regions, untrusted, or None.
        file_state: Result of `file_state` for the photo's own file before it was read, or None if
            it is not recorded.
        of_folder: Whether a folder of photos gives its id, text and metadata, so that a later pass
            over the folder compares them.
    """

    id: str
    uri: str
    path: Path = Path()
    text: str | None = None
    metadata: Mapping[str, Any] = field(default_factory=dict[str, Any])
    offset: int = 0
    length: int | None = None
    regions_key: str | None = None
    upload: UploadedPhoto | None = None
    region_file: bytes | None = None
    file_state: str | None = None
    of_folder: bool = False

    @property
    def photo(self) -> PhotoFile:
        """Location of the photo's bytes."""
        return PhotoFile(self.path, self.offset, self.length)

    @property
    def has_own_file(self) -> bool:
        """Whether the photo is a file of its own on this machine."""
        return self.length is None and self.upload is None and self.region_file is None


SourceItem = ImageItem | TextItem


class Prepared(NamedTuple):
    """An item that is ready for the network.

    Attributes:
        value: Input of the encoder's `encode`; None once the item is encoded.
        size_px: Width and height of the photo; None for a text, or if unknown.
        boxes: (regions, 4) boxes of the regions that the network takes, in fractions of the photo,
            or None if unknown or if the encoder derives them from the photo's size.
        metadata: What the photo or the text itself tells, see `aladin_network.photos.fields`.
        fingerprint: What copies of the photo are known by, or None as `StoredItem` has it.
    """

    value: Any
    size_px: tuple[int, int] | None
    boxes: NDArray[np.float32] | None = None
    metadata: Mapping[str, Value] = MappingProxyType({})
    fingerprint: str | None = None


def place_of(item: SourceItem, row: int) -> str:
    """Name an item in a message by its place in the source and its photo."""
    return f"item {row + 1}" + (f" ({brief(item.uri)})" if isinstance(item, ImageItem) else "")


def cut_text(text: str, target: Target) -> tuple[str, str | None]:
    """Cut a text to what is stored and returned with each hit.

    Args:
        text: A photo's caption, or a text that is searched.
        target: Kind of the item.

    Returns:
        The beginning of the text, and what became of a longer one, or None.
    """
    most = MAX_CAPTION_CHARS if target == "images" else MAX_STORED_BYTES
    if len(text) <= most:
        return text, None
    return text[:most], f"the first {most} of its text's {len(text)} characters are kept"


def file_state(path: Path) -> str | None:
    """Return the length of a file in bytes and the time of its last change in nanoseconds.

    Both numbers have a space between them; None if there is no file that can be looked at.
    """
    try:
        state = path.stat()
    except OSError:
        return None
    return f"{state.st_size} {state.st_mtime_ns}"


def date_of_file(item: ImageItem) -> Details:
    """Return when a photo of a folder was taken by its name, else by the time of its file."""
    if not item.has_own_file:
        return {}
    moment = moment_of_name(PurePosixPath(item.uri).name)
    if moment is None:
        with suppress(OSError):
            moment = moment_of_file(item.path.stat().st_mtime_ns)
    return date_details(moment)


def with_file_state(item: SourceItem) -> SourceItem:
    """Return a photo with the state that its file has now; any other item as it is."""
    if not isinstance(item, ImageItem) or not item.has_own_file:
        return item
    return replace(item, file_state=file_state(item.path))


def details_of(item: ImageItem) -> str:
    """Return a digest of the id, text and metadata of a photo, as its folder gives them."""
    said = json.dumps([item.id, item.text, dict(item.metadata)], sort_keys=True)
    return hashlib.sha256(said.encode("utf-8", "surrogatepass")).hexdigest()[:16]


def check_item(
    item: SourceItem, target: Target, limits: MetadataLimits = DEFAULT_METADATA_LIMITS
) -> None:
    """Reject an item that cannot be stored, or that exceeds a limit."""
    check_id(item.id, target)
    try:
        check_metadata(item.metadata, limits)
    except InputError as error:
        raise InputError(f"{target}: item {brief(item.id)}: {error}") from None
    except (TypeError, ValueError) as error:
        raise _not_stored(item, target, error) from error
    try:
        item_json(item).encode("utf-8")
    except (TypeError, ValueError) as error:  # NaN, foreign objects, lone surrogates
        raise _not_stored(item, target, error) from error


def checked_items(
    items: Iterable[SourceItem | SkippedItem],
    target: Target,
    settings: EncodeSettings,
    fault_of: Callable[[SourceItem, int], str | None] = lambda item, row: None,  # noqa: ARG005
) -> Iterator[SourceItem | SkippedItem]:
    """Pass items on; those that no index could hold become skipped ones, or an error if strict.

    `fault_of` returns why an item that could be stored is of no use, or None, from the item and its
    number in the source from 0.
    """
    number = 0
    for item in items:
        if not isinstance(item, SkippedItem):
            reason = _fault(item, target, settings.metadata) or fault_of(item, number)
            number += 1
            if reason is not None:
                item = SkippedItem(printable(item.id) or f"item {number}", reason)
        if isinstance(item, SkippedItem) and settings.strict:
            raise item.refused()
        yield item


def _fault(item: SourceItem, target: Target, limits: MetadataLimits) -> str | None:
    try:
        check_item(item, target, limits)
    except InputError as error:
        return str(error)
    return None


def _not_stored(item: SourceItem, target: Target, error: Exception) -> InputError:
    return InputError(f"{target}: item {brief(item.id)} cannot be stored ({error})")


def check_id(item_id: str, target: Target) -> None:
    """Reject an id that could not be requested."""
    if not item_id:
        raise InputError(f"{target}: expected an id, got an empty text")
    if item_id in (".", ".."):
        raise InputError(f"{target}: expected an id that a URL can hold, got {brief(item_id)}")
    if len(item_id) > MAX_NAME_CHARS:
        raise InputError(
            f"{target}: expected an id of at most {MAX_NAME_CHARS} characters, got {len(item_id)}: "
            f"{brief(item_id)}"
        )
    if CONTROL_CHARACTER.search(item_id):
        raise InputError(
            f"{target}: expected an id without control characters, got {brief(item_id)}"
        )


def stored_form(item: SourceItem, prepared: Prepared) -> StoredItem:
    """Return an item in its stored form; its row is assigned later.

    The user's own metadata take precedence over those that the photo itself tells.
    """
    photo = item if isinstance(item, ImageItem) else None
    path = None
    if photo and photo.upload:
        path = photo.upload.path
    elif photo and photo.region_file is None:
        path = str(photo.path)
    state = photo.file_state if photo else None
    if photo is not None and photo.of_folder and state is not None:
        state = f"{state} {details_of(photo)}"
    width_px, height_px = prepared.size_px or (None, None)
    return StoredItem(
        row=-1,
        id=item.id,
        uri=photo.uri if photo else None,
        path=path,
        text=item.text,
        image_id=None if isinstance(item, ImageItem) else item.image_id,
        width_px=width_px,
        height_px=height_px,
        metadata=over(item.metadata, prepared.metadata),
        offset=photo.offset if photo else 0,
        length=photo.length if photo else None,
        boxes=None if prepared.boxes is None else pack_boxes(prepared.boxes),
        file_state=state,
        fingerprint=prepared.fingerprint,
    )


def item_json(item: SourceItem) -> str:
    """Return all data of an item as one line of JSON, identical at every call."""
    fields = {key: value for key, value in vars(item).items() if key not in _NOT_LISTED}
    if isinstance(item, ImageItem):
        fields["path"] = str(item.path)
        if item.regions_key is None:  # as before there were regions
            del fields["regions_key"]
    return json.dumps(
        fields | {"metadata": dict(item.metadata)},
        ensure_ascii=False,
        allow_nan=False,
        sort_keys=True,
    )


def item_from_json(line: str, target: Target) -> SourceItem:
    fields: dict[str, Any] = json.loads(line)
    if target == "texts":
        return TextItem(**fields)
    fields["path"] = Path(fields["path"])
    return ImageItem(**fields)


_Way = Literal["by an absolute path", "by '..'", "by a link"]


class PhotoPlaces:
    """Checks the location of each photo while its sources are read once."""

    def __init__(
        self, source: Path | Sequence[Path], root: Path | Sequence[Path] | None = None
    ) -> None:
        """Start with no photo checked.

        Photos outside of all `source` folders are counted if there is no `root`. A root of several
        folders are the followed ones, out of which no link may lead.
        """
        folders = [source] if isinstance(source, Path) else list(dict.fromkeys(source))
        self._outside = OUTSIDE if isinstance(root, Path) else LINKED_OUTSIDE
        self._has_root = root is not None
        self._source = " and ".join(map(str, folders))
        roots = folders if root is None else [root] if isinstance(root, Path) else root
        self._place = ListedPhotos(PhotosRoot(*roots))
        self._counts: dict[_Way, int] = {}
        self._examples: list[str] = []

    def fault(self, path: Path, uri: str) -> str | None:
        """Return why a photo is rejected, or None if it is accepted.

        Args:
            path: Absolute path of the photo's file.
            uri: Name of the photo in the source.

        Returns:
            The reason, without a path, or None if the photo is taken.
        """
        if self._place.holds(path):
            return None
        if self._has_root:
            return self._outside
        way = _way_out(uri)
        self._counts[way] = self._counts.get(way, 0) + 1
        if len(self._examples) < _EXAMPLES:
            self._examples.append(uri)
        return None

    @property
    def warning(self) -> str | None:
        """Warning about photos outside of the source, or None if there are none."""
        total = sum(self._counts.values())
        if total == 0:
            return None
        ways = ", ".join(f"{count} {way}" for way, count in self._counts.items())
        names = ", ".join(map(repr, self._examples)) + (", ..." if total > _EXAMPLES else "")
        return (
            f"photos outside of {self._source}: {total} ({ways}): {names}; whoever may search the "
            "index can see them; `aladin index build --photos-root DIR` takes only photos inside "
            "of DIR"
        )


def _way_out(uri: str) -> _Way:
    path = PurePosixPath(uri)
    if path.is_absolute():
        return "by an absolute path"
    return "by '..'" if ".." in path.parts else "by a link"
