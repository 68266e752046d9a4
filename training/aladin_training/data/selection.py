"""Photos of the training split that are kept apart to choose weights, fusion and rates on.

What is chosen on a split looks better there than on unseen photos. With a selection split, the
validation split only reports.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, TypeVar

from aladin_network.errors import InputError
from aladin_training.data import Record, read_records

# Name of the split in commands, of a checkpoint whose recipe keeps photos apart.
SELECTION = "selection"


class _Identified(Protocol):
    @property
    def id(self) -> str: ...


R = TypeVar("R", bound=_Identified)


@dataclass(frozen=True)
class SelectionSplit:
    """The selection split of a recipe: a share of the training split, or of all photos if None."""

    train_split: str | None
    share: float

    def holds(self, photo_id: str) -> bool:
        """Tell by a digest of its id, which no other photo changes, if a photo is kept apart."""
        digest = hashlib.sha256(photo_id.encode("utf-8", "surrogatepass")).digest()
        return int.from_bytes(digest[:8], "big") < self.share * 2**64

    def divide(self, records: Iterable[R]) -> tuple[list[R], list[R]]:
        """Divide the records of the training split into those to train on and those kept apart."""
        trained: list[R] = []
        kept: list[R] = []
        for record in records:
            (kept if self.holds(record.id) else trained).append(record)
        return trained, kept


def selection_of(recipe: str) -> SelectionSplit | None:
    """Return the selection split of `Provenance.recipe`, which may be no JSON, or None."""
    try:
        data = json.loads(recipe)["data"]
    except (ValueError, KeyError, TypeError):
        return None
    share = data.get("selection", 0)
    return SelectionSplit(data["train_split"], share) if share else None


def read_split(
    source: Path,
    split: str | None,
    recipe: str,
    *,
    require_captions: bool = True,
    require_photos: bool = True,
) -> list[Record]:
    """Read a split of a data set, which may be the selection split of a checkpoint's recipe.

    Raises:
        InputError: If the recipe's selection split holds none of the photos.
        DataError: If the data set cannot be used, or has no such split.
    """
    selection = selection_of(recipe) if split == SELECTION else None
    records = read_records(
        source,
        split if selection is None else selection.train_split,
        require_captions=require_captions,
        require_photos=require_photos,
    )
    if selection is None:
        return records
    _, kept = selection.divide(records)
    if not kept:
        raise InputError(f"{source}: the recipe's selection split holds none of its photos")
    return kept


def read_trained(
    source: Path, split: str | None, recipe: str, *, require_photos: bool = True
) -> list[Record]:
    """Read a split without the photos that a checkpoint's recipe kept apart from training."""
    records = read_records(source, split, require_photos=require_photos)
    selection = selection_of(recipe)
    if selection is None or selection.train_split != split:
        return records
    return selection.divide(records)[0]
