"""Items that a build skipped: a list for each collection of a generation."""

from __future__ import annotations

import json
from pathlib import Path
from typing import NamedTuple

from aladin_index.format.layout import SKIPPED
from aladin_network.errors import IndexCorruptError, InputError


class SkippedItem(NamedTuple):
    """An item that cannot be used.

    Attributes:
        id: ID assigned by the user.
        reason: Reason in words.
    """

    id: str
    reason: str

    def refused(self) -> InputError:
        """Return the error where the first item that cannot be used ends a job."""
        return InputError(f"{self.id}: {self.reason}")


def read_skipped(folder: Path) -> list[SkippedItem]:
    """Read the skipped items of one collection, in the order of the input.

    Args:
        folder: Folder of the collection, in the folder of its generation.

    Raises:
        IndexCorruptError: If the list cannot be read.
    """
    path = folder / SKIPPED
    try:
        lines = json.loads(path.read_text(encoding="utf-8"))
        return [SkippedItem(str(item_id), str(reason)) for item_id, reason in lines]
    except OSError as error:
        raise IndexCorruptError(path, f"cannot be read ({error.strerror})") from error
    except (ValueError, TypeError, RecursionError) as error:
        raise IndexCorruptError(path, "not a list of ids and reasons") from error
