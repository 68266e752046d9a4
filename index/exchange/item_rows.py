"""Items as rows of the metadata's parquet, and back."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from aladin.columns import CAPTIONS, PHOTO, first_of, metadata_of
from index.items.tables import StoredItem
from index.settings import Target

# Columns of an export, with the names of their Arrow types. The first two are clip-retrieval's;
# `file` is where a photo's bytes are, with `offset` and `length` where it lies in a larger file;
# `boxes` are those of its regions, in the form of `index.items.boxes`.
COLUMNS: dict[Target, dict[str, str]] = {
    "images": {
        "image_path": "string",
        "caption": "string",
        "id": "string",
        "file": "string",
        "offset": "int64",
        "length": "int64",
        "width_px": "int32",
        "height_px": "int32",
        "boxes": "binary",
        "metadata": "string",
    },
    "texts": {
        "image_id": "string",
        "caption": "string",
        "id": "string",
        "metadata": "string",
    },
}


def exported_row(item: StoredItem) -> dict[str, Any]:
    """Return all that is known of an item; the columns of its side are among it."""
    return {
        "image_path": item.uri,
        "caption": item.text,
        "id": item.id,
        "file": item.path,
        "image_id": item.image_id,
        "offset": item.offset,
        "length": item.length,
        "width_px": item.width_px,
        "height_px": item.height_px,
        "boxes": item.boxes,
        "metadata": json.dumps(item.metadata, ensure_ascii=False),
    }


def imported_item(row: Mapping[str, Any]) -> StoredItem:
    """Return the item of an export's row."""
    return StoredItem(
        row=0,  # rows are numbered as they are written
        id=row["id"],
        uri=row.get("image_path"),
        path=row.get("file"),
        text=row["caption"],
        image_id=row.get("image_id"),
        width_px=row.get("width_px"),
        height_px=row.get("height_px"),
        metadata=json.loads(row["metadata"]),
        offset=row.get("offset", 0),
        length=row.get("length"),
        boxes=row.get("boxes"),
    )


def foreign_item(row: Mapping[str, Any], number: int, target: Target) -> StoredItem:
    """Return the item of a row that clip-retrieval, or another program, wrote.

    Its id is the column ``id``, else the photo's path as written (``image_path``), else ``key``,
    else its number. A text whose row names a photo is a caption of it, with the photo's id and
    ``#0``. Columns without a meaning of their own are metadata. A photo is shown where its path
    is absolute: from which folder another is to be counted, is not known.

    Args:
        row: values by column.
        number: of the row in the whole folder, from 0 on.
        target: what the embeddings are of.
    """
    present = [name for name, value in row.items() if value not in (None, "")]
    photo, caption = first_of(PHOTO, present), first_of(CAPTIONS, present)
    named_by = first_of(("id", *PHOTO, "key"), present)
    item_id = str(number if named_by is None else row[named_by])
    uri = None if photo is None else str(row[photo])
    is_text = target == "texts"
    of_photo = is_text and photo is not None
    return StoredItem(
        row=0,
        id=f"{item_id}#0" if of_photo else item_id,
        uri=None if is_text else uri or item_id,
        path=uri if uri is not None and not is_text and Path(uri).is_absolute() else None,
        text=None if caption is None else str(row[caption]),
        image_id=item_id if of_photo else None,
        width_px=None,
        height_px=None,
        metadata=metadata_of(row, [photo, caption, named_by]),
    )
