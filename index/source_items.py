"""What a build is given: photos and texts with the user's own ids."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from aladin.photo_file import PhotoFile
from index.settings import Target


@dataclass(frozen=True, kw_only=True)
class ImageItem:
    """A photo to be indexed.

    Attributes:
        id: the user's own, unique among the images.
        path: absolute path of the photo's file; never shown to those who search.
        uri: what is shown in its place.
        text: a caption that is shown with the photo; it takes no part in the search.
        metadata: JSON values by field name; scalars and lists of scalars can be filtered by.
        offset: of the photo in a file that holds many, such as a tar.
        length: of the photo there, in bytes; None: the file is the photo.
    """

    id: str
    path: Path
    uri: str
    text: str | None = None
    metadata: Mapping[str, Any] = field(default_factory=dict[str, Any])
    offset: int = 0
    length: int | None = None

    @property
    def photo(self) -> PhotoFile:
        """Where the photo's bytes are."""
        return PhotoFile(self.path, self.offset, self.length)


@dataclass(frozen=True, kw_only=True)
class TextItem:
    """A text to be indexed.

    Attributes:
        id: the user's own, unique among the texts.
        text: the text itself.
        metadata: JSON values by field name; scalars and lists of scalars can be filtered by.
        image_id: the image that the text describes, if any.
    """

    id: str
    text: str
    metadata: Mapping[str, Any] = field(default_factory=dict[str, Any])
    image_id: str | None = None


SourceItem = ImageItem | TextItem


def item_json(item: SourceItem) -> str:
    """Return all that the user said of an item as one line of JSON, the same at every call."""
    fields = {key: value for key, value in vars(item).items() if key != "path"}
    if isinstance(item, ImageItem):
        fields["path"] = str(item.path)
    return json.dumps(
        fields | {"metadata": dict(item.metadata)},
        ensure_ascii=False,
        allow_nan=False,
        sort_keys=True,
    )


def item_from_json(line: str, target: Target) -> SourceItem:
    """Return the item that `item_json` wrote."""
    fields: dict[str, Any] = json.loads(line)
    if target == "texts":
        return TextItem(**fields)
    return ImageItem(**(fields | {"path": Path(fields["path"])}))
