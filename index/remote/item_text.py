"""An item as the text that any engine can keep."""

from __future__ import annotations

import base64
import json
from typing import Any

from aladin.errors import IndexCorruptError
from index.items.tables import StoredItem


def item_text(item: StoredItem) -> str:
    """Return all of an item as JSON, without spaces; what is None is left out."""
    data: dict[str, Any] = {
        name: value for name, value in item._asdict().items() if value is not None
    }
    if item.boxes is not None:
        data["boxes"] = base64.b64encode(item.boxes).decode("ascii")
    return json.dumps(data, ensure_ascii=False, separators=(",", ":"))


def item_from_text(text: str) -> StoredItem:
    """Make the item of `item_text` again.

    Raises:
        IndexCorruptError: the text is not an item.
    """
    try:
        data: dict[str, Any] = dict.fromkeys(StoredItem._fields) | json.loads(text)
        if data["boxes"] is not None:
            data["boxes"] = base64.b64decode(data["boxes"], validate=True)
        return StoredItem(**data)
    except (ValueError, TypeError) as error:
        raise IndexCorruptError("item in the engine", f"not readable ({error})") from error
